// Places for labels, such that none hides another.

const WIDTH = 0.64; // of a bold digit, in units of its font size
const GAP = 2; // pixels between two labels

/** Half the width and half the height of a label, in pixels. */
const half = (text, size) => [(WIDTH * size * text.length + GAP) / 2, (1.1 * size + GAP) / 2];

/**
 * The labels for which there is room, the first of the list first: each has `places`, the middles, in pixels, of where
 * it may stand, of which the first free one becomes its `place`, and `text`, or `texts` of which the first with room is it.
 * With `width`, of the picture, none reaches beyond its sides.
 */
export function placed(labels, size, width = Infinity) {
  const taken = [];
  return labels.flatMap((label) => {
    for (const text of label.texts ?? [label.text]) {
      const [w, h] = half(text, size);
      const inside = (x) => (width === Infinity ? x : Math.min(Math.max(x, w), width - w));
      const free = label.places.map(([x, y]) => [inside(x), y]).find(([x, y]) => taken.every((t) => Math.abs(t.x - x) >= t.w + w || Math.abs(t.y - y) >= t.h + h));
      if (!free) continue;
      taken.push({ x: free[0], y: free[1], w, h });
      return [{ ...label, text, place: free }];
    }
    return [];
  });
}

/** Size in pixels of the area that a chart draws in; before it is first drawn, about that. */
export function area(chart, [left, right, top, bottom] = [60, 10, 10, 50]) {
  const drawn = chart.querySelector(".nsewdrag")?.getBoundingClientRect();
  return drawn?.width ? [drawn.width, drawn.height]
    : [Math.max(chart.clientWidth - left - right, 50), Math.max(chart.clientHeight - top - bottom, 50)];
}
