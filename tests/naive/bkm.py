"""Bayesian k-means, slowly: loops over points and clusters, one formula at a time. Imports nothing of ours."""

import numpy as np
from scipy.special import digamma, gammaln


class NaiveGaussian:
    """Full covariance under a normal-Wishart prior, for weighted points."""

    def __init__(self, xi0, m0, eta0, B0):
        self.xi0, self.m0, self.eta0, self.B0 = xi0, np.asarray(m0), eta0, np.asarray(B0)

    def update(self, points, weight):
        """(18), sums written out."""
        n, d = sum(weight), len(self.m0)
        mean = sum((w * x for x, w in zip(points, weight, strict=True)), np.zeros(d)) / n
        B = self.B0.copy()
        for x, w in zip(points, weight, strict=True):
            B += w * np.outer(x - mean, x - mean)
        B += n * self.xi0 / (n + self.xi0) * np.outer(mean - self.m0, mean - self.m0)
        xi = self.xi0 + n
        return xi, (n * mean + self.xi0 * self.m0) / xi, self.eta0 + n, B

    def log_marginal(self, points, weight):
        d, n = len(self.m0), sum(weight)
        xi, _, eta, B = self.update(points, weight)
        total = -n * d / 2 * np.log(np.pi) + d / 2 * np.log(self.xi0 / xi)
        total += self.eta0 / 2 * np.linalg.slogdet(self.B0)[1] - eta / 2 * np.linalg.slogdet(B)[1]
        for i in range(1, d + 1):
            total += gammaln(eta / 2 + (1 - i) / 2) - gammaln(self.eta0 / 2 + (1 - i) / 2)
        return total

    def cost(self, x, points, weight):
        """(20) without its mixing term."""
        d = len(self.m0)
        xi, m, eta, B = self.update(points, weight)
        total = eta / 2 * (x - m) @ np.linalg.solve(B, x - m) + np.linalg.slogdet(B)[1] / 2 + d / (2 * xi)
        return total - sum(digamma((eta + 1 - i) / 2) for i in range(1, d + 1)) / 2


class NaiveMultinomial:
    def __init__(self, psi0):
        self.psi0 = psi0

    def log_marginal(self, points, weight):
        """(39), one cluster, without coefficients."""
        d = points.shape[1]
        psi = [self.psi0 + sum(w * x[i] for x, w in zip(points, weight, strict=True)) for i in range(d)]
        total = gammaln(d * self.psi0) - gammaln(sum(psi))
        return total + sum(gammaln(p) - gammaln(self.psi0) for p in psi)

    def cost(self, x, points, weight):
        d = points.shape[1]
        psi = [self.psi0 + sum(w * y[i] for y, w in zip(points, weight, strict=True)) for i in range(d)]
        return sum(x[i] * (digamma(sum(psi)) - digamma(psi[i])) for i in range(d))


def free_energy(family, points, weight, labels, phi0, infinite=False):
    """(19), (39) or (23) of the partition that the labels make."""
    used = sorted(set(labels))
    total = 0.0
    for c in used:
        mine = labels == c
        n = weight[mine].sum()
        total -= family.log_marginal(points[mine], weight[mine])
        total += -gammaln(n) - np.log(phi0) if infinite else gammaln(phi0) - gammaln(phi0 + n)
    concentration = phi0 if infinite else phi0 * len(used)
    return total + gammaln(weight.sum() + concentration) - gammaln(concentration)


def me_step(family, points, weight, labels, phi0, infinite=False):
    """Every point to its cheapest cluster, its own one among equals; labels keep their names."""
    used = sorted(set(labels))
    chosen = labels.copy()
    for r, x in enumerate(points):
        costs = {}
        for c in used:
            mine = labels == c
            n = weight[mine].sum()
            mixing = digamma(n) if infinite else digamma(phi0 + n)
            costs[c] = family.cost(x, points[mine], weight[mine]) - mixing
        best = min(used, key=lambda c: costs[c])
        if costs[best] < costs[labels[r]]:
            chosen[r] = best
    return chosen


def me(family, points, weight, labels, phi0, infinite=False, limit=100):
    """All labellings from the first to the one that stays."""
    history = [labels]
    for _ in range(limit):
        labels = me_step(family, points, weight, labels, phi0, infinite)
        if np.array_equal(labels, history[-1]):
            break
        history.append(labels)
    return history


def same_partition(a, b):
    """Whether two labellings put the same rows together."""
    return len(set(zip(a, b, strict=True))) == len(set(a)) == len(set(b))
