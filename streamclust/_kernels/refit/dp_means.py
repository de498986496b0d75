"""Loops of DP-means: the nearest mean, exact moves one row at a time, a single pass over a stream.

Distances are taken between a row and a mean, never from squared norms: far from the origin those cancel.
"""

import numpy as np

from streamclust._kernels.compile import inlined, kernel
from streamclust._kernels.types import Floats, Ints

BLOCK = 128
"""Rows worked on at once: their distances stay in the first cache."""


@kernel
def assign_rows(
    columns: Floats, weight: Floats, mean: Floats, labels: Ints, distance: Floats
) -> tuple[Floats, Floats, int]:
    """Every row to the nearest mean, its own one among equals [DP-means, assignment step].

    Rows come transposed, one line per feature. Rewrites labels and squared distances; returns each cluster's weight,
    its weighted sum of deviations from the mean it had, and how many rows changed hands.
    """
    d, n = columns.shape
    k = len(mean)
    mass, shift = np.zeros(k), np.zeros((k, d))
    least, squared = np.empty(BLOCK), np.empty(BLOCK)
    chosen = np.empty(BLOCK, dtype=np.int64)
    moved = 0
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        least[:] = np.inf
        for c in range(k):
            squared[:] = 0.0
            for j in range(d):
                m = mean[c, j]
                line = columns[j, start : start + size]
                for b in range(size):
                    gap = line[b] - m
                    squared[b] += gap * gap
            for b in range(size):
                if squared[b] < least[b]:
                    least[b] = squared[b]
                    chosen[b] = c
                elif squared[b] == least[b] and labels[start + b] == c:
                    chosen[b] = c
        for b in range(size):
            r, c = start + b, chosen[b]
            moved += labels[r] != c
            labels[r] = c
            distance[r] = least[b]
            mass[c] += weight[r]
            for j in range(d):
                shift[c, j] += weight[r] * (columns[j, r] - mean[c, j])
    return mass, shift, moved


@inlined
def squared_distance(points: Floats, r: int, mean: Floats, c: int) -> float:
    """‖x_r - mean_c‖²."""
    total = 0.0
    for j in range(points.shape[1]):
        gap = points[r, j] - mean[c, j]
        total += gap * gap
    return total


@kernel
def open_clusters(
    points: Floats, urge: Floats, penalty: float, tie: float, n_clusters: int, room: int, labels: Ints,
    distance: Floats,
) -> tuple[int, bool, bool]:  # fmt: skip
    """Rows in their order: one farther than λ from all means, and from those opened before it, opens a cluster.

    Labels and squared distances are those of the nearest mean so far; rows closer to a cluster that opened before
    them go there. New clusters are numbered from `n_clusters`; at most `room` of them open. Returns how many did,
    whether more would have, and whether a row was as far as λ to within a share `tie`.
    """
    opener = np.empty(max(0, min(room, len(points))), dtype=np.int64)
    opened, full, tied = 0, False, False
    for r in range(len(points)):
        for c in range(opened):
            squared = squared_distance(points, r, points, opener[c])
            if squared < distance[r]:
                distance[r] = squared
                labels[r] = n_clusters + c
        tied = tied or abs(urge[r] * distance[r] - penalty) < tie * penalty
        if urge[r] * distance[r] > penalty:
            if opened == room:
                full = True
                continue
            opener[opened] = r
            labels[r] = n_clusters + opened
            distance[r] = 0.0
            opened += 1
    return opened, full, tied


@kernel
def move_rows(
    points: Floats, weight: Floats, penalty: float, mean: Floats, mass: Floats, count: Ints, labels: Ints
) -> int:
    """One pass of collapsed DP-means [MAD-Bayes alg. 2, eq. 9], rows in their order; returns how many moved.

    Joining a cluster of weight m costs a row of weight w exactly w m / (m + w) · ‖x - mean‖²; leaving saves what
    joining again would cost. Clusters without rows are free slots: where none is left, no cluster opens for the
    rest of the pass.
    """
    n, d = points.shape
    k = len(mass)
    moved = 0
    for r in range(n):
        w, own = weight[r], labels[r]
        if not w > 0.0:
            continue
        # The cost of staying; for a row that is alone, that of the cluster.
        if count[own] == 1:
            stay = penalty
        else:
            rest = mass[own] - w
            stay = 0.0  # beside it the others weigh nothing: without it their mean would be lost
            if rest > 1e-12 * mass[own]:
                stay = w * mass[own] / rest * squared_distance(points, r, mean, own)
        best, target, free = stay, own, -1
        for c in range(k):
            if count[c] == 0:
                free = c
            elif c != own:
                cost = w * mass[c] / (mass[c] + w) * squared_distance(points, r, mean, c)
                if cost < best:
                    best, target = cost, c
        # A row of many events opens a cluster only where one of its events would.
        if count[own] > 1 and free >= 0 and best * min(1.0, 1.0 / w) > penalty:
            target = free
        elif target == own or not best < stay * (1.0 - 1e-12):
            continue
        moved += 1
        labels[r] = target
        count[own] -= 1
        mass[own] = mass[own] - w if count[own] > 0 else 0.0
        count[target] += 1
        mass[target] += w
        for j in range(d):
            if count[own] > 0:
                mean[own, j] -= w / mass[own] * (points[r, j] - mean[own, j])
            if count[target] == 1:
                mean[target, j] = points[r, j]
            else:
                mean[target, j] += w / mass[target] * (points[r, j] - mean[target, j])
    return moved


@kernel
def cheapest_union(mean: Floats, mass: Floats, without: int, within: float) -> tuple[int, int, float]:
    """The two clusters whose union adds least to the summed squares, m m' / (m + m') ‖mean - mean'‖²; and how much.

    Cluster `without` is in none of them (-1 leaves none out), and means are closer than the squared distance `within`.
    Infinity is added where there are none.
    """
    first, second, least = 0, 0, np.inf
    for a in range(len(mass)):
        for b in range(a + 1, len(mass)):
            squared = squared_distance(mean, a, mean, b)
            if without == a or without == b or not squared < within:
                continue
            added = mass[a] * mass[b] / (mass[a] + mass[b]) * squared
            if added < least:
                first, second, least = a, b, added
    return first, second, least


@kernel
def farthest_first(points: Floats, start: Floats, picks: int) -> tuple[Ints, Floats]:
    """Rows picked one by one, each the farthest from `start` and from those before; and their squared distances."""
    n, d = points.shape
    nearest = np.empty(n)
    chosen, radius = np.empty(picks, dtype=np.int64), np.empty(picks)
    for p in range(picks):
        farthest = 0
        for r in range(n):
            squared = 0.0
            for j in range(d):
                gap = points[r, j] - (start[j] if p == 0 else points[chosen[p - 1], j])
                squared += gap * gap
            nearest[r] = squared if p == 0 else min(nearest[r], squared)
            if nearest[r] > nearest[farthest]:
                farthest = r
        chosen[p] = farthest
        radius[p] = nearest[farthest]
    return chosen, radius
