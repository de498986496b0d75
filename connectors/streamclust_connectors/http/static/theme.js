// Light and dark, and the colours of clusters.

import { PALETTE } from "./palette.js";

const KEY = "streamclust-theme";
const DAY = 86_400; // seconds
const preferred = matchMedia("(prefers-color-scheme: dark)");

// A cluster has its colour by its id, the one that it has in the library's pictures; ids 64 apart differ by their dashes.
const DASHES = ["solid", "dash", "dot"];
const PATTERNS = ["", "/", "."];

export const isDark = () => (document.documentElement.dataset.theme || (preferred.matches ? "dark" : "light")) === "dark";
export const colour = (id) => PALETTE[id % PALETTE.length];
/** The colour of a cluster or, of one that is not chosen while another is, a hint of it. */
export const shade = (id, chosen) => (chosen === null || id === chosen ? colour(id) : `${colour(id)}40`);
export const dash = (id) => DASHES[Math.floor(id / PALETTE.length) % DASHES.length];
export const pattern = (id) => PATTERNS[Math.floor(id / PALETTE.length) % PATTERNS.length];
/** Colours of curves that stand for no cluster: the mean and the upper end of novelty. */
export const series = (i) => (isDark() ? ["#79bbff", "#fc85ad"] : ["#0b5cad", "#c2255c"])[i];
/** Colour of words beside the point. */
export const muted = () => (isDark() ? "#a5b0c0" : "#525c6e");
export const faint = () => (isDark() ? "#6b7686" : "#8a94a4");

/** A button that changes the theme; `changed` draws everything anew. */
export function themeButton(button, changed) {
  const show = () => button.setAttribute("aria-pressed", String(isDark()));
  const kept = localStorage.getItem(KEY);
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  button.addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    localStorage.setItem(KEY, theme);
    show();
    changed();
  });
  preferred.addEventListener("change", () => { show(); changed(); });
  show();
}

/** An axis of time that writes no more moments than there is room for. */
export const clock = (chart, seconds) => ({
  type: "date", nticks: Math.max(2, Math.floor(chart.clientWidth / 130)), tickangle: 0,
  tickformat: seconds > DAY ? "%d %b %H:%M" : "%H:%M:%S",
});
export const legend = { orientation: "h", traceorder: "normal", yanchor: "bottom", y: 1.02, x: 0 };

const room = new ResizeObserver(async (changes) => {
  for (const { target } of changes) {
    if (!target.data || !target.checkVisibility()) continue;
    await Plotly.Plots.resize(target);
    target.dispatchEvent(new Event("resized"));
  }
});

/** Draw or redraw a chart in the page's own colours; it fills its element, whenever that changes (event `resized`). */
export function draw(chart, traces, layout) {
  if (!chart.data) room.observe(chart);
  const { color, fontFamily: family } = getComputedStyle(document.body);
  const grid = isDark() ? "#2c333f" : "#e4e8ee";
  const axis = { gridcolor: grid, zeroline: false, linecolor: grid, automargin: true, fixedrange: true };
  const { xaxis, yaxis, ...rest } = layout;
  return Plotly.react(chart, traces, {
    autosize: true,
    paper_bgcolor: "transparent",
    plot_bgcolor: "transparent",
    font: { color, family, size: 13 },
    margin: { l: 48, r: 8, t: 8, b: 36 },
    showlegend: false,
    dragmode: false,
    hoverlabel: { font: { family } },
    xaxis: { ...axis, ...xaxis },
    yaxis: { ...axis, ...yaxis },
    ...rest,
  }, { displayModeBar: false });
}
