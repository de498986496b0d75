// The page: asks the service once a second while someone looks, and shows what it says.

import { ask, keepToken, Refused, Unauthorised } from "./api.js";
import { showClusters } from "./clusters.js";
import { showFigures } from "./figures.js";
import { MOST, prepare, showHierarchy } from "./hierarchy.js";
import { listChanges, showLifecycle } from "./lifecycle.js";
import { showNovelty } from "./novelty.js";
import { themeButton } from "./theme.js";
import { offerAxes, pairAxes, showView, viewQuery } from "./view.js";

const SECOND = 1000;
const LONGEST = 10 * SECOND; // between two attempts to reach a service that is away
const KEPT = 600; // samples of the history
const CHANGES = 500;
const SNAPSHOTS = 5; // seconds between two looks for a snapshot that someone else took

const by = (id) => document.getElementById(id);
const axes = [by("view-x"), by("view-y")];
const COLUMNS = ["at", "events", "events_per_second", "lag", "memory_bytes", "novelty", "novelty_high", "shares"];
const empty = () => Object.fromEntries(COLUMNS.map((name) => [name, []]));

let state = { status: null, clusters: [], view: null, history: empty(), changes: [], seen: 0, snapshot: null };
let tree = null;
let timer = 0;
let failures = 0;
let busy = false;
let turns = 0;

// ------------------------------------------------------------------ asking

async function refresh() {
  const { history, status: before } = state;
  const since = history.at.at(-1) ?? 0;
  const [status, more] = await Promise.all([ask("status"), ask(`history?since=${since}`)]);
  if (before && status.uptime_seconds < before.uptime_seconds) startAnew();
  offerAxes(axes, status.features);
  if (status.events > 0) {
    const [found, view] = await Promise.all([ask("clusters"), ask(viewQuery(axes)), catchUp()]);
    Object.assign(state, { clusters: found.clusters, view });
    if (turns++ % SNAPSHOTS === 0) await latestSnapshot();
  }
  Object.assign(state, { status, history: joined(state.history, more) });
}

/** The service was restarted: its history and its changes begin anew. */
function startAnew() {
  Object.assign(state, { history: empty(), changes: [], seen: 0, snapshot: null });
}

/** The history and what came since; of more than can be drawn, every other sample of the older half goes. */
function joined(history, more) {
  const length = history.at.length + more.at.length;
  const stays = (_, i) => length <= KEPT || i >= KEPT / 2 || i % 2 === 0;
  return Object.fromEntries(COLUMNS.map((name) => [name, [...history[name], ...more[name]].filter(stays)]));
}

async function catchUp() {
  for (;;) {
    const { events, next } = await ask(`events?after=${state.seen}&limit=100`);
    state.changes = [...state.changes, ...events].slice(-CHANGES);
    state.seen = next;
    if (events.length < 100) return;
  }
}

async function latestSnapshot() {
  const all = await ask("snapshots");
  const latest = Math.max(-1, ...all.map((snapshot) => snapshot.version));
  if (latest >= 0 && latest !== state.snapshot?.version) await openSnapshot(latest);
}

async function openSnapshot(version) {
  state.snapshot = await ask(`snapshots/${version}`);
  tree = prepare(state.snapshot.dendrogram);
  const slider = by("cut");
  slider.max = Math.min(MOST, tree.n);
  slider.value = state.snapshot.dendrogram.stop ?? state.snapshot.n_clusters;
}

// ------------------------------------------------------------------ showing

function show() {
  const { status, history } = state;
  if (!status) return;
  document.body.classList.toggle("waiting", status.events === 0);
  for (const note of document.querySelectorAll(".empty")) note.textContent = "No events yet.";
  const features = status.features.length === 1 ? "one feature" : `${status.features.length || "no"} features`;
  by("about").textContent = `${status.source}, ${status.family} clusters of ${features}`;
  by("version").textContent = `streamclust ${status.version}`;
  showFigures(by("figures"), by("spoken"), status, history);
  if (status.events === 0) return;
  showClusters(by("clusters").querySelector("tbody"), state.clusters);
  showView(by("view"), by("view-note"), state.view);
  showLifecycle(by("lifecycle"), history, state.changes);
  listChanges(by("changes"), state.changes);
  showNovelty(by("novelty"), history);
}

function showSnapshot() {
  by("cutter").hidden = !tree;
  if (!tree) return;
  by("no-snapshot").textContent = "";
  const k = Number(by("cut").value);
  by("cut-told").textContent = `${k} cluster${k === 1 ? "" : "s"}`;
  showHierarchy(by("hierarchy"), by("hierarchy-note"), state.snapshot, tree, k);
}

// ------------------------------------------------------------------ the loop

async function tick() {
  clearTimeout(timer);
  if (document.hidden || busy) return;
  busy = true;
  let wait = SECOND;
  try {
    const before = state.snapshot;
    await refresh();
    failures = 0;
    by("banner").hidden = true;
    show();
    if (state.snapshot !== before) showSnapshot();
  } catch (error) {
    if (error instanceof Unauthorised) {
      askForToken(error.message === "wrong");
      return;
    }
    wait = Math.min(LONGEST, SECOND * 2 ** failures++);
    by("banner-text").textContent = `${error instanceof Refused ? error.message : "Connection lost"}. Trying again.`;
    by("banner").hidden = false;
  } finally {
    busy = false;
  }
  timer = setTimeout(tick, wait);
}

function askForToken(wrong) {
  by("ask-wrong").hidden = !wrong;
  if (!by("ask").open) by("ask").showModal();
}

async function takeSnapshot() {
  const button = by("take");
  button.disabled = true;
  try {
    const taken = await ask("snapshots", { method: "POST" });
    await openSnapshot(taken.version);
    showSnapshot();
  } catch (error) {
    if (error instanceof Unauthorised) askForToken(true);
    else by("no-snapshot").textContent = `No snapshot: ${error.message}.`;
  } finally {
    button.disabled = false;
  }
}

axes.forEach((select, i) => select.addEventListener("change", () => { pairAxes(axes, i); tick(); }));
by("cut").addEventListener("input", showSnapshot);
by("take").addEventListener("click", takeSnapshot);
by("retry").addEventListener("click", tick);
by("ask-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(by("token").value);
  by("ask").close();
  tick();
});
by("ask").addEventListener("cancel", (event) => event.preventDefault());
document.addEventListener("visibilitychange", tick);
themeButton(by("theme"), () => { show(); showSnapshot(); });
tick();
