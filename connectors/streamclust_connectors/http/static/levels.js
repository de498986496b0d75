// The levels: a slider over numbers of clusters, and how long each number persists.

import { element } from "./format.js";

const LONGEST = 100; // percent of the height
let shown = null; // the number of clusters on show
let chosen = null; // another number, or null for the one on show
let drawn = "";

/** The level that was chosen; null for the one on show. */
export const chosenLevel = () => chosen;

/** A question of the service with the level that was chosen, if one was. */
export const atLevel = (question) => (
  chosen === null ? question : `${question}${question.includes("?") ? "&" : "?"}level=${chosen}`
);

/** Offer all levels; whether the one that was chosen is left, because there is none of it any more. */
export function offerLevels(panel, levels) {
  const [slider, bars] = [panel.querySelector("input"), panel.querySelector(".bars")];
  const finest = levels[0]?.n_clusters ?? 1;
  panel.hidden = finest < 2;
  shown = levels.find((level) => level.shown)?.n_clusters ?? finest;
  const left = chosen !== null && (chosen > finest || chosen === shown);
  if (left) chosen = null;
  slider.max = finest;
  if (document.activeElement !== slider) slider.value = chosen ?? shown; // else a key's step would be undone
  const told = levels.map(({ n_clusters: n, persistence }) => `${n} ${persistence}`).join();
  if (told !== drawn) drawBars(bars, levels);
  drawn = told;
  tell(panel);
  return left;
}

/** One bar a level, from one cluster on the left to all that were found on the right. */
function drawBars(bars, levels) {
  const longest = Math.max(...levels.map((level) => level.persistence ?? 0)) || 1;
  bars.replaceChildren(...levels.toReversed().map(({ n_clusters: n, persistence }) => {
    const bar = element("span", { title: `${n}: ${factor(persistence)}` });
    bar.style.height = `${Math.max(2, (LONGEST * (persistence ?? longest)) / longest)}%`;
    if (persistence === null) bar.classList.add("endless");
    return bar;
  }));
}

function tell(panel) {
  const now = chosen ?? shown;
  const bars = panel.querySelector(".bars");
  [...bars.children].forEach((bar, i) => {
    bar.classList.toggle("now", i + 1 === now);
    bar.classList.toggle("shown", i + 1 === shown);
  });
  const which = chosen === null ? "on show" : `instead of the ${shown} on show`;
  panel.querySelector("output").textContent = `${now} cluster${now === 1 ? "" : "s"}, ${which}`;
  panel.querySelector("button").disabled = chosen === null;
  bars.setAttribute("aria-label", `Persistence of ${bars.children.length} levels`);
}

const factor = (persistence) => (
  persistence === null ? "holds for ever" : `holds over a factor of ${Math.exp(persistence).toPrecision(3)}`
);

/** Call `changed` whenever another level is chosen. */
export function onLevel(panel, changed) {
  const choose = (number) => {
    chosen = number === shown ? null : number;
    tell(panel);
    changed();
  };
  const slider = panel.querySelector("input");
  slider.addEventListener("change", () => choose(Number(slider.value)));
  panel.querySelector("button").addEventListener("click", () => { slider.value = shown; choose(shown); });
}
