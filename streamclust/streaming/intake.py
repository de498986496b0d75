"""Intake: from events of any form to rows that the engine learns; what cannot be learnt is refused and counted."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, Mapping
from copy import copy
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike
from river.utils.dataframe import into_frame

from streamclust._kernels.check import all_within
from streamclust._kernels.types import Bools, Floats
from streamclust.checkpoint import State, shard_from_state
from streamclust.engine import Engine
from streamclust.refit.bkm import check_points
from streamclust.schema import Schema
from streamclust.tree.rows import check_rows

Invalid = Literal["refuse", "raise"]

BUFFER = 256
"""So many events wait at most before they are learnt together."""


class RefusedEvents(UserWarning):
    """Some events could not be learnt; said once, counted always."""


class Intake:
    """Feeds an engine: names to columns, single events to batches, missing values filled, new features added."""

    def __init__(self, schema: Schema, engine: Engine, invalid: Invalid = "refuse") -> None:
        if invalid not in ("refuse", "raise"):
            raise ValueError(f"invalid must be 'refuse' or 'raise', got {invalid!r}")
        self.schema = schema
        self.engine = engine
        self.invalid = invalid
        self.n_refused = 0
        self.last_refusal = ""
        self.waiting: list[tuple[Floats, float, float | None]] = []
        self._shard: Hashable = 0
        self.make_room()

    def make_room(self) -> None:
        """How many events may wait: none past the count at which something falls due."""
        self._room = min(BUFFER, self.engine.until_due)

    def learn_one(
        self, x: dict[Any, Any], w: float = 1.0, t: float | None = None, shard: Hashable = 0
    ) -> None:
        """Learn an event, of weight `w` and, where forgetting goes by time, at time `t`."""
        if shard != self._shard:
            self.flush()
            self._shard = shard
        try:
            row = self.schema.row(x)
        except (TypeError, ValueError) as error:
            self._refuse(error)
            return
        self.waiting.append((row, w, t))
        self._room -= 1
        if self._room <= 0 or len(row) != self.engine.n_features or self.invalid == "raise":
            self.flush()

    def learn_many(
        self,
        X: Any,  # noqa: ANN401
        weight: ArrayLike | None = None,
        time: ArrayLike | None = None,
        shard: Hashable = 0,
    ) -> None:
        """Learn a table: together where all its rows can be learnt, else one by one."""
        self.flush()
        try:
            rows = self.schema.table(X)
        except (TypeError, ValueError):
            if self.invalid == "raise" or not self._is_table(X):
                raise
            for x, w, t in zip(mappings(X, self.schema), *columns(len(X), weight, time), strict=True):
                self.learn_one(x, w, None if np.isnan(t) else t, shard)
            return
        self._learn(rows, weight, time, shard)

    def _is_table(self, X: Any) -> bool:  # noqa: ANN401
        """Whether some of its rows may be learnt though others are not."""
        if isinstance(X, np.ndarray):
            return X.ndim == 2 and (len(self.schema) in (0, X.shape[1]))
        return not isinstance(X, (str, bytes, Mapping)) and hasattr(X, "__len__")

    def flush(self) -> None:
        """Learn what waits."""
        if self.waiting:
            waiting, self.waiting = self.waiting, []
            rows, weight, time = zip(*waiting, strict=True)
            plain = all(w == 1.0 for w in weight)
            timeless = all(t is None for t in time)
            self._learn(stacked(rows), None if plain else weight, None if timeless else time, self._shard)
        self.make_room()

    def _learn(self, rows: Floats, weight: Any, time: Any, shard: Hashable) -> None:  # noqa: ANN401
        """Learn runs of rows that have just the features known, together; the others one by one."""
        engine = self.engine
        w, t = columns(len(rows), weight, time)
        done, width = 0, -1
        while done < len(rows):
            if width != engine.n_features:
                width = engine.n_features
                alone = np.flatnonzero(~fitting(rows, width))
            run = slice(done, int(next(iter(alone[np.searchsorted(alone, done) :]), len(rows))))
            if run.start < run.stop:
                self._learn_run(
                    rows[run], None if weight is None else w[run], None if time is None else t[run], shard
                )
                done = run.stop
            else:
                self._learn_singly(rows[done], w[done], t[done], shard)
                done += 1
        self.make_room()

    def _learn_run(self, rows: Floats, weight: Floats | None, time: Floats | None, shard: Hashable) -> None:
        """Learn complete rows together or, where one of them is refused, one by one."""
        try:
            self.engine.learn(rows, weight, time, shard)
        except ValueError:
            if self.invalid == "raise":
                raise
            for row, w, t in zip(rows, *columns(len(rows), weight, time), strict=True):
                self._learn_singly(row, w, t, shard)

    def _learn_singly(self, row: Floats, weight: float, time: float, shard: Hashable) -> None:
        """Learn a row, or refuse it."""
        try:
            self._learn_row(row, weight, None if np.isnan(time) else time, shard)
        except ValueError as error:
            self._refuse(error)

    def _learn_row(self, row: Floats, weight: float, time: float | None, shard: Hashable) -> None:
        """Learn a row that may lack features, or be the first to have some."""
        engine = self.engine
        known = ~np.isnan(row)
        width = int(np.flatnonzero(known)[-1]) + 1 if known.any() else 0
        self._check(row[None], weight, time)  # before anything is changed for the event's sake
        if engine.n_seen == 0:
            if not known[:width].all():
                raise ValueError("the first event must be complete: there is nothing to fill it from")
            engine.shards.n_features = width
        elif width > engine.n_features:
            engine.shards.widen(np.nan_to_num(row[engine.n_features : width]))
        row = row[: engine.n_features]
        if not known[: len(row)].all():
            row = engine.shards.fill(row, shard)
        engine.learn(row[None], [weight], None if time is None else [time], shard)

    def _refuse(self, error: Exception) -> None:
        """Count an event that cannot be learnt; the first is told aloud."""
        if self.invalid == "raise":
            raise error
        self.n_refused += 1
        self.last_refusal = str(error)
        if self.n_refused == 1:
            warnings.warn(
                f'an event was refused: {error}. More will be counted in n_refused without a word; invalid="raise" '
                "stops at the first",
                RefusedEvents,
                stacklevel=3,
            )

    def refusals(
        self,
        X: Any,  # noqa: ANN401
        weight: ArrayLike | None = None,
        time: ArrayLike | None = None,
    ) -> dict[int, str]:
        """Why some of these events cannot be learnt, by their place in X; found on a copy of the schema."""
        schema = copy(self.schema)  # grows by replacing what it holds
        try:
            self._check(schema.table(X), weight, time)
            return {}
        except (TypeError, ValueError):
            pass
        schema, found = copy(self.schema), {}
        for i, (x, w, t) in enumerate(
            zip(mappings(X, self.schema), *columns(len(X), weight, time), strict=True)
        ):
            trial = copy(schema)
            try:
                self._check(trial.row(x)[None], w, None if time is None else t)
            except (TypeError, ValueError) as error:
                found[i] = str(error)
            else:
                schema = trial
        return found

    def _check(self, rows: Floats, weight: Any, time: Any) -> None:  # noqa: ANN401
        """Refuse rows that could not all be learnt."""
        known = ~np.isnan(rows)
        if not known.any(axis=1).all():
            raise ValueError("an event without any feature teaches nothing")
        filled = np.where(known, rows, 0.0)
        check_rows(rows.shape[1], filled, weight, time)
        check_points(self.engine.settings.family, filled)

    def adopt(self, shard: Hashable, state: State) -> None:
        """Take over a part of the stream, widening whichever of the two knows fewer features."""
        self.flush()
        part, theirs = shard_from_state(state), Schema.from_dict(state.values["schema"]).names
        ours, both = self.schema.names, min(len(theirs), len(self.schema))
        if ours[:both] != theirs[:both]:
            raise ValueError(
                f"shard {shard!r} has features {list(theirs)}, here they are {list(ours)}: both must have the same, "
                'in the same order; run every process with missing="error", which keeps the first event\'s'
            )
        engine, width = self.engine, part.tree.n_features
        if width > engine.n_features and engine.shards:
            engine.shards.widen(part.tree.total.mean[0, engine.n_features :])
        elif width < engine.n_features:
            mean = engine.shards.merged_tree().total.mean[0, width:]
            part.tree.widen(mean)
            part.watch.widen(mean)
        engine.shards.n_features = max(engine.n_features, width)
        if len(theirs) > len(ours):
            self.schema = Schema(theirs, self.schema.missing)
        engine.adopt(shard, part)
        self.make_room()


# -------------------------------------------------------------------- rows and columns


def stacked(rows: Any) -> Floats:  # noqa: ANN401
    """Rows under each other; those made before the last features appeared lack them."""
    width = max(map(len, rows))
    if all(len(row) == width for row in rows):
        return np.array(rows)
    return np.array([np.pad(row, (0, width - len(row)), constant_values=np.nan) for row in rows])


def columns(n: int, weight: Any, time: Any) -> tuple[Floats, Floats]:  # noqa: ANN401
    """A weight and a time for each of n rows; NaN for no time."""
    both = (1.0 if weight is None else weight, np.nan if time is None else time)
    w, t = (np.broadcast_to(np.asarray(values, dtype=float), n) for values in both)
    return w, t


def fitting(rows: Floats, width: int) -> Bools:
    """Rows that have a number for each of the first `width` features and for no other."""
    if rows.shape[1] == width and all_within(np.ascontiguousarray(rows).ravel(), np.inf):
        return np.ones(len(rows), dtype=bool)
    known = ~np.isnan(rows)
    return np.asarray(known[:, :width].all(axis=1) & ~known[:, width:].any(axis=1) & (width > 0))


def mappings(X: Any, schema: Schema) -> Iterator[dict[Any, Any]]:  # noqa: ANN401
    """The rows of a table as mappings, whatever they hold."""
    if isinstance(X, np.ndarray):
        names = schema.names or tuple(range(X.shape[1]))
        return (dict(zip(names, row, strict=True)) for row in X.tolist())
    if isinstance(X, list):
        return iter(X)
    return cast(Iterator[dict[Any, Any]], into_frame(X).iter_rows(named=True))
