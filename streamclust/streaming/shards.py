"""Sharing: the part of a clusterer by which several processes have one model.

Each process learns its own shards and `follow`s a published model. One of them holds a second clusterer, the leader's:
it is given every shard's latest summary (`replace_shard`), refits (`catch_up`) and publishes `merged_state`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from streamclust.checkpoint import State, engine_state
from streamclust.streaming.pipeline import EventPipeline
from streamclust.streaming.shard_transfer import ShardTransfer
from streamclust.streaming.thread_safety import ThreadSafe


class Sharing(ThreadSafe):
    """Summaries out, models in; and for the one that leads, the other way round."""

    _pipeline: EventPipeline

    @property
    def _exchange(self) -> ShardTransfer:
        return ShardTransfer(self._pipeline)

    def _state(
        self, engine: State, positions: Mapping[str, Any], clocks: list[Any], waiting: bool = True
    ) -> State:
        raise NotImplementedError

    def follow(self, state: State | None) -> None:
        """Assign by the model of another clusterer's state from now on, and refit no more; None: wait for one.

        Features come in the order of that state, those known here alone after them. Nothing is born between two
        models: an event that no cluster explains is told by its novelty until the next model has a cluster for it.

        >>> import numpy as np
        >>> from streamclust import StreamClusterer
        >>> rows = np.random.default_rng(0).normal(size=(600, 1)) + 9.0 * np.arange(600)[:, None] % 18
        >>> leader, member = StreamClusterer(), StreamClusterer()
        >>> leader.learn_many(rows[:500])
        >>> member.follow(leader.merged_state())
        >>> member.learn_many(rows[500:], shard="mine")
        >>> leader.replace_shard("mine", member.export_shard("mine"))
        >>> leader.catch_up()
        >>> leader.n_seen, member.n_seen, member.n_clusters == leader.n_clusters == 2
        (600, 100, True)
        """
        with self._turn, self._lock:
            self._exchange.follow(state)

    def export_shard(self, shard: Hashable) -> State:
        """A copy of a shard, as `release` gives it; the shard stays."""
        with self._turn, self._lock:
            self._pipeline.flush()
            return self._exchange.exported(shard)

    def replace_shard(self, shard: Hashable, state: State) -> None:
        """Put a later summary of a shard in the place of the one known, or add it; `catch_up` counts its events."""
        with self._turn, self._lock:
            self._exchange.replace(shard, state)

    def catch_up(self) -> None:
        """Do at once whatever has fallen due since shards were replaced: a look at the latest events, a refit.

        Where wide events of the shards wait outside the sketch, 1,024 at least, it is learnt anew.
        """
        with self._turn, self._lock:
            self._exchange.catch_up()

    def merged_state(self) -> State:
        """`to_state` with all shards merged into one: what others need to follow, to show and to go on from.

        Events that wait for a sketch are left out: whoever goes on gets them with their shards.
        """
        with self._turn, self._lock:
            self._pipeline.flush()
            return self._state(engine_state(self._pipeline.engine, merged=True), {}, [], waiting=False)
