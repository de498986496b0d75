"""Descriptions of clusters that no longer exist, as they were when last seen."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from streamclust_connectors.http import detail

MAX_PAST_CLUSTERS = 256
"""Number of past clusters that are described; beyond it the oldest are forgotten."""
MAX_PAST_FEATURES = 32
"""Number of features kept for each, the most distinctive ones."""


class PastClusters:
    """Remembers what clusters were: each is described when it is found missing, from the data copied before.

    >>> past = PastClusters()
    >>> past.get(3) is None
    True
    """

    def __init__(self) -> None:
        self._known: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._before: detail.DetailData | None = None

    def update(self, seen: detail.DetailData) -> None:
        """Describe the clusters of the previous data that these do not have; forget those that have returned."""
        before, self._before = self._before, seen
        if before is None or before is seen:
            return
        alive = {cluster.id for cluster in seen.clusters}
        for cluster in before.clusters:
            if cluster.id not in alive:
                self._known[cluster.id] = {
                    "at": before.events,
                    "name": cluster.name,
                    "weight": cluster.weight,
                    "share": cluster.share,
                    "words": cluster.words(),
                    "features": detail.features(before.profiles, cluster.id)[:MAX_PAST_FEATURES],
                    "recent": detail.recent(before, cluster.id),
                    "examples": detail.examples(before, cluster.id),
                }
        for returned in alive & self._known.keys():
            del self._known[returned]
        while len(self._known) > MAX_PAST_CLUSTERS:
            self._known.popitem(last=False)

    def get(self, cluster: int) -> dict[str, Any] | None:
        """Description of a past cluster; None if it is not known."""
        return self._known.get(cluster)
