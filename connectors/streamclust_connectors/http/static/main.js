// The page: asks the service once a second while someone looks, and shows what it says.

import { ask, hasToken, keepToken, Refused, Unauthorised } from "./api.js";
import { showClusters } from "./clusters.js";
import { linked, linkNeighbours, openDetail, showDetail, showMissing } from "./detail.js";
import { showFigures } from "./figures.js";
import { showGroup } from "./group.js";
import { MOST, prepare, showHierarchy } from "./hierarchy.js";
import { address } from "./format.js";
import { atLevel, chosenLevel, offerLevels, onLevel } from "./levels.js";
import { drawnRiver, listChanges, showLifecycle } from "./lifecycle.js";
import { showNovelty } from "./novelty.js";
import { onPick, pickFromRiver, pickFromView } from "./picking.js";
import { tellRows } from "./rows.js";
import { changesOf, offerSnapshots, showChanged } from "./snapshots.js";
import { copyButton, showStart } from "./start.js";
import { themeButton } from "./theme.js";
import { shownChanges, shownHistory, timeControls } from "./time.js";
import { keepNames } from "./names.js";
import { offerAxes, pairAxes, showView, viewQuery } from "./view.js";

const SECOND = 1000;
const MAX_WAIT_MS = 10 * SECOND; // between two attempts to reach a service that is away
const MAX_SAMPLES = 600; // samples of the history
const CHANGES = 500;
const SNAPSHOTS = 5; // seconds between two looks for a snapshot that someone else took

const by = (id) => document.getElementById(id);
const axes = [by("view-x"), by("view-y")];
const COLUMNS = ["at", "events", "events_per_second", "lag", "memory_bytes", "novelty", "novelty_high", "shares"];
const empty = () => Object.fromEntries(COLUMNS.map((name) => [name, []]));

let state = { status: null, clusters: [], view: null, history: empty(), changes: [], seen: 0, snapshot: null,
  detail: null, missing: null, kept: [], against: null, changed: null };
let older = false; // whether a snapshot other than the latest was chosen
let tree = null;
let timer = 0;
let failures = 0;
let busy = false;
let turns = 0;

// ------------------------------------------------------------------ asking

async function refresh() {
  const before = state.status;
  const [status, { levels }] = await Promise.all([ask("status"), ask("levels")]);
  if (before && status.uptime_seconds < before.uptime_seconds) startAnew();
  if (offerLevels(by("levels"), levels)) state.history = empty();
  const [level, { history }] = [chosenLevel(), state];
  const more = await ask(atLevel(`history?since=${history.at.at(-1) ?? 0}`));
  offerAxes(axes, status.features);
  if (status.events > 0) {
    const [found, view] = await Promise.all(
      [ask(atLevel("clusters")), ask(atLevel(viewQuery(axes))), catchUp(), askDetail()]);
    if (level !== chosenLevel()) return; // another was chosen since: these are answers about the one before
    Object.assign(state, { clusters: found.clusters, view });
    keepNames(found.clusters);
    if (turns++ % SNAPSHOTS === 0) await latestSnapshot();
  }
  if (level === chosenLevel()) Object.assign(state, { status, history: joined(state.history, more) });
}

/** The cluster that the address names; one that never was is asked for once. */
async function askDetail() {
  const id = linked();
  if (id === null || state.missing?.id === id) return;
  try {
    Object.assign(state, { detail: await ask(`clusters/${id}`), missing: null });
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    state.missing = { id, reason: error.message };
  }
}

/** The service was restarted: its history and its changes begin anew. */
function startAnew() {
  Object.assign(state, { history: empty(), changes: [], seen: 0, snapshot: null, missing: null, kept: [],
    against: null, changed: null });
  older = false;
}

/** The history and what came since; of more than can be drawn, every other sample of the older half goes. */
function joined(history, more) {
  const length = history.at.length + more.at.length;
  const stays = (_, i) => length <= MAX_SAMPLES || i >= MAX_SAMPLES / 2 || i % 2 === 0;
  return Object.fromEntries(COLUMNS.map((name) => [name, [...history[name], ...more[name]].filter(stays)]));
}

/** Another level is looked at: its history is asked for from the beginning. */
function changeLevel() {
  state.history = empty();
  if (chosenLevel() !== null && linked() !== null) closeDetail();
  tick();
}

/** The cluster that the address names, if it is of the level that is looked at. */
const picked = () => (chosenLevel() === null ? linked() : null);

async function catchUp() {
  for (;;) {
    const { events, next } = await ask(`events?after=${state.seen}&limit=100`);
    state.changes = [...state.changes, ...events].slice(-CHANGES);
    state.seen = next;
    if (events.length < 100) return;
  }
}

async function latestSnapshot() {
  const all = state.kept = await ask("snapshots");
  const latest = Math.max(-1, ...all.map((snapshot) => snapshot.version));
  if (latest >= 0 && !older && latest !== state.snapshot?.version) await openSnapshot(latest);
  offerAll();
}

function offerAll() {
  by("chooser").hidden = state.kept.length < 2;
  offerSnapshots(by("snapshots"), state.kept, state.snapshot?.version);
  const others = state.kept.filter((each) => each.version !== state.snapshot?.version);
  offerSnapshots(by("against"), others, state.against, "nothing");
}

/** What was chosen among the kept snapshots. */
async function chooseSnapshot() {
  const version = Number(by("snapshots").value);
  state.against = by("against").value === "" ? null : Number(by("against").value);
  older = version !== Math.max(...state.kept.map((each) => each.version));
  try {
    await openSnapshot(version);
    offerAll();
    showSnapshot();
  } catch {
    tick(); // which tells what is wrong
  }
}

async function openSnapshot(version) {
  state.snapshot = await ask(`snapshots/${version}`);
  if (state.against === version || !state.kept.some((each) => each.version === state.against)) state.against = null;
  state.changed = state.against === null ? null : await ask(changesOf(version, state.against));
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
  const n = status.features.length;
  const features = n === 1 ? "of one feature" : n ? `of ${n} features` : "(no features yet)";
  by("about").textContent = `source: ${status.source}, ${status.family} clusters ${features}`;
  by("version").textContent = `streamclust ${status.version}`;
  showFigures(by("figures"), by("spoken"), status, history);
  showStart(by("start"), by("curl"), by("start-note"), status, hasToken());
  showGroup(by("group"), by("members"), by("group-note"), status.group);
  if (status.events === 0) {
    if (linked() !== null) showMissing("no events yet");
    return;
  }
  offerTime(history);
  const [chosen, shown] = [picked(), shownHistory(history)];
  const changes = shownChanges(state.changes, history, shown);
  const marked = chosenLevel() === null ? changes : [];
  showClusters(by("clusters").querySelector("tbody"), state.clusters, chosen);
  tellClusters();
  showView(by("view"), by("view-note"), state.view, chosen);
  showLifecycle(by("lifecycle"), by("lifecycle-note"), shown, marked, chosen);
  listChanges(by("changes"), changes);
  tellChanges(state.seen - changes.length);
  showNovelty(by("novelty"), by("novelty-none"), shown);
  showChosen();
}

function showChosen() {
  const id = linked();
  if (id === null) return;
  linkNeighbours(id, state.clusters);
  if (state.missing?.id === id) showMissing(state.missing.reason);
  else if (state.detail?.id === id) showDetail(state.detail);
}

/** Save the name that was written for the cluster on show. */
async function saveName() {
  const [id, name, said] = [linked(), by("detail-name").value.trim(), by("detail-named")];
  try {
    const body = JSON.stringify({ name: name || null });
    const kept = await ask(`clusters/${id}/name`, { method: "PUT", body });
    by("detail-name").dataset.kept = by("detail-name").value = kept.name ?? "";
    said.textContent = "Saved.";
    tick();
  } catch (error) {
    if (error instanceof Unauthorised) askForToken(true);
    else said.textContent = `Not saved: ${error.message}.`;
  }
}

/** What the address says has changed. */
async function choose() {
  if (linked() !== null && chosenLevel() !== null) {
    history.replaceState(null, "", location.pathname + location.search); // details are of clusters on show
    return;
  }
  openDetail(linked());
  if (!state.status?.events) return;
  show(); // the choice at once, the answer when it comes
  showSnapshot();
  try {
    await askDetail();
    show();
  } catch {
    tick(); // which tells what is wrong
  }
}

function closeDetail() {
  if (linked() === null) return;
  history.pushState(null, "", location.pathname + location.search);
  choose();
}

function showSnapshot() {
  by("cutter").hidden = !tree;
  if (!tree) return;
  by("no-snapshot").textContent = "";
  const k = Number(by("cut").value);
  by("cut-told").textContent = `${k} cluster${k === 1 ? "" : "s"}`;
  showHierarchy(by("hierarchy"), by("hierarchy-note"), state.snapshot, tree, k, linked());
  showChanged(by("compared"), state.changed);
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
    wait = Math.min(MAX_WAIT_MS, SECOND * 2 ** failures++);
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
    older = false;
    await openSnapshot(taken.version);
    state.kept = await ask("snapshots");
    offerAll();
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
by("hierarchy").addEventListener("resized", showSnapshot); // labels have room elsewhere
by("take").addEventListener("click", takeSnapshot);
for (const id of ["snapshots", "against"]) by(id).addEventListener("change", chooseSnapshot);
by("retry").addEventListener("click", tick);
by("ask-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(by("token").value);
  by("ask").close();
  tick();
});
by("ask").addEventListener("cancel", (event) => event.preventDefault());
document.addEventListener("visibilitychange", tick);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !by("ask").open) closeDetail();
});
by("detail-naming").addEventListener("submit", (event) => { event.preventDefault(); saveName(); });
by("detail-name").addEventListener("input", () => { by("detail-named").textContent = ""; });
by("detail-close").addEventListener("click", closeDetail);
by("detail-all").addEventListener("change", showChosen);
const pick = (id) => { location.hash = address(id); };
onLevel(by("levels"), changeLevel);
onPick(by("view"), pickFromView(() => state.view), pick);
onPick(by("lifecycle"), pickFromRiver(drawnRiver), pick);
window.addEventListener("hashchange", choose);
window.addEventListener("popstate", () => openDetail(picked()));
copyButton(by("copy"), by("curl"));
const tellClusters = tellRows(by("clusters"), by("clusters-seen"), "clusters");
const tellChanges = tellRows(by("changes").parentElement, by("changes-seen"), "changes");
const offerTime = timeControls(by, show);
themeButton(by("theme"), () => { show(); showSnapshot(); });
openDetail(linked());
tick();
