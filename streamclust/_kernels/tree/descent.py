"""Blacklisting descent [BKM section 9.1]: which nodes does one cluster own, and which points are left to score."""

import numpy as np

from streamclust._kernels.compile import kernel
from streamclust._kernels.tree.costs import expand, interval, least_difference, point_cost, size, squared
from streamclust._kernels.types import Bools, Floats, Ints

EPS = 2.0**-52
TINY = 1e-290
"""Of costs so small that they underflow, nothing is known relative to their size."""


@kernel
def find_owners(
    after: Ints, first: Ints, box: Floats, points: Floats, depth: int,
    vector: Floats, root: Floats | None, offset: Floats, bound: int, extremes: Floats | None, whole: bool,
    dims: tuple[int, ...],
) -> tuple[Ints, Ints, Ints, Ints]:  # fmt: skip
    """Owned nodes with their owners, and the points of undecided leaves with theirs.

    With `whole`, undecided leaves are listed among the nodes, with owner -1, and no points are scored.
    A cluster is blacklisted where it loses to the pivot by more than rounding can account for, so every point
    gets the label that scoring it against all clusters would give. The pivot is the cluster of least upper bound
    (footnote 3 allows any) or, where differences are bounded (`extremes` is None), of least cost at the box's
    centre: no other can own the box.
    """
    d = len(dims) if len(dims) > 0 else vector.shape[1]
    n_clusters = offset.size
    precision, norm = squared(root, n_clusters, d)
    rounding = 16.0 * (d + 2) * EPS
    value, gap, most = np.empty(n_clusters), np.empty(d), np.empty(n_clusters)
    loose = np.empty(d, dtype=np.bool_)
    lower, upper = np.empty(n_clusters), np.empty(n_clusters)
    gradient = np.empty((n_clusters, d))
    alive = np.empty((depth + 2, n_clusters), dtype=np.int64)
    n_alive, end = np.zeros(depth + 2, dtype=np.int64), np.zeros(depth + 2, dtype=np.int64)
    owned, owner = np.empty(after.size, dtype=np.int64), np.empty(after.size, dtype=np.int64)
    n_points = 0 if whole else points.shape[0]
    single, single_owner = np.empty(n_points, dtype=np.int64), np.empty(n_points, dtype=np.int64)
    n_owned, n_single, level, node = 0, 0, 0, 0
    for c in range(n_clusters):
        most[c] = size(box, 0, vector, root, offset, norm, c, d)
    for c in range(n_clusters):  # a cluster of infinite offset may own nothing ...
        if offset[c] < np.inf:
            alive[0, n_alive[0]] = c
            n_alive[0] += 1
    if n_alive[0] == 0:  # ... unless they all are: the first of equals
        alive[0, 0] = 0
        n_alive[0] = 1
    end[0] = after[0]
    while node < after[0]:
        while node >= end[level]:
            level -= 1
        pivot = 0
        for s in range(n_alive[level]):
            c = alive[level, s]
            expand(box, node, vector, root, offset, c, d, s, value, gradient, gap)
            if extremes is None:
                if value[s] < value[pivot]:
                    pivot = s
            else:
                interval(bound, box, node, vector, root, offset, extremes, c, d, s, lower, upper, value)
                if upper[s] < upper[pivot]:
                    pivot = s
        champion = alive[level, pivot]
        kept = 0
        for s in range(n_alive[level]):
            c = alive[level, s]
            loss = 0.0
            enough = rounding * (most[c] + most[champion])
            if s != pivot:
                if extremes is None:
                    loss = least_difference(
                        box, node, root, precision, c, champion, d, s, pivot,
                        value, gradient, gap, loose, enough,
                    )  # fmt: skip
                else:
                    loss = lower[s] - upper[pivot]
            if loss > 0.0 and not loss > enough:  # less rounding in this box than in the whole tree?
                enough = rounding * (
                    size(box, node, vector, root, offset, norm, c, d)
                    + size(box, node, vector, root, offset, norm, champion, d)
                )
            alive[level + 1, kept] = c
            kept += int(not loss > enough + TINY)
        if kept == 1 or (whole and after[node] == node + 1):
            owned[n_owned] = node
            owner[n_owned] = champion if kept == 1 else -1
            n_owned += 1
            node = after[node]
        elif after[node] > node + 1:
            level += 1
            n_alive[level] = kept
            end[level] = after[node]
            node += 1
        else:
            for p in range(first[node], first[node + 1]):
                label = alive[level + 1, 0]
                least = point_cost(points, p, vector, root, offset, label, d)
                for s in range(1, kept):
                    c = alive[level + 1, s]
                    cost = point_cost(points, p, vector, root, offset, c, d)
                    label += (c - label) * int(cost < least)  # no branch: here nobody can predict it
                    least = min(least, cost)
                single[n_single] = p
                single_owner[n_single] = label
                n_single += 1
            node += 1
    return owned[:n_owned], owner[:n_owned], single[:n_single], single_owner[:n_single]


@kernel
def lay_out(
    child: Ints, count: Ints, kept: Bools, sampled: Floats, sampled_mass: Floats,
    lo: Floats, hi: Floats,
    node_of: Ints, after: Ints, first: Ints, box: Floats, points: Floats, mass: Floats, place: Ints,
) -> tuple[int, int, int]:  # fmt: skip
    """Nodes depth first, each leaf's sampled points after the last leaf's; returns nodes, points and depth.

    A node's left child follows it, the right one comes `after` the left; a node whose `after` is the next is a leaf.
    `box` holds the centre, a double like any other, and the half-widths around it.
    """
    d = lo.shape[1]
    stack = np.empty(child.size + 1, dtype=np.int64)
    level = np.empty(child.size + 1, dtype=np.int64)
    stack[0], level[0] = 0, 0
    top, n, m, depth = 1, 0, 0, 0
    while top > 0:
        top -= 1
        here, deep = stack[top], level[top]
        depth = max(depth, deep)
        node_of[n] = here
        first[n] = m
        after[n] = n + 1
        for j in range(d):
            box[n, 0, j] = 0.0
            box[n, 1, j] = 0.0
            if lo[here, j] <= hi[here, j]:
                middle = lo[here, j] + 0.5 * (hi[here, j] - lo[here, j])
                box[n, 0, j] = middle
                box[n, 1, j] = max(hi[here, j] - middle, middle - lo[here, j]) * (1.0 + 4.0 * EPS)
        n += 1
        below = child[here]
        if below >= 0:
            stack[top], stack[top + 1] = below + 1, below
            level[top], level[top + 1] = deep + 1, deep + 1
            top += 2
            continue
        slot = ~below
        for k in range(count[slot]):
            if kept[slot, k]:
                for j in range(d):
                    points[m, j] = sampled[slot, k, j]
                mass[m] = sampled_mass[slot, k]
                place[m] = slot * sampled.shape[1] + k
                m += 1
    first[n] = m
    position = np.empty(child.size, dtype=np.int64)
    for k in range(n):
        position[node_of[k]] = k
    for k in range(n - 1, -1, -1):
        below = child[node_of[k]]
        if below >= 0:
            after[k] = after[position[below + 1]]
    return n, m, depth
