"""Sketch: a linear map from wide events to few coordinates, and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from streamclust._kernels.sketch import project_cells, project_rows
from streamclust._kernels.types import Bools, Floats
from streamclust.moments import Moments
from streamclust.sketch.compression import Compression, Rows, is_same
from streamclust.sketch.tuning import TUNING
from streamclust.utils.late import gammaincinv, issparse
from streamclust.utils.state import State, fields_state
from streamclust.utils.values import MAX_MAGNITUDE


@dataclass(frozen=True, eq=False)
class Sketch:
    """A linear map of events of D features onto d orthonormal directions; it never changes.

    centre       (D,)    mean of the events it was learnt from
    scale        (D,)    units in which features are compared
    directions   (D, d)  orthonormal, in these units
    noise        (D,)    variance of each feature, in these units, that the directions leave out
    level        mean of the squared length of what the directions leave out of an event (the residual)
    spread       standard deviation of that
    unit         events are divided by their length first, so that they are compared by angle
    independent  coordinates are independent within clusters: these have diagonal covariances
    compression  features that are compressed first, all else being about their compressed values; None: none is
    """

    centre: Floats
    scale: Floats
    directions: Floats
    noise: Floats
    level: float = 0.0
    spread: float = 0.0
    unit: bool = False
    compression: Compression | None = None
    independent: bool = False

    def to_state(self) -> State:
        """State of the sketch."""
        arrays, values = fields_state(self, skip=("compression",))
        return State(arrays if self.compression is None else arrays | self.compression._asdict(), values)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The sketch that `to_state` saved; ValueError if it is none."""
        arrays = state.arrays
        compression = Compression(*(arrays[f] for f in Compression._fields)) if "knee" in arrays else None
        centre, scale, directions, noise = (
            arrays[name] for name in ("centre", "scale", "directions", "noise")
        )
        sketch = cls(centre, scale, directions, noise, **state.values, compression=compression)
        check_sketch(sketch)
        for name in ("unit", "independent"):
            if not isinstance(getattr(sketch, name), bool):
                raise ValueError(f"not a sketch: {name} must be true or false, got {getattr(sketch, name)!r}")
        return sketch

    @property
    def n_features(self) -> int:
        """D."""
        return len(self.centre)

    @property
    def n_directions(self) -> int:
        """d."""
        return int(self.directions.shape[1])

    # ---------------------------------------------------------------- in

    def project(self, rows: Rows) -> Floats:
        """The coordinates (rows, d) of events. A missing value counts as the centre's."""
        return self.measure(rows)[0]

    def measure(self, rows: Rows) -> tuple[Floats, Floats]:
        """The coordinates of events, and the squared length of what they leave out of each."""
        rows = rows if self.compression is None else self.compression.of(rows)
        z, squares = np.empty((rows.shape[0], self.n_directions)), np.empty(rows.shape[0])
        centre, inverse, unit, outer = self.centre, self._inverse, self.unit, self._outer
        if issparse(rows):
            cells = rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data.astype(float)
            origin, length = self._origin
            project_cells(*cells, centre, inverse, self.directions, origin, length, unit, outer, z, squares)
        else:
            x = np.require(rows, requirements=["C", "A", "W"])
            project_rows(x, centre, inverse, self._transposed, unit, outer, z, squares)
        return z, np.maximum(squares - np.einsum("ij,ij->i", z, z), 0.0)

    @cached_property
    def _inverse(self) -> Floats:
        return 1.0 / self.scale

    @cached_property
    def _transposed(self) -> Floats:
        return np.ascontiguousarray(self.directions.T)

    @cached_property
    def _origin(self) -> tuple[Floats, float]:
        """The coordinates of a row of zeros, and its squared length."""
        z, squares = np.empty((1, self.n_directions)), np.empty(1)
        zeros, how = np.zeros((1, self.n_features)), (self.centre, self._inverse, self._transposed)
        project_rows(zeros, *how, self.unit, self._outer, z, squares)
        return z[0], float(squares[0])

    @cached_property
    def _outer(self) -> float:
        """One over the unit of features that came after the map was learnt."""
        return 1.0 / float(np.median(self.scale))

    def surprise(self, residual: Floats) -> Floats:
        """Novelty, in nats, that a squared residual adds to an event: 0 for one of average length.

        That of a Gaussian in as many dimensions as give residuals of this mean and deviation.
        """
        if not self.spread > 0.0:
            return np.zeros(len(residual))
        return np.asarray((residual - self.level) * (self.level / self.spread**2))

    def outside(self, residual: Floats) -> Bools:
        """Whether squared residuals are longer than nearly all of those that the map was learnt from."""
        if not self.spread > 0.0:
            return np.zeros(len(residual), dtype=bool)
        shape = (self.level / self.spread) ** 2
        return np.asarray(residual > gammaincinv(shape, TUNING.inside_share) * self.level / shape)

    def growth(self, residual: Floats) -> float:
        """Mean of squared residuals as a multiple of the level; each counts for some levels at most."""
        return float(np.minimum(residual / self.level, TUNING.max_residual_levels).mean())

    def is_left_by(self, residual: Floats) -> bool:
        """Whether the squared residuals of some events are longer, on average, than chance explains."""
        if not self.spread > 0.0:
            return False
        excess = (self.growth(residual) - 1.0) * self.level
        return (
            excess > TUNING.left_errors * self.spread / math.sqrt(len(residual))
            and excess > TUNING.left_growth * self.level
        )

    # ---------------------------------------------------------------- back

    def expand(self, coordinates: Floats) -> Floats:
        """The events (rows, D) that have these coordinates and no residual; of unit length only about, if `unit`.

        Compressed features are told by a multiple of their compressed values that is right on average.
        """
        x = np.asarray(self.centre + coordinates @ self.directions.T * self.scale)
        return x if self.compression is None else x * self.compression.gain

    def expand_moments(self, rows: Moments) -> Moments:
        """Moments in the events' own features: means, and the variance of each with its part of the residual."""
        if rows.kind == "none":
            mean = self.expand(rows.mean)
            return Moments(rows.weight, mean, np.zeros((len(mean), 0)), "none")
        if rows.kind == "full":
            within = np.einsum("jk,rkl,jl->rj", self.directions, rows.scatter, self.directions, optimize=True)
        elif rows.kind == "diagonal":
            within = rows.scatter @ (self.directions**2).T
        else:
            within = (rows.scatter / self.n_directions)[:, None] * (self.directions**2).sum(axis=1)
        scatter = (within + rows.weight[:, None] * self.noise) * self.scale**2
        if self.compression is not None:
            scatter = scatter * self.compression.stretch**2
        return Moments(rows.weight, self.expand(rows.mean), scatter, "diagonal")

    # ---------------------------------------------------------------- comparing

    def is_same(self, other: Sketch | None) -> bool:
        """Whether another sketch gives the same coordinates, bit for bit."""
        return other is self or (
            other is not None
            and (self.unit, self.independent) == (other.unit, other.independent)
            and is_same(self.compression, other.compression)
            and all(
                np.array_equal(getattr(self, name), getattr(other, name))
                for name in ("centre", "scale", "directions")
            )
        )

    def __repr__(self) -> str:
        on = ", on the sphere" if self.unit else ""
        return f"Sketch({self.n_features} features in {self.n_directions} directions{on})"


def identity(n_features: int, unit: bool = False) -> Sketch:
    """The sketch that leaves events as they are or, with `unit`, divides them by their length."""
    return Sketch(
        np.zeros(n_features), np.ones(n_features), np.eye(n_features), np.zeros(n_features), unit=unit
    )


def check_lengths(rows: Floats) -> None:
    """Raise ValueError for a row of zeros, which has no angle; a missing value counts as 0."""
    doubtful = rows[~(np.abs(rows[:, 0]) > 0)]  # few, as a rule
    if not np.all(np.any(np.nan_to_num(doubtful), axis=1)):
        raise ValueError('an event of zeros has no angle, by which scale="unit" compares events')


def check_sketch(sketch: Sketch) -> None:
    """Raise ValueError for arrays that are no sketch: those of a damaged checkpoint."""
    d, shape = sketch.centre.shape, sketch.directions.shape
    if (
        sketch.scale.shape != d
        or sketch.noise.shape != d
        or len(shape) != 2
        or shape[:1] != d
        or not 1 <= shape[1] <= max(1, shape[0])
    ):
        raise ValueError(f"not a sketch: centre {d}, scale {sketch.scale.shape}, directions {shape}")
    arrays = sketch.centre, sketch.scale, sketch.directions, sketch.noise
    numbers = sketch.level, sketch.spread
    if sketch.compression is not None and any(a.shape != d or not (a >= 0).all() for a in sketch.compression):
        raise ValueError("not a sketch: its compression is of other features, or has negative numbers")
    if (
        not all((np.abs(a) <= MAX_MAGNITUDE).all() for a in arrays)
        or not (sketch.scale > 0).all()
        or not all(map(math.isfinite, numbers))
    ):
        raise ValueError("not a sketch: its numbers are not finite or too large, or a scale is not positive")
