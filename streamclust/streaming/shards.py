"""Shards and sharing: `model.shards` moves parts of a stream between models, `model.sharing` lets processes share one.

Each process of a group learns its own shards and follows a published model. One of them holds a second clusterer, the
leader's: it is given every shard's latest summary (`shards.replace`), refits (`sharing.catch_up`) and publishes
`sharing.merged_state`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from streamclust.checkpoint import State, engine_state
from streamclust.sketch import Sketch
from streamclust.streaming.shard_transfer import ShardTransfer
from streamclust.tree import SummaryTree

if TYPE_CHECKING:
    from streamclust.streaming.clusterer import StreamClusterer
    from streamclust.streaming.features import StreamFeatures


class NamedShards:
    """The parts of a stream that a model learns here; iterates over their names."""

    @property
    def n_seen(self) -> Mapping[Hashable, int]:
        """Number of events learnt of each shard, by its name."""
        raise NotImplementedError

    @property
    def names(self) -> tuple[Hashable, ...]:
        """Names of the shards."""
        return tuple(self.n_seen)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, shard: Hashable) -> bool:
        return shard in self.names

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.names))})"


class ClustererShards(NamedShards):
    """The shards of a clusterer, each with a summary of its own: `model.shards`.

    >>> from streamclust import StreamClusterer
    >>> one, two = StreamClusterer(), StreamClusterer()
    >>> one.learn_many([{"x": 1.0}, {"x": 2.0}], shard="a")
    >>> two.learn_many([{"x": 5.0}], shard="b")
    >>> one.shards.adopt("b", two.shards.release("b"))
    >>> one.shards, one.shards.tree("b").total.mean, len(two.shards)
    (ClustererShards('a', 'b'), array([[5.]]), 0)
    """

    def __init__(self, model: StreamClusterer) -> None:
        self._model = model
        self._transfer = ShardTransfer(model._pipeline)

    @property
    def names(self) -> tuple[Hashable, ...]:
        """Names of the shards."""
        return self._model._pipeline.shard_names()

    @property
    def n_seen(self) -> Mapping[Hashable, int]:
        """Number of events learnt of each shard, by its name."""
        return self._model._pipeline.n_seen_by_shard()

    def tree(self, shard: Hashable) -> SummaryTree:
        """A copy of the summary of one shard; KeyError if there is no such shard."""
        with self._model._turn, self._model._lock:
            self._model._pipeline.flush()
            return self._model._pipeline.engine.shards.tree_of(shard)

    def learn_tree(
        self,
        tree: SummaryTree,
        names: Sequence[Hashable],
        shard: Hashable = 0,
        sketch: Sketch | None = None,
    ) -> None:
        """Learn everything that a summary built elsewhere has learnt, and refit at once.

        `names` are the names of the events' features. The shard takes the tree's parameters if it is new. If events are
        wide, the tree holds their coordinates in a `sketch`, which all trees must share.

        >>> import numpy as np
        >>> from streamclust import StreamClusterer
        >>> from streamclust.summaries import empty_tree
        >>> tree = empty_tree(n_features=2)
        >>> tree.insert(np.random.default_rng(0).normal(size=(500, 2)))
        >>> model = StreamClusterer()
        >>> model.shards.learn_tree(tree, ["x", "y"])
        >>> model.n_seen, model.feature_names
        (500, ('x', 'y'))
        """
        width = tree.n_features if sketch is None else sketch.n_features
        if sketch is not None and tree.n_features != sketch.n_directions:
            raise ValueError(f"the tree has {tree.n_features} features, {sketch} gives {sketch.n_directions}")
        if len(names) != width:
            raise ValueError(f"events have {width} features, got {len(names)} names")
        with self._model._turn, self._model._lock:
            self._transfer.learn_tree(tree, tuple(names), shard, sketch)

    def add_refused(self, n: int) -> None:
        """Count events that were refused before they came here, by the builder of a tree for example."""
        with self._model._turn, self._model._lock:
            self._model._pipeline.refusals.count += n

    def export(self, shard: Hashable) -> State:
        """A copy of a shard, in the form that `release` returns; the shard stays."""
        with self._model._turn, self._model._lock:
            self._model._pipeline.flush()
            return self._transfer.exported(shard)

    def release(self, shard: Hashable) -> State:
        """Remove a shard with everything learnt from it; another clusterer can adopt it."""
        with self._model._turn, self._model._lock:
            state = self.export(shard)
            self._transfer.remove(shard)
        return state

    def adopt(self, shard: Hashable, state: State) -> None:
        """Take over a shard that another clusterer has released.

        Features that only one of the two knows are added as those of late events are: what was learnt before counts as
        having their mean. Features come in the order of this clusterer, those that it did not know after them.
        """
        with self._model._turn, self._model._lock:
            self._transfer.adopt(shard, state)

    def replace(self, shard: Hashable, state: State) -> None:
        """Replace a shard by a later summary of it, or add it; `sharing.catch_up` counts its events."""
        with self._model._turn, self._model._lock:
            self._transfer.replace(shard, state)


class FeatureShards(NamedShards):
    """The parts of a stream that a `StreamFeatures` reads here: `model.shards`. Features are those of all parts."""

    def __init__(self, model: StreamFeatures) -> None:
        self._model = model

    @property
    def n_seen(self) -> Mapping[Hashable, int]:
        """Number of events learnt of each shard that is read here, by any process that read it."""
        return dict(self._model._shards)

    def release(self, shard: Hashable) -> State:
        """Stop reading a shard; what was learnt from it stays here, since features are those of all shards."""
        with self._model._turn, self._model._lock:
            return State({}, {"n_seen": self._model._shards.pop(shard)})

    def adopt(self, shard: Hashable, state: State) -> None:
        """Read a shard that was released elsewhere; what was learnt from it stayed there."""
        with self._model._turn, self._model._lock:
            self._model._shards[shard] = int(state.values["n_seen"])


class ModelSharing:
    """Models and sketches that several clusterers share: `model.sharing`.

    >>> import numpy as np
    >>> from streamclust import StreamClusterer
    >>> rows = np.random.default_rng(0).normal(size=(600, 1)) + 9.0 * np.arange(600)[:, None] % 18
    >>> leader, member = StreamClusterer(), StreamClusterer()
    >>> leader.learn_many(rows[:500])
    >>> member.sharing.follow(leader.sharing.merged_state())
    >>> member.learn_many(rows[500:], shard="mine")
    >>> leader.shards.replace("mine", member.shards.export("mine"))
    >>> leader.sharing.catch_up()
    >>> leader.n_seen, member.n_seen, member.n_clusters == leader.n_clusters == 2
    (600, 100, True)
    """

    def __init__(self, model: StreamClusterer) -> None:
        self._model = model
        self._transfer = ShardTransfer(model._pipeline)

    def follow(self, state: State | None) -> None:
        """Assign by the model of another clusterer's state from now on, and refit no more; None: wait for one.

        Features come in the order of that state, those known here alone after them. No cluster is born between two
        models: an event that no cluster explains shows by its novelty until the next model has a cluster for it.
        """
        with self._model._turn, self._model._lock:
            self._transfer.follow(state)

    def catch_up(self) -> None:
        """Do at once what has become due since shards were replaced: a look at the latest events, a refit.

        If at least 1,024 wide events of the shards wait outside the sketch, it is learnt anew.
        """
        with self._model._turn, self._model._lock:
            self._transfer.catch_up()

    def merged_state(self) -> State:
        """`to_state` with all shards merged into one: what other processes need to follow, to show and to continue.

        Events that wait for a sketch are left out: they travel with their shards.
        """
        with self._model._turn, self._model._lock:
            self._model._pipeline.flush()
            merged = engine_state(self._model._pipeline.engine, merged=True)
            return self._model._state(merged, {}, [], waiting=False)

    def use_sketch(self, sketch: Sketch) -> None:
        """Reduce wide events by a sketch that another clusterer has learnt (`sketch`), so that both can be merged.

        What was learnt through another sketch is carried over, without what that one left out of events. ValueError if
        events were learnt without a sketch.

        >>> import numpy as np
        >>> from streamclust import StreamClusterer
        >>> rng = np.random.default_rng(0)
        >>> one, two = StreamClusterer(), StreamClusterer()
        >>> one.learn_many(rng.normal(size=(1500, 100)))
        >>> two.sharing.use_sketch(one.sketch)
        >>> two.learn_many(rng.normal(size=(500, 100)))
        >>> one.merge(two)
        >>> one.n_seen
        2000
        """
        with self._model._turn, self._model._lock:
            self._model._pipeline.flush()
            self._model._pipeline.projection.use_sketch(sketch)
            self._model._pipeline.resize_buffer()
