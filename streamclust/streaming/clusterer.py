"""StreamClusterer: the engine as a River clusterer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import fields
from functools import partial
from typing import Any, Self, cast

import numpy as np  # noqa: F401  # for the examples
from numpy.typing import ArrayLike
from river import base

from streamclust.checkpoint import (
    CheckpointError,
    State,
    check_projection,
    check_refusals,
    engine_from_state,
    engine_state,
    pack_projection,
    reason_of,
    unpack_projection,
)
from streamclust.checkpoint.state import OLDER
from streamclust.engine import Engine, EngineSettings
from streamclust.engine.settings import check_parameters
from streamclust.families import family as family_named
from streamclust.families import is_discrete
from streamclust.lineage import Change
from streamclust.parameters import (
    Categorical,
    Detail,
    DriftChoice,
    FamilyName,
    Invalid,
    Missing,
    MixtureName,
    NumberOfClusters,
    RefitName,
    ScaleName,
    ShapeName,
    Transforms,
    taken_by,
)
from streamclust.schema import Schema
from streamclust.schema.frames import TableLike
from streamclust.schema.mixed_schema import MixedSchema, schema_from_dict
from streamclust.streaming.answers import Answers
from streamclust.streaming.checked_events import Checked
from streamclust.streaming.cluster_queries import ClusterQueries
from streamclust.streaming.pipeline import EventPipeline
from streamclust.streaming.refusals import invalid_counts
from streamclust.streaming.shard_transfer import ShardTransfer
from streamclust.streaming.shards import ClustererShards, ModelSharing

MAX_FEATURES, MAX_SIMPLE_FEATURES, MAX_WIDE_FEATURES = 256, 1024, 4096
"""Default limits on the number of features: with full covariances; without; and if the first event has more than
that, so that events are reduced to a few directions. Each needs some hundreds of megabytes."""


class StreamClusterer(Answers, base.Clusterer):  # type: ignore[misc]  # predict_one may return None
    """Clusters of a stream: learns their number, keeps their ids, forgets, and reports changes.

    Parameters
    ----------
    family
        What a cluster is: "gaussian" (any covariance), "diagonal", "spherical", "multinomial", "bernoulli", "poisson"
        or "mixed" (numbers beside categories).
    refit
        How clusters are found: by "bkm" (Bayesian k-means: hard clusters, their number by free energy), "chunky-em" (a
        Gaussian mixture) or "dp-means" (clusters within a radius λ). λ² is `birth_penalty`; by default λ, in standard
        deviations of each feature within clusters, is the one whose clusters have the least free energy.
    mixture
        Prior of the clusters' shares under "bkm" and "dp-means": "finite" (Dirichlet), "infinite" (Dirichlet process)
        or "uninformative"; "chunky-em" takes "finite" alone.
    max_leaves
        Number of leaves of the summary, at most: the bound on memory and on the cost of a refit; by default 512, and 8
        for each cluster where there are more than 64 of them, up to 4,096 or 64 MB.
    refit_every
        Events between refits: at first they come more often, later only as evidence grows or the stream changes.
    warmup
        Events before the first refit; by default 8 for each feature, but at least 20 and at most 100. Until then
        everything is one cluster. The next refits come each time the count has doubled.
    half_life
        Half-life of an event's weight: a number of events or, if times are given, a time; by default none.
    drift
        Whether the clusters are those of the latest events ("follow") or of all events in any order ("ignore").
        "follow": clusters that the latest 30,000 events no longer hold are retired, and shares are theirs where they
        differ from those of all events. A stream that is sorted by cluster looks like one that changes: the clusters of
        its end remain. "ignore", for data that are finite or only badly mixed: nothing is retired and no event counts
        for more than another, so that `settle` finds what is in the whole.
    birth_penalty
        Squared distance from every centre (λ² of DP-means) beyond which an event may open a cluster between refits and,
        with refit="dp-means", in them; by default the clusters' own ellipsoids decide.
    shape
        Whether each component that is found is a cluster ("ellipse"), or Gaussians that are pieces of one shape, a
        ring, say, are joined into one ("any"); by default "any" for Gaussians and refit="bkm", else "ellipse".
    detail
        How fine the clusters shown are: "auto" (the level that stands out), "fine" (all that refits can tell apart),
        "coarse" (the next coarser level that stands out) or a number of events that tell two clusters apart. Refits
        find the finest clusters; a path of merges leads from them to one, and any level of it can be shown. It may be
        changed at any time, and takes effect at once.
    n_clusters
        Number of clusters to show, or the least and the most; by default `detail` decides. If there are fewer, all are
        shown. It may be changed at any time, and takes effect at once.
    missing
        A feature that an event lacks is 0 ("zero"), unknown ("impute") or a reason to refuse the event ("error"); by
        default "zero" for counts and yes or no, else "impute". "zero" suits words that a document does not have.
        "impute" draws the value from the clusters, given the features that the event has, and integrates it out in
        predictions. The same holds for events before the first that has the feature.
    invalid
        What to do with values and events that cannot be learnt: "refuse" counts them, warns once and goes on; "raise"
        raises. Such a value counts as missing (`n_invalid`); an event of which nothing is left is refused
        (`n_refused`).
    background
        Whether refits run in a thread beside the stream. The results are the same bit for bit.
    feature_order
        Features that first appear together get columns in this order; by default in the order of their names.
    on_event
        Called with each lifecycle event (`Change`) as it happens.
    seed
        The same seed and events give the same clusters, however the events were batched.
    max_time_step
        How far one event may carry time forward; by default 4 half-lives. An event further ahead is refused: its clock
        is taken to be wrong, until more such events come than have agreed with the clock, 32 at most (each event in
        time takes one of them back). Then time moves to their median, and a pause as long is let pass from then on.
        Late events are learnt at the weight they would have by now; if as many as that are later than one step, the
        clock was wrong and is turned back, with all that was learnt.
    max_features
        Events that would bring more features than this are refused; by default 256 for "gaussian", else 1024, and 4096
        if the first event has more than that. Memory grows with their number, and with its square for "gaussian" unless
        they are reduced.
    max_directions
        Gaussian events of more features than this are reduced to this many directions at most; by default those of more
        than 64 features, to at most 16, or 64 where clusters of unit length overlap in those. The directions are those
        in which the first 1,024 events vary most above the noise; until then events wait, and all are one cluster.
        Clusters are found in these directions, and reported in the features.
    scale
        How wide events are compared: with each feature in its own deviations ("deviation"), or by their angle ("unit"),
        for embeddings and texts. "unit" divides every event by its length first, however many features it has; an event
        of zeros is refused.
    categorical
        Fields that are categories: "auto" (text, and yes and no, if the first event has any), False or their names. A
        category's values count apart from all else: one that has nothing to do with the clusters changes nothing. New
        values may come at any time. Text that hardly repeats itself is left out, with a warning.
    max_categories
        Number of values of a category that are told apart; later ones count as one.
    transforms
        Skewed features that are compared by their logarithm: "auto" (features without negative values that span more
        than a decade, where the clusters are much likelier so), "none", or a mapping of features to "log", "none" or
        the value (knee) below which the transform is linear. A feature's knee is the value that a tenth of its values
        are smaller than. "auto" decides when 128, 512 and 2,048 events have come, and when `settle` is called before;
        then transforms stay. Features are reported in their own units: the mean of one that is transformed is a median.
    outliers
        Events that are more novel than all but this share of recent events are outside every cluster, and have the id
        -1; by default every event has a cluster. `predict_one` of a stream returns None for them. It may be changed at
        any time.

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

    _parameters = tuple(taken_by("StreamClusterer"))
    lineage = ClusterQueries.lineage

    def __init__(
        self,
        family: FamilyName = "gaussian",
        refit: RefitName = "bkm",
        mixture: MixtureName = "finite",
        max_leaves: int | None = None,
        refit_every: int = 20_000,
        warmup: int | None = None,
        half_life: float | None = None,
        drift: DriftChoice = "follow",
        birth_penalty: float | None = None,
        shape: ShapeName | None = None,
        detail: Detail = "auto",
        n_clusters: NumberOfClusters = None,
        missing: Missing | None = None,
        invalid: Invalid = "refuse",
        background: bool = True,
        feature_order: Sequence[Hashable] | None = None,
        on_event: Callable[[Change], object] | None = None,
        seed: int = 0,
        max_time_step: float | None = None,
        max_features: int | None = None,
        max_directions: int | None = None,
        scale: ScaleName = "deviation",
        categorical: Categorical = "auto",
        max_categories: int = 50,
        transforms: Transforms = "auto",
        outliers: float | None = None,
    ) -> None:
        self.family = family
        self.refit = refit
        self.mixture = mixture
        self.max_leaves = max_leaves
        self.refit_every = refit_every
        self.warmup = warmup
        self.half_life = half_life
        self.drift = drift
        self.birth_penalty = birth_penalty
        self.shape = shape
        self.detail = detail
        self.n_clusters = n_clusters
        self.missing = missing
        self.invalid = invalid
        self.background = background
        self.feature_order = feature_order
        self.on_event = on_event
        self.seed = seed
        self.max_time_step = max_time_step
        self.max_features = max_features
        self.max_directions = max_directions
        self.scale = scale
        self.categorical = categorical
        self.max_categories = max_categories
        self.transforms = transforms
        self.outliers = outliers
        check_parameters(self._given())
        self._pipeline = self._new_pipeline(Schema(), Engine(0, self._settings(), on_event))
        self._make_locks()

    def _new_pipeline(self, schema: Schema, engine: Engine) -> EventPipeline:
        """The pipeline of events under a schema."""
        missing = self.missing or ("zero" if is_discrete(self.family) else "impute")
        limits = self._limits(missing)
        kept = Schema(schema.names, missing, *limits)
        makes = self._mixed_schemas(missing)
        named = self.family == "mixed" or self.categorical not in ("auto", False)
        if makes is not None and (isinstance(schema, MixedSchema) or named):
            mixed = makes()
            mixed.fields = schema.fields if isinstance(schema, MixedSchema) else {}
            kept = mixed.with_names(schema.names)
        pipeline = EventPipeline(
            kept, engine, self.invalid, self.max_time_step, self.max_directions, self.scale, self.transforms
        )
        pipeline.allow_categories(makes)
        return pipeline

    def _mixed_schemas(self, missing: Missing) -> Callable[[], MixedSchema] | None:
        """Makes the schema of a stream with categories; None if this one may not have any."""
        lenient = self.invalid == "refuse"
        made = partial(
            MixedSchema, (), *self._limits(missing), lenient, self.categorical, self.max_categories
        )
        if self.family == "mixed":
            return made
        plain = self.refit == "bkm" and self.mixture != "uninformative" and self.shape != "any"
        narrow = self.max_directions is None and self.scale == "deviation"
        asked = self.family == "gaussian" and self.categorical is not False
        allowed = asked and plain and narrow and missing == "impute" and lenient
        return made if allowed else None

    def _limits(self, missing: Missing) -> tuple[int, Sequence[Hashable] | None, int | None]:
        """How many features there may be, their order, and how many in a stream that begins with few."""
        if self.max_features is not None:
            return self.max_features, self.feature_order, None
        if is_discrete(self.family):
            return MAX_SIMPLE_FEATURES, self.feature_order, None
        grown = MAX_FEATURES if family_named(self.family).scatter == "full" else MAX_SIMPLE_FEATURES
        reduced = missing == "zero" and self.max_directions is not None
        return MAX_WIDE_FEATURES, self.feature_order, None if reduced else grown

    def _settings(self) -> EngineSettings:
        given = self._given()
        return EngineSettings(**{f.name: given[f.name] for f in fields(EngineSettings) if f.name in given})

    def _given(self) -> dict[str, Any]:
        """The parameters by name; `n_clusters` as asked for, not as there are."""
        return {
            name: self._wanted if name == "n_clusters" else getattr(self, name) for name in self._parameters
        }

    def _get_params(self) -> dict[str, Any]:
        found: dict[str, Any] = base.Clusterer._get_params(self)
        return found | ({"n_clusters": self._wanted} if "n_clusters" in found else {})

    @property
    def n_clusters(self) -> int:
        """Number of clusters now, at the level on show. Setting it, to a number or a range, shows another level."""
        return self._n_clusters_now

    @n_clusters.setter
    def n_clusters(self, wanted: NumberOfClusters) -> None:
        self._wanted = wanted

    def _show(self, name: str, value: object) -> None:
        """Show another level at once; a new `detail` takes back a number of clusters that was asked for."""
        if name == "outliers":
            object.__setattr__(self, name, value)
            return
        with self._turn, self._lock:
            self._pipeline.flush()
            detail = cast(Detail, value) if name == "detail" else self.detail
            wanted = cast(NumberOfClusters, value) if name == "n_clusters" else None
            object.__setattr__(self, "detail", detail)
            self._wanted = wanted
            self._pipeline.engine.show(detail, wanted)

    # ---------------------------------------------------------------- learning

    def learn_one(
        self, x: dict[Any, Any], w: float = 1.0, t: float | None = None, shard: Hashable = 0
    ) -> None:
        """Learn an event, of weight `w` and, where forgetting goes by time, at time `t`."""
        if not self._pipeline.buffer.append(x, w, t, shard):
            self._let_others_in()
            with self._lock:
                if self._pipeline.add(x, w, t, shard):
                    self._pipeline.flush()

    def learn_many(
        self,
        X: TableLike,
        weight: ArrayLike | None = None,
        time: ArrayLike | None = None,
        shard: Hashable = 0,
    ) -> None:
        """Learn a frame (pandas, polars, pyarrow), a numpy table, a list of mappings or, with missing="zero", a sparse
        table of SciPy.

        Columns of a frame that are dates are left out, with a warning that names them; so are those of text if the
        stream has no categories.

        Parts of a stream that are summarised apart, the partitions of a topic for example, are `shard`s: each has a
        tree of its own, and refits read them all.
        """
        self._let_others_in()
        with self._lock:
            self._pipeline.learn_many(X, weight, time, shard)

    def check(
        self,
        X: TableLike,
        weight: ArrayLike | None = None,
        time: ArrayLike | None = None,
        shard: Hashable = 0,
    ) -> Checked:
        """Read and check events once, for `assign_many` and `learn`; nothing is learnt, and nothing changes.

        An event that cannot be learnt is listed in `refused`, with the reason, and not in the rows. One of which only
        the time is wrong (the reason's `of_time`) is in both: learning refuses it, and counts it as a vote that time
        has moved. Times are checked but not kept if there is no half_life.

        >>> model = StreamClusterer()
        >>> checked = model.check([{"x": 1.0}, {"x": "ERR"}, {}, {"x": 2.0}])
        >>> checked.refused[2]
        'an event has no numeric feature'
        >>> model.learn(checked)
        >>> model.n_seen
        2
        """
        with self._turn, self._lock:
            return self._pipeline.check(X, weight, time, shard)

    def learn(self, checked: Checked) -> None:
        """Learn events that `check` has read, or a slice of them.

        Between `check` and `learn` no other events may bring features: ValueError then says to check again.
        """
        self._let_others_in()
        with self._lock:
            self._pipeline.learn(checked)

    def runs(self, checked: Checked) -> Iterator[Checked]:
        """The events in slices during which the model does not change; learn each before asking for the next.

        The model may change within a slice if other threads learn meanwhile.

        >>> model, sizes = StreamClusterer(), []
        >>> for run in model.runs(model.check([{"x": float(i % 7)} for i in range(100)])):
        ...     before = model.assign_many(run)  # by the model of before these events
        ...     model.learn(run)
        ...     sizes.append(len(run))
        >>> sizes
        [1, 19, 20, 40, 20]
        """
        with self._turn, self._lock:
            return self._pipeline.runs(checked)

    @property
    def n_refused(self) -> int:
        """Number of refused events."""
        return self._pipeline.refusals.count

    @property
    def n_invalid(self) -> dict[Hashable, int]:
        """Number of values of each feature that could not be read, and counted as missing: "ERR", "" or infinity."""
        return dict(self._pipeline.refusals.n_invalid)

    @property
    def last_refusal(self) -> str:
        """Reason of the latest refusal."""
        return self._pipeline.refusals.latest

    def settle(self) -> None:
        """Refit at once on everything learnt, whatever the schedule says: at the end of a finite stream, say."""
        with self._turn, self._lock:
            self._pipeline.settle()

    @property
    def shards(self) -> ClustererShards:
        """The parts of the stream that are learnt here: their names, their summaries, and ways to move them."""
        return ClustererShards(self)

    @property
    def sharing(self) -> ModelSharing:
        """Ways to follow another clusterer's model, and to publish this one."""
        return ModelSharing(self)

    def merge(self, other: StreamClusterer) -> None:
        """Learn everything another clusterer has learnt. Its clusters join these, under these ids or new ones.

        Wide events must have come through the same sketch: see `sharing.use_sketch`.
        """
        # Whoever held both locks might wait for one who has one and wants the other.
        theirs = other._copied_pipeline()
        with self._turn, self._lock:
            ShardTransfer(self._pipeline).merge(theirs)

    def _copied_pipeline(self) -> EventPipeline:
        """A copy of everything learnt, which tells nobody of its lifecycle events."""
        with self._turn, self._lock:
            self._pipeline.flush()
            on_event = self._pipeline.engine.lineage.on_event
            twin = deepcopy(self._pipeline, {id(on_event): on_event})
        twin.engine.lineage.on_event = None
        return twin

    # ---------------------------------------------------------------- saving

    def to_state(self, positions: Mapping[str, Any] | None = None) -> State:
        """Everything as arrays and JSON; left out are `on_event` and other attributes of a subclass than parameters."""
        with self._turn, self._lock:
            self._pipeline.flush()
            clocks = self._pipeline.clocks.to_list()
            return self._state(engine_state(self._pipeline.engine), positions or {}, clocks)

    def _state(
        self, engine: State, positions: Mapping[str, Any], clocks: list[Any], waiting: bool = True
    ) -> State:
        """The state of the engine with what is kept beside it, events that wait too unless not wanted."""
        arrays, values = engine
        values["door"] = pack_projection(self._pipeline.projection, arrays, waiting)
        values |= {
            "parameters": self._saved_parameters(),
            "schema": self._pipeline.schema.to_dict(),
            "n_refused": self.n_refused,
            "last_refusal": self.last_refusal,
            "n_invalid": self._pipeline.refusals.invalid_to_list(),
            "clocks": clocks,
            "positions": dict(positions),
        }
        return State(arrays, values)

    @classmethod
    def from_state(cls, state: State, on_event: Callable[[Change], object] | None = None) -> Self:
        """The clusterer that `to_state` was called on."""
        try:
            model = cls._with_parameters(OLDER | state.values["parameters"], on_event)
            pipeline = model._new_pipeline(schema_from_dict(state.values["schema"]), engine_from_state(state))
            unpack_projection(pipeline.projection, state)
            check_projection(pipeline.projection, len(pipeline.schema))
            pipeline.clocks.update_from(state.values.get("clocks", []))
            refusals = pipeline.refusals
            refusals.count, refusals.latest = state.values["n_refused"], state.values["last_refusal"]
            refusals.n_invalid = invalid_counts(state.values.get("n_invalid", []))
            check_refusals(refusals.count, refusals.latest, refusals.n_invalid.values())
            pipeline.resize_buffer()
        except Exception as error:  # whatever a state may hold that no clusterer saved
            raise CheckpointError(
                f"this checkpoint holds no clusterer that can be loaded: {reason_of(error)}"
            ) from error
        pipeline.engine.lineage.on_event = on_event
        model._pipeline = pipeline
        return model
