"""Features that a stream's events no longer have, and which are known again if they come back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.utils.state import Arrays

MAX_ABSENT = 32
"""Number of features that are remembered; of more, those that went first are forgotten."""
SAME_FEATURE = 0.5
"""Two means are of one feature if they are nearer than this part of the remembered one's length."""


class AbsentFeatures(NamedTuple):
    """Ids, means and weights of the features that are away, in the order in which they went; immutable."""

    ids: Ints
    A: Floats
    weights: Floats

    @classmethod
    def none(cls, n_columns: int) -> Self:
        """No features."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros((0, n_columns)), np.zeros(0))

    def without(self, which: Bools) -> AbsentFeatures:
        """All but these."""
        return AbsentFeatures(self.ids[~which], self.A[~which], self.weights[~which])

    def more(self, ids: Ints, A: Floats, weights: Floats) -> AbsentFeatures:
        """With others, that have gone now."""
        return AbsentFeatures(
            np.append(self.ids, ids)[-MAX_ABSENT:],
            np.concatenate([self.A, A])[-MAX_ABSENT:],
            np.append(self.weights, weights)[-MAX_ABSENT:],
        )

    def widened(self, n_columns: int) -> AbsentFeatures:
        """With room for columns that events have brought since."""
        return self._replace(A=np.pad(self.A, ((0, 0), (0, max(n_columns - self.A.shape[1], 0)))))

    def faded(self, by: float) -> AbsentFeatures:
        """With weights that have decayed."""
        return self._replace(weights=self.weights * by)

    def match(self, A: Floats) -> Ints:
        """For each of other means the place of the feature here that it is, or -1; each feature is found once.

        >>> gone = AbsentFeatures(np.array([7]), np.array([[3.0, 0.0]]), np.array([10.0]))
        >>> gone.match(np.array([[0.0, 3.0], [2.5, 0.5]]))
        array([-1,  0])
        """
        found = np.full(len(A), -1, dtype=np.int64)
        if len(A) == 0 or len(self.A) == 0:
            return found
        length = np.linalg.norm(self.A, axis=1)
        apart = np.linalg.norm(A[:, None] - self.A[None], axis=2) / np.maximum(length, 1e-300)
        for i in np.argsort(apart.min(axis=1), kind="stable"):
            place = int(apart[i].argmin())
            if apart[i, place] < SAME_FEATURE:
                found[i] = place
                apart[:, place] = np.inf
        return found

    def to_arrays(self) -> Arrays:
        """Complete state."""
        return {f"absent_{name}": part.copy() for name, part in zip(self._fields, self, strict=True)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Self:
        """The features that `to_arrays` saved; KeyError, TypeError or ValueError if they are none."""
        absent = cls(*(np.array(arrays[f"absent_{name}"]) for name in cls._fields))
        n = len(absent.ids)
        if absent.A.ndim != 2 or len(absent.A) != n or absent.weights.shape != (n,):
            raise ValueError("its arrays do not fit each other")
        return absent._replace(ids=absent.ids.astype(np.int64))
