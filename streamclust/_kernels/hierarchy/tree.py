"""Loops over the merges of a finished tree: n leaves, and merge t makes node n + t of two earlier nodes."""

import numpy as np

from streamclust._kernels.compile import kernel
from streamclust._kernels.moments import merge_into
from streamclust._kernels.types import Floats, Ints


@kernel
def lift_heights(pairs: Ints, costs: Floats, first_storey: int) -> Floats:
    """Heights that never fall from a node to its parent: the greater of a merge's cost and its parts' heights.

    Merges from `first_storey` on lie above all before them.
    """
    merges = len(costs)
    height = costs.copy()
    floor = -np.inf
    for t in range(merges):
        if t == first_storey:
            for s in range(t):
                floor = max(floor, height[s])
        height[t] = max(height[t], floor)
        for side in range(2):
            child = pairs[t, side] - merges - 1
            if child >= 0:
                height[t] = max(height[t], height[child])
    return height


@kernel
def cut_tree(children: Ints, k: int) -> tuple[Ints, Ints]:
    """The cluster of each leaf when all merges but the last k - 1 are done, and each cluster's node.

    Clusters are numbered in the order of their first leaves.
    """
    n = len(children) + 1
    top = np.arange(2 * n - 1)
    for t in range(n - 1 - k, -1, -1):
        top[children[t, 0]] = top[children[t, 1]] = top[n + t]
    number = np.full(2 * n - 1, -1)
    labels, nodes = np.empty(n, dtype=np.int64), np.empty(k, dtype=np.int64)
    found = 0
    for i in range(n):
        if number[top[i]] < 0:
            number[top[i]] = found
            nodes[found] = top[i]
            found += 1
        labels[i] = number[top[i]]
    return labels, nodes


@kernel
def sum_tree(children: Ints, weight: Floats, mean: Floats, scatter: Floats) -> None:
    """Moments of every merge, after those of the leaves."""
    n = len(children) + 1
    for t in range(n - 1):
        for side in range(2):
            child = children[t, side]
            merge_into(weight, mean, scatter, n + t, weight[child], mean[child], scatter[child])


@kernel
def purity_sums(children: Ints, mass: Floats, total: Floats) -> tuple[float, float]:
    """Σ over pairs of one class of that class's share of the smallest subtree that holds both; and the pairs.

    `mass` has the leaves' mass in each class, `total` their whole mass; both have room for the merges. Pairs
    within a leaf have the leaf as their smallest subtree.
    """
    n = len(children) + 1
    pure, pairs = 0.0, 0.0
    for i in range(2 * n - 1):
        for c in range(mass.shape[1]):
            if i < n:
                both = max(mass[i, c] * (mass[i, c] - 1) / 2, 0.0)
            else:
                left, right = children[i - n, 0], children[i - n, 1]
                both = mass[left, c] * mass[right, c]
                mass[i, c] = mass[left, c] + mass[right, c]
                if c == 0:
                    total[i] = total[left] + total[right]
            if both > 0.0:
                pure += both * mass[i, c] / total[i]
                pairs += both
    return pure, pairs
