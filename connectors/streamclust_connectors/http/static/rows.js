// Says which rows of a list that scrolls can be seen, and shows all of them on request.

/** A list in a box that scrolls; `noun` names its rows. `told` counts rows that are not in the list, too. */
export function tellRows(box, note, noun) {
  const words = note.querySelector("span"), button = note.querySelector("button");
  let beyond = 0;
  const tell = () => {
    const open = box.classList.contains("open");
    const rows = [...box.querySelectorAll("tbody tr, li")];
    const head = box.querySelector("thead")?.offsetHeight ?? 0;
    const { top, bottom } = box.getBoundingClientRect();
    const seen = rows.map((row, i) => [row.getBoundingClientRect(), i + 1])
      .filter(([r]) => r.height && (r.top + r.bottom) / 2 > top + head && (r.top + r.bottom) / 2 < bottom).map(([, i]) => i);
    const all = rows.length + beyond;
    note.hidden = !seen.length || (seen.length === all && !open);
    button.hidden = seen.length === rows.length && !open;
    button.textContent = open ? "Show fewer" : `Show all ${rows.length}`;
    button.setAttribute("aria-expanded", String(open));
    const range = seen.length === 1 ? seen[0] : `${seen[0]} to ${seen.at(-1)}`;
    words.textContent = `${open ? `1 to ${rows.length}` : range} of ${all} ${noun}`;
  };
  box.addEventListener("scroll", tell, { passive: true });
  new ResizeObserver(tell).observe(box);
  button.addEventListener("click", () => { box.classList.toggle("open"); tell(); });
  return (more = 0) => { beyond = more; tell(); };
}
