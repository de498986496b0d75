"""Intake: from events of any form to rows that the engine learns; what cannot be learnt is refused and counted.

An event is checked when it arrives: every buffered event can be learnt.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator
from dataclasses import asdict
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

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
from streamclust.engine import Engine
from streamclust.engine.door import Door
from streamclust.engine.incomplete import Row, stacked, widths
from streamclust.engine.shards import Shard
from streamclust.engine.watch import Watch
from streamclust.families import is_discrete
from streamclust.frames import TableLike, warn_left_out
from streamclust.parameters import Invalid, ScaleName
from streamclust.schema import Cells, Schema
from streamclust.sketch import CoordinateMap, Sketch
from streamclust.streaming.checked import Checked
from streamclust.streaming.checking import Checker, cells_of, weight_and_time
from streamclust.streaming.clocks import Clock, Clocks
from streamclust.tree import SummaryTree

MAX_WAITING_EVENTS = 256
"""Number of single events buffered before they are learnt together."""
NO_VALUES = np.empty(0)


class RefusedEvents(UserWarning):
    """Warning, given once: events were refused; `n_refused` counts them."""


class Intake:
    """Prepares events for the engine: maps names to columns, checks and buffers events, keeps time."""

    def __init__(
        self,
        schema: Schema,
        engine: Engine,
        invalid: Invalid = "refuse",
        max_time_step: float | None = None,
        max_directions: int | None = None,
        scale: ScaleName = "deviation",
    ) -> None:
        self.schema = schema
        self.engine = engine
        self.door = Door(engine, max_directions, scale, schema.missing == "zero")
        self.invalid = invalid
        self.clocks = Clocks(engine.settings.half_life, max_time_step)
        self.n_refused = 0
        self.last_refusal = ""
        self.waiting: list[tuple[Row, float, float | None]] = []
        self._shard: Hashable = 0
        self._told: set[Hashable] = set()
        self._zeros = schema.missing == "zero"
        family, skips_text = engine.settings.family, invalid == "refuse" and schema.missing != "error"
        self._checker = Checker(family, self._zeros, skips_text, self.door.unit)
        self._forgets = self.clocks.forgets
        self._measures = not (is_discrete(family) or self._forgets or self.door.unit)
        """Whether the family takes all finite values and nothing is forgotten: plain events need no further check."""
        self.make_room()

    def make_room(self) -> None:
        """Set the size of the buffer, which never reaches past the event at which a refit or another step is due."""
        self._room = min(MAX_WAITING_EVENTS, self.door.until_due)

    # ---------------------------------------------------------------- one event

    def learn_one(
        self, x: dict[Any, Any], w: float = 1.0, t: float | None = None, shard: Hashable = 0
    ) -> None:
        """Learn an event, of weight `w` and, where forgetting goes by time, at time `t`; or refuse it."""
        if shard != self._shard:
            self.flush()
            self._shard = shard
        row = self.schema.plain_row(x)
        if row is not None and self._measures and w == 1.0 and t is None:
            self._wait(row, w, t)
            return
        try:
            if row is None:
                cells = self.schema.cells(x)
                self._checker.check_cells(cells, self._least)
                taken = self._taken(cells, w, t)
            else:
                self._checker.check_points(row[None])
                taken = self._taken(row, w, t)
        except (TypeError, ValueError) as error:
            self._refuse(error)
            return
        if taken is not None:  # outside: what goes wrong in the engine is no refusal
            self._wait(*taken)

    def _taken(self, row: Row, w: float, t: float | None) -> tuple[Row, float, float | None] | None:
        """A checked event for the buffer; None for one of weight 0, which changes nothing."""
        if w != 1.0 or t is not None:
            w, t = weight_and_time(w, t)
            if w == 0.0:
                return None
        if (self._forgets or t is not None) and (back := self.clocks.tell(self._shard, t)):
            self.flush()
            self.engine.redate(self._shard, back)
        if isinstance(row, Cells) and len(row.columns) > len(self.schema):
            self.schema.adopt(row.columns)
        return row, w, t

    def _wait(self, row: Row, w: float, t: float | None) -> None:
        self.waiting.append((row, w, t))
        self._room -= 1
        if self._room <= 0 or (len(self.schema) != self.door.n_features and not self._zeros):
            self.flush()

    @property
    def _least(self) -> int | None:
        """Number of features that the next event must have, if it is the first; None if events were learnt."""
        return self.door.n_features if not self.waiting and self.door.is_empty else None

    def _refuse(self, error: object) -> None:
        """Count a refused event; warn at the first."""
        if self.invalid == "raise":
            raise error if isinstance(error, Exception) else ValueError(error)
        self.n_refused += 1
        self.last_refusal = str(error)
        if self.n_refused == 1:
            warnings.warn(
                f'an event was refused: {error}. More will be counted in n_refused without a word; invalid="raise" '
                "stops at the first",
                RefusedEvents,
                stacklevel=4,
            )

    def flush(self) -> None:
        """Learn the buffered events."""
        if self.waiting:
            waiting, self.waiting = self.waiting, []
            rows, weight, time = zip(*waiting, strict=True)
            plain = all(w == 1.0 for w in weight)
            timeless = all(t is None for t in time)
            self._learn_rows(
                list(rows) if self._zeros else stacked(rows, self.door.n_features),
                None if plain else np.array(weight),
                None if timeless else np.array(time),
            )
        self.make_room()

    # ---------------------------------------------------------------- many events

    def check(
        self,
        X: TableLike,
        weight: ArrayLike | None = None,
        time: ArrayLike | None = None,
        shard: Hashable = 0,
    ) -> Checked:
        """Read and check events; nothing changes. Times are checked, but not kept where nothing is forgotten."""
        clocks = self.clocks if self._forgets else None
        return self._checker.check(X, self.schema, clocks, self._least, weight, time, shard)

    def learn_many(
        self,
        X: TableLike,
        weight: ArrayLike | None = None,
        time: ArrayLike | None = None,
        shard: Hashable = 0,
    ) -> None:
        """Check and learn a table; events that cannot be learnt are refused, or the first of them raised."""
        raises = self.invalid == "raise"
        checked = self._checker.check(
            X, self.schema, self.clocks, self._least, weight, time, shard, all_or_none=raises
        )
        self._warn_left_out(checked)
        for i in sorted(checked.refused):
            self._refuse(checked.refused[i])
        self._learn(checked, counted=True)

    def learn(self, checked: Checked) -> None:
        """Learn checked events; those of wrong times are refused and counted."""
        self._warn_left_out(checked)
        self._learn(checked)

    def runs(self, checked: Checked) -> Iterator[Checked]:
        """Slices of the events, each up to where a refit or another step is due; learn one before the next."""
        self.flush()
        return (checked[run] for run in self.door.runs(len(checked)))

    def _learn(self, checked: Checked, counted: bool = False) -> None:
        """Learn checked events; `counted`: those of wrong times are counted already."""
        self.flush()
        self._shard = checked.shard
        checked = checked.weighing()
        if not len(checked):
            return
        if self.clocks.all_in_time(checked.shard, checked.time):
            self._learn_in_time(checked)
        else:
            self._learn_turning(checked, counted)
        self.make_room()

    def _learn_turning(self, checked: Checked, counted: bool) -> None:
        """Learn events of which some have wrong times, or turn the clock back."""
        times = [None] * len(checked) if checked.time is None else checked.time.tolist()
        clocks = self.clocks.copy()
        refused: list[ValueError] = []
        parts: list[tuple[float, list[int]]] = [(0.0, [])]
        for i, t in enumerate(times):
            try:
                back = clocks.tell(checked.shard, t)
            except ValueError as error:
                refused.append(error)
                continue
            if back:
                parts.append((back, []))
            parts[-1][1].append(i)
        if not counted:
            for reason in refused:
                self._refuse(reason)
        self.clocks = clocks
        for back, chosen in parts:
            if back:
                self.engine.redate(checked.shard, back)
            if chosen:
                self._learn_in_time(checked.pick(chosen))

    def _learn_in_time(self, checked: Checked) -> None:
        """Learn events that weigh something, and whose times the clock has taken."""
        if checked.columns is not self.schema.columns:
            self._add_features(checked)
        if self._least is not None and not self._zeros:
            first: Any = checked.rows[0]
            self._checker.check_cells(cells_of(first, self.schema), self._least)
        self._learn_rows(checked.rows, checked.weight, checked.time)

    def _add_features(self, checked: Checked) -> None:
        """Add the features that these events bring; ValueError if others have come since they were checked."""
        ours, theirs = self.schema.names, tuple(checked.columns)
        both = min(len(ours), len(theirs))
        if ours[:both] != theirs[:both]:
            raise ValueError("features have come since these events were checked: check them again")
        width = max(checked.n_named, int(widths(checked.rows)[-1]))
        if width > len(ours):
            self.schema.adopt(dict(islice(checked.columns.items(), width)))

    def _learn_rows(self, rows: Floats | list[Row], weight: Floats | None, time: Floats | None) -> None:
        w, t = (NO_VALUES if v is None else np.require(v, float, ["C", "A", "W"]) for v in (weight, time))
        self.door.learn(rows, w, t, self._shard)

    def _warn_left_out(self, checked: Checked) -> None:
        """Name the columns that were left out, once each."""
        if new := [name for name in checked.left_out if name not in self._told]:
            self._told |= set(new)
            warn_left_out(new, stacklevel=5)

    # ---------------------------------------------------------------- asking, moving

    def n_seen_by_shard(self) -> dict[Hashable, int]:
        """Number of events learnt of each shard, those in the buffer included."""
        found = {key: part.n_seen for key, part in list(self.engine.shards.items())}
        for key, n in self.door.n_waiting_by_shard().items():
            found[key] = found.get(key, 0) + n
        if self.waiting:
            found[self._shard] = found.get(self._shard, 0) + len(self.waiting)
        return found

    def filled(self, rows: Floats) -> Floats:
        """Rows with missing values set to 0 if missing="zero"; else unchanged."""
        return np.nan_to_num(rows, nan=0.0) if self._zeros else rows

    def check_values(self, rows: Floats) -> None:
        """Raise ValueError for rows that cannot be events; a missing value (NaN) is allowed."""
        self._checker.check_values(np.where(np.isnan(rows), 0.0, rows))

    def exported(self, shard: Hashable) -> State:
        """A copy of a shard, to be handed on; KeyError if there is none."""
        waiting = [block for block in self.door.waiting if block.shard == shard]
        part = self.engine.shards.get(shard)
        if part is None and not waiting:
            raise KeyError(shard)
        more = {"schema": self.schema.to_dict(), "n_features": self.engine.n_features}
        if (clock := self.clocks.get(shard)) is not None:
            more["clock"] = asdict(clock)
        return handed_on(None if part is None else shard_state(part), waiting, self.door.sketch, more)

    def let_go(self, shard: Hashable) -> None:
        """Forget a shard, and its events that wait."""
        self.door.let_go(shard)
        if shard in self.engine.shards:
            self.engine.release(shard)
        self.clocks.pop(shard, None)
        self.make_room()

    def adopt(self, shard: Hashable, state: State) -> None:
        """Adopt a shard, after adding the features that either side lacks; then its events that wait."""
        self.flush()
        part, theirs = summary_in(state), Schema.from_dict(state.values["schema"]).names
        if part is not None:
            self._share(sketch_from_state(state), shard, part)
            self._take_over(shard, part, theirs, self._n_columns(state, part))
        if (clock := state.values.get("clock")) is not None:
            self.clocks[shard] = Clock(**clock)
        if waiting := waiting_in(state):
            self._check_names(f"shard {shard!r}", theirs)
            self._know(theirs)
            for block in waiting:
                self.door.learn(*block[:3], shard)
        self.make_room()

    def learn_tree(
        self, tree: SummaryTree, names: tuple[Hashable, ...], shard: Hashable, sketch: Sketch | None = None
    ) -> None:
        """Learn everything that a tree has learnt; its events have features of these names, and came by this sketch."""
        self.flush()
        more = Shard(tree, Watch(tree.n_features))
        self._share(sketch, shard, more)
        self._check_names(f"shard {shard!r}", names)
        if shard not in self.engine.shards:
            seed = self.engine.settings.seed
            self._take_over(shard, Shard.like(more.tree, seed), Schema(names).names, len(names))
        self.flush()
        self.engine.learn_tree(shard, more.tree)
        self.make_room()

    def _share(self, sketch: Sketch | None, shard: Hashable, part: Shard) -> None:
        """Have a shard from elsewhere in our coordinates: carried over, or its sketch used here if there is none."""
        if sketch is not None:
            if self.door.sketch is None:
                self.door.use_sketch(sketch)
            elif sketch.unit != self.door.unit:
                raise ValueError('the sketch and this stream differ in scale="unit"')
            elif not sketch.is_same(self.door.sketch):
                part.carry(CoordinateMap.between(sketch, self.door.sketch))
            return
        self.door.begin()
        if self.door.sketch is not None:
            raise ValueError(
                f"shard {shard!r} came without the sketch that wide events are taken through here"
            )
        self.door.stage = "plain"

    def _n_columns(self, state: State, part: Shard) -> int:
        """How many columns of a shard's summary, now in our coordinates, are not spare."""
        width = part.tree.n_features
        return width if self.door.sketch is not None else int(state.values.get("n_features", width))

    def settle(self) -> None:
        """Learn what waits, and refit at once."""
        self.flush()
        self.door.begin()
        self.engine.settle()
        self.make_room()

    def merge(self, other: Intake) -> None:
        """Learn everything that another has learnt."""
        self.flush()
        other.flush()
        self.door.merge(other.door)
        self.n_refused += other.n_refused
        self.make_room()

    def _take_over(self, shard: Hashable, part: Shard, names: tuple[Hashable, ...], n_features: int) -> None:
        self.flush()
        part, names, n_features = self._in_our_order(shard, part, names, n_features)
        self.engine.adopt(shard, part, n_features, self._zeros)
        self._know(names)
        self.make_room()

    def _check_names(self, whose: str, names: tuple[Hashable, ...]) -> None:
        """Refuse what has its features in other columns."""
        ours, both = self.schema.names, min(len(names), len(self.schema))
        if ours[:both] != names[:both]:
            raise ValueError(
                f"{whose} has features {list(names)}, here they are {list(ours)}: both must have the same, "
                'in the same order; run every process with missing="error", which keeps the first event\'s'
            )

    # ---------------------------------------------------------------- agreeing on features

    def _know(self, names: tuple[Hashable, ...]) -> None:
        """Have these features, if they are more than those known."""
        if len(names) > len(self.schema) or names != self.schema.names[: len(names)]:
            self._name(names)

    def _name(self, names: tuple[Hashable, ...]) -> None:
        """Have these features, in this order."""
        ours = self.schema
        self.schema = Schema(names, ours.missing, ours.max_features, ours.order, ours.max_grown)

    def _in_our_order(
        self, shard: Hashable, part: Shard, names: tuple[Hashable, ...], n_features: int
    ) -> tuple[Shard, tuple[Hashable, ...], int]:
        """A shard with its features in the order of those here, its own after them; their names and number."""
        ours, both = self.schema.names, min(len(names), len(self.schema))
        if ours[:both] == names[:both]:
            return part, names, n_features
        if self.engine.sketch is not None:  # whose columns are directions
            self._check_names(f"shard {shard!r}", names)
        union = self._union(ours, names, f"shard {shard!r}")
        part = part.narrowed(len(names)) if part.tree.n_features > len(names) else part
        lacking = [name for name in union if name not in names]
        if lacking:
            means = np.zeros(len(lacking))
            if not self._zeros:
                means = self.engine.means()[[ours.index(name) for name in lacking]]
            part.widen(means)
        part.reorder(in_order((*names, *lacking), union))
        return part, union, len(union)

    def _union(
        self, first: tuple[Hashable, ...], others: tuple[Hashable, ...], whose: str
    ) -> tuple[Hashable, ...]:
        """All features, those of `first` before the others; ValueError where they may not differ."""
        if self.schema.missing == "error" and set(first) != set(others):
            raise ValueError(
                f'{whose} has features {list(others)}, here they are {list(first)}: with missing="error" both must '
                "have the same"
            )
        return (*first, *(name for name in others if name not in first))

    def replace(self, shard: Hashable, state: State) -> None:
        """Put a later summary of a shard in the place of the one known, with its events that wait."""
        self.flush()
        part, theirs = summary_in(state), Schema.from_dict(state.values["schema"]).names
        waiting = [block._replace(shard=shard) for block in waiting_in(state)]
        if part is not None:
            self._share(sketch_from_state(state), shard, part)
        self.door.let_go(shard)
        if waiting and self.door.sketch is None:
            self._check_names(f"shard {shard!r}", theirs)
            self._know(theirs)
            for block in waiting:
                self.door.learn(*block)
            return
        if waiting:
            part = self.engine.shards.empty(shard) if part is None else part
            for block in waiting:
                part.learn(*self.door.measured(block), self.engine.n_seen)
        assert part is not None
        part, names, n_features = self._in_our_order(shard, part, theirs, self._n_columns(state, part))
        self.engine.replace(shard, part, n_features, self._zeros)
        self._know(names)

    def follow(self, state: State | None) -> None:
        """Assign by a saved clusterer's model from now on, with its features first; refit no more."""
        self.flush()
        model = None if state is None else model_in(state)
        if state is not None and model is not None:
            names = Schema.from_dict(state.values["schema"]).names
            if model.sketch is not None:
                self._check_names("the model", names)
                self.door.use_sketch(model.sketch)
                self._know(names)
            elif self.door.stage in ("waiting", "sketched"):
                raise ValueError(
                    "the events of this process are wide, and taken to few directions; those of the model are not"
                )
            else:
                self.door.stage = "plain"
                self._put_first(names, model.clusters.total().mean[0])
        self.engine.follow(model)
        self.make_room()

    def _put_first(self, names: tuple[Hashable, ...], means: Floats) -> None:
        """Have these features, in this order, before those that are known here alone."""
        ours = self.schema.names
        union = self._union(names, ours, "this process") if ours else names
        if union == ours:
            return
        shards, new = self.engine.shards, [name for name in union if name not in ours]
        if not ours:
            shards.begin(len(union))
        elif self._zeros:
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
