"""ShardTransfer: shards handed to and taken over from other clusterers, and models that come from them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.checkpoint import (
    State,
    handed_on,
    model_in,
    shard_state,
    sketch_from_state,
    summary_in,
    transform_from_state,
    waiting_in,
)
from streamclust.engine.projection import FIRST_EVENTS
from streamclust.engine.shard import Shard
from streamclust.engine.watched_events import WatchedEvents
from streamclust.schema import Schema
from streamclust.schema.mixed_schema import MixedSchema, schema_from_dict
from streamclust.sketch import CoordinateMap, Sketch, Transform, TransformChange
from streamclust.streaming.clocks import Clock
from streamclust.streaming.pipeline import EventPipeline
from streamclust.tree import SummaryTree


@dataclass(frozen=True)
class ShardTransfer:
    """Moves shards and models between clusterers; it has no state of its own, only the pipeline's."""

    pipeline: EventPipeline

    def exported(self, shard: Hashable) -> State:
        """A copy of a shard, to be handed on; KeyError if there is none."""
        waiting = [block for block in self.pipeline.projection.waiting if block.shard == shard]
        part = self.pipeline.engine.shards.get(shard)
        if part is None and not waiting:
            raise KeyError(shard)
        more = {"schema": self.pipeline.schema.to_dict(), "n_features": self.pipeline.engine.n_features}
        if (clock := self.pipeline.clocks.get(shard)) is not None:
            more["clock"] = asdict(clock)
        return handed_on(
            None if part is None else shard_state(part),
            waiting,
            self.pipeline.projection.sketch,
            more,
            self.pipeline.engine.transform,
        )

    def remove(self, shard: Hashable) -> None:
        """Forget a shard, and its events that wait."""
        self.pipeline.projection.let_go(shard)
        if shard in self.pipeline.engine.shards:
            self.pipeline.engine.release(shard)
        self.pipeline.clocks.pop(shard, None)
        self.pipeline.resize_buffer()

    def adopt(self, shard: Hashable, state: State) -> None:
        """Adopt a shard, after adding the features that either side lacks; then its events that wait."""
        self.pipeline.flush()
        part, theirs = summary_in(state), self._joined_names(state)
        if part is not None:
            self._share(sketch_from_state(state), shard, part)
            self._take_over(shard, part, theirs, self._n_columns(state, part), transform_from_state(state))
        if (clock := state.values.get("clock")) is not None:
            self.pipeline.clocks[shard] = Clock(**clock)
        if waiting := waiting_in(state):
            self._check_names(f"shard {shard!r}", theirs)
            self._know(theirs)
            for block in waiting:
                self.pipeline.projection.learn(*block[:3], shard)
        self.pipeline.resize_buffer()

    def learn_tree(
        self, tree: SummaryTree, names: tuple[Hashable, ...], shard: Hashable, sketch: Sketch | None = None
    ) -> None:
        """Learn everything that a tree has learnt; its events have features of these names, and came by this sketch."""
        self.pipeline.flush()
        more = Shard(tree, WatchedEvents(tree.n_features))
        self._share(sketch, shard, more)
        self._check_names(f"shard {shard!r}", names)
        if shard not in self.pipeline.engine.shards:
            seed = self.pipeline.engine.settings.seed
            empty = Shard.like(more.tree, seed)
            self._take_over(shard, empty, Schema(names).names, len(names), Transform.none())
        self.pipeline.flush()
        more = self._in_our_transform(more, names, Transform.none())
        self.pipeline.engine.learn_tree(shard, more.tree)
        self.pipeline.resize_buffer()

    def merge(self, other: EventPipeline) -> None:
        """Learn everything that another has learnt; one that has learnt nothing takes the other's features."""
        self.pipeline.flush()
        other.flush()
        ours, theirs = self.pipeline.schema, other.schema
        if len(theirs) and len(ours) and ours.names != theirs.names:
            raise ValueError(f"only streams of the same features can be merged, got {ours!r} and {theirs!r}")
        if isinstance(theirs, MixedSchema):
            self.pipeline.join_fields(theirs)
        if other.projection.n_seen:
            self.pipeline.engine.check_settings(other.engine)
            for shard, clock in other.clocks.copy().items():
                self.pipeline.clocks.setdefault(shard, clock)
        if not len(ours):
            self._name(theirs.names)
        engine = self.pipeline.engine
        if engine.transform.is_none:
            engine.use_transform(other.engine.transform)
        elif other.projection.n_seen:
            other.engine.use_transform(engine.transform)
        decided = max(engine.counters.transform_due, other.engine.counters.transform_due)
        engine.counters.transform_due = decided
        self.pipeline.merge(other)

    def _share(self, sketch: Sketch | None, shard: Hashable, part: Shard) -> None:
        """Have a shard from elsewhere in our coordinates: carried over, or its sketch used here if there is none."""
        if sketch is not None:
            if self.pipeline.projection.sketch is None:
                self.pipeline.projection.use_sketch(sketch)
            elif sketch.unit != self.pipeline.projection.unit:
                raise ValueError('the sketch and this stream differ in scale="unit"')
            elif sketch.independent != self.pipeline.projection.sketch.independent:
                raise ValueError(
                    f"the sketch of shard {shard!r} and this stream differ in the covariances of clusters"
                )
            elif not sketch.is_same(self.pipeline.projection.sketch):
                part.reproject(CoordinateMap.between(sketch, self.pipeline.projection.sketch))
            return
        self.pipeline.projection.begin()
        if self.pipeline.projection.sketch is not None:
            raise ValueError(f"shard {shard!r} has no sketch, but this stream reduces wide events by one")
        self.pipeline.projection.stage = "plain"

    def _n_columns(self, state: State, part: Shard) -> int:
        """How many columns of a shard's summary, now in our coordinates, are not spare."""
        width = part.tree.n_features
        return (
            width
            if self.pipeline.projection.sketch is not None
            else int(state.values.get("n_features", width))
        )

    def replace(self, shard: Hashable, state: State) -> None:
        """Put a later summary of a shard in the place of the one known, with its events that wait.

        Those that wait since they lie outside our sketch wait here too: `catch_up` learns another from them.
        """
        self.pipeline.flush()
        part, theirs = summary_in(state), self._joined_names(state)
        waiting = [block._replace(shard=shard) for block in waiting_in(state)]
        sketch, projection = sketch_from_state(state), self.pipeline.projection
        if part is not None:
            self._share(sketch, shard, part)
        projection.let_go(shard)
        if waiting and projection.sketch is None:
            self._check_names(f"shard {shard!r}", theirs)
            self._know(theirs)
            for block in waiting:
                projection.learn(*block)
            return
        if part is not None and projection.sketch is not None and projection.sketch.is_same(sketch):
            projection.hold(waiting)
        elif waiting:
            part = self.pipeline.engine.shards.empty(shard) if part is None else part
            for block in waiting:
                part.learn(*projection.measured(block), self.pipeline.engine.n_seen)
        assert part is not None
        transform, n_columns = transform_from_state(state), self._n_columns(state, part)
        part, names, n_features = self._in_our_order(shard, part, theirs, n_columns)
        part = self._in_our_transform(part, names, reordered(transform, theirs, names))
        self.pipeline.engine.replace(shard, part, n_features, self.pipeline.zeros)
        self._know(names)

    def catch_up(self) -> None:
        """Do what has become due since shards were replaced; learn a sketch anew if enough events wait for one."""
        engine, projection = self.pipeline.engine, self.pipeline.projection
        engine.catch_up()
        if projection.sketch is not None and projection.n_waiting >= FIRST_EVENTS:
            projection.begin()
            engine.settle()
        self.pipeline.resize_buffer()

    def follow(self, state: State | None) -> None:
        """Assign by a saved clusterer's model from now on, with its features first; refit no more."""
        self.pipeline.flush()
        model = None if state is None else model_in(state)
        if state is not None and model is not None:
            names = self._joined_names(state)
            if model.sketch is not None:
                self._check_names("the model", names)
                self.pipeline.projection.use_sketch(model.sketch)
                self._know(names)
            elif self.pipeline.projection.stage in ("waiting", "sketched"):
                raise ValueError("this process reduces wide events by a sketch, but the model has none")
            else:
                self.pipeline.projection.begin()
                self.pipeline.projection.stage = "plain"
                self._put_first(names, model.clusters.total().mean[0])
                self.pipeline.engine.use_transform(model.transform)
        self.pipeline.engine.follow(model)
        self.pipeline.resize_buffer()

    def _take_over(
        self,
        shard: Hashable,
        part: Shard,
        names: tuple[Hashable, ...],
        n_features: int,
        transform: Transform,
    ) -> None:
        self.pipeline.flush()
        theirs = names
        part, names, n_features = self._in_our_order(shard, part, theirs, n_features)
        part = self._in_our_transform(part, names, reordered(transform, theirs, names))
        self.pipeline.engine.adopt(shard, part, n_features, self.pipeline.zeros)
        self._know(names)
        self.pipeline.resize_buffer()

    def _check_names(self, whose: str, names: tuple[Hashable, ...]) -> None:
        """Refuse what has its features in other columns."""
        ours, both = self.pipeline.schema.names, min(len(names), len(self.pipeline.schema))
        if ours[:both] != names[:both]:
            raise ValueError(
                f"{whose} has features {list(names)}, here they are {list(ours)}: both must have the same, "
                'in the same order; run every process with missing="error", which keeps the first event\'s'
            )

    # ---------------------------------------------------------------- agreeing on features

    def _joined_names(self, state: State) -> tuple[Hashable, ...]:
        """Names of the features of a saved clusterer or shard, whose categories are known here from now on."""
        theirs = schema_from_dict(state.values["schema"])
        if isinstance(theirs, MixedSchema):
            self.pipeline.join_fields(theirs)
        return theirs.names

    def _know(self, names: tuple[Hashable, ...]) -> None:
        """Have these features, if they are more than those known."""
        if len(names) > len(self.pipeline.schema) or names != self.pipeline.schema.names[: len(names)]:
            self._name(names)

    def _name(self, names: tuple[Hashable, ...]) -> None:
        """Have these features, in this order."""
        self.pipeline.schema = self.pipeline.schema.with_names(names)
        self.pipeline.tell_layout()

    def _in_our_order(
        self, shard: Hashable, part: Shard, names: tuple[Hashable, ...], n_features: int
    ) -> tuple[Shard, tuple[Hashable, ...], int]:
        """A shard with its features in the order of those here, its own after them; their names and number."""
        ours, both = self.pipeline.schema.names, min(len(names), len(self.pipeline.schema))
        if ours[:both] == names[:both]:
            return part, names, n_features
        if self.pipeline.engine.sketch is not None:  # whose columns are directions
            self._check_names(f"shard {shard!r}", names)
        union = self._union(ours, names, f"shard {shard!r}")
        part = part.narrowed(len(names)) if part.tree.n_features > len(names) else part
        lacking = [name for name in union if name not in names]
        if lacking:
            means = np.zeros(len(lacking))
            if not self.pipeline.zeros:
                means = self.pipeline.engine.means()[[ours.index(name) for name in lacking]]
            part.widen(means)
        part.reorder(in_order((*names, *lacking), union))
        return part, union, len(union)

    def _in_our_transform(self, part: Shard, names: tuple[Hashable, ...], theirs: Transform) -> Shard:
        """A shard from elsewhere in our coordinates, whose features are in our order already.

        A stream that has learnt nothing takes their transform.
        """
        engine = self.pipeline.engine
        if engine.sketch is not None:
            return part
        if engine.is_empty and engine.transform.is_none and not theirs.is_none:
            engine.use_transform(theirs)
        if not theirs.is_same(engine.transform):
            part.retransform(TransformChange(theirs, engine.transform, part.tree.n_features))
        return part

    def _union(
        self, first: tuple[Hashable, ...], others: tuple[Hashable, ...], whose: str
    ) -> tuple[Hashable, ...]:
        """All features, those of `first` before the others; ValueError where they may not differ."""
        if self.pipeline.schema.missing == "error" and set(first) != set(others):
            raise ValueError(
                f'{whose} has features {list(others)}, here they are {list(first)}: with missing="error" both must '
                "have the same"
            )
        return (*first, *(name for name in others if name not in first))

    def _put_first(self, names: tuple[Hashable, ...], means: Floats) -> None:
        """Have these features, in this order, before those that are known here alone."""
        ours = self.pipeline.schema.names
        union = self._union(names, ours, "this process") if ours else names
        if union == ours:
            return
        shards, new = self.pipeline.engine.shards, [name for name in union if name not in ours]
        if not ours:
            shards.begin(len(union))
        elif self.pipeline.zeros:
            shards.widen_by_zeros(len(union))
        elif new:
            known = dict(zip(names, means, strict=False))
            shards.widen(np.array([known.get(name, 0.0) for name in new]))
        if ours:
            order = in_order((*ours, *new), union)
            shards.reorder(order)
            self.pipeline.engine.stream.transform = self.pipeline.engine.transform.reordered(order)
        self._name(union)


def reordered(transform: Transform, names: tuple[Hashable, ...], wanted: tuple[Hashable, ...]) -> Transform:
    """The transform of features of these names for the features wanted, in their order."""
    place = {name: i for i, name in enumerate(names)}
    return transform.reordered(np.array([place.get(name, -1) for name in wanted], dtype=np.int64))


def in_order(names: tuple[Hashable, ...], wanted: tuple[Hashable, ...]) -> Ints:
    """For each wanted name its place among the names."""
    place = {name: i for i, name in enumerate(names)}
    return np.array([place[name] for name in wanted], dtype=np.int64)
