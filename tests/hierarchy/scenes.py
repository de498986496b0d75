"""Rows of every family, and their energies from the families' own formulas."""

import numpy as np
from scipy.special import gammaln

from streamclust.families import FAMILIES
from streamclust.moments import Moments

CONTINUOUS = ("gaussian", "diagonal", "spherical")
METHODS = ("rbhc", "abc", "bhc")


def points_of(name, n, d, rng, k=3):
    """n points of k clusters that the family can have produced."""
    z = np.arange(n) % k
    if name in CONTINUOUS:
        return rng.normal(size=(n, d)) + 5.0 * rng.normal(size=(k, d))[z]
    if name == "bernoulli":
        return (rng.random((n, d)) < rng.random((k, d))[z]).astype(float)
    return rng.poisson(rng.gamma(2.0, 4.0, size=(k, d))[z]).astype(float)


def rows_of(name, n, d, rng, weighted):
    """A family with its prior, and n rows: points or, if weighted, leaves of fractional weight with a scatter."""
    family = FAMILIES[name].informed(points_of(name, 40, d, rng), rule="nearest")
    if not weighted:
        return family, Moments.rows_of_points(points_of(name, n, d, rng))
    points = Moments.rows_of_points(points_of(name, 3 * n, d, rng), rng.uniform(0.1, 2.0, 3 * n))
    return family, points.to_groups(np.arange(3 * n) // 3, kind=family.scatter)


def energy_of(method, family, rows, phi0=2.0, alpha=1.0):
    """E of a set of rows as one cluster, from `log_marginal` and `generator`."""

    def energy(members):
        total = rows[list(members)].to_groups(None, kind=family.scatter)
        n = total.weight[0]
        if method == "rbhc":
            return -n * family.generator(total)[0]
        evidence = family.log_marginal(total)[0]
        if method == "abc":
            return -evidence - gammaln(phi0 + n) + gammaln(phi0)
        return -evidence - gammaln(max(n, 1.0)) - np.log(alpha)

    return energy
