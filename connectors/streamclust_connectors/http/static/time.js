// Which part of the history is shown: all of it, the latest minutes, or as many minutes before.

let span = 0; // seconds; 0 for everything
let end = null; // seconds since 1970; null for now
let known = [0, 0]; // the first and the last sample

/** The select of the span and the buttons of earlier, later and now; `changed` shows everything anew. */
export function timeControls(by, changed) {
  const [select, earlier, later, now, told] = ["span", "earlier", "later", "now", "time-told"].map(by);
  const show = () => {
    earlier.disabled = span === 0 || (end ?? known[1]) - span <= known[0];
    later.disabled = now.hidden = end === null;
    const clock = (seconds) => new Date(1000 * seconds).toLocaleTimeString();
    told.textContent = end === null ? "" : `${clock(end - span)} to ${clock(end)}`;
  };
  const move = (by) => {
    const to = (end ?? known[1]) + by * span;
    end = to >= known[1] ? null : Math.max(to, known[0] + span);
    show();
    changed();
  };
  select.addEventListener("change", () => { span = Number(select.value); end = null; show(); changed(); });
  earlier.addEventListener("click", () => move(-0.5));
  later.addEventListener("click", () => move(0.5));
  now.addEventListener("click", () => { end = null; show(); changed(); select.focus(); });
  return (history) => { known = [history.at[0] ?? 0, history.at.at(-1) ?? 0]; show(); };
}

/** The samples of the time that is shown. */
export function shownHistory(history) {
  if (span === 0) return history;
  const last = end ?? history.at.at(-1) ?? 0;
  const within = (_, i) => history.at[i] >= last - span && history.at[i] <= last;
  return Object.fromEntries(Object.entries(history).map(([name, column]) => [name, column.filter(within)]));
}

/** The changes of the time that is shown: those at its numbers of events. */
export function shownChanges(changes, history, shown) {
  if (span === 0 || !shown.events.length) return changes;
  const before = history.events[history.at.findIndex((at) => at >= shown.at[0]) - 1] ?? 0;
  return changes.filter(({ at }) => at > before && at <= shown.events.at(-1));
}
