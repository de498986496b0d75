// Which cluster a chart shows at a place, and clicks upon it. Charts are pictures: keyboards have the table's links.

const STILL = 5; // pixels that a click may move
const NEAR = 24; // pixels from a dot that are still the dot

/** Call `chosen(id)` when a cluster is clicked; `find(chart, x, y)` tells which is at a place, in pixels of the window. */
export function onPick(chart, find, chosen) {
  let down = null;
  chart.addEventListener("pointerdown", (event) => { if (event.button === 0) down = [event.clientX, event.clientY]; });
  window.addEventListener("pointercancel", () => { down = null; });
  window.addEventListener("pointerup", (event) => { // Plotly lays a cover over the window while a button is down
    const moved = down ? Math.hypot(event.clientX - down[0], event.clientY - down[1]) : Infinity;
    down = null;
    const id = moved <= STILL ? find(chart, event.clientX, event.clientY) : null;
    if (id != null) chosen(id);
  });
  chart.addEventListener("pointermove", ({ clientX, clientY }) => {
    chart.classList.toggle("over", find(chart, clientX, clientY) != null);
  });
}

/** A place of the window in the coordinates of a chart, each from 0 to 1, or null outside. */
function within(chart, x, y) {
  const area = chart.querySelector(".nsewdrag")?.getBoundingClientRect();
  if (!area?.width || !area.height) return null;
  const [across, up] = [(x - area.left) / area.width, (area.bottom - y) / area.height];
  return across < 0 || across > 1 || up < 0 || up > 1 ? null : { across, up, area };
}

/** The cluster of the narrowest ellipse about a place or, outside all, of the nearest dot. */
export function pickFromView(view) {
  return (chart, x, y) => {
    const place = view() && within(chart, x, y);
    if (!place) return null;
    const scale = (fraction, [low, high]) => low + fraction * (high - low);
    const ranges = [chart.layout.xaxis.range, chart.layout.yaxis.range];
    const at = [scale(place.across, ranges[0]), scale(place.up, ranges[1])];
    const { leaves, clusters } = view();
    const curves = clusters.flatMap((c) => c.ellipses.map((curve) => ({ id: c.id, curve })));
    const about = curves.filter(({ curve }) => inside(curve, at));
    if (about.length) return about.reduce((a, b) => (area(a.curve) <= area(b.curve) ? a : b)).id;
    const pixel = [0, 1].map((i) => [place.area.width, place.area.height][i] / (ranges[i][1] - ranges[i][0]));
    let [nearest, found] = [NEAR, null];
    const meet = (id, u, v) => {
      const distance = Math.hypot((u - at[0]) * pixel[0], (v - at[1]) * pixel[1]);
      if (distance < nearest) [nearest, found] = [distance, id];
    };
    leaves.cluster.forEach((id, i) => meet(id, leaves.x[i], leaves.y[i]));
    clusters.forEach((c) => meet(c.id, c.x, c.y));
    return found;
  };
}

/** Whether a closed line goes around a place: a ray from there crosses it an odd number of times. */
function inside({ x, y }, [u, v]) {
  let odd = false;
  for (let i = 1; i < x.length; i++) {
    if ((y[i] > v) !== (y[i - 1] > v) && u < x[i] + ((v - y[i]) * (x[i - 1] - x[i])) / (y[i - 1] - y[i])) odd = !odd;
  }
  return odd;
}

const area = ({ x, y }) => Math.abs(x.slice(1).reduce((sum, each, i) => sum + x[i] * y[i + 1] - each * y[i], 0));

/** The band of the river at a place; `river()` has the samples' moments, their shares, and the bands from the bottom up. */
export function pickFromRiver(river) {
  return (chart, x, y) => {
    const place = river() && within(chart, x, y);
    if (!place) return null;
    const { at, shares, order } = river();
    const moment = at[0] + place.across * (at.at(-1) - at[0]);
    const nearest = at.reduce((best, each, i) => (Math.abs(each - moment) < Math.abs(at[best] - moment) ? i : best), 0);
    let top = 0;
    return order.find((id) => (top += shares[nearest][id] ?? 0) >= place.up) ?? null;
  };
}
