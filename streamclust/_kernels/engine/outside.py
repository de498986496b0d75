"""Events outside every cluster: how fast evidence mounts that their share has risen."""

from streamclust._kernels.compile import kernel, part
from streamclust._kernels.types import Bools, Floats, Ints


@part
def is_outside(point: Floats, vector: Floats, root: Floats, within: float) -> bool:
    """Whether ‖root (x - vector)‖² is above `within` for every cluster; the features that these know count alone."""
    d = vector.shape[1]
    for c in range(vector.shape[0]):
        total = 0.0
        for i in range(d):
            y = 0.0
            for j in range(i + 1):
                y += root[c, i, j] * (point[j] - vector[c, j])
            total += y * y
            if not total <= within:
                break
        if total <= within:
            return False
    return True


@kernel
def watch_outside(
    points: Floats,
    incomplete: Bools,
    sampled: Ints,
    vector: Floats,
    root: Floats,
    within: float,
    outside_gain: float,
    inside_loss: float,
    first_bar: float,
    state: Floats,
) -> int:
    """Number of points until the level reaches the bar, at most all of them; `state` is level, bar and their place.

    The level rises by `outside_gain` with each point outside every cluster, and falls by `inside_loss` with others, to
    0 at least; `incomplete` points (empty: none) count for nothing. At level 0 only the `sampled` points are looked at,
    above it all are. The place is that of the point at which the level left 0, or -1 if that came before these points.
    """
    n = len(points)
    level, bar, since = state[0], state[1], -1.0
    s = 0
    p = 0
    while p < n:
        if level == 0.0:
            while s < sampled.size and sampled[s] < p:
                s += 1
            if s == sampled.size:
                break
            p = sampled[s]
        if not (incomplete.size and incomplete[p]):
            if is_outside(points[p], vector, root, within):
                if level == 0.0:
                    since, bar = p, first_bar
                level += outside_gain
                if level >= bar:
                    state[0], state[1], state[2] = level, bar, since
                    return p + 1
            else:
                level = max(0.0, level - inside_loss)
        p += 1
    state[0], state[1], state[2] = level, bar, since
    return n
