// Light and dark, and the colours of clusters.

const KEY = "streamclust-theme";
const preferred = matchMedia("(prefers-color-scheme: dark)");

// Eight hues, chosen to differ for all kinds of colour vision and to stand out from white and from near black.
// A cluster has its hue by its id, so it keeps it; ids eight apart differ by their dashes.
const LIGHT = ["#1f9bba", "#90145f", "#829821", "#3414a1", "#d7397b", "#584503", "#9847ca", "#0a7e3a"];
const DARK = ["#52cff3", "#ca488f", "#b0cd26", "#6967e1", "#fc85ad", "#89722f", "#c780f7", "#1cb657"];
const DASHES = ["solid", "dash", "dot"];
const PATTERNS = ["", "/", "."];

export const isDark = () => (document.documentElement.dataset.theme || (preferred.matches ? "dark" : "light")) === "dark";
export const colour = (id) => (isDark() ? DARK : LIGHT)[id % LIGHT.length];
export const dash = (id) => DASHES[Math.floor(id / LIGHT.length) % DASHES.length];
export const pattern = (id) => PATTERNS[Math.floor(id / LIGHT.length) % PATTERNS.length];
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
export const clock = (chart) => (
  { type: "date", nticks: Math.max(2, Math.floor(chart.clientWidth / 130)), tickangle: 0, tickformat: "%H:%M:%S" }
);
export const legend = { orientation: "h", traceorder: "normal", yanchor: "bottom", y: 1.02, x: 0 };

const room = new ResizeObserver((changes) => {
  for (const { target } of changes) if (target.data && target.checkVisibility()) Plotly.Plots.resize(target);
});

/** Draw or redraw a chart in the page's own colours; it fills its element, whenever that changes. */
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
