"""Levels, slowly: every pair of clusters is compared anew before every merge, by sums over components."""

import numpy as np


def log_densities(x, weight, mean, covariance):
    """Log joint density of x and each component, without the constant that all share."""
    return np.array(
        [
            np.log(w) - (np.linalg.slogdet(c)[1] + (x - m) @ np.linalg.solve(c, x - m)) / 2
            for w, m, c in zip(weight, mean, covariance, strict=True)
        ]
    )


def between(x, i, j, weight, mean, covariance):
    """Log density of two components and the likeliest, if that is another."""
    each = log_densities(x, weight, mean, covariance)
    return np.logaddexp.reduce([each[c] for c in {i, j, int(each.argmax())}])


def mahalanobis(step, covariance):
    return step @ np.linalg.solve(covariance, step)


def loss(a, b, weight, mean, covariance, points=15):
    """Nats lost by merging two sets of components."""
    n_a, n_b = weight[a].sum(), weight[b].sum()
    n = n_a + n_b
    within = np.einsum("c,cij->ij", weight[a + b], covariance[a + b]) / n
    step = weight[b] @ mean[b] / n_b - weight[a] @ mean[a] / n_a
    near = min(
        mahalanobis(
            mean[i] - mean[j],
            (weight[i] * covariance[i] + weight[j] * covariance[j]) / (weight[i] + weight[j]),
        )
        for i in a
        for j in b
    )
    apart = max(mahalanobis(step, within), near)
    of_means = n / 2 * np.log(1 + n_a * n_b / n**2 * apart)
    peak = min(
        max(np.logaddexp.reduce(log_densities(mean[i], weight, mean, covariance)) for i in side)
        for side in (a, b)
    )
    t = np.arange(1, points + 1) / (points + 1)
    saddle = max(
        min(between(mean[i] + s * (mean[j] - mean[i]), i, j, weight, mean, covariance) for s in t)
        for i in a
        for j in b
    )
    return min(of_means, min(n_a, n_b) * max(peak - saddle, 0.0)) + 1e-6 * of_means


def merges(weight, mean, covariance, owner):
    """Each level's clusters, as sets of components; loss of the merge that follows, and weight of the two."""
    sets = [list(np.flatnonzero(owner == c)) for c in range(owner.max() + 1)]
    found = []
    while len(sets) > 1:
        losses = {
            (i, j): loss(sets[i], sets[j], weight, mean, covariance)
            for i in range(len(sets))
            for j in range(i + 1, len(sets))
        }
        i, j = min(losses, key=losses.get)
        found.append(([frozenset(s) for s in sets], losses[i, j], weight[sets[i] + sets[j]].sum()))
        sets = [s for k, s in enumerate(sets) if k not in (i, j)] + [sets[i] + sets[j]]
    return found


def zeta(lost, n_numbers, n_events):
    """Largest ζ up to 1 at which a loss is no more than its numbers cost, by bisection."""
    if lost <= n_numbers / 2 * np.log(np.e + n_events):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        if middle * lost <= n_numbers / 2 * np.log(np.e + middle * n_events):
            low = middle
        else:
            high = middle
    return low
