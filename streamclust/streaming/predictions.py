"""Predicting: the part of a clusterer that assigns events by the published model. It changes nothing."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine import Model
from streamclust.engine.event_rows import Row, sparse_rows, with_width
from streamclust.engine.model import Assignment
from streamclust.parameters import LevelName
from streamclust.schema import Cells, Schema, table_of
from streamclust.schema.frames import SeriesLike, TableLike
from streamclust.schema.mixed_schema import MixedSchema
from streamclust.sketch import Rows
from streamclust.streaming.checked_events import Checked
from streamclust.streaming.pipeline import EventPipeline
from streamclust.streaming.table_rows import is_table, mappings
from streamclust.streaming.thread_safety import ThreadSafe
from streamclust.utils.late import csr_array, issparse
from streamclust.utils.values import check_table_kind

OUTLIER = -1
"""Id of events that are outside every cluster."""


class Predictions(ThreadSafe):
    """Clusters, probabilities and novelty of events, under the model that is published."""

    _pipeline: EventPipeline
    outliers: float | None
    """Share of recent events that an event must be more novel than, but for which, to be outside every cluster."""

    def predict_one(self, x: dict[Any, Any], level: LevelName = None) -> int | None:
        """The id of the event's cluster; None before the first event, and for an event without any known feature.

        None for an outlier, too, if `outliers` says how rare one is.

        `level`: a number of clusters or "fine", instead of the level on show.
        """
        model = self.model_at(level)
        if model is None:
            return self._pipeline.projection.only_cluster
        row = self._pipeline.schema.plain_row(x)
        if self.outliers is None and row is not None and len(row) >= model.n_features:
            return model.predict_one(row)
        rows, known = self._read([x], model)
        if not known.all():
            return None
        if self.outliers is not None and self._outlying(model.novelty(rows), self.outliers).any():
            return None
        return int(model.predict(rows)[0])

    def predict_proba_one(self, x: dict[Any, Any]) -> dict[int, float]:
        """p(cluster | x) by id: the clusters' shares for an event of no known feature; empty before the first event."""
        model = self._pipeline.engine.shown
        if model is None:
            only = self._pipeline.projection.only_cluster
            return {} if only is None else {only: 1.0}
        rows, _ = self._read([x], model)
        return dict(zip(model.names.tolist(), model.probability(rows)[0].tolist(), strict=True))

    def score_one(self, x: dict[Any, Any]) -> float:
        """How novel an event is: -log p(x) under all clusters; 0 before the first event."""
        model = self._pipeline.engine.shown
        return 0.0 if model is None else float(model.novelty(self._read([x], model)[0])[0])

    def tail_one(self, x: dict[Any, Any]) -> float:
        """The share of recent events at least as novel as this one: small for an outlier; 1 before the first event."""
        if self._pipeline.engine.shown is None:
            return 1.0
        return float(self._tails(np.array([self.score_one(x)]))[0])

    def _tails(self, scores: Floats) -> Floats:
        """Share of recent events at least as novel as each of these scores."""
        engine = self._pipeline.engine

        def by_now() -> Floats:
            recent = None if engine.sketch is None else self._pipeline.projection.recent.latest()
            return engine.queries.tail(scores, recent)

        def by_last() -> Floats:
            found = engine.queries.known_tail(scores)
            if found is None:  # nobody has asked yet
                with self._turn, self._lock:
                    return by_now()
            return found

        return self._if_free(by_now, by_last)

    def _outlying(self, scores: Floats, share: float) -> Bools:
        """Which of these novelty scores are higher than those of all but a share of recent events."""
        return np.asarray(self._tails(scores) < share)

    def tail_many(self, X: TableLike) -> SeriesLike:
        """`tail_one` of each event: an array for an array, else a series like the frame; all 1 before the first event.

        >>> from streamclust import StreamClusterer
        >>> model = StreamClusterer()
        >>> model.learn_many(np.random.default_rng(0).normal(size=(500, 2)))
        >>> model.tail_many(np.array([[0.0, 0.0], [9.0, 9.0]])).round(1)
        array([1., 0.])
        """
        if self._pipeline.engine.shown is None:
            return series_like(X, np.ones(len(self._table(X))))
        return series_like(X, self._tails(np.asarray(self._novelty(X))))

    def predict_many(self, X: TableLike, level: LevelName = None) -> SeriesLike:
        """The id of each event's cluster: an array, or a series like the frame; None for events of no known feature.

        It is -1 for outliers, if `outliers` says how rare one is.
        `level`: a number of clusters or "fine", instead of the level on show.
        """
        model = self.model_at(level)
        if model is None:
            rows = self._table(X)
            ids, known = np.full(len(rows), self._pipeline.projection.only_cluster), any_known(rows)
        else:
            events, known = self._read(X, model)
            ids = model.predict(events)
            if self.outliers is not None:
                ids = np.where(self._outlying(model.novelty(events), self.outliers), OUTLIER, ids)
        return series_like(X, known_only(ids, known))

    def predict_proba_many(self, X: TableLike) -> TableLike:
        """p(cluster | x): an array with a column for each of `model.names`, or a frame with a column for each id."""
        model = self._pipeline.engine.shown
        only = self._pipeline.projection.only_cluster
        if model is None:
            table = np.ones((len(self._table(X)), 0 if only is None else 1))
        else:
            table = model.probability(self._read(X, model)[0])
        if isinstance(X, (np.ndarray, list)) or issparse(X):
            return table
        from river.utils.dataframe import into_frame, to_native_frame  # slow to import, and only for frames

        names = model.names.tolist() if model is not None else [] if only is None else [only]
        return to_native_frame(dict(zip(names, table.T, strict=True)), like=into_frame(X))

    def score_many(self, X: TableLike) -> SeriesLike:
        """How novel each event is: an array for an array, else a series like the frame."""
        return series_like(X, self._novelty(X))

    def novelty_many(self, X: TableLike) -> SeriesLike:
        """`score_many` by the name that everything else has for it: -log p(x) under all clusters."""
        return self.score_many(X)

    def _novelty(self, X: TableLike) -> Floats:
        """-log p(x) of each event; 0 before the first event."""
        model = self._pipeline.engine.shown
        return np.zeros(len(self._table(X))) if model is None else model.novelty(self._read(X, model)[0])

    def assign_many(self, X: TableLike) -> Assignment | None:
        """The id (as in `predict_many`), its probability and the novelty of each event, as arrays.

        X is a table as in `learn_many`, or what `check` has read. None before the first event. While wide events wait
        for their sketch, all are one cluster.
        """
        model = self._pipeline.engine.shown
        if model is None:
            only, n = self._pipeline.projection.only_cluster, X.shape[0] if issparse(X) else len(X)
            if only is None:
                return None
            return Assignment(np.full(n, only), np.ones(n), np.zeros(n), np.zeros(n, dtype=np.int64))
        rows, known = self._read(X, model)
        found = model.assign(rows)
        if self.outliers is not None:
            inside = np.where(self._outlying(found.novelty, self.outliers), OUTLIER, found.cluster)
            found = found._replace(cluster=inside)
        return found._replace(cluster=known_only(found.cluster, known))

    def assign_rows(self, rows: Floats, model: Model) -> Assignment:
        """`assign_many` by a given model of this clusterer, for rows in the order of `feature_names` (NaN: missing).

        ValueError for rows that cannot be events: too large, or negative counts.
        """
        self._pipeline.check_values(rows)
        found = model.assign(self._wide(rows, model))
        return found._replace(cluster=known_only(found.cluster, any_known(rows)))

    def ids_at(self, components: Ints, level: LevelName) -> Ints:
        """Ids, at a level, of the clusters of components that `assign_many` has named under this model.

        `level`: "fine" or a number of clusters; of more than there are, all that there are.

        >>> from streamclust import StreamClusterer
        >>> model = StreamClusterer()
        >>> rows = np.random.default_rng(0).normal(size=(600, 2)) + np.repeat([[0.0], [30.0], [200.0]], 200, axis=0)
        >>> model.learn_many(np.random.default_rng(1).permutation(rows))
        >>> found = model.assign_many(np.array([[0.0, 0.0], [30.0, 30.0], [200.0, 200.0]]))
        >>> [len(set(model.ids_at(found.component, level).tolist())) for level in (1, 2, "fine", 99)]
        [1, 2, 3, 3]
        """
        model = self._pipeline.engine.model
        if model is None:  # all events are in the one cluster there is
            return np.full(len(components), self._pipeline.projection.only_cluster)
        shown = model.at(level if level is None or level == "fine" else min(level, model.path.n_finest))
        return np.asarray(shown.names[shown.place[components]])

    @property
    def categories(self) -> dict[Hashable, tuple[Hashable, ...]]:
        """Values of each category that have a column, by the name of its field; empty for a stream of numbers alone."""
        schema = self._pipeline.schema
        return schema.categories if isinstance(schema, MixedSchema) else {}

    def rows_of(self, X: TableLike) -> Floats:
        """Events as rows in the order of `feature_names`, NaN where missing; nothing is learnt.

        >>> from streamclust import StreamClusterer
        >>> model = StreamClusterer()
        >>> model.learn_many([{"x": 1.0, "paid": True}, {"x": 2.0, "paid": False}])
        >>> model.feature_names, model.rows_of([{"x": 3.0, "paid": True}])
        (('x', 'paid=yes', 'paid=no'), array([[ 3.,  1., nan]]))
        """
        return self._table(X)

    def model_at(self, level: LevelName) -> Model | None:
        """The published model with the clusters of a level: a number of clusters, "fine" or (None) the one on show."""
        engine = self._pipeline.engine
        if level is None or engine.model is None:
            return engine.shown
        return engine.model.at(level)

    def _table(self, X: TableLike) -> Floats:
        """Rows of a table, NaN where a feature is missing; an event that cannot be read lacks all features."""
        check_table_kind(X)
        schema = self._pipeline.schema
        try:
            return schema.strict().table(X, extend=False, copy=False)
        except (TypeError, ValueError):
            if not self._refuses(X):
                raise
            return table_of(self._lenient(X), len(schema))

    def _events(self, X: list[Any]) -> list[Row]:
        """Mappings as cells."""
        try:
            return self._pipeline.schema.strict().read_events(X, extend=False)
        except (TypeError, ValueError):
            if not self._refuses(X):
                raise
            return self._lenient(X)

    def _lenient(self, X: TableLike) -> list[Row]:
        """Events one by one: what learning counts as missing or refuses is missing here."""
        return [known_cells(x, self._pipeline.schema) for x in mappings(X, self._pipeline.schema)]

    def _refuses(self, X: TableLike) -> bool:
        """Whether learning refuses what cannot be read; else it raises."""
        return self._pipeline.refusals.invalid == "refuse" and is_table(X, self._pipeline.schema)

    def _read(self, X: TableLike, model: Model) -> tuple[Rows, Bools]:
        """Events as the model reads them, and whether each has any known feature.

        Where what is missing is 0, a sketch reads sparse tables and mappings at the cost of the values they hold.
        """
        schema = self._pipeline.schema
        if model.sketch is not None and self._pipeline.zeros:
            if issparse(X):
                rows = X.tocsr()
                held = schema.sparse_values(rows), rows.indices, rows.indptr
                return csr_array(held, shape=rows.shape), np.ones(rows.shape[0], dtype=bool)
            cells = X.rows if isinstance(X, Checked) else X
            if isinstance(cells, list):
                rows = sparse_rows(cells if isinstance(X, Checked) else self._events(X))
                return rows[:, : len(schema)], np.diff(rows.indptr) > 0
        table = X.table()[:, : len(schema)] if isinstance(X, Checked) else self._table(X)
        return self._wide(table, model), any_known(table)

    def _wide(self, rows: Floats, model: Model) -> Floats:
        """Rows of the model's features; what they lack is missing, or 0. A sketch also reads those that came later."""
        if model.sketch is None:
            rows = np.asarray(rows, dtype=float)
        rows = self._pipeline.engine.without_absent(rows)
        width = model.n_features if model.sketch is None else max(rows.shape[1], model.n_features)
        return self._pipeline.filled(with_width(rows, width))


def known_cells(x: Mapping[Any, Any], schema: Schema) -> Cells:
    """Values of the known features that can be read; none of an event that cannot be."""
    try:
        return schema.cells(x, extend=False)
    except (TypeError, ValueError):
        return Cells([], [], schema.columns)


def any_known(rows: Floats) -> Bools:
    """Whether each row has any feature."""
    return np.asarray(~np.isnan(rows).all(axis=1))


def known_only(ids: NDArray[Any], known: Bools) -> NDArray[Any]:
    """Replace the ids of rows without any known feature by None."""
    return ids if known.all() else np.where(known, ids, np.array(None))


def series_like(X: TableLike, values: NDArray[Any]) -> SeriesLike:
    """One value a row: an array for an array or a list, else a series of the frame's kind."""
    if isinstance(X, (np.ndarray, list)) or issparse(X):
        return values
    from river.utils.dataframe import into_frame, to_native_series  # slow to import, and only for frames

    return to_native_series(values, name=None, like=into_frame(X))
