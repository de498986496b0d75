"""Slow twins of the families: one cluster, one point at a time, straight from the papers' formulas or SciPy.

Log marginals are products of one-step-ahead predictive densities, which share no formula with the library's
closed forms; labelling costs are expectations written out point by point.
"""

import math

import numpy as np
from scipy import stats
from scipy.special import digamma, gammaln

# ---------------------------------------------------------------- normal-Wishart


def normal_wishart(points, xi0, m0, eta0, B0):
    """Posterior (18), updated one point at a time."""
    xi, m, eta, B = float(xi0), np.array(m0, float), float(eta0), np.array(B0, float)
    for x in np.asarray(points, float):
        B = B + xi / (xi + 1) * np.outer(x - m, x - m)
        m = (xi * m + x) / (xi + 1)
        xi, eta = xi + 1, eta + 1
    return xi, m, eta, B


def gaussian_predictive(x, xi, m, eta, B):
    """Student-t with eta + 1 - D degrees of freedom."""
    degrees = eta + 1 - len(m)
    shape = np.asarray(B) * (xi + 1) / (xi * degrees)
    return float(stats.multivariate_t.logpdf(x, loc=m, shape=shape, df=degrees))


def gaussian_log_marginal(points, xi0, m0, eta0, B0):
    """Product of sequential Student-t predictives."""
    total = 0.0
    for i, x in enumerate(np.asarray(points, float)):
        total += gaussian_predictive(x, *normal_wishart(points[:i], xi0, m0, eta0, B0))
    return total


def gaussian_cost(x, xi, m, eta, B):
    """(20) without its mixing term."""
    D = len(m)
    deviation = np.asarray(x) - m
    cost = (
        eta / 2 * deviation @ np.linalg.inv(B) @ deviation + 0.5 * math.log(np.linalg.det(B)) + D / (2 * xi)
    )
    for d in range(1, D + 1):
        cost -= 0.5 * digamma((eta + 1 - d) / 2)
    return float(cost)


# ---------------------------------------------------------------- diagonal and spherical


def diagonal_log_marginal(points, xi0, m0, eta0, B0):
    points = np.asarray(points, float)
    return sum(
        gaussian_log_marginal(points[:, [d]], xi0, [m0[d]], eta0, [[B0[d]]]) for d in range(points.shape[1])
    )


def diagonal_cost(x, points, xi0, m0, eta0, B0):
    points = np.asarray(points, float)
    return sum(
        gaussian_cost([x[d]], *normal_wishart(points[:, [d]], xi0, [m0[d]], eta0, [[B0[d]]]))
        for d in range(points.shape[1])
    )


def diagonal_predictive(x, points, xi0, m0, eta0, B0):
    points = np.asarray(points, float)
    return sum(
        gaussian_predictive([x[d]], *normal_wishart(points[:, [d]], xi0, [m0[d]], eta0, [[B0[d]]]))
        for d in range(points.shape[1])
    )


def spherical_posterior(points, xi0, m0, a0, b0):
    """One point at a time; the precision is Gamma(a, rate b / 2)."""
    xi, m, a, b = float(xi0), np.array(m0, float), float(a0), float(b0)
    for x in np.asarray(points, float):
        b += xi / (xi + 1) * float(np.sum((x - m) ** 2))
        m = (xi * m + x) / (xi + 1)
        xi, a = xi + 1, a + len(m) / 2
    return xi, m, a, b


def spherical_predictive(x, xi, m, a, b):
    shape = np.eye(len(m)) * b * (xi + 1) / (xi * 2 * a)
    return float(stats.multivariate_t.logpdf(x, loc=m, shape=shape, df=2 * a))


def spherical_log_marginal(points, xi0, m0, a0, b0):
    return sum(
        spherical_predictive(x, *spherical_posterior(points[:i], xi0, m0, a0, b0))
        for i, x in enumerate(points)
    )


def spherical_cost(x, xi, m, a, b):
    """-E[log N(x | μ, 1/ω)] less (D/2) log π, the constant that (20) leaves out too."""
    D = len(m)
    precision, log_precision = 2 * a / b, digamma(a) - math.log(b / 2)
    cost = precision / 2 * np.sum((np.asarray(x) - m) ** 2) + D / (2 * xi) - D / 2 * log_precision
    return float(cost + D / 2 * math.log(2 * math.pi) - D / 2 * math.log(math.pi))


# ---------------------------------------------------------------- discrete


def multinomial_predictive(x, points, psi0):
    psi = psi0 + np.sum(np.asarray(points, float).reshape(-1, len(x)), axis=0)
    return float(stats.dirichlet_multinomial.logpmf(np.asarray(x, int), psi, int(np.sum(x))))


def bernoulli_predictive(x, points, omega0):
    total = 0.0
    for d in range(len(x)):
        ones = sum(p[d] for p in points)
        total += stats.bernoulli.logpmf(int(x[d]), (omega0 + ones) / (2 * omega0 + len(points)))
    return float(total)


def poisson_predictive(x, points, a0, b0):
    total = 0.0
    for d in range(len(x)):
        a, b = a0[d] + sum(p[d] for p in points), b0[d] + len(points)
        total += stats.nbinom.logpmf(int(x[d]), a, b / (b + 1))
    return float(total)


def sequential(predictive, points, *prior):
    """Log marginal, base measure included, as the product of one-step-ahead predictives."""
    return sum(predictive(x, points[:i], *prior) for i, x in enumerate(points))


def multinomial_base(x):
    return float(gammaln(np.sum(x) + 1) - sum(gammaln(v + 1) for v in x))


def poisson_base(x):
    return float(-sum(gammaln(v + 1) for v in x))


def multinomial_cost(x, points, psi0):
    psi = [psi0 + sum(p[d] for p in points) for d in range(len(x))]
    return float(sum(x[d] * (digamma(sum(psi)) - digamma(psi[d])) for d in range(len(x))))


def bernoulli_cost(x, points, omega0):
    cost = 0.0
    for d in range(len(x)):
        ones = omega0 + sum(p[d] for p in points)
        zeros = omega0 + sum(1 - p[d] for p in points)
        cost += digamma(ones + zeros) - (digamma(ones) if x[d] else digamma(zeros))
    return float(cost)


def poisson_cost(x, points, a0, b0):
    cost = 0.0
    for d in range(len(x)):
        a, b = a0[d] + sum(p[d] for p in points), b0[d] + len(points)
        cost += a / b - x[d] * (digamma(a) - math.log(b))
    return float(cost)


# ---------------------------------------------------------------- free energies


def dirichlet_sequence(labels, n_clusters, phi0):
    """log p(z) of a finite mixture: each label drawn in turn from the counts so far."""
    counts, total = [0] * n_clusters, 0.0
    for i, c in enumerate(labels):
        total += math.log((counts[c] + phi0) / (i + n_clusters * phi0))
        counts[c] += 1
    return total


def restaurant_sequence(labels, phi0):
    """log p([z]) of a Dirichlet process: the Chinese restaurant, guest by guest."""
    counts, total = {}, 0.0
    for i, c in enumerate(labels):
        total += math.log(counts.get(c, phi0) / (i + phi0))
        counts[c] = counts.get(c, 0) + 1
    return total


def flat_free_energy(points, labels, n_clusters, log_volume):
    """(32), corrected: (D/2) log N_c."""
    points, labels = np.asarray(points, float), np.asarray(labels)
    N, D = points.shape
    total = math.lgamma(N + n_clusters) - math.lgamma(n_clusters)
    for c in range(n_clusters):
        x = points[labels == c]
        n = len(x)
        scatter = n * np.cov(x.T, bias=True).reshape(D, D)
        total += D * (n - 1) / 2 * math.log(math.pi) + D / 2 * math.log(n)
        total += (n - 1) / 2 * math.log(np.linalg.det(scatter)) - math.lgamma(n + 1) + log_volume
        total -= D * (D - 1) / 4 * math.log(math.pi)
        total -= sum(math.lgamma((n - 1) / 2 + (1 - i) / 2) for i in range(1, D + 1))
    return total


# ---------------------------------------------------------------- distances


def small_distance(points, cases):
    """Nearest neighbour of each case, as pairs; the mean of the three closest pairs."""
    points = np.asarray(points, float)
    pairs = {}
    for i in cases:
        far = [
            (float(np.sqrt(np.sum((points[i] - points[j]) ** 2))), j) for j in range(len(points)) if j != i
        ]
        distance, j = min(far)
        pairs[min(i, j), max(i, j)] = distance
    closest = sorted(pairs.values())[:3]
    return sum(closest) / len(closest)
