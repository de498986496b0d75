// Places for labels, such that none hides another.

const WIDTH = 0.64; // of a bold digit, in units of its font size
const GAP = 2; // pixels between two labels

/** Half the width and half the height of a label, in pixels. */
const half = (text, size) => [(WIDTH * size * text.length + GAP) / 2, (1.1 * size + GAP) / 2];

/**
 * The labels for which there is room, the first of the list first: each has `text` and `places`, the middles, in pixels,
 * of where it may stand; the first free one becomes its `place`.
 */
export function placed(labels, size) {
  const taken = [];
  return labels.flatMap((label) => {
    const [w, h] = half(label.text, size);
    const free = label.places.find(([x, y]) => taken.every((t) => Math.abs(t.x - x) >= t.w + w || Math.abs(t.y - y) >= t.h + h));
    if (!free) return [];
    taken.push({ x: free[0], y: free[1], w, h });
    return [{ ...label, place: free }];
  });
}

/** Size in pixels of the area that a chart draws in; before it is first drawn, about that. */
export function area(chart, [left, right, top, bottom] = [60, 10, 10, 50]) {
  const drawn = chart.querySelector(".nsewdrag")?.getBoundingClientRect();
  return drawn?.width ? [drawn.width, drawn.height]
    : [Math.max(chart.clientWidth - left - right, 50), Math.max(chart.clientHeight - top - bottom, 50)];
}
