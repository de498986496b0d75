// How novel events are, over time; where none came, there is a gap.

import { clock, draw, legend, series } from "./theme.js";
import { duration, local } from "./format.js";

export const QUIET = 3; // seconds without events that are worth a word

/** Stretches of samples, from the first to before the last, in which events came. */
export function stretches(values) {
  const found = [];
  values.forEach((value, i) => {
    if (value == null) return;
    if (i && values[i - 1] != null) found.at(-1)[1] = i + 1;
    else found.push([i, i + 1]);
  });
  return found;
}

export function showNovelty(chart, note, { at, novelty, novelty_high: high }) {
  const parts = stretches(novelty);
  const times = at.map(local);
  const alone = new Set(parts.filter(([from, to]) => to - from === 1).map(([from]) => from));
  const size = novelty.map((_, i) => (alone.has(i) ? 5 : 0)); // a line through one sample would not be seen
  const line = (name, y, color, style) => ({
    type: "scatter", mode: "lines+markers", name, x: times, y, hovertemplate: `${name} %{y:.2f}<extra></extra>`,
    line: { color, ...style }, marker: { color, size, line: { width: 0 } },
  });
  const around = (start, turned) => parts.flatMap(([from, to]) => [
    ...start.slice(from, to), ...turned.slice(from, to).reverse(), null]);
  const between = {
    type: "scatter", mode: "none", fill: "toself", fillcolor: `${series(1)}22`, hoverinfo: "skip", showlegend: false,
    x: around(times, times), y: around(novelty, high),
  };
  draw(chart, [
    between, line("mean", novelty, series(0), { width: 2 }), line("1 in 20 above", high, series(1), { width: 1.5, dash: "dot" }),
  ], {
    showlegend: true, legend, margin: { l: 48, r: 8, t: 30, b: 28 },
    yaxis: { nticks: 5 },
    xaxis: { ...clock(chart, at.at(-1) - at[0]), range: [times[0], times.at(-1)] },
  });
  const last = parts.at(-1)?.[1] ?? 0;
  const silence = last ? at.at(-1) - at[last - 1] : Infinity;
  note.hidden = silence < QUIET;
  note.textContent = last ? `No events for ${duration(silence)}.` : "No events came since the service started.";
  const now = silence < QUIET ? `now ${novelty[last - 1].toFixed(2)} on average` : note.textContent;
  chart.setAttribute("aria-label", `Novelty over time, ${now}`);
}
