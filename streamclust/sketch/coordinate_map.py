"""From the coordinates of one sketch to those of another: what was learnt in the first is carried over."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.moments import Moments
from streamclust.sketch.sketch import Sketch


def knees(sketch: Sketch) -> Floats:
    """The knee of each feature, 0 for those that are not compressed."""
    return np.zeros(sketch.n_features) if sketch.compression is None else sketch.compression.knee


@dataclass(frozen=True, eq=False)
class CoordinateMap:
    """A linear map of coordinates; moments are mapped exactly, as those of the events without their residuals.

    matrix  (d', d)   new coordinates = matrix · old coordinates + shift
    shift   (d',)
    noise   (d', d')  covariance that residuals, which the old coordinates leave out, have in the new ones
    """

    matrix: Floats
    shift: Floats
    noise: Floats

    @classmethod
    def between(cls, old: Sketch, new: Sketch) -> CoordinateMap:
        """The map from one sketch's coordinates to another's.

        A feature that one of them lacks, or compresses otherwise, is at its centre.
        """
        both = min(old.n_features, new.n_features)
        alike = knees(old)[:both] == knees(new)[:both]
        ratio = np.where(alike, old.scale[:both] / new.scale[:both], 0.0)
        seen = new.directions[:both] * ratio[:, None]
        left_out = seen - old.directions[:both] @ (old.directions[:both].T @ seen)
        gap = np.where(alike, old.centre[:both] - new.centre[:both], 0.0)
        shift = gap / new.scale[:both] @ new.directions[:both]
        return cls(
            np.ascontiguousarray(seen.T @ old.directions[:both]),
            shift,
            (left_out * old.noise[:both, None]).T @ left_out,
        )

    @property
    def n_directions(self) -> int:
        """d', the number of new coordinates."""
        return len(self.shift)

    def points(self, rows: Floats, rng: np.random.Generator) -> Floats:
        """Points in the new coordinates, with residuals drawn at random: the old ones do not know them."""
        drawn = rng.standard_normal((*rows.shape[:-1], self.n_directions)) @ self._root
        return np.asarray(rows @ self.matrix.T + self.shift + drawn)

    @cached_property
    def _root(self) -> Floats:
        """A matrix whose product of its transpose with itself is `noise`."""
        variance, directions = np.linalg.eigh(self.noise)
        return np.asarray(np.sqrt(np.maximum(variance, 0.0))[:, None] * directions.T)

    def about(self, rows: Moments, origin: Floats) -> tuple[Moments, Floats]:
        """Rows of Moments whose means are relative to an origin, and the origin, in the new coordinates."""
        found = self.moments(rows)
        relative = Moments(found.weight, found.mean - self.shift, found.scatter, found.kind)
        return relative, np.asarray(self.matrix @ origin + self.shift)

    def moments(self, rows: Moments) -> Moments:
        """Rows of Moments in the new coordinates."""
        mean, each = rows.mean @ self.matrix.T + self.shift, rows.weight
        if rows.kind == "full":
            within = np.einsum("ij,rjk,lk->ril", self.matrix, rows.scatter, self.matrix, optimize=True)
            scatter = within + each[:, None, None] * self.noise
        elif rows.kind == "diagonal":
            scatter = rows.scatter @ (self.matrix**2).T + each[:, None] * self.noise.diagonal()
        elif rows.kind == "scalar":
            scatter = rows.scatter * (self.matrix**2).sum() / rows.n_features + each * self.noise.trace()
        else:
            scatter = rows.scatter
        return Moments(rows.weight, mean, scatter, rows.kind)
