// How novel events are, over time.

import { clock, colour, draw, legend } from "./theme.js";
import { local } from "./format.js";

export function showNovelty(chart, history) {
  const x = history.at.map(local);
  const line = (name, y, more) => ({
    type: "scatter", mode: "lines", name, x, y, hovertemplate: `${name} %{y:.2f}<extra></extra>`, ...more,
  });
  draw(chart, [
    line("mean", history.novelty, { line: { color: colour(0), width: 2 } }),
    line("95%", history.novelty_high, {
      line: { color: colour(4), width: 1.5, dash: "dot" }, fill: "tonexty", fillcolor: `${colour(4)}22`,
    }),
  ], { showlegend: true, legend, margin: { l: 48, r: 8, t: 40, b: 28 }, xaxis: clock(chart) });
  const last = history.novelty.findLast((v) => v != null);
  chart.setAttribute("aria-label", `Novelty over time; now ${last == null ? "unknown" : last.toFixed(2)} on average`);
}
