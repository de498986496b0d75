"""Example: a recent event that stands for a cluster, or lies between two."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamclust._kernels.types import Ints
from streamclust.engine.representatives import RecentSample


@dataclass(frozen=True)
class Example:
    """A recent event of a cluster."""

    number: int
    """Number of events learnt before it."""
    cluster: int
    probability: float
    """Probability that it is of this cluster."""
    values: dict[Hashable, float]
    """Its features; those that it lacks are left out."""


class Representatives(NamedTuple):
    """A sample of the recent events, from which examples are chosen. Holds copies."""

    sample: RecentSample | None
    names: tuple[Hashable, ...]
    zeros: bool = False
    """Whether a missing value is 0: features that are 0 are left out of examples, too."""

    def typical(self, cluster: int, k: int = 5) -> list[Example]:
        """The k most typical events of a cluster."""
        sample = self._sample_with(cluster)
        return self._examples(sample, sample.typical(cluster, k))

    def between(self, one: int, other: int, k: int = 5) -> list[Example]:
        """The k events of two clusters that are hardest to tell apart."""
        sample = self._sample_with(one, other)
        if one == other:
            raise ValueError(f"events lie between two different clusters, got {one} twice")
        return self._examples(sample, sample.between(one, other, k))

    def neighbour(self, cluster: int) -> int | None:
        """The cluster whose events are hardest to tell from those of this one; None if it is alone."""
        return self._sample_with(cluster).neighbour(cluster)

    def _sample_with(self, *clusters: int) -> RecentSample:
        ids = [] if self.sample is None else self.sample.model.names.tolist()
        for cluster in clusters:
            if cluster not in ids:
                raise KeyError(f"there is no cluster {cluster} now; the clusters are {ids}")
        assert self.sample is not None
        return self.sample

    def _examples(self, sample: RecentSample, places: Ints) -> list[Example]:
        probability = sample.probability(places)
        return [
            Example(int(sample.number[i]), int(sample.cluster[i]), float(p), self._values(sample, i))
            for i, p in zip(places.tolist(), probability, strict=True)
        ]

    def _values(self, sample: RecentSample, place: int) -> dict[Hashable, float]:
        values = sample.values(place)
        there = values != 0.0 if self.zeros else ~np.isnan(values)
        pairs: Iterable[tuple[Hashable, float]] = zip(self.names, values.tolist(), strict=False)
        return {name: value for (name, value), has in zip(pairs, there.tolist(), strict=False) if has}
