"""Presence: which features of a stream its events no longer have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.lineage.visits import PATIENCE
from streamclust.utils.state import Arrays

GONE_SHARE = 0.125
"""A feature that so small a part of the usual events have is gone: noise gives a few events a feature that ended."""
GONE_NATS = 14.0
"""Log likelihood ratio of gone against present at which a feature may be retired: one in a million by chance."""
MIN_ABSENCE = 2048
"""Least number of events that a feature must be away, to be gone: what pauses once is not."""
MAX_SHARE = 0.99
"""Larger shares are taken for this: a feature of all events may lack in one."""
SAVED = ("doubt", "last", "absence")


class FeaturePresence:
    """For each feature a sequential test of absence [CUSUM, Page 1954], and its longest absence so far.

    A feature is gone after three times its longest absence: as for clusters, some come and go.

    >>> presence = FeaturePresence(1)
    >>> for at in range(64, 2049, 64):
    ...     presence.learn(np.array([0.0]), np.array([0.4]), 64, at)
    >>> presence.gone(2048)
    array([ True])
    """

    def __init__(self, n_features: int, at: int = 0) -> None:
        self.doubt: Floats = np.zeros(n_features)
        """Log likelihood ratio, in nats, that the feature is gone since `last`; bounded, to fall soon if it returns."""
        self.last: Ints = np.full(n_features, at, dtype=np.int64)
        """Event count at which each feature was there."""
        self.absence: Ints = np.zeros(n_features, dtype=np.int64)
        """Longest absence of each feature, in events."""

    def learn(self, count: Floats, share: Floats, n: int, at: int) -> None:
        """Learn that `count` of `n` events, up to event `at`, have each feature, where its share lets expect more."""
        usual = np.clip(share, 1e-9, MAX_SHARE)
        gone = GONE_SHARE * usual
        without = np.log1p(-gone) - np.log1p(-usual)
        doubt = self.doubt + count * np.log(GONE_SHARE) + (n - count) * without
        self.doubt = np.clip(doubt, 0.0, 2.0 * GONE_NATS)
        there = self.doubt == 0.0
        self.absence = np.where(there, np.maximum(self.absence, at - n - self.last), self.absence)
        self.last = np.where(there, at, self.last)

    def gone(self, at: int) -> Bools:
        """Which features the events no longer have."""
        away = at - self.last
        return np.asarray(
            (self.doubt > GONE_NATS) & (away >= np.maximum(PATIENCE * self.absence, MIN_ABSENCE))
        )

    def keep(self, features: Ints) -> None:
        """Take the features at these places; -1 is a new one, as of the latest event."""
        at = int(self.last.max(initial=0))
        known = features >= 0
        for name, new in zip(SAVED, (0.0, at, 0), strict=True):
            values = getattr(self, name)
            kept = np.full(len(features), new, dtype=values.dtype)
            kept[known] = values[features[known]]
            setattr(self, name, kept)

    def to_arrays(self) -> Arrays:
        """Complete state."""
        return {name: getattr(self, name).copy() for name in SAVED}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], n_features: int) -> Self:
        """The state that `to_arrays` saved; KeyError, TypeError or ValueError if it is none."""
        presence = cls(n_features)
        for name in SAVED:
            values = np.array(arrays[name]).astype(getattr(presence, name).dtype)
            if values.shape != (n_features,) or not np.isfinite(values).all():
                raise ValueError("its arrays do not fit each other")
            setattr(presence, name, values)
        return presence
