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


def online(points, penalty):
    """DP-means in one pass: labels."""
    members, labels = [], []
    for x in points:
        gaps = [float(((x - np.mean(own, axis=0)) ** 2).sum()) for own in members]
        if not gaps or min(gaps) > penalty:
            members.append([x])
            labels.append(len(members) - 1)
        else:
            labels.append(int(np.argmin(gaps)))
            members[labels[-1]].append(x)
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
