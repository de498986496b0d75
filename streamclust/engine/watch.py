"""Watch: a bounded sample of the latest events, from which the engine sees that the stream has changed."""

from __future__ import annotations

import numpy as np

from streamclust._kernels.types import Floats, Ints

STRIDE = 8
"""One event in so many is watched, once WINDOW of them have been."""
WINDOW = 4096
"""So many of the watched events are kept."""


class Watch:
    """The latest watched events, in a ring.

    Which events are watched depends on their number alone, never on how they were batched.

    >>> watch = Watch(n_features=1)
    >>> watch.see(np.arange(10.0)[:, None], first=0)
    >>> watch.latest(3)[:, 0]
    array([7., 8., 9.])
    """

    def __init__(self, n_features: int) -> None:
        self.rows = np.zeros((WINDOW, n_features))
        self.weight = np.ones(WINDOW)
        self.count = 0

    def see(self, rows: Floats, first: int, weight: Floats | None = None) -> None:
        """Keep those of these events that are to be watched; the first of them is number `first` of all."""
        early = min(max(WINDOW - first, 0), len(rows))
        late = np.arange(early + -(first + early) % STRIDE, len(rows), STRIDE)
        chosen = np.concatenate([np.arange(early), late]) if early else late
        self.count += len(chosen)
        chosen = chosen[-WINDOW:]
        place = (self.count - len(chosen) + np.arange(len(chosen))) % WINDOW
        self.rows[place] = rows[chosen]
        self.weight[place] = 1.0 if weight is None else weight[chosen]

    def __len__(self) -> int:
        return min(self.count, WINDOW)

    def latest(self, n: int = WINDOW) -> Floats:
        """The latest n watched events, or as many as there are, the oldest first."""
        return self.rows[self._places(n)]

    def weights(self, n: int = WINDOW) -> Floats:
        """What each event that `latest` gives weighed when it came."""
        return self.weight[self._places(n)]

    def _places(self, n: int) -> Ints:
        n = min(n, len(self))
        return (self.count - n + np.arange(n)) % WINDOW

    def numbers(self) -> Ints:
        """The number, in its shard, of each event that `latest()` gives."""
        index = self.count - len(self) + np.arange(len(self))
        return np.where(index < WINDOW, index, WINDOW + (index - WINDOW) * STRIDE)

    def merge(self, other: Watch) -> None:
        """Keep what another has watched, as the latest, and the number of both."""
        n = len(other)
        place = (self.count + np.arange(n)) % WINDOW
        self.rows[place], self.weight[place] = other.latest(), other.weights()
        self.count += n

    def widen(self, values: Floats) -> None:
        """Add features in which every event so far has the same values."""
        self.rows = np.concatenate([self.rows, np.broadcast_to(values, (WINDOW, len(values)))], axis=1)
