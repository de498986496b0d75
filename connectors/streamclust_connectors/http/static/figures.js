// The figures at the top, each with its recent course where there is one. A source without a lag has none to show.

import { bytes, compact, count, duration, element } from "./format.js";

const SHOWN = 120; // samples of a course
const SPOKEN = 20_000; // milliseconds between two sentences to a screen reader
const FIGURES = [
  ["Events a second", (s) => compact(s.events_per_second), (h) => h.events_per_second],
  ["Lag", (s) => compact(s.lag_total), (h) => h.lag, null, (s) => s.lag_total != null],
  ["Refused", (s) => compact(refused(s)), null, (s) => `of ${compact(s.events + refused(s))} events`,
    (s) => s.lag_total == null],
  ["Memory", (s) => bytes(s.memory_bytes), (h) => h.memory_bytes],
  ["Clusters", (s) => count(s.n_clusters), (h) => h.shares.map((now) => Object.keys(now).length)],
  ["Model version", (s) => count(s.model_version), null, saved],
  ["Uptime", (s) => duration(s.uptime_seconds), null, (s) => `${compact(s.events)} events learnt`],
];
const CURVE = '<svg viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true"><path/></svg>';
const refused = (s) => s.refused + s.dead_letters;
let spoken = 0;

function saved({ last_checkpoint_age_seconds: age }) {
  return age == null ? "no checkpoint yet" : `saved ${duration(age)} ago`;
}

export function showFigures(list, voice, status, history) {
  if (!list.children.length) {
    for (const [name, , course] of FIGURES) {
      const card = element("div", {}, element("dt", {}, name), element("dd"));
      if (!course) card.append(element("dd", { class: "more" }));
      else card.insertAdjacentHTML("beforeend", CURVE);
      list.append(card);
    }
  }
  FIGURES.forEach(([, value, course, more, wanted], i) => {
    list.children[i].hidden = wanted !== undefined && !wanted(status);
    list.children[i].querySelector("dd").textContent = value(status);
    if (course) list.children[i].querySelector("path").setAttribute("d", path(course(history).slice(-SHOWN)));
    else list.children[i].querySelector(".more").textContent = more(status);
  });
  if (Date.now() - spoken > SPOKEN) {
    spoken = Date.now();
    voice.textContent = `${count(status.n_clusters)} clusters, ${count(status.events)} events learnt, ` +
      `${count(status.events_per_second)} a second.`;
  }
}

/** A line through the values that are known, in a box of 100 by 20. */
function path(values) {
  const known = values.filter((v) => v != null);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const x = (i) => (100 * i) / (values.length - 1);
  const y = (v) => (high > low ? 19 - (18 * (v - low)) / (high - low) : 19);
  return known.length < 2 ? "" : values
    .map((v, i) => (v == null ? "" : `${i && values[i - 1] != null ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`))
    .join("");
}
