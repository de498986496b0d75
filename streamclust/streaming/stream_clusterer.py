"""StreamClusterer: the engine as a River clusterer."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from river import base
from river.utils.dataframe import into_frame, to_native_frame, to_native_series

from streamclust._kernels.types import Floats
from streamclust.checkpoint import (
    CheckpointError,
    State,
    engine_from_state,
    engine_state,
    read,
    shard_state,
    write,
)
from streamclust.engine import Engine, Model, Settings
from streamclust.engine.model import Assignment
from streamclust.hierarchy.agglomerate import MethodName
from streamclust.hierarchy.dendrogram import Dendrogram
from streamclust.lineage import Change, Lineage
from streamclust.schema import Missing, Schema
from streamclust.streaming.intake import Intake, Invalid

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
        self._intake = Intake(Schema(missing=missing), Engine(0, self._settings(), on_event), invalid)

    def _settings(self) -> Settings:
        return Settings(**{f.name: getattr(self, f.name) for f in fields(Settings) if hasattr(self, f.name)})

    @property
    def _engine(self) -> Engine:
        return self._intake.engine

    @property
    def _schema(self) -> Schema:
        return self._intake.schema

    # ---------------------------------------------------------------- learning

    def learn_one(
        self, x: dict[Any, Any], w: float = 1.0, t: float | None = None, shard: Hashable = 0
    ) -> None:
        """Learn an event, of weight `w` and, where forgetting goes by time, at time `t`."""
        self._intake.learn_one(x, w, t, shard)

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
        self._intake.learn_many(X, weight, time, shard)

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
        return self._intake.refusals(X, weight, time)

    @property
    def n_refused(self) -> int:
        """How many events could not be learnt."""
        return self._intake.n_refused

    @property
    def last_refusal(self) -> str:
        """Why the latest of them could not."""
        return self._intake.last_refusal

    def settle(self) -> None:
        """Refit at once on everything learnt, whatever the schedule says: at the end of a finite stream, say."""
        self._intake.flush()
        self._engine.settle()
        self._intake.make_room()

    def release(self, shard: Hashable) -> State:
        """Let a part of the stream go, to be adopted by another clusterer: what was learnt of it goes with it."""
        self._intake.flush()
        arrays, values = shard_state(self._engine.release(shard))
        return State(arrays, values | {"schema": self._schema.to_dict()})

    def adopt(self, shard: Hashable, state: State) -> None:
        """Take over a part of the stream that another clusterer has released.

        Features that only one of the two knows are widened as those of late events are: what was learnt before counts
        as having their mean. Both must have met the features they share in the same order.
        """
        self._intake.adopt(shard, state)

    @property
    def shards(self) -> tuple[Hashable, ...]:
        """The parts of the stream that are summarised here."""
        return tuple(self._engine.shards)

    @property
    def until_due(self) -> int:
        """How many more events until something falls due: until then the model stays as it is."""
        self._intake.flush()
        return self._engine.until_due

    def merge(self, other: StreamClusterer) -> None:
        """Learn everything another clusterer has learnt. Its clusters join these, under these ids or new ones."""
        self._intake.flush()
        other._intake.flush()
        if self._schema.names != other._schema.names:
            raise ValueError(
                f"only streams of the same features can be merged, got {self._schema!r} and {other._schema!r}"
            )
        self._engine.merge(other._engine)
        self._intake.n_refused += other.n_refused
        self._intake.make_room()

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
        return series_like(X, ids)

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
        return series_like(X, scores)

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
        return self._engine.n_seen + len(self._intake.waiting)

    @property
    def n_clusters(self) -> int:
        """How many clusters there are now."""
        return 0 if self._engine.model is None else len(self._engine.model.names)

    @property
    def clusters(self) -> list[Cluster]:
        """The clusters as of now, the heaviest first."""
        self._intake.flush()
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
    def lineage(self) -> Lineage:
        """The lives of the clusters: iterates over `events`, has `history`, the shares over time, and `plot()`."""
        return self._engine.lineage

    @property
    def feature_names(self) -> tuple[Hashable, ...]:
        """The features seen so far, in the order of their columns."""
        return self._schema.names

    def snapshot(self, method: MethodName = "rbhc", consistent: bool = True) -> Dendrogram:
        """The hierarchy of everything learnt until now: "rbhc", "abc" or "bhc".

        Cut at `n_clusters` it gives the clusters, with their ids. `consistent=False` merges the summary's leaves
        whatever their clusters.
        """
        self._intake.flush()
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
        self._intake.flush()
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
            intake = Intake(Schema.from_dict(state.values["schema"]), engine_from_state(state), model.invalid)
            intake.n_refused, intake.last_refusal = state.values["n_refused"], state.values["last_refusal"]
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"this checkpoint holds no clusterer that can be loaded: {error}"
            ) from error
        intake.engine.lineage.on_event = on_event
        model._intake = intake
        return model

    # ---------------------------------------------------------------- for people

    def plot(self, features: tuple[Hashable, Hashable] | None = None, **options: Any) -> Axes:  # noqa: ANN401
        """The clusters and the latest events over two features, given by name: see `streamclust.plots.plot_clusters`.

        `lineage.plot()` draws what became of the clusters, `snapshot().plot()` their hierarchy.
        """
        from streamclust.plots import plot_clusters

        self._intake.flush()
        if self.model is None:
            raise ValueError("there is nothing to draw: learn at least one event first")
        names = self.feature_names
        if features is not None and not set(features) <= set(names):
            raise ValueError(f"features must be two of {list(names)}, got {tuple(features)}")
        latest = self._engine.shards.latest()
        shown: dict[str, Any] = {
            "features": (0, 1) if features is None else tuple(map(names.index, features)),
            "ids": self.model.names,
            "events": latest,
            "labels": self.model.predict(latest),
            "names": names,
        }
        return plot_clusters(self._engine.clusters(), **(shown | options))

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


def series_like(X: Any, values: Any) -> Any:  # noqa: ANN401
    """One value a row: an array for an array or a list, else a series of the frame's kind."""
    if isinstance(X, (np.ndarray, list)):
        return values
    return to_native_series(values, name=None, like=into_frame(X))
