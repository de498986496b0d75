"""Exchange: shards that a clusterer hands on or takes over, models that it follows, features that both sides share."""

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
    waiting_in,
)
from streamclust.engine.door import FIRST_EVENTS
from streamclust.engine.shard import Shard
from streamclust.engine.watched_events import WatchedEvents
from streamclust.schema import Schema
from streamclust.sketch import CoordinateMap, Sketch
from streamclust.streaming.clocks import Clock
from streamclust.streaming.intake import Intake
from streamclust.tree import SummaryTree


@dataclass(frozen=True)
class Exchange:
    """Moves shards and models between clusterers; it has no state of its own, only the intake's."""

    intake: Intake

    def exported(self, shard: Hashable) -> State:
        """A copy of a shard, to be handed on; KeyError if there is none."""
        waiting = [block for block in self.intake.door.waiting if block.shard == shard]
        part = self.intake.engine.shards.get(shard)
        if part is None and not waiting:
            raise KeyError(shard)
        more = {"schema": self.intake.schema.to_dict(), "n_features": self.intake.engine.n_features}
        if (clock := self.intake.clocks.get(shard)) is not None:
            more["clock"] = asdict(clock)
        return handed_on(None if part is None else shard_state(part), waiting, self.intake.door.sketch, more)

    def let_go(self, shard: Hashable) -> None:
        """Forget a shard, and its events that wait."""
        self.intake.door.let_go(shard)
        if shard in self.intake.engine.shards:
            self.intake.engine.release(shard)
        self.intake.clocks.pop(shard, None)
        self.intake.make_room()

    def adopt(self, shard: Hashable, state: State) -> None:
        """Adopt a shard, after adding the features that either side lacks; then its events that wait."""
        self.intake.flush()
        part, theirs = summary_in(state), Schema.from_dict(state.values["schema"]).names
        if part is not None:
            self._share(sketch_from_state(state), shard, part)
            self._take_over(shard, part, theirs, self._n_columns(state, part))
        if (clock := state.values.get("clock")) is not None:
            self.intake.clocks[shard] = Clock(**clock)
        if waiting := waiting_in(state):
            self._check_names(f"shard {shard!r}", theirs)
            self._know(theirs)
            for block in waiting:
                self.intake.door.learn(*block[:3], shard)
        self.intake.make_room()

    def learn_tree(
        self, tree: SummaryTree, names: tuple[Hashable, ...], shard: Hashable, sketch: Sketch | None = None
    ) -> None:
        """Learn everything that a tree has learnt; its events have features of these names, and came by this sketch."""
        self.intake.flush()
        more = Shard(tree, WatchedEvents(tree.n_features))
        self._share(sketch, shard, more)
        self._check_names(f"shard {shard!r}", names)
        if shard not in self.intake.engine.shards:
            seed = self.intake.engine.settings.seed
            self._take_over(shard, Shard.like(more.tree, seed), Schema(names).names, len(names))
        self.intake.flush()
        self.intake.engine.learn_tree(shard, more.tree)
        self.intake.make_room()

    def merge(self, other: Intake) -> None:
        """Learn everything that another has learnt; one that has learnt nothing takes the other's features."""
        self.intake.flush()
        other.flush()
        ours, theirs = self.intake.schema, other.schema
        if len(theirs) and len(ours) and ours.names != theirs.names:
            raise ValueError(f"only streams of the same features can be merged, got {ours!r} and {theirs!r}")
        if other.door.n_seen:
            self.intake.engine.check_settings(other.engine)
            for shard, clock in other.clocks.copy().items():
                self.intake.clocks.setdefault(shard, clock)
        if not len(ours):
            ours.adopt(dict(theirs.columns))
        self.intake.merge(other)

    def _share(self, sketch: Sketch | None, shard: Hashable, part: Shard) -> None:
        """Have a shard from elsewhere in our coordinates: carried over, or its sketch used here if there is none."""
        if sketch is not None:
            if self.intake.door.sketch is None:
                self.intake.door.use_sketch(sketch)
            elif sketch.unit != self.intake.door.unit:
                raise ValueError('the sketch and this stream differ in scale="unit"')
            elif not sketch.is_same(self.intake.door.sketch):
                part.reproject(CoordinateMap.between(sketch, self.intake.door.sketch))
            return
        self.intake.door.begin()
        if self.intake.door.sketch is not None:
            raise ValueError(
                f"shard {shard!r} came without the sketch that wide events are taken through here"
            )
        self.intake.door.stage = "plain"

    def _n_columns(self, state: State, part: Shard) -> int:
        """How many columns of a shard's summary, now in our coordinates, are not spare."""
        width = part.tree.n_features
        return width if self.intake.door.sketch is not None else int(state.values.get("n_features", width))

    def replace(self, shard: Hashable, state: State) -> None:
        """Put a later summary of a shard in the place of the one known, with its events that wait.

        Those that wait since they lie outside our sketch wait here too: `catch_up` learns another from them.
        """
        self.intake.flush()
        part, theirs = summary_in(state), Schema.from_dict(state.values["schema"]).names
        waiting = [block._replace(shard=shard) for block in waiting_in(state)]
        sketch, door = sketch_from_state(state), self.intake.door
        if part is not None:
            self._share(sketch, shard, part)
        door.let_go(shard)
        if waiting and door.sketch is None:
            self._check_names(f"shard {shard!r}", theirs)
            self._know(theirs)
            for block in waiting:
                door.learn(*block)
            return
        if part is not None and door.sketch is not None and door.sketch.is_same(sketch):
            door.hold(waiting)
        elif waiting:
            part = self.intake.engine.shards.empty(shard) if part is None else part
            for block in waiting:
                part.learn(*door.measured(block), self.intake.engine.n_seen)
        assert part is not None
        part, names, n_features = self._in_our_order(shard, part, theirs, self._n_columns(state, part))
        self.intake.engine.replace(shard, part, n_features, self.intake.zeros)
        self._know(names)

    def catch_up(self) -> None:
        """Do what has become due since shards were replaced; learn a sketch anew if enough events wait for one."""
        engine, door = self.intake.engine, self.intake.door
        engine.catch_up()
        if door.sketch is not None and door.n_waiting >= FIRST_EVENTS:
            door.begin()
            engine.settle()
        self.intake.make_room()

    def follow(self, state: State | None) -> None:
        """Assign by a saved clusterer's model from now on, with its features first; refit no more."""
        self.intake.flush()
        model = None if state is None else model_in(state)
        if state is not None and model is not None:
            names = Schema.from_dict(state.values["schema"]).names
            if model.sketch is not None:
                self._check_names("the model", names)
                self.intake.door.use_sketch(model.sketch)
                self._know(names)
            elif self.intake.door.stage in ("waiting", "sketched"):
                raise ValueError(
                    "the events of this process are wide, and taken to few directions; those of the model are not"
                )
            else:
                self.intake.door.stage = "plain"
                self._put_first(names, model.clusters.total().mean[0])
        self.intake.engine.follow(model)
        self.intake.make_room()

    def _take_over(self, shard: Hashable, part: Shard, names: tuple[Hashable, ...], n_features: int) -> None:
        self.intake.flush()
        part, names, n_features = self._in_our_order(shard, part, names, n_features)
        self.intake.engine.adopt(shard, part, n_features, self.intake.zeros)
        self._know(names)
        self.intake.make_room()

    def _check_names(self, whose: str, names: tuple[Hashable, ...]) -> None:
        """Refuse what has its features in other columns."""
        ours, both = self.intake.schema.names, min(len(names), len(self.intake.schema))
        if ours[:both] != names[:both]:
            raise ValueError(
                f"{whose} has features {list(names)}, here they are {list(ours)}: both must have the same, "
                'in the same order; run every process with missing="error", which keeps the first event\'s'
            )

    # ---------------------------------------------------------------- agreeing on features

    def _know(self, names: tuple[Hashable, ...]) -> None:
        """Have these features, if they are more than those known."""
        if len(names) > len(self.intake.schema) or names != self.intake.schema.names[: len(names)]:
            self._name(names)

    def _name(self, names: tuple[Hashable, ...]) -> None:
        """Have these features, in this order."""
        ours = self.intake.schema
        self.intake.schema = Schema(names, ours.missing, ours.max_features, ours.order, ours.max_grown)

    def _in_our_order(
        self, shard: Hashable, part: Shard, names: tuple[Hashable, ...], n_features: int
    ) -> tuple[Shard, tuple[Hashable, ...], int]:
        """A shard with its features in the order of those here, its own after them; their names and number."""
        ours, both = self.intake.schema.names, min(len(names), len(self.intake.schema))
        if ours[:both] == names[:both]:
            return part, names, n_features
        if self.intake.engine.sketch is not None:  # whose columns are directions
            self._check_names(f"shard {shard!r}", names)
        union = self._union(ours, names, f"shard {shard!r}")
        part = part.narrowed(len(names)) if part.tree.n_features > len(names) else part
        lacking = [name for name in union if name not in names]
        if lacking:
            means = np.zeros(len(lacking))
            if not self.intake.zeros:
                means = self.intake.engine.means()[[ours.index(name) for name in lacking]]
            part.widen(means)
        part.reorder(in_order((*names, *lacking), union))
        return part, union, len(union)

    def _union(
        self, first: tuple[Hashable, ...], others: tuple[Hashable, ...], whose: str
    ) -> tuple[Hashable, ...]:
        """All features, those of `first` before the others; ValueError where they may not differ."""
        if self.intake.schema.missing == "error" and set(first) != set(others):
            raise ValueError(
                f'{whose} has features {list(others)}, here they are {list(first)}: with missing="error" both must '
                "have the same"
            )
        return (*first, *(name for name in others if name not in first))

    def _put_first(self, names: tuple[Hashable, ...], means: Floats) -> None:
        """Have these features, in this order, before those that are known here alone."""
        ours = self.intake.schema.names
        union = self._union(names, ours, "this process") if ours else names
        if union == ours:
            return
        shards, new = self.intake.engine.shards, [name for name in union if name not in ours]
        if not ours:
            shards.begin(len(union))
        elif self.intake.zeros:
            shards.widen_by_zeros(len(union))
        elif new:
            known = dict(zip(names, means, strict=False))
            shards.widen(np.array([known.get(name, 0.0) for name in new]))
        if ours:
            shards.reorder(in_order((*ours, *new), union))
        self._name(union)


def in_order(names: tuple[Hashable, ...], wanted: tuple[Hashable, ...]) -> Ints:
    """For each wanted name its place among the names."""
    place = {name: i for i, name in enumerate(names)}
    return np.array([place[name] for name in wanted], dtype=np.int64)
