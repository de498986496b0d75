"""StreamClusterer: the engine as a River clusterer."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, fields
from typing import Any, Literal, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from river import base
from river.utils.dataframe import into_frame, to_native_frame, to_native_series

from streamclust._kernels.check import all_within
from streamclust._kernels.types import Bools, Floats
from streamclust.checkpoint import (
    CheckpointError,
    State,
    engine_from_state,
    engine_state,
    read,
    shard_from_state,
    shard_state,
    write,
)
from streamclust.engine import Engine, Model, Settings
from streamclust.engine.model import Assignment
from streamclust.hierarchy.agglomerate import MethodName
from streamclust.hierarchy.dendrogram import Dendrogram
from streamclust.lineage import Change
from streamclust.refit.bkm import check_points
from streamclust.schema import Missing, Schema
from streamclust.tree.rows import check_rows

Invalid = Literal["refuse", "raise"]

BUFFER = 256
"""So many events wait at most before they are learnt together."""


class RefusedEvents(UserWarning):
    """Some events could not be learnt; said once, counted always."""


@dataclass(frozen=True, eq=False)
class Cluster:
    """A cluster as it is now."""

    id: int
    weight: float
    """How many events it holds (decayed, if forgetting)."""
    share: float
    mean: dict[Hashable, float]
    covariance: Floats | None
    """(D, D), (D,) or a number, as the family has it."""
    born: int
    """After so many events."""
    last_seen: int
    """The number of the latest watched event that was its."""


class StreamClusterer(base.Clusterer):
    """Clusters of a stream: learns how many there are, keeps their ids, forgets, and says what changed.

    Parameters
    ----------
    family
        What a cluster is: "gaussian" (any covariance), "diagonal", "spherical", "multinomial", "bernoulli",
        "poisson".
    refit
        "bkm" (Bayesian k-means: hard clusters, their number by free energy) or "chunky-em" (a Gaussian mixture).
    mixture
        How clusters share the events under "bkm": "finite", "infinite" or "uninformative".
    max_leaves
        The bound on the summary's size, and so on memory and on the cost of a refit.
    refit_every
        Events between refits: at first they come more often, later only as evidence grows or the stream changes.
    warmup
        Events before the first refit; until then everything is one cluster.
    half_life
        An event's weight halves after so many events, or so much time if times are given. None never forgets.
    birth_penalty
        λ² of DP-means: an event at a larger squared distance from every centre may open a cluster between
        refits. None lets the clusters' own ellipsoids decide.
    missing
        "impute" takes events that lack features or bring new ones, "error" refuses them.
    invalid
        What to do with events that are not numbers: "refuse" counts them, warns once and goes on; "raise" raises.
    background
        Whether refits run in a thread beside the stream. The results are the same bit for bit.
    on_event
        Called with each lifecycle event (`Change`) as it happens.
    seed
        The same seed and events give the same clusters, however the events were batched.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> model = StreamClusterer()
    >>> for x, y in rng.normal(size=(500, 2)) + 9.0 * rng.integers(3, size=(500, 1)):
    ...     model.learn_one({"x": x, "y": y})
    >>> model.n_clusters
    3
    >>> model.predict_one({"x": 0.0, "y": 0.0}) == model.predict_one({"x": 0.3, "y": -0.5})
    True
    """

    def __init__(
        self,
        family: str = "gaussian",
        refit: str = "bkm",
        mixture: str = "finite",
        max_leaves: int = 512,
        refit_every: int = 20_000,
        warmup: int = 100,
        half_life: float | None = None,
        birth_penalty: float | None = None,
        missing: Missing = "impute",
        invalid: Invalid = "refuse",
        background: bool = True,
        on_event: Callable[[Change], object] | None = None,
        seed: int = 0,
    ) -> None:
        self.family = family
        self.refit = refit
        self.mixture = mixture
        self.max_leaves = max_leaves
        self.refit_every = refit_every
        self.warmup = warmup
        self.half_life = half_life
        self.birth_penalty = birth_penalty
        self.missing = missing
        self.invalid = invalid
        self.background = background
        self.on_event = on_event
        self.seed = seed
        if invalid not in ("refuse", "raise"):
            raise ValueError(f"invalid must be 'refuse' or 'raise', got {invalid!r}")
        self.n_refused = 0
        self.last_refusal = ""
        self._schema = Schema(missing=missing)
        self._engine = Engine(0, self._settings(), on_event)
        self._waiting: list[tuple[Floats, float, float | None]] = []
        self._shard: Hashable = 0
        self._room = 1

    def _settings(self) -> Settings:
        return Settings(**{f.name: getattr(self, f.name) for f in fields(Settings) if hasattr(self, f.name)})

    # ---------------------------------------------------------------- learning

    def learn_one(
        self, x: dict[Any, Any], w: float = 1.0, t: float | None = None, shard: Hashable = 0
    ) -> None:
        """Learn an event, of weight `w` and, where forgetting goes by time, at time `t`."""
        if shard != self._shard:
            self._flush()
            self._shard = shard
        try:
            row = self._schema.row(x)
        except (TypeError, ValueError) as error:
            self._refuse(error)
            return
        self._waiting.append((row, w, t))
        self._room -= 1
        if self._room <= 0 or len(row) != self._engine.n_features or self.invalid == "raise":
            self._flush()

    def learn_many(
        self,
        X: Any,  # noqa: ANN401
        weight: ArrayLike | None = None,
        time: ArrayLike | None = None,
        shard: Hashable = 0,
    ) -> None:
        """Learn a frame (pandas, polars, pyarrow), a numpy table or a list of mappings.

        Parts of a stream that are summarised apart, the partitions of a topic for example, are `shard`s: each has a
        tree of its own, and refits read them all.
        """
        self._flush()
        try:
            rows = self._schema.table(X)
        except (TypeError, ValueError):
            if self.invalid == "raise" or not self._is_table(X):
                raise
            for x, w, t in zip(mappings(X, self._schema), *columns(len(X), weight, time), strict=True):
                self.learn_one(x, w, None if np.isnan(t) else t, shard)
            return
        self._learn(rows, weight, time, shard)

    def _is_table(self, X: Any) -> bool:  # noqa: ANN401
        """Whether some of its rows may be learnt though others are not."""
        if isinstance(X, np.ndarray):
            return X.ndim == 2 and (len(self._schema) in (0, X.shape[1]))
        return not isinstance(X, (str, bytes, Mapping)) and hasattr(X, "__len__")

    def _flush(self) -> None:
        """Learn what waits."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            rows, weight, time = zip(*waiting, strict=True)
            plain = all(w == 1.0 for w in weight)
            timeless = all(t is None for t in time)
            self._learn(stacked(rows), None if plain else weight, None if timeless else time, self._shard)
        self._room = min(BUFFER, self._engine.until_due)

    def _learn(self, rows: Floats, weight: Any, time: Any, shard: Hashable) -> None:  # noqa: ANN401
        """Learn runs of rows that have just the features known, together; the others one by one."""
        engine = self._engine
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
        self._room = min(BUFFER, engine.until_due)

    def _learn_run(self, rows: Floats, weight: Floats | None, time: Floats | None, shard: Hashable) -> None:
        """Learn complete rows together or, where one of them is refused, one by one."""
        try:
            self._engine.learn(rows, weight, time, shard)
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
        engine = self._engine
        known = ~np.isnan(row)
        width = int(np.flatnonzero(known)[-1]) + 1 if known.any() else 0
        if width == 0:
            raise ValueError("an event without any feature teaches nothing")
        check_event(np.where(known, row, 0.0), weight, time)
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

    def settle(self) -> None:
        """Refit at once on everything learnt, whatever the schedule says: at the end of a finite stream, say."""
        self._flush()
        self._engine.settle()
        self._room = min(BUFFER, self._engine.until_due)

    def refusals(
        self,
        X: Any,  # noqa: ANN401
        weight: ArrayLike | None = None,
        time: ArrayLike | None = None,
    ) -> dict[int, str]:
        """Why some of these events cannot be learnt, by their place in X. Nothing is learnt, and nothing changes.

        >>> StreamClusterer().refusals([{"x": 1.0}, {"x": 1e200}, {}])[2]
        'an event without any feature teaches nothing'
        """
        schema = copy(self._schema)  # grows by replacing what it holds
        try:
            self._check(schema.table(X), weight, time)
            return {}
        except (TypeError, ValueError):
            pass
        schema, found = copy(self._schema), {}
        for i, (x, w, t) in enumerate(
            zip(mappings(X, self._schema), *columns(len(X), weight, time), strict=True)
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
        check_points(self.family, filled)

    def release(self, shard: Hashable) -> State:
        """Let a part of the stream go, to be adopted by another clusterer: what was learnt of it goes with it."""
        self._flush()
        arrays, values = shard_state(self._engine.release(shard))
        return State(arrays, values | {"schema": self._schema.to_dict()})

    @property
    def shards(self) -> tuple[Hashable, ...]:
        """The parts of the stream that are summarised here."""
        return tuple(self._engine.shards)

    def adopt(self, shard: Hashable, state: State) -> None:
        """Take over a part of the stream that another clusterer has released.

        Features that only one of the two knows are widened as those of late events are: what was learnt before counts
        as having their mean. Both must have met the features they share in the same order.
        """
        self._flush()
        part, theirs = shard_from_state(state), Schema.from_dict(state.values["schema"]).names
        ours, both = self._schema.names, min(len(theirs), len(self._schema))
        if ours[:both] != theirs[:both]:
            raise ValueError(
                f"shard {shard!r} has features {list(theirs)}, here they are {list(ours)}: both must have the same, "
                'in the same order; run every process with missing="error", which keeps the first event\'s'
            )
        engine, width = self._engine, part.tree.n_features
        if width > engine.n_features and engine.shards:
            engine.shards.widen(part.tree.total.mean[0, engine.n_features :])
        elif width < engine.n_features:
            mean = engine.shards.merged_tree().total.mean[0, width:]
            part.tree.widen(mean)
            part.watch.widen(mean)
        engine.shards.n_features = max(engine.n_features, width)
        if len(theirs) > len(ours):
            self._schema = Schema(theirs, self.missing)
        engine.adopt(shard, part)
        self._room = min(BUFFER, engine.until_due)

    @property
    def until_due(self) -> int:
        """How many more events until something falls due: until then the model stays as it is."""
        self._flush()
        return self._engine.until_due

    def merge(self, other: StreamClusterer) -> None:
        """Learn everything another clusterer has learnt. Its clusters join these, under these ids or new ones."""
        self._flush()
        other._flush()
        if self._schema.names != other._schema.names:
            raise ValueError(
                f"only streams of the same features can be merged, got {self._schema!r} and {other._schema!r}"
            )
        self._engine.merge(other._engine)
        self.n_refused += other.n_refused
        self._room = min(BUFFER, self._engine.until_due)

    # ---------------------------------------------------------------- asking

    @property
    def model(self) -> Model | None:
        """What is published now; None before the first event."""
        return self._engine.model

    def predict_one(self, x: dict[Any, Any]) -> int | None:  # type: ignore[override]  # before the first event
        """The id of the event's cluster; None before the first event."""
        model = self._engine.model
        return None if model is None else model.predict_one(self._row(x, model))

    def predict_proba_one(self, x: dict[Any, Any]) -> dict[int, float]:
        """p(cluster | x) by id; empty before the first event."""
        model = self._engine.model
        if model is None:
            return {}
        return dict(
            zip(model.names.tolist(), model.probability(self._row(x, model)[None])[0].tolist(), strict=True)
        )

    def score_one(self, x: dict[Any, Any]) -> float:
        """How novel an event is: -log p(x) under all clusters; 0 before the first event."""
        model = self._engine.model
        return 0.0 if model is None else float(model.novelty(self._row(x, model)[None])[0])

    def tail_one(self, x: dict[Any, Any]) -> float:
        """The share of recent events at least as novel as this one: small for an outlier; 1 before the first event."""
        return (
            1.0 if self._engine.model is None else float(self._engine.tail(np.array([self.score_one(x)]))[0])
        )

    def predict_many(self, X: Any) -> Any:  # noqa: ANN401
        """The id of each event's cluster: an array for an array, else a series like the frame."""
        model = self._engine.model
        rows = self._schema.table(X, extend=False)
        ids: Any = np.full(len(rows), None) if model is None else model.predict(self._wide(rows, model))
        return (
            ids if isinstance(X, (np.ndarray, list)) else to_native_series(ids, name=None, like=into_frame(X))
        )

    def predict_proba_many(self, X: Any) -> Any:  # noqa: ANN401
        """p(cluster | x): an array with a column for each of `model.names`, or a frame with a column for each id."""
        model = self._engine.model
        rows = self._schema.table(X, extend=False)
        table = np.empty((len(rows), 0)) if model is None else model.probability(self._wide(rows, model))
        if isinstance(X, (np.ndarray, list)):
            return table
        names = [] if model is None else model.names.tolist()
        return to_native_frame(dict(zip(names, table.T, strict=True)), like=into_frame(X))

    def score_many(self, X: Any) -> Any:  # noqa: ANN401
        """How novel each event is: an array for an array, else a series like the frame."""
        model = self._engine.model
        rows = self._schema.table(X, extend=False)
        scores = np.zeros(len(rows)) if model is None else model.novelty(self._wide(rows, model))
        return (
            scores
            if isinstance(X, (np.ndarray, list))
            else to_native_series(scores, name=None, like=into_frame(X))
        )

    def assign_many(self, X: Any) -> Assignment | None:  # noqa: ANN401
        """The id, its probability and the novelty of each event, as arrays; None before the first event."""
        model = self._engine.model
        if model is None:
            return None
        return model.assign(self._wide(self._schema.table(X, extend=False), model))

    def _row(self, x: dict[Any, Any], model: Model) -> Floats:
        row = self._schema.row(x, extend=False)
        return row if len(row) >= model.n_features else self._wide(row[None], model)[0]

    def _wide(self, rows: Floats, model: Model) -> Floats:
        """Rows with at least the model's features; what they lack is missing."""
        short = model.n_features - rows.shape[1]
        return rows if short <= 0 else np.pad(rows, ((0, 0), (0, short)), constant_values=np.nan)

    # ---------------------------------------------------------------- what was found

    @property
    def n_seen(self) -> int:
        """How many events were learnt."""
        return self._engine.n_seen + len(self._waiting)

    @property
    def n_clusters(self) -> int:
        """How many clusters there are now."""
        return 0 if self._engine.model is None else len(self._engine.model.names)

    @property
    def clusters(self) -> list[Cluster]:
        """The clusters as of now, the heaviest first."""
        self._flush()
        model = self._engine.model
        if model is None:
            return []
        rows = self._engine.clusters()
        born, seen = self._engine.lineage.born_at, self._engine.last_seen()
        kept = None if rows.kind == "none" else rows.covariance
        found = [
            Cluster(
                id=int(name),
                weight=float(rows.weight[k]),
                share=float(rows.weight[k] / rows.weight.sum()),
                mean=self._schema.mapping(rows.mean[k]),
                covariance=None if kept is None else kept[k],
                born=born[int(name)],
                last_seen=seen[int(name)],
            )
            for k, name in enumerate(model.names)
        ]
        return sorted(found, key=lambda cluster: -cluster.weight)

    @property
    def centers(self) -> dict[int, dict[Hashable, float]]:
        """The mean of each cluster by id and feature, as River's metrics read them."""
        return {cluster.id: cluster.mean for cluster in self.clusters}

    @property
    def events(self) -> list[Change]:
        """What happened to the clusters: born, died, split, merged; the latest 10,000."""
        return list(self._engine.lineage)

    @property
    def feature_names(self) -> tuple[Hashable, ...]:
        """The features seen so far, in the order of their columns."""
        return self._schema.names

    def snapshot(self, method: MethodName = "rbhc", consistent: bool = True) -> Dendrogram:
        """The hierarchy of everything learnt until now: "rbhc", "abc" or "bhc".

        Cut at `n_clusters` it gives the clusters, with their ids. `consistent=False` merges the summary's leaves
        whatever their clusters.
        """
        self._flush()
        return self._engine.snapshot(method, consistent)

    # ---------------------------------------------------------------- saving

    def save(self, path: str | os.PathLike[str], positions: Mapping[str, Any] | None = None) -> None:
        """Write everything to one file, whole or not at all; `positions` (where the source stands) go with it."""
        write(path, self.to_state(positions))

    @classmethod
    def load(cls, path: str | os.PathLike[str], on_event: Callable[[Change], object] | None = None) -> Self:
        """Continue from a file, bit for bit; CheckpointError says what is wrong with one that cannot be used."""
        return cls.from_state(read(path), on_event)

    def to_state(self, positions: Mapping[str, Any] | None = None) -> State:
        """Everything as arrays and JSON; what is left out is `on_event`."""
        self._flush()
        arrays, values = engine_state(self._engine)
        kept = {name: value for name, value in self._get_params().items() if name != "on_event"}
        values |= {
            "parameters": kept,
            "schema": self._schema.to_dict(),
            "n_refused": self.n_refused,
            "last_refusal": self.last_refusal,
            "positions": dict(positions or {}),
        }
        return State(arrays, values)

    @classmethod
    def from_state(cls, state: State, on_event: Callable[[Change], object] | None = None) -> Self:
        """The clusterer that `to_state` was called on."""
        try:
            model = cls(**state.values["parameters"], on_event=on_event)
            model._schema = Schema.from_dict(state.values["schema"])
            model.n_refused, model.last_refusal = state.values["n_refused"], state.values["last_refusal"]
            engine = engine_from_state(state)
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"this checkpoint holds no clusterer that can be loaded: {error}"
            ) from error
        engine.lineage.on_event = on_event
        model._engine = engine
        model._room = min(BUFFER, engine.until_due)
        return model

    # ---------------------------------------------------------------- for people

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{c.id}</td><td>{c.weight:.6g}</td><td>{c.share:.1%}</td><td>{c.born:,}</td>"
            f"<td>{', '.join(f'{n}={v:.4g}' for n, v in list(c.mean.items())[:8])}</td></tr>"
            for c in self.clusters
        )
        changes = "".join(f"<li>{change!r}</li>" for change in self.events[-5:])
        return (
            f"<table><caption>{self.n_clusters} clusters of {self.n_seen:,} events</caption>"
            f"<tr><th>id<th>weight<th>share<th>born<th>mean</tr>{rows}</table><ul>{changes}</ul>"
        )


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


def check_event(row: Floats, weight: float, time: float | None) -> None:
    """Refuse what the engine would refuse, before anything is changed for the event's sake."""
    check_rows(len(row), row[None], [weight], None if time is None else [time])
