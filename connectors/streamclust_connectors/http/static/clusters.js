// The table of clusters.

import { colour, dash } from "./theme.js";
import { compact, element, percent } from "./format.js";

const BORDERS = { solid: "solid", dash: "dashed", dot: "dotted" };
const STEADY = 0.0005; // a change of the share that is none

export function showClusters(body, clusters) {
  const largest = Math.max(...clusters.map((c) => c.share));
  body.replaceChildren(...clusters.map((c) => {
    const dot = element("span", { class: "dot" });
    dot.style.border = `3px ${BORDERS[dash(c.id)]} ${colour(c.id)}`;
    if (dash(c.id) === "solid") dot.style.background = colour(c.id);
    const bar = element("span", { class: "bar" });
    bar.style.cssText = `width: ${(100 * c.share) / largest}%; background: ${colour(c.id)}`;
    const mean = Object.entries(c.mean).slice(0, 8).map(([name, value]) => `${name} ${value.toPrecision(4)}`);
    return element("tr", { title: `mean: ${mean.join(", ")}` },
      element("td", {}, dot, String(c.id)),
      element("td", {}, percent(c.share), bar),
      element("td", {}, compact(c.weight)),
      element("td", {}, compact(c.age)),
      trend(c.trend));
  }));
}

function trend(change) {
  const moving = change > 0 ? ["↗", "growing"] : ["↘", "shrinking"];
  const [arrow, words] = Math.abs(change) < STEADY ? ["→", "steady"] : moving;
  const sign = change > 0 ? "+" : change < 0 ? "−" : "";
  return element("td", {},
    `${words === "steady" ? "" : sign + (100 * Math.abs(change)).toFixed(1)} `,
    element("span", { "aria-hidden": "true" }, arrow),
    element("span", { class: "quiet" }, words));
}
