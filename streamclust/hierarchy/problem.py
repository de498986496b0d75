"""Input of a search for merges: rows of statistics with their energies, prior and tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from streamclust._kernels.hierarchy import costs as kernels
from streamclust._kernels.types import Floats, Ints
from streamclust.families import (
    AnyFamily,
    BernoulliProduct,
    DiagonalGaussian,
    FlatGaussian,
    Gaussian,
    Multinomial,
    Poisson,
    SphericalGaussian,
)
from streamclust.families.discrete import AnyCounts
from streamclust.families.gaussian_simple import AnyGaussian
from streamclust.moments import Moments

CodedFamily = AnyGaussian | AnyCounts
"""The families that the kernels know."""
FAMILY_CODES = {
    "spherical": kernels.SPHERICAL,
    "diagonal": kernels.DIAGONAL,
    "gaussian": kernels.GAUSSIAN,
    "multinomial": kernels.MULTINOMIAL,
    "bernoulli": kernels.BERNOULLI,
    "poisson": kernels.POISSON,
}
PROGRESS_REPORTS = 50
"""Number of progress reports of a search."""
MAX_TABLE_ENTRIES = 1 << 20
"""log Γ is tabulated up to this argument, and computed directly beyond."""


class Method(Protocol):
    """A merge cost and its stopping rule: ABC, RBHC or BHC."""

    name: ClassVar[str]
    code: ClassVar[int]
    greedy: ClassVar[bool]
    """Whether only the cheapest pair of all may merge next."""

    @property
    def mixing(self) -> float:
        """φ0 or α."""
        ...

    def n_clusters(self, problem: MergeProblem, cost: Floats, height: Floats) -> int | None:
        """Number of clusters at the stopping level; None if the method has none."""
        ...


class Merges:
    """The merges found so far: two nodes and a cost each; merge t makes node n + t."""

    def __init__(self, n_leaves: int) -> None:
        self.pairs: Ints = np.empty((max(n_leaves - 1, 0), 2), dtype=np.int64)
        self.costs: Floats = np.empty(max(n_leaves - 1, 0))
        self.evaluations = 0
        self.first_storey = max(n_leaves - 1, 0)
        """Merges from here on came after a threshold had stopped the search."""


def stages(start: int, stop: int) -> Iterator[int]:
    """Positions between start and stop at which progress is reported."""
    for k in range(1, PROGRESS_REPORTS + 1):
        yield start + (stop - start) * k // PROGRESS_REPORTS


@dataclass
class MergeProblem:
    """Rows that a search may merge in place, and everything a cost depends on."""

    method: int
    family: int
    rows: Floats
    n_features: int
    prior: Floats
    table: Floats

    @property
    def n_leaves(self) -> int:
        """How many rows there are to merge."""
        return len(self.rows)

    @property
    def is_ward(self) -> bool:
        """Spherical RBHC, whose costs are Ward's."""
        return self.method == kernels.RBHC and self.family == kernels.SPHERICAL

    @property
    def arguments(self) -> tuple[int, int, Floats, int, Floats, Floats]:
        """Leading arguments of every kernel."""
        return self.method, self.family, self.rows, self.n_features, self.prior, self.table

    @property
    def energy(self) -> Floats:
        """Of each row."""
        return self.rows[:, kernels.ENERGY]

    @property
    def weight(self) -> Floats:
        """Of each row."""
        return self.rows[:, kernels.WEIGHT]

    @classmethod
    def of(cls, method: Method, family: AnyFamily, moments: Moments) -> MergeProblem:
        """Rows of Moments under a family with its prior."""
        check_rows(moments)
        if isinstance(family, FlatGaussian):
            raise ValueError("single points have no evidence under a flat prior; use a Gaussian with a prior")
        if isinstance(family, BernoulliProduct) and family.zeros0 is not None:
            raise ValueError(
                "a hierarchy takes as many prior ones as zeros; use BernoulliProduct without zeros0"
            )
        if not isinstance(family, CodedFamily):
            raise ValueError(f"hierarchies know the families {', '.join(FAMILY_CODES)}, got {family.name}")
        code = FAMILY_CODES[family.name]
        rows = _rows(family, moments)
        d = moments.n_features
        problem = cls(method.code, code, rows, d, _prior(method, family, d), np.empty((3, 0)))
        if method.code != kernels.RBHC:
            problem._normalise()
            problem._tabulate()
        if not problem.is_ward:  # Ward's costs need no energies: they are differences already
            rows[:, kernels.ENERGY] = problem._energies()
        if not np.all(np.isfinite(problem.energy)):
            raise ValueError("the energy of a row is not finite: rescale the data, or check the prior")
        return problem

    def costs(self, slot: int, others: Ints) -> Floats:
        """Cost of merging a row with each of the others."""
        costs = np.empty(len(others))
        kernels.price(*self.arguments, slot, -1, others, len(others), costs)
        return costs

    def _energies(self) -> Floats:
        """Of each row as one cluster: what merging it with nothing costs, when all energies are zero."""
        alone = replace(self, rows=np.vstack([self.rows, np.zeros(self.rows.shape[1])]))
        return alone.costs(len(self.rows), np.arange(len(self.rows)))

    def _normalise(self) -> None:
        """Set the constant so that the evidence of no data is 1, with mixing terms of zero (ABC's, at n = 0)."""
        nothing = replace(self, method=kernels.ABC, rows=np.zeros((1, self.rows.shape[1])))
        self.prior[kernels.CONSTANT] = -nothing._energies()[0]

    def _tabulate(self) -> None:
        counts = self.rows[:, kernels.WEIGHT :]
        largest = float(self.weight.sum())
        if self.family >= kernels.MULTINOMIAL:
            shape = self.prior[kernels.SHAPE : kernels.SHAPE + self.n_features]
            largest = max(largest, float(counts[:, 1:].sum()))
            if np.any(shape != shape[0]) or np.any(counts != np.round(counts)):
                return
        elif np.any(self.weight != np.round(self.weight)):
            return
        if largest < MAX_TABLE_ENTRIES:
            self.table = np.empty((3, int(largest) + 1))
            kernels.fill_table(self.method, self.family, self.n_features, self.prior, self.table)


def check_rows(moments: Moments) -> None:
    """Refuse rows that no tree can be built of, naming the first."""
    if len(moments) == 0:
        raise ValueError("there are no rows to merge; learn at least one event first")
    if moments.n_features == 0:
        raise ValueError("rows need at least one feature")
    for what in (moments.weight, moments.mean, moments.scatter):
        bad = ~np.isfinite(what.reshape(len(moments), -1)).all(axis=1)
        if bad.any():
            raise ValueError(
                f"rows must be finite, got NaN or infinity in row {int(np.argmax(bad))}; drop it"
            )
    light = ~(moments.weight > 0)
    if light.any():
        row = int(np.argmax(light))
        raise ValueError(
            f"rows must have positive weight, got {moments.weight[row]} in row {row}; leave it out"
        )


def _rows(family: CodedFamily, moments: Moments) -> Floats:
    """(energy, weight, statistic, scatter) as the kernels read it."""
    n, d = moments.mean.shape
    if not isinstance(family, AnyGaussian):
        most = 1.0 + 1e-9 if isinstance(family, BernoulliProduct) else np.inf
        if np.any(moments.mean < -1e-9) or np.any(moments.mean > most):
            raise ValueError(
                f"{family.name} rows are means of counts: check the data with family.check(points)"
            )
        counts = moments.weight[:, None] * moments.mean
        # A sum of counts that is a whole number but for rounding is one: tables can then be used.
        near = np.round(counts)
        counts = np.where(np.abs(counts - near) <= 1e-9 * np.maximum(near, 1.0), near, counts)
        return np.column_stack([np.zeros(n), moments.weight, counts])
    centred = moments.mean - family.m0
    kept = moments if moments.kind == "none" else moments.to(family.scatter)
    if kept.kind == "none":
        width = {"full": d * (d + 1) // 2, "diagonal": d, "scalar": 1}[family.scatter]
        scatter = np.zeros((n, width))
    elif isinstance(family, Gaussian):
        upper = np.triu_indices(d)
        scatter = kept.scatter[:, upper[0], upper[1]]
    else:
        scatter = kept.flat_scatter
    return np.column_stack([np.zeros(n), moments.weight, centred, scatter])


def _prior(method: Method, family: CodedFamily, d: int) -> Floats:
    """The layout that `_kernels.hierarchy` describes."""
    head = np.zeros(kernels.SHAPE)
    head[kernels.MIXING] = method.mixing
    head[kernels.SMOOTHING] = family.smoothing
    if isinstance(family, AnyGaussian) and method.code == kernels.RBHC:
        shape = np.full(1 if isinstance(family, SphericalGaussian) else d, family.smoothing)
        shape = np.diag(shape)[np.triu_indices(d)] if isinstance(family, Gaussian) else shape
    elif isinstance(family, SphericalGaussian):
        head[kernels.XI], head[kernels.ETA] = family.xi0, family.a0
        shape = np.array([family.b0])
    elif isinstance(family, Gaussian | DiagonalGaussian):
        head[kernels.XI], head[kernels.ETA] = family.xi0, family.eta0
        shape = family.B0[np.triu_indices(d)] if isinstance(family, Gaussian) else family.B0
    elif isinstance(family, Poisson):
        shape = np.concatenate([np.broadcast_to(family.a0, d), np.broadcast_to(family.b0, d)])
    else:
        shape = np.broadcast_to(family.psi0 if isinstance(family, Multinomial) else family.omega0, d)
    return np.concatenate([head, np.asarray(shape, dtype=float)])
