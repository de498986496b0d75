"""Slow twins of DP-means and BP-means, and brute force over everything on tiny inputs."""

import itertools

import numpy as np


def partitions(n):
    """Every partition of n things, as labels."""
    labels = [0] * n

    def extend(i, used):
        if i == n:
            yield tuple(labels)
            return
        for c in range(used + 1):
            labels[i] = c
            yield from extend(i + 1, max(used, c + 1))

    yield from extend(0, 0)


def dp_objective(points, weight, labels, penalty, inner=0.0):
    """Σ w ‖x - mean‖² + λ² (K - 1), plus what lies within the rows."""
    total = inner
    for c in set(labels):
        mine = [i for i in range(len(points)) if labels[i] == c]
        mean = sum(weight[i] * points[i] for i in mine) / sum(weight[i] for i in mine)
        total += sum(weight[i] * float(((points[i] - mean) ** 2).sum()) for i in mine)
    return total + penalty * (len(set(labels)) - 1)


def best_partition(points, weight, penalty):
    return min(dp_objective(points, weight, labels, penalty) for labels in partitions(len(points)))


def dp_means(points, weight, penalty):
    """DP-means as published [Kulis & Jordan 2012, algorithm 1]: labels.

    All points in one cluster at first. Points in their order: to the nearest mean, their own among equals, or, where
    that is farther than λ, to a new cluster at the point. Then the means; until no point changes its cluster. A point
    of weight below 1 opens a cluster only where that lowers the objective.
    """
    means, labels = [np.average(points, axis=0, weights=weight)], [0] * len(points)
    while True:
        before = list(labels)
        for i, x in enumerate(points):
            gaps = ((np.array(means) - x) ** 2).sum(axis=1)
            nearest = labels[i] if gaps[labels[i]] == gaps.min() else int(gaps.argmin())
            if min(weight[i], 1.0) * gaps.min() > penalty:
                means.append(x)
                nearest = len(means) - 1
            labels[i] = nearest
        if labels == before:
            return labels
        used = sorted(set(labels))
        labels = [used.index(c) for c in labels]
        mine = [[i for i, c in enumerate(labels) if c == k] for k in range(len(used))]
        means = [np.average(points[m], axis=0, weights=weight[m]) for m in mine]


def leaders(points, penalty):
    """DP-means in one pass, groups that stay where they opened: labels."""
    opened, labels = [], []
    for x in points:
        within = [g for g, leader in enumerate(opened) if float(np.sum((x - leader) ** 2)) <= penalty]
        if not within:
            opened.append(x)
        labels.append(within[0] if within else len(opened) - 1)
    return labels


def remainder(X, Z, weight=None):
    """What the best means leave of the rows: min over A of Σ w ‖x - zA‖²."""
    root = np.sqrt(np.ones(len(X)) if weight is None else weight)[:, None]
    A = np.linalg.lstsq(root * Z, root * X, rcond=None)[0]
    return float(((root * (X - Z @ A)) ** 2).sum())


def best_allocation(X, k, weight=None):
    """The least remainder over every binary Z of k columns."""
    rows = list(itertools.product((0.0, 1.0), repeat=k))
    return min(remainder(X, np.array(z), weight) for z in itertools.product(rows, repeat=len(X)))


def nearest_combination(x, A):
    """The least ‖x - zA‖² over every binary z."""
    return min(
        float(((x - np.array(z) @ A) ** 2).sum()) for z in itertools.product((0.0, 1.0), repeat=len(A))
    )
