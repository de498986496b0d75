"""Transform: skewed features, such as amounts and durations, are compared by their logarithm, about.

>>> transform = Transform(np.array([10.0, 0.0]))
>>> transform.of(np.array([[0.0, 1.0], [1e3, 1.0], [1e6, np.nan]])).round(1)
array([[ 0. ,  1. ],
       [ 5.3,  1. ],
       [12.2,  nan]])
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from streamclust._kernels.sketch import compress_rows
from streamclust._kernels.types import Floats, Ints
from streamclust.moments import Moments
from streamclust.utils.state import State

MAX_EXPONENT = 300.0
"""Bound of transformed values when they are taken back, so that no product of two overflows."""
DIGITS = 12
"""Digits of a value that survive the way to transformed values and back."""


@dataclass(frozen=True, eq=False)
class Transform:
    """The transformed value of x is asinh(x / knee): linear below the knee, logarithmic above it.

    knee  (D,)  in the feature's unit; 0 for features that stay as they are. Features past its end stay, too.
    """

    knee: Floats

    @classmethod
    def none(cls) -> Self:
        """The transform that leaves everything as it is."""
        return cls(np.zeros(0))

    @cached_property
    def is_none(self) -> bool:
        """Whether it leaves everything as it is."""
        return not self.knee.any()

    @property
    def columns(self) -> Ints:
        """The columns that are transformed."""
        return np.flatnonzero(self.knee > 0.0)

    def to_state(self) -> State:
        """State of the transform."""
        return State({"knee": self.knee.copy()}, {})

    @classmethod
    def from_state(cls, state: State | None) -> Self:
        """The transform that `to_state` saved; older states have none."""
        if state is None:
            return cls.none()
        knee = state.arrays["knee"]
        if knee.ndim != 1 or knee.dtype != np.float64 or not (np.isfinite(knee) & (knee >= 0.0)).all():
            raise ValueError("not a transform: knees must be numbers of at least 0")
        return cls(knee)

    def is_same(self, other: Transform) -> bool:
        """Whether another transform gives the same values, bit for bit."""
        d = max(len(self.knee), len(other.knee))
        return bool(np.array_equal(self.knees(d), other.knees(d)))

    def knees(self, n_features: int) -> Floats:
        """The knee of each of the first features."""
        return np.pad(self.knee, (0, max(0, n_features - len(self.knee))))[:n_features]

    def reordered(self, columns: Ints) -> Self:
        """Of the features in another order: the new column j is the old columns[j]; -1 for one that stays as it is."""
        knee = np.append(self.knees(int(columns.max(initial=-1)) + 1), 0.0)
        return type(self)(knee[columns])

    # ---------------------------------------------------------------- in

    def of(self, rows: Floats) -> Floats:
        """Rows with the features transformed; the rows themselves if none is."""
        if self.is_none:
            return rows
        found = np.array(rows, dtype=float, order="C")
        compress_rows(found, self.knee)
        return found

    def log_slope(self, rows: Floats) -> Floats:
        """Log of the determinant of the transform's derivative at each row; a missing value has none."""
        if self.is_none:
            return np.zeros(len(rows))
        some = self.columns[self.columns < rows.shape[1]]
        slope = -np.log(np.hypot(rows[:, some], self.knee[some]))
        return np.asarray(np.where(np.isnan(slope), 0.0, slope).sum(axis=1))

    # ---------------------------------------------------------------- back

    def back(self, rows: Floats) -> Floats:
        """The rows that have these transformed values."""
        if self.is_none:
            return rows
        found = np.array(rows, dtype=float)
        some = self.columns[self.columns < rows.shape[-1]]
        part = np.clip(found[..., some], -MAX_EXPONENT, MAX_EXPONENT)
        found[..., some] = self.knee[some] * np.sinh(part)
        return found

    def as_they_came(self, rows: Floats) -> Floats:
        """The events that have these transformed values, without the rounding errors of both ways."""
        found = self.back(rows)
        if self.is_none:
            return found
        some = self.columns[self.columns < rows.shape[-1]]
        part = found[..., some]
        size = np.floor(np.log10(np.where(part != 0.0, np.abs(part), 1.0)))
        unit = 10.0 ** np.clip(DIGITS - 1 - size, -MAX_EXPONENT, MAX_EXPONENT)
        found[..., some] = np.round(part * unit) / unit
        return found

    def expand_moments(self, rows: Moments) -> Moments:
        """Moments in the features' own units.

        The mean of a transformed feature is the value of the transformed mean: the median, if values are normal when
        transformed. Its standard deviation is half the distance between the values a deviation below and above.
        """
        if self.is_none or rows.kind == "none":
            return rows
        if rows.kind == "scalar":
            each = np.repeat(rows.scatter[:, None] / rows.n_features, rows.n_features, axis=1)
            rows = Moments(rows.weight, rows.mean, each, "diagonal")
        slope = self._slope(rows)
        scatter = rows.scatter * (slope[:, :, None] * slope[:, None, :] if rows.kind == "full" else slope**2)
        return Moments(rows.weight, self.back(rows.mean), scatter, rows.kind)

    def _slope(self, rows: Moments) -> Floats:
        """Of each feature of each row, the deviation in its own unit as a multiple of that of transformed values."""
        spread = rows.covariance
        variance = np.einsum("rii->ri", spread) if rows.kind == "full" else spread
        std = np.sqrt(np.maximum(variance, 0.0))
        slope = np.ones(std.shape)
        some = self.columns[self.columns < rows.n_features]
        middle = np.clip(rows.mean[:, some], -MAX_EXPONENT, MAX_EXPONENT)
        one = np.clip(std[:, some], 1e-9, MAX_EXPONENT)
        slope[:, some] = self.knee[some] * np.cosh(middle) * np.sinh(one) / one
        return slope


@dataclass(frozen=True, eq=False)
class TransformChange:
    """From the coordinates of one transform to those of another.

    Points are mapped exactly; moments by their means, and by the slopes there.
    """

    old: Transform
    new: Transform
    n_directions: int
    """Number of coordinates, which stays."""

    def about(self, rows: Moments, origin: Floats) -> tuple[Moments, Floats]:
        """Rows of Moments whose means are relative to an origin, and the origin, in the new coordinates."""
        found = self.moments(Moments(rows.weight, rows.mean + origin, rows.scatter, rows.kind))
        new_origin = self.points(origin[None])[0]
        return Moments(found.weight, found.mean - new_origin, found.scatter, found.kind), new_origin

    def points(self, rows: Floats, rng: np.random.Generator | None = None) -> Floats:
        """Points in the new coordinates; nothing is drawn by `rng`."""
        flat = rows.reshape(-1, rows.shape[-1])
        return self.new.of(self.old.back(flat)).reshape(rows.shape)

    def moments(self, rows: Moments) -> Moments:
        """Rows of Moments in the new coordinates."""
        mean = self.points(rows.mean)
        if rows.kind == "none":
            return Moments(rows.weight, mean, rows.scatter, "none")
        d = rows.n_features
        old, new = self.old.knees(d), self.new.knees(d)
        x = self.old.back(rows.mean)
        slope = np.where(old > 0.0, np.hypot(x, old), 1.0) / np.where(new > 0.0, np.hypot(x, new), 1.0)
        if rows.kind == "full":
            scatter = rows.scatter * slope[:, :, None] * slope[:, None, :]
        elif rows.kind == "diagonal":
            scatter = rows.scatter * slope**2
        else:
            scatter = rows.scatter * (slope**2).mean(axis=1)
        return Moments(rows.weight, mean, scatter, rows.kind)
