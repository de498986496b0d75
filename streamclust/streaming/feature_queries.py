"""FeatureQueries: the features of events, the features themselves, and their lifecycle."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.engine.feature_stream import FeatureStream
from streamclust.engine.published_features import PublishedFeatures
from streamclust.lineage import Change, Lineage
from streamclust.schema import Schema
from streamclust.schema.frames import SeriesLike, TableLike
from streamclust.streaming.checked_events import Checked
from streamclust.streaming.predictions import series_like
from streamclust.streaming.thread_safety import ThreadSafe

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure


@dataclass(frozen=True, eq=False)
class FeatureModel:
    """The features as of now: which version they are, their ids and means."""

    version: int
    """Number of refits so far."""
    ids: Ints
    means: Floats
    """(features, columns)"""


class FeatureQueries(ThreadSafe):
    """Answers of StreamFeatures, by the features that are published; none of them changes anything."""

    _schema: Schema
    _stream: FeatureStream
    _shards: dict[Hashable, int]

    # ---------------------------------------------------------------- asking

    @property
    def _published(self) -> PublishedFeatures:
        return self._stream.published

    @property
    def model(self) -> FeatureModel | None:
        """The features as of now; None before the first event."""
        found = self._published
        return FeatureModel(found.version, found.ids.copy(), found.A.copy()) if self.n_seen else None

    def assign_many(self, X: TableLike) -> list[list[int]]:
        """The ids of the features of each event, in order; X may be what `check` gave."""
        rows = (
            np.asarray(X.table(), dtype=float)
            if isinstance(X, Checked)
            else self._schema.table(X, extend=False)
        )
        return [sorted(found) for found in self._sets(rows)]

    def predict_one(self, x: dict[Any, Any]) -> set[int]:
        """The ids of the features an event has; none before the first refit. Missing values are left out of account."""
        return self._sets(self._schema.row(x, extend=False)[None, :])[0]

    def predict_many(self, X: TableLike) -> list[set[int]]:
        """The ids of the features of each event."""
        return self._sets(self._schema.table(X, extend=False))

    def _sets(self, rows: Floats) -> list[set[int]]:
        found = self._published
        return [set(found.ids[has].tolist()) for has in found.allocate_any(rows)[0]]

    def transform_one(self, x: dict[Any, Any]) -> dict[Any, int]:
        """1 for each feature that the event has, 0 for the others, by id."""
        found = self._published
        has = found.allocate_any(self._schema.row(x, extend=False)[None, :])[0][0]
        return dict(zip(found.ids.tolist(), has.astype(int).tolist(), strict=True))

    def transform_many(self, X: TableLike) -> TableLike:
        """A column of 0 and 1 for each feature: a frame like the one given, or a numpy table."""
        found = self._published
        Z = found.allocate_any(self._schema.table(X, extend=False))[0].astype(np.int64)
        if isinstance(X, (np.ndarray, list, tuple)):
            return Z
        from river.utils.dataframe import into_frame, to_native_frame  # slow to import, and only for frames

        ids = found.ids.tolist()
        return to_native_frame({i: Z[:, k] for k, i in enumerate(ids)}, like=into_frame(X))

    def inverse_transform_one(self, z: Mapping[int, Any] | set[int]) -> dict[Hashable, float]:
        """The event that has these features: their sum. Takes what `transform_one` or `predict_one` gives.

        >>> from streamclust import StreamFeatures
        >>> StreamFeatures().inverse_transform_one(set())
        {}
        """
        wanted = {i for i, on in z.items() if on} if isinstance(z, Mapping) else set(z)
        found = self._published
        unknown = wanted - set(found.ids.tolist())
        if unknown:
            raise ValueError(f"there is no feature {sorted(unknown)[0]}; present are {sorted(self.features)}")
        has = np.isin(found.ids, list(wanted))
        return self._schema.mapping(found.A[has].sum(axis=0))

    def score_one(self, x: dict[Any, Any]) -> float:
        """How novel an event is: -log p(x | its features), noise being Gaussian; 0 before the first 64 events.

        >>> from streamclust import StreamFeatures
        >>> model = StreamFeatures()
        >>> model.learn_many(np.random.default_rng(0).normal(size=(500, 2)))
        >>> model.score_one({0: 9.0, 1: 9.0}) > model.score_one({0: 0.0, 1: 0.0})
        True
        """
        return float(self._published.novelty(self._schema.row(x, extend=False)[None, :])[0])

    def score_many(self, X: TableLike) -> SeriesLike:
        """How novel each event is: an array for an array, else a series like the frame."""
        return series_like(X, self._published.novelty(self._schema.table(X, extend=False)))

    def novelty_many(self, X: TableLike) -> SeriesLike:
        """`score_many` by the name that everything else has for it."""
        return self.score_many(X)

    # ---------------------------------------------------------------- what was found

    @property
    def features(self) -> dict[int, dict[Hashable, float]]:
        """The mean of each feature, by id and name of column."""
        found = self._published
        return {i: self._schema.mapping(a) for i, a in zip(found.ids.tolist(), found.A, strict=True)}

    @property
    def weights(self) -> dict[int, float]:
        """Number of events (decayed, if forgetting) that have each feature."""
        found = self._published
        return dict(zip(found.ids.tolist(), found.weights.tolist(), strict=True))

    @property
    def n_features(self) -> int:
        """Number of features now."""
        return len(self._published.A)

    @property
    def n_seen(self) -> int:
        """Number of events learnt."""
        return self._stream.n_events + len(self._stream.pending)

    @property
    def feature_names(self) -> tuple[Hashable, ...]:
        """The names of the columns of events, in their order."""
        return self._schema.names

    @property
    def events(self) -> list[Change]:
        """Lifecycle events of the features (born, died, returned); the latest 10,000."""
        return list(self._stream.lineage)

    @property
    def lineage(self) -> Lineage:
        """The lives of the features: iterates over `events`, has `history`, how many events had each, and `plot()`."""
        return self._stream.lineage

    @property
    def n_failed_refits(self) -> int:
        """Number of searches for features that failed: each time those there were stayed."""
        return self._stream.n_failed_refits

    @property
    def n_missing(self) -> int:
        """Number of values imputed so far, of events whose block is learnt."""
        return self._stream.n_missing

    def plot(self, shape: tuple[int, int] | None = None, **options: Any) -> Figure | SubFigure:
        """Each feature as an image of `shape` (height, width), or as bars: see `streamclust.plots.plot_features`."""
        from streamclust.plots import plot_features

        found = self._published
        share = found.weights / found.total if len(found.A) else np.zeros(0)
        return plot_features(found.A, share, shape, [f"feature {i}" for i in found.ids.tolist()], **options)
