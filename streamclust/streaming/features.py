"""StreamFeatures: the features of a stream, River style."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from river import base

from streamclust.checkpoint import (
    CheckpointError,
    State,
    features_from_state,
    features_state,
    reason_of,
)
from streamclust.checkpoint.state import key_of
from streamclust.engine import schedule
from streamclust.engine.feature_stream import FeatureSettings, FeatureStream
from streamclust.lineage import Change
from streamclust.parameters import Missing
from streamclust.refit.penalties import check_count, check_penalty
from streamclust.schema import Schema
from streamclust.schema.frames import TableLike
from streamclust.streaming.checked_events import Checked
from streamclust.streaming.feature_queries import FeatureQueries
from streamclust.streaming.fixed_parameters import FixedParameters
from streamclust.streaming.shards import FeatureShards
from streamclust.streaming.validation import Validator
from streamclust.utils.values import check_choice

KIND = "features"
"""Kind of checkpoint that StreamFeatures writes."""
MAX_COLUMNS = 1024
"""Events that would bring more columns are refused: memory and the time of a refit grow with their number."""


class StreamFeatures(FixedParameters, FeatureQueries, base.MiniBatchTransformer):
    """Features of a stream: every event is a sum of some of them, any number [BP-means, Broderick et al. 2013].

    A cluster owns its events alone; a feature shares them. A photograph of a table has the table, and whichever of four
    objects lie on it: five features, where clustering needs sixteen groups.

    Between refits an event only chooses among the features there are, and their means follow, also where they drift.
    Features are born at refits, which read a uniform sample of the stream since it last changed; one comes at once when
    residuals grow. A feature that events no longer have is retired after some 2,000 of them, or three times its
    longest absence; if it comes back, it has its id again. Ids are issued once, and kept through refits.

    Parameters
    ----------
    penalty
        λ², what a feature must explain of the reservoir's rows to be one. None estimates it from their noise.
    half_life
        Number of events after which an event's weight has halved. None never forgets.
    warmup
        Events before the first refit. Refits follow at doubling counts, later every `refit_every` events; all counts
        are rounded up to multiples of 64, the block in which events are learnt.
    refit_every
        Events between refits in the long run.
    reservoir
        Rows of the sample that refits read, and number of the latest events that are kept: the bound on memory.
    max_features
        The bound on the number of features; reaching it warns.
    restarts
        Searches from nothing at refits 1, 2, 4, 8, ..., besides the one from the present features.
    missing
        "impute": values may be absent, None or NaN, and new columns may come. A value that lacks is taken as the
        event's own features have it (before the first refit: as the mean of its column), and counted in `n_missing`.
        "error" refuses such events.
    seed
        The same seed and events give the same features, however the events are batched.
    on_event
        Called with each lifecycle event (`Change`: a feature born, died or returned) as it happens.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> parts = 5.0 * rng.normal(size=(3, 12))
    >>> events = rng.integers(2, size=(600, 3)) @ parts + rng.normal(size=(600, 12))
    >>> model = StreamFeatures(warmup=128)
    >>> model.learn_many(events)
    >>> model.predict_one(dict(enumerate(events[5]))) == model.predict_many(events[5:6])[0]
    True
    >>> sorted(model.features) == sorted(model.transform_one(dict(enumerate(events[5]))))
    True
    """

    _parameters = (
        "penalty", "half_life", "warmup", "refit_every", "reservoir", "max_features", "restarts", "missing", "seed",
        "on_event",
    )  # fmt: skip
    lineage = FeatureQueries.lineage
    _get_params = base.MiniBatchTransformer._get_params

    def __init__(
        self,
        penalty: float | None = None,
        half_life: float | None = None,
        warmup: int = 256,
        refit_every: int = 8192,
        reservoir: int = 1000,
        max_features: int = 32,
        restarts: int = 3,
        missing: Missing = "impute",
        seed: int = 0,
        on_event: Callable[[Change], object] | None = None,
    ) -> None:
        self.penalty = penalty
        self.half_life = half_life
        self.warmup = warmup
        self.refit_every = refit_every
        self.reservoir = reservoir
        self.max_features = max_features
        self.restarts = restarts
        self.missing = missing
        self.seed = seed
        self.on_event = on_event
        if penalty is not None:
            check_penalty(penalty)
        check_choice("missing", missing, ("impute", "error"))
        if half_life is not None and not (isinstance(half_life, (int, float)) and 0 < half_life < math.inf):
            raise ValueError(
                f"half_life must be positive and finite, got {half_life!r}; use None to never forget"
            )
        for name in ("warmup", "refit_every", "reservoir", "max_features", "restarts"):
            check_count(name, getattr(self, name))
        self._schema = Schema(missing=missing, max_features=MAX_COLUMNS)
        self._validator = Validator("gaussian", zeros=False, lenient=False)
        self._stream = FeatureStream(self._settings(), on_event)
        self._shards: dict[Hashable, int] = {}
        self._make_locks()

    def _settings(self) -> FeatureSettings:
        return FeatureSettings(
            self.penalty, self.half_life, self.warmup, self.refit_every, self.reservoir, self.max_features,
            self.restarts, self.seed,
        )  # fmt: skip

    # ---------------------------------------------------------------- learning

    def learn_one(self, x: dict[Any, Any], shard: Hashable = 0) -> None:
        """Learn an event; a value that is not a finite number is refused, and nothing is learnt."""
        with self._lock:
            self._stream.learn_row(self._schema.row(x))
            self._count(shard, 1)

    def learn_many(self, X: TableLike, shard: Hashable = 0) -> None:
        """Learn a frame (pandas, polars, pyarrow), a numpy table or a list of events, as if one by one."""
        self._let_others_in()
        with self._lock:
            rows = self._schema.table(X)
            self._stream.learn(rows)
            self._count(shard, len(rows))

    def _count(self, shard: Hashable, n: int) -> None:
        self._shards[shard] = self._shards.get(shard, 0) + n

    def check(
        self,
        X: TableLike,
        weight: ArrayLike | None = None,
        time: ArrayLike | None = None,
        shard: Hashable = 0,
    ) -> Checked:
        """Read and check events once, for `assign_many` and `learn`; nothing is learnt, and nothing changes.

        An event that cannot be learnt is among its `refused`, with the reason, and not among its rows. Every event
        counts once, and forgetting goes by their number: a weight is an error, times are checked and not used.

        >>> checked = StreamFeatures().check([{"x": 1.0}, {}, {"x": "?"}])
        >>> checked.table(), checked.refused[1]
        (array([[1.]]), 'an event has no numeric feature')
        """
        if weight is not None:
            raise ValueError("features count every event once: leave out the weight")
        with self._turn, self._lock:
            return self._validator.check(X, self._schema, None, None, time, shard)

    def learn(self, checked: Checked) -> None:
        """Learn events that `check` has read, or a slice of them."""
        self._let_others_in()
        with self._lock:
            self._learn(checked)

    def _learn(self, checked: Checked) -> None:
        checked.add_features_to(self._schema)
        if len(checked):
            self._stream.learn(np.asarray(checked.table(), dtype=float)[:, : len(self._schema)])
            self._count(checked.shard, len(checked))

    def runs(self, checked: Checked) -> Iterator[Checked]:
        """The events in slices during which the features do not change; learn each before asking for the next."""
        return (checked[run] for run in schedule.runs(len(checked), lambda done: self._stream.until_due))

    # ---------------------------------------------------------------- parts of a stream

    @property
    def shards(self) -> FeatureShards:
        """The parts of the stream that are read here: their names, and ways to move them."""
        return FeatureShards(self)

    def merge(self, other: StreamFeatures) -> None:
        """Learn what another stream's features have learnt; columns are matched by name. Then refit.

        Features that `other` has and this one has not get new ids here.
        """
        if not isinstance(other, StreamFeatures) or other is self:
            raise ValueError("only another StreamFeatures can be merged")
        for what in ("half_life", "missing"):
            if getattr(self, what) != getattr(other, what):
                both = f"{getattr(self, what)} and {getattr(other, what)}"
                raise ValueError(f"cannot merge streams of different {what}: {both}")
        with other._turn, other._lock:
            theirs, names = deepcopy(other._stream), other._schema.names
        with self._turn, self._lock:
            self._merge(theirs, names)

    def _merge(self, theirs: FeatureStream, their_names: tuple[Hashable, ...]) -> None:
        """Learn what a copy of another stream has learnt, whose columns have these names."""
        names = dict.fromkeys([*self._schema.names, *their_names])
        schema = Schema(list(names), self.missing, MAX_COLUMNS)
        at = np.array([schema.column(name) for name in their_names], dtype=np.int64)
        theirs.widen(len(their_names))
        theirs.spread(at, len(schema))
        self._schema = schema
        self._stream.widen(len(schema))
        self._stream.merge(theirs)

    # ---------------------------------------------------------------- saving

    def to_state(self, positions: Mapping[str, Any] | None = None) -> State:
        """Everything as arrays and JSON; what is left out is `on_event`."""
        with self._turn, self._lock:
            arrays, values = features_state(self._stream)
            about = {
                "kind": KIND,
                "parameters": self._saved_parameters(),
                "schema": self._schema.to_dict(),
                "n_features": len(self._schema),
                "n_seen": self.n_seen,
                "shards": [{"key": key, "n_seen": n} for key, n in self._shards.items()],
                "positions": dict(positions or {}),
            }
            return State(arrays, values | about)

    @classmethod
    def from_state(cls, state: State, on_event: Callable[[Change], object] | None = None) -> Self:
        """The estimator that `to_state` was called on."""
        values = state.values
        if values.get("kind") != KIND:
            raise CheckpointError("this checkpoint holds no features: it was written by something else")
        try:
            model = cls._with_parameters(values["parameters"], on_event)
            model._schema = Schema(
                Schema.from_dict(values["schema"]).names, model.missing, max_features=MAX_COLUMNS
            )
            model._stream = features_from_state(state, model._settings())
            model._shards = {key_of(part): int(part["n_seen"]) for part in values["shards"]}
        except Exception as error:  # whatever a state may hold that no StreamFeatures saved
            raise CheckpointError(
                f"this checkpoint holds no features that can be loaded: {reason_of(error)}"
            ) from error
        model._stream.lineage.on_event = on_event
        return model
