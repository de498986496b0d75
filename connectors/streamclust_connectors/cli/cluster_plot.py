"""Plots the clusters of a file: a sample of its events over the two features that separate clusters best."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamclust_connectors.cli.errors import BadData
from streamclust_connectors.cli.tables import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streamclust import StreamClusterer

MAX_PLOTTED_EVENTS = 4000
"""Maximal number of events in the plot."""


class EventSample:
    """A uniform sample of all events: the ones with the smallest random keys."""

    def __init__(self, size: int = MAX_PLOTTED_EVENTS, seed: int = 0) -> None:
        self.size = size
        self._kept: list[tuple[float, dict[Any, Any]]] = []
        self._rng = np.random.default_rng(seed)
        self._limit = 1.0

    def add(self, vectors: list[Any] | NDArray[np.float64], names: tuple[Any, ...]) -> None:
        """Offer events to the sample: mappings, or rows of the features `names`."""
        keys = self._rng.random(len(vectors))
        for i in np.flatnonzero(keys < self._limit):
            vector = vectors[i]
            self._kept.append(
                (keys[i], vector if isinstance(vector, dict) else dict(zip(names, vector, strict=True)))
            )
        if len(self._kept) > self.size:
            self._kept = sorted(self._kept, key=lambda pair: pair[0])[: self.size]
            self._limit = self._kept[-1][0]

    @property
    def vectors(self) -> list[dict[Any, Any]]:
        """The events of the sample."""
        return [vector for _, vector in self._kept]


def plot_clusters(model: StreamClusterer, sample: EventSample, path: Path) -> None:
    """Plot clusters and events to a file; its name determines the format."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    names = model.feature_names
    if len(names) < 2:
        raise BadData(
            f"a plot needs two features, but there is only {names[0]!r}; the checkpoint was written"
        )
    rows = np.array([[vector.get(name) for name in names] for vector in sample.vectors], dtype=float)
    labels = np.asarray(model.predict_many(sample.vectors))
    first, second = most_separating(rows, labels)
    ax = model.plot((names[first], names[second]), events=rows, labels=labels)
    ax.set_title(f"{counted(model.n_clusters, 'cluster')} of {counted(model.n_seen, 'event')}")
    assert isinstance(ax.figure, Figure)
    ax.figure.savefig(path, dpi=150)
    pyplot.close(ax.figure)


def most_separating(rows: NDArray[np.float64], labels: NDArray[np.int64]) -> tuple[int, int]:
    """The two columns with the largest share of variance between clusters, in the order of the columns.

    >>> rows = np.array([[0.0, 5.0, 1.0], [1.0, 5.0, 1.1], [0.0, 9.0, 7.0], [1.0, 9.0, 7.1]])
    >>> most_separating(rows, np.array([0, 0, 1, 1]))
    (1, 2)
    """
    known = np.isfinite(rows)
    n = np.maximum(known.sum(0), 1)
    mean = np.where(known, rows, 0.0).sum(0) / n
    centred = np.where(known, rows - mean, 0.0)
    between = np.zeros(rows.shape[1])
    for label in np.unique(labels):
        own = labels == label
        between += centred[own].sum(0) ** 2 / np.maximum(known[own].sum(0), 1)
    total = (centred**2).sum(0)
    share = np.divide(between, total, out=np.zeros_like(total), where=total > 0)
    first, second = sorted(np.argsort(-share, kind="stable")[:2].tolist())
    return first, second
