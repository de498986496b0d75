"""Moments: rows of (weight, mean, centred scatter).

A leaf of the tree, a cluster and a node of a dendrogram are all rows of Moments. The scatter is always
centred, Σ w (x - mean)(x - mean)ᵀ: raw sums of squares lose every digit away from the origin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, cast

import numpy as np
from numpy.typing import ArrayLike

from streamclust._kernels.moments import group_rows
from streamclust._kernels.types import Floats, Ints

Scatter = Literal["full", "diagonal", "scalar", "none"]
SCATTERS: tuple[Scatter, ...] = ("full", "diagonal", "scalar", "none")


def scatter_shape(kind: Scatter, n_features: int) -> tuple[int, ...]:
    """Shape of one row's scatter: (D, D), (D,), () or, for "none", (0,)."""
    if kind not in SCATTERS:
        raise ValueError(f"scatter must be one of {', '.join(SCATTERS)}, got {kind!r}")
    return {"full": (n_features, n_features), "diagonal": (n_features,), "scalar": (), "none": (0,)}[kind]


def scatter_width(kind: Scatter, n_features: int) -> int:
    """How many numbers one row's scatter holds: the last axis of the flattened form kernels use."""
    return prod(scatter_shape(kind, n_features))


@dataclass(frozen=True, eq=False)
class Moments:
    """Rows of sufficient statistics.

    weight   (rows,)          Σ w
    mean     (rows, D)        Σ w x / Σ w
    scatter  (rows, D, D)     Σ w (x - mean)(x - mean)ᵀ; its diagonal (rows, D), its trace (rows,),
                              or (rows, 0) where none is kept, as `kind` says

    >>> m = Moments.of_points([[0.0, 0.0], [2.0, 4.0]])
    >>> m.weight, m.mean, m.scatter
    (array([2.]), array([[1., 2.]]), array([[[2., 4.],
            [4., 8.]]]))
    >>> other = Moments.of_points([[5.0, 5.0]], weight=[3.0])
    >>> (m + other).mean
    array([[3.4, 3.8]])
    """

    weight: Floats
    mean: Floats
    scatter: Floats
    kind: Scatter = "full"

    def __post_init__(self) -> None:
        rows, d = self.mean.shape
        expected = (rows, *scatter_shape(self.kind, d))
        if self.weight.shape != (rows,) or self.scatter.shape != expected:
            raise ValueError(
                f"{rows} rows of {d} features with {self.kind} scatter need weight {(rows,)} and scatter "
                f"{expected}, got {self.weight.shape} and {self.scatter.shape}"
            )

    # ---------------------------------------------------------------- making

    @classmethod
    def of_points(cls, points: ArrayLike, weight: ArrayLike | None = None, kind: Scatter = "full") -> Moments:
        """One row that sums up all the points."""
        return cls.rows_of_points(points, weight).to_groups(None, kind=kind)

    @classmethod
    def rows_of_points(cls, points: ArrayLike, weight: ArrayLike | None = None) -> Moments:
        """One row for each point: its own mean, and no scatter."""
        x = np.asarray(points, dtype=float)
        if x.ndim != 2:
            raise ValueError(f"points must be a table of rows and columns, got shape {x.shape}")
        w = np.ones(len(x)) if weight is None else np.asarray(weight, dtype=float)
        if not np.all(w >= 0):
            raise ValueError(f"weights must not be negative, got {w[~(w >= 0)][0]}")
        return cls(w, x, np.zeros((len(x), 0)), "none")

    @classmethod
    def empty(cls, rows: int, n_features: int, kind: Scatter = "full") -> Moments:
        """Rows of weight zero: the neutral element of merging."""
        shape = (rows, *scatter_shape(kind, n_features))
        return cls(np.zeros(rows), np.zeros((rows, n_features)), np.zeros(shape), kind)

    @classmethod
    def stack(cls, parts: Sequence[Moments]) -> Moments:
        """Put the rows of all parts one below the other."""
        if not parts:
            raise ValueError("nothing to stack; use Moments.empty(0, n_features) for no rows at all")
        for part in parts:
            parts[0]._check_same_form(part)
        return cls(
            np.concatenate([p.weight for p in parts]),
            np.concatenate([p.mean for p in parts]),
            np.concatenate([p.scatter for p in parts]),
            parts[0].kind,
        )

    @classmethod
    def from_flat(cls, weight: Floats, mean: Floats, flat: Floats, kind: Scatter) -> Moments:
        """From the flattened scatter that kernels use."""
        return cls(weight, mean, flat.reshape(len(mean), *scatter_shape(kind, mean.shape[1])), kind)

    @property
    def flat_scatter(self) -> Floats:
        """The scatter with one flattened row per row of moments, as kernels use it."""
        width = scatter_width(self.kind, self.n_features)
        return np.ascontiguousarray(self.scatter, dtype=float).reshape(len(self), width)

    # ---------------------------------------------------------------- reading

    def __len__(self) -> int:
        return len(self.weight)

    @property
    def n_features(self) -> int:
        """D, the number of columns."""
        return int(self.mean.shape[1])

    def __getitem__(self, rows: int | slice | Ints | Sequence[int]) -> Moments:
        if isinstance(rows, (int, np.integer)):
            if not -len(self) <= rows < len(self):  # also what ends a loop over the rows
                raise IndexError(f"row {rows} of {len(self)}")
            index: slice | Ints | Sequence[int] = slice(rows, rows + 1 or None)
        else:
            index = rows
        return Moments(self.weight[index], self.mean[index], self.scatter[index], self.kind)

    @property
    def covariance(self) -> Floats:
        """Scatter over weight, in the scatter's own shape (zero where the weight is zero).

        A scalar scatter gives the mean variance of a feature.
        """
        if self.kind == "none":
            raise ValueError("these rows keep no scatter, so they have no covariance")
        divisor = np.where(self.weight > 0, self.weight, 1.0)
        if self.kind == "scalar":
            divisor = divisor * self.n_features
        return self.scatter / divisor.reshape(-1, *[1] * (self.scatter.ndim - 1))

    @property
    def trace(self) -> Floats:
        """Trace of the scatter: the summed squared distance to the mean (zero where no scatter is kept)."""
        return cast(Floats, self._diagonal.sum(axis=1))

    @property
    def _diagonal(self) -> Floats:
        """A view of what the scatter holds of its diagonal: D numbers a row, their sum, or nothing."""
        if self.kind == "full":
            return cast(Floats, np.einsum("rii->ri", self.scatter))
        return self.scatter[:, None] if self.kind == "scalar" else self.scatter

    def to(self, kind: Scatter) -> Moments:
        """Keep the rows with a coarser scatter: full > diagonal > scalar > none."""
        scatter_shape(kind, self.n_features)  # refuses a kind there is not
        if SCATTERS.index(kind) < SCATTERS.index(self.kind):
            raise ValueError(f"a {self.kind} scatter does not hold what a {kind} one needs")
        if kind == self.kind:
            return self
        if kind == "diagonal":
            scatter = self._diagonal.copy()
        else:
            scatter = self.trace if kind == "scalar" else np.zeros((len(self), 0))
        return Moments(self.weight, self.mean, scatter, kind)

    # ---------------------------------------------------------------- algebra

    def __add__(self, other: Moments) -> Moments:
        """Row by row, the moments of both sets of points together [Chan, Golub & LeVeque 1979]."""
        self._check_pairs(other)
        total = self.weight + other.weight
        share = np.divide(other.weight, total, out=np.zeros_like(total), where=total > 0)[:, None]
        deviation = other.mean - self.mean
        mean = np.where(share == 1.0, other.mean, self.mean + share * deviation)
        scatter = self.scatter + other.scatter + self._outer(deviation, self.weight * share[:, 0])
        return Moments(total, mean, scatter, self.kind)

    def __sub__(self, other: Moments) -> Moments:
        """Undo a merge: (a + b) - b is a, as exactly as the digits left allow.

        Exact only where `other` is part of `self`; a result that no set of points could have is refused.
        """
        self._check_pairs(other)
        left = self.weight - other.weight
        rounding = 1e-12 * self.weight
        if np.any(left < -rounding):
            raise ValueError("cannot take away more weight than a row has")
        gone = left <= rounding
        left = np.where(gone, 0.0, left)
        deviation = self.mean - other.mean
        ratio = np.divide(other.weight, left, out=np.zeros_like(left), where=~gone)
        mean = np.where(gone[:, None], 0.0, self.mean + ratio[:, None] * deviation)
        factor = self.weight * np.where(gone, 1.0, ratio)
        scatter = self.scatter - other.scatter - self._outer(deviation, factor)
        result = Moments(left, mean, scatter, self.kind)
        diagonal = result._diagonal
        # Far from the origin the means are rounded, and the distance between them is known no better.
        blur = 4 * np.finfo(float).eps * (np.abs(self.mean) + np.abs(other.mean))
        slack = factor[:, None] * (2 * np.abs(deviation) + blur) * blur
        slack = slack.sum(axis=1, keepdims=True) if self.kind == "scalar" else slack[:, : diagonal.shape[1]]
        if np.any(diagonal < -slack - 1e-9 * self._diagonal):
            raise ValueError("the rows taken away were not part of these: scatter would become negative")
        np.maximum(diagonal, 0.0, out=diagonal)
        scatter[gone] = 0.0
        return result

    def scale(self, factor: float | Floats) -> Moments:
        """Every event counted `factor` times: weights and scatter grow, means stay."""
        if isinstance(factor, float):  # one for all: no arrays are made of it
            if not factor >= 0:
                raise ValueError(f"a scale must not be negative, got {factor}")
            return Moments(self.weight * factor, self.mean, self.scatter * factor, self.kind)
        f = np.broadcast_to(np.asarray(factor, dtype=float), self.weight.shape)
        if not np.all(f >= 0):
            raise ValueError(f"a scale must not be negative, got {f.min()}")
        scatter = self.scatter * f.reshape(-1, *[1] * (self.scatter.ndim - 1))
        return Moments(self.weight * f, self.mean, scatter, self.kind)

    def shift(self, offset: Floats) -> Moments:
        """Move every point of the rows by `offset`."""
        return Moments(self.weight, self.mean + offset, self.scatter, self.kind)

    def spread(self, step: Floats) -> Moments:
        """Rows of which half the points lie one step ahead, each row its own, and half one step behind.

        >>> Moments.of_points([[0.0, 0.0]]).spread(np.array([[2.0, 0.0]])).scatter.tolist()
        [[[4.0, 0.0], [0.0, 0.0]]]
        """
        return Moments(self.weight, self.mean, self.scatter + self._outer(step, self.weight), self.kind)

    def widen(self, values: Floats) -> Moments:
        """The rows with more features, one for each value, which all their points have.

        >>> Moments.of_points([[0.0], [2.0]]).widen(np.array([5.0])).scatter
        array([[[2., 0.],
                [0., 0.]]])
        """
        rows, more = len(self), len(values)
        mean = np.concatenate([self.mean, np.broadcast_to(values, (rows, more))], axis=1)
        after = {"full": ((0, 0), (0, more), (0, more)), "diagonal": ((0, 0), (0, more))}.get(self.kind)
        scatter = self.scatter if after is None else np.pad(self.scatter, after)
        return Moments(self.weight, mean, scatter, self.kind)

    def total(self) -> Moments:
        """All rows merged into one."""
        return self.to_groups(None)

    def to_groups(
        self, labels: Ints | None, n_groups: int | None = None, kind: Scatter | None = None
    ) -> Moments:
        """Rows merged by label: `labels[i]` in 0..n_groups-1, or below 0 to leave row i out; None: one group.

        `kind` is the scatter wanted; rows that keep none count as points.
        """
        kind = kind or self.kind
        rows = self if self.kind == "none" else self.to(kind)
        groups = np.zeros(len(self), dtype=np.int64) if labels is None else np.asarray(labels, dtype=np.int64)
        if labels is None:
            n_groups = 1
        elif n_groups is None:
            n_groups = int(groups.max(initial=-1)) + 1
        if groups.shape != self.weight.shape or np.any(groups >= n_groups):
            raise ValueError(f"labels must be {len(self)} numbers below {n_groups}")
        out = group_rows(
            np.ascontiguousarray(rows.weight, dtype=float),
            np.ascontiguousarray(rows.mean, dtype=float),
            rows.flat_scatter,
            groups,
            n_groups,
            scatter_width(kind, self.n_features),
        )
        return Moments.from_flat(*out, kind)

    def mix(self, responsibility: Floats, kind: Scatter | None = None) -> Moments:
        """Rows merged by fractions: responsibility[i, j] of row i goes to row j of the result.

        This is the M-step of a mixture [chunky EM eqs. 3.15-3.17, before normalising].
        """
        kind = kind or self.kind
        rows = self if self.kind == "none" else self.to(kind)
        r = np.asarray(responsibility, dtype=float)
        if r.ndim != 2 or len(r) != len(self):
            raise ValueError(
                f"responsibility must have a row for each of {len(self)} rows, got shape {r.shape}"
            )
        shares = r * self.weight[:, None]
        weight = shares.sum(axis=0)
        reference = self.mean[:1].sum(axis=0)
        mean = shares.T @ (self.mean - reference) / np.where(weight > 0, weight, 1.0)[:, None] + reference
        mean[weight <= 0] = 0.0
        flat = np.zeros((len(weight), scatter_width(kind, self.n_features)))
        if rows.kind != "none":
            flat += r.T @ rows.flat_scatter
        for j in np.flatnonzero(weight > 0):
            share = shares[:, j]
            deviation = self.mean - mean[j]
            # The mean was summed from a reference that may be far away: what it slipped by shows here.
            slip = share @ deviation / weight[j]
            mean[j] += slip
            deviation -= slip
            if kind == "full":
                flat[j] += ((deviation * share[:, None]).T @ deviation).ravel()
            elif kind == "diagonal":
                flat[j] += share @ deviation**2
            elif kind == "scalar":
                flat[j] += share @ (deviation**2).sum(axis=1)
        return Moments.from_flat(weight, mean, flat, kind)

    def _outer(self, deviation: Floats, factor: Floats) -> Floats:
        """Row by row factor * deviation deviationᵀ, in this kind of scatter."""
        if self.kind == "full":
            return cast(Floats, np.einsum("r,ri,rj->rij", factor, deviation, deviation))
        if self.kind == "diagonal":
            return factor[:, None] * deviation**2
        if self.kind == "scalar":
            return cast(Floats, factor * np.einsum("ri,ri->r", deviation, deviation))
        return np.zeros((len(factor), 0))

    def _check_pairs(self, other: Moments) -> None:
        self._check_same_form(other)
        if len(self) != len(other) and 1 not in (len(self), len(other)):
            raise ValueError(f"cannot pair {len(self)} rows with {len(other)}")

    def _check_same_form(self, other: Moments) -> None:
        if self.kind != other.kind or self.n_features != other.n_features:
            raise ValueError(
                f"cannot combine {self.kind} rows of {self.n_features} features with {other.kind} rows of "
                f"{other.n_features}"
            )
