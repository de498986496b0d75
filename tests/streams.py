"""Streams that tests insert: hypothesis strategies and generators."""

from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from tests.conftest import INTERPRETED

KINDS = ("full", "diagonal", "scalar", "none")
SPLITS = ("principal", "widest")


class Stream:
    """Rows with optional weights and times."""

    def __init__(self, rows, weights, times):
        self.rows, self.weights, self.times = rows, weights, times

    def __len__(self):
        return len(self.rows)

    def __repr__(self):
        parts = [
            f"rows {self.rows.shape}",
            self.weights is not None and "weighted",
            self.times is not None and "timed",
        ]
        return f"Stream({', '.join(filter(None, parts))}, first {self.rows[:3].tolist()})"

    def part(self, start, stop):
        return (
            self.rows[start:stop],
            None if self.weights is None else self.weights[start:stop],
            None if self.times is None else self.times[start:stop],
        )

    def chunks(self, cuts):
        edges = [0, *sorted(c for c in cuts if 0 < c < len(self)), len(self)]
        return [self.part(a, b) for a, b in pairwise(edges)]


@st.composite
def streams(draw, longest=3000, timed=None):
    """Clusters, ties, sorted runs, constant columns; at any distance from the origin and any scale."""
    longest = min(longest, 1500) if INTERPRETED else longest
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, longest))
    d = draw(st.integers(1, 5))
    rows = rng.normal(size=(n, d)) + 4.0 * rng.integers(-2, 3, size=(n, 1))
    shape = draw(
        st.sampled_from(["clusters", "ties", "sorted", "constant column", "all equal", "heavy tails"])
    )
    if shape == "ties":
        rows = np.round(rows)
    elif shape == "sorted":
        rows = np.sort(rows, axis=0)
    elif shape == "constant column":
        rows[:, 0] = 1.0
    elif shape == "all equal":
        rows[:] = rows[0]
    elif shape == "heavy tails":
        rows = rng.standard_t(1.5, size=(n, d))
    rows = rows * draw(st.sampled_from([1.0, 1e-8, 1e6])) + draw(st.sampled_from([0.0, 1.0, -1e8]))
    weights = rng.exponential(size=n) + 1e-3 if draw(st.booleans()) else None
    times = None
    if timed if timed is not None else draw(st.booleans()):
        times = np.cumsum(rng.exponential(size=n)) * draw(st.sampled_from([0.1, 1.0, 30.0]))
        if draw(st.booleans()):  # some events come late
            times -= rng.exponential(size=n) * 5
    return Stream(rows, weights, times)


def clustered(n, d, k=10, seed=0, spread=6.0):
    """n rows of k well separated Gaussian clusters, with their labels."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(k, d)) * spread
    labels = rng.integers(k, size=n)
    return centres[labels] + rng.normal(size=(n, d)), labels


def two_kinds(family, seed=2, n=2000):
    """Rows of two kinds that every family can learn: counts or, for yes/no features, ones and zeros."""
    rng = np.random.default_rng(seed)
    rates = np.array([[6.0, 5.0, 0.1, 0.1], [0.1, 0.1, 6.0, 5.0]])[rng.integers(2, size=n)]
    rows = rng.poisson(rates).astype(float)
    rows = np.minimum(rows, 1.0) if family == "bernoulli" else rows
    rows[rows.sum(axis=1) == 0, 1] = 1.0
    return rows


GROUPS, CLUSTERS = 30, 3


def elongated(d, n=600, seed=3, offset=0.0):
    """Points of three elongated clusters, their weights, the group and the cluster that each is in."""
    rng = np.random.default_rng(seed)
    cluster = rng.integers(CLUSTERS, size=n)
    centres = 9.0 * rng.normal(size=(CLUSTERS, d))
    shapes = rng.normal(size=(CLUSTERS, d, d))
    points = centres[cluster] + np.einsum("nij,nj->ni", shapes[cluster], rng.normal(size=(n, d)))
    leaf = cluster * (GROUPS // CLUSTERS) + rng.integers(GROUPS // CLUSTERS, size=n)
    return points + offset, rng.uniform(0.5, 2.0, size=n), leaf, cluster
