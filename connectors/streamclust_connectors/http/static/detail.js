// One cluster in detail: what sets it apart, its share over time, its lifecycle, recent events.

import { colour, dash, draw } from "./theme.js";
import { dot, trendOf } from "./clusters.js";
import { address, compact, element, number, percent, spread } from "./format.js";
import { listChanges, sentence } from "./lifecycle.js";
import { called } from "./names.js";

const FEW = 8; // features shown before all are asked for
const SURE = 0.99; // probability of a cluster from which nothing is said of it
const COLUMNS = 3; // features of recent events
const by = (id) => document.getElementById(id);
const LINK = /^#cluster=(\d{1,15})$/;

/** The cluster that the address names, or null. */
export const linked = () => (LINK.test(location.hash) ? Number(LINK.exec(location.hash)[1]) : null);

let opener = null; // what had the focus before

/** Show or hide the panel as the address says. */
export function openDetail(id) {
  const panel = by("detail");
  if (id === null) {
    const within = panel.contains(document.activeElement);
    panel.hidden = true;
    if (within) (opener?.isConnected ? opener : by("clusters")).focus();
    opener = null;
    return;
  }
  if (panel.hidden) opener = document.activeElement;
  const [before, fresh] = [panel.dataset.cluster, panel.hidden];
  panel.hidden = false;
  if (before !== String(id) || fresh) {
    panel.dataset.cluster = id;
    by("detail-title").replaceChildren(dot(id), `Cluster ${called(id)}`);
    by("detail-told").textContent = "Asking…";
    by("detail-naming").hidden = true;
    by("detail-named").textContent = by("detail-name").value = by("detail-name").dataset.kept = "";
    by("detail-body").hidden = true;
    by("detail-all").checked = false;
    panel.scrollTop = 0;
  }
  by("detail-title").focus({ preventScroll: getComputedStyle(panel).position === "fixed" });
}

/** The neighbours of a cluster in the table, around its ends. */
export function linkNeighbours(id, clusters) {
  const ids = clusters.map((c) => c.id);
  const at = ids.indexOf(id);
  by("detail-before").href = address(ids.at(at > 0 ? at - 1 : -1) ?? id);
  by("detail-after").href = address(ids[(at + 1) % ids.length] ?? id);
}

export function showMissing(reason) {
  by("detail-told").textContent = `${reason[0].toUpperCase()}${reason.slice(1)}.`;
  by("detail-body").hidden = true;
}

export function showDetail(found) {
  const { id, alive, lifecycle } = found;
  const name = (alive ? found : found.last)?.name;
  by("detail-title").replaceChildren(dot(id), `Cluster ${called(id, name ?? "")}`);
  by("detail-told").textContent = alive ? told(found) : gone(found);
  showName(alive, name ?? "");
  by("detail-body").hidden = false;
  const shown = alive ? found : found.last && { id, ...found.last };
  for (const part of ["detail-now", "detail-now-too"]) by(part).hidden = !shown;
  by("detail-apart").textContent = alive ? "What sets it apart" : "What set it apart";
  if (shown) {
    showFeatures(shown);
    showExamples(shown);
    showBorder(shown);
    showRecent(shown);
  }
  showShare(by("detail-share"), found);
  listChanges(by("detail-changes"), lifecycle);
}

/** The name in its field, unless someone is typing there. */
function showName(alive, name) {
  by("detail-naming").hidden = !alive;
  const field = by("detail-name");
  if (field.value !== (field.dataset.kept ?? "")) return;
  field.value = field.dataset.kept = name;
}

function gone({ lifecycle, last }) {
  const end = `No longer there: ${sentence(lifecycle.at(-1))} at event ${compact(lifecycle.at(-1).at)}.`;
  return last ? `${end} When last seen, at event ${compact(last.at)}, it had ${percent(last.share)} of the stream: ${last.words}.` : end;
}

/** Words with a capital letter and a full stop. */
const asSentence = (words) => `${words[0].toUpperCase()}${words.slice(1)}.`;

/** How well the share is known, and whether the cluster is sure to be there. */
function certainty(posterior) {
  if (!posterior) return "";
  const doubt = posterior.probability < SURE ? ` It is a cluster of its own with a probability of ${percent(posterior.probability)}.` : "";
  return `${doubt} Standard error of the share: ${(100 * posterior.share_error).toFixed(2)} percentage points, by ${compact(Math.round(posterior.events))} independent events.`;
}

function told({ words: apart, share, trend, weight, born, age, posterior }) {
  const { words, points } = trendOf(trend);
  return `${asSentence(apart)} ${percent(share)} of the stream, ${words}${points ? ` (${points} percentage points within a minute)` : ""}. ` +
    `Size ${compact(weight)} events, born at event ${compact(born)}, ${compact(age)} events ago.${certainty(posterior)}`;
}

// ------------------------------------------------------------------ features

function showFeatures({ id, features }) {
  const shown = by("detail-all").checked ? features : features.slice(0, FEW);
  by("detail-more").hidden = features.length <= FEW;
  by("detail-count").textContent = `all ${features.length} features`;
  by("detail-features").replaceChildren(...shown.map((feature) => element("tr", {},
    element("th", { scope: "row" }, element("span", { class: "name" }, feature.name),
      element("span", { class: "muted" }, words(feature))),
    element("td", {}, bands(id, feature)),
    element("td", {}, spread(feature.mean, feature.std),
      element("span", { class: "muted" }, `all ${spread(feature.overall_mean, feature.overall_std)}`)))));
}

/** In words how a feature sets the cluster apart. */
function words({ shift, std, overall_std: overall, distance }) {
  if (distance < 0.01) return "like all";
  const size = Math.abs(shift).toFixed(1);
  if (Math.abs(shift) >= 0.3) return `${shift > 0 ? "higher" : "lower"}, ${size} sd`;
  if (std == null) return "apart";
  return std < overall ? "narrower" : "wider";
}

/** The cluster's mean and two standard deviations about it, over those of all events. */
function bands(id, { mean, std, overall_mean: middle, overall_std: overall }) {
  const reach = (m, s) => [m - 2 * (s ?? 0), m + 2 * (s ?? 0)];
  const [[a, b], [c, d]] = [reach(mean, std), reach(middle, overall)];
  const [low, high] = [Math.min(a, c), Math.max(b, d)];
  const place = (v) => (high > low ? (100 * (v - low)) / (high - low) : 50);
  const bar = (kind, from, to) => {
    const made = element("span", { class: kind });
    made.style.cssText = `left: ${place(from)}%; width: ${Math.max(place(to) - place(from), 0)}%`;
    return made;
  };
  const own = bar("own", a, b);
  own.style.backgroundColor = colour(id);
  return element("span", { class: "bands", "aria-hidden": "true" },
    bar("all", c, d), bar("middle", middle, middle), own, bar("mean", mean, mean));
}

// ------------------------------------------------------------------ the rest

function showShare(chart, { id, history }) {
  const few = history.events.length < 2;
  draw(chart, [{
    type: "scatter", mode: few ? "markers" : "lines", x: history.events, y: history.share, fill: few ? "none" : "tozeroy",
    line: { color: colour(id), width: 2, dash: dash(id) }, marker: { color: colour(id), size: 8 },
    fillcolor: `${colour(id)}33`, hovertemplate: "%{y:.1%} at event %{x:,}<extra></extra>",
  }], {
    margin: { l: 44, r: 12, t: 6, b: 36 },
    xaxis: { title: { text: "events" }, nticks: 4, tickformat: "~s" },
    yaxis: { rangemode: "tozero", tickformat: ".0%", nticks: 4 },
  });
  const last = history.share.at(-1);
  chart.setAttribute("aria-label", last == null ? `No share of cluster ${id} is kept`
    : `Share of cluster ${id} over time: at most ${percent(Math.max(...history.share))}, last ${percent(last)}`);
}

/** Events as a table: the key if any has one, the most telling features, and perhaps one more column. */
function listEvents(part, features, events, last, value) {
  const keyed = events.some((event) => event.key != null);
  const names = features.slice(0, keyed ? COLUMNS - 1 : COLUMNS).map((feature) => feature.name);
  const heads = [...(keyed ? ["key"] : []), ...names, ...(last ? [last] : [])];
  const head = element("tr", {}, ...heads.map((name) => element("th", { scope: "col" }, name)));
  const rows = events.map((event) => element("tr", { title: wholly(event) },
    ...(keyed ? [element("td", { class: "key" }, event.key == null ? "–" : asText(event.key))] : []),
    ...names.map((name) => element("td", {}, number(event.values[name]))),
    ...(last ? [element("td", {}, value(event))] : [])));
  by(part).replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
  by(part).hidden = events.length === 0;
}

const asText = (key) => (typeof key === "string" ? key : JSON.stringify(key));

/** All that is known of an event, for its tool tip. */
function wholly({ id, time, values }) {
  const told = Object.entries(values).map(([name, value]) => `${name} ${number(value)}`);
  return [...(id ? [id] : []), ...(time == null ? [] : [`time ${time}`]), ...told].join(", ");
}

function showExamples({ features, examples }) {
  by("detail-no-examples").hidden = examples.length > 0;
  listEvents("detail-examples", features, examples);
}

function showBorder({ features, border }) {
  by("detail-border").hidden = !border || border.cluster === null;
  if (by("detail-border").hidden) return;
  by("detail-border-title").replaceChildren("Between this and ", dot(border.cluster), element("a", { href: address(border.cluster) }, `cluster ${called(border.cluster)}`));
  by("detail-border-told").textContent = border.events.length ? "Hard to tell apart, the hardest first."
    : "Its nearest neighbour. No recent event lies between the two.";
  listEvents("detail-between", features, border.events, "cluster", ({ cluster, probability }) =>
    `${cluster} (${percent(probability)})`);
}

function showRecent({ features, recent }) {
  const more = features.length - COLUMNS;
  by("detail-no-recent").hidden = recent.length > 0;
  listEvents("detail-recent", features, recent, "novelty", ({ novelty }) => (novelty == null ? "–" : novelty.toFixed(2)));
  by("detail-recent-note").textContent = more > 0 ? `The ${COLUMNS} most telling of ${features.length} features.` : "";
}
