"""One model for all processes of a consumer group, by way of a compacted topic.

Whoever holds the first partition of the input leads: it reads all partitions' summaries from the state topic, refits,
and publishes the model with its ids and lineage. That goes out in its loop's transaction, with the offsets of its
partitions: the broker refuses it from a process that has lost them, so no deposed leader publishes. Every process, the
leader too, follows what was committed.

A thread reads and refits; the loop takes what it has found between two polls.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from streamclust.checkpoint import MERGED, State
from streamclust.lineage import Change
from streamclust.streaming import StreamClusterer
from streamclust_connectors.kafka.parts import Whole, packed, parts
from streamclust_connectors.kafka.sink import KafkaSink
from streamclust_connectors.kafka.state_log import OpenTransaction, StateLog
from streamclust_connectors.kafka.state_topic import STATE
from streamclust_connectors.kafka.topics import model_topic, prepare, state_topic
from streamclust_connectors.kafka.transactions import end_abandoned
from streamclust_connectors.ports import MemberStatus, Partition, StreamModel, Transient

MODEL, MEMBER = "model", "member"
FIRST_PARTITION = 0
FOLLOW_SECONDS = 0.2
"""How long a look for new records waits."""
GONE_AFTER_INTERVALS = 3.0
"""A member that has not told of itself for so many intervals is gone."""
RETRY_SECONDS = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Publication:
    """A model to publish, and what became of clusters since the last."""

    sequence: int
    body: bytes
    changes: tuple[Change, ...]


class Leader:
    """Merges all partitions' summaries, and refits."""

    def __init__(
        self, topic: str, n_partitions: int, states: StateLog, start: StreamClusterer, sequence: int
    ) -> None:
        self.topic, self.states, self.clusterer, self.sequence = topic, states, start, sequence
        self.changes: list[Change] = []
        self._waiting: dict[int, Whole] = {}
        """Summaries that came since the last refit, by partition."""
        for number in range(n_partitions):
            found = states.newest(number, STATE).get(STATE)
            if found is not None and found.body is not None:
                self._waiting[number] = found

    def read(self) -> None:
        """Take in what has come to the state topic."""
        self._waiting.update(self.states.follow(0.0))

    def publication(self) -> Publication | None:
        """The model of what has come since the last; None if nothing has, or too little for a first model."""
        waiting, self._waiting = self._waiting, {}
        for number, whole in sorted(waiting.items()):
            try:
                self.clusterer.replace_shard((self.topic, number), whole.state())
            except Exception as error:  # damaged in whatever way: one partition does not stop the others
                log.error("partition %d of %s is left out of the model: %s", number, self.topic, error)
        if not waiting or not self.clusterer.shards:
            return None
        if MERGED in self.clusterer.shards and len(self.clusterer.shards) > 1:
            self.clusterer.release(MERGED)  # what was published: until now it told the means of features
        try:
            self.clusterer.catch_up()
        except Exception as error:  # every leader would meet it, and end, if this one did
            log.exception("no new model could be made; the group goes on with the last one")
            raise Transient(f"no new model could be made: {type(error).__name__}: {error}") from error
        if self.clusterer.model is None:
            return None  # wide events, too few of them to learn a sketch from
        self.sequence += 1
        state = self.clusterer.merged_state()
        told = {"sequence": self.sequence, "published_at": time.time()}
        changes = tuple(self.changes)
        self.changes.clear()
        return Publication(self.sequence, packed(State(state.arrays, state.values | told)), changes)


class GroupModel:
    """Follows the model of a group and, while this process holds the first partition, makes it.

    The methods are for the loop; a thread of its own reads, merges and refits.
    """

    def __init__(
        self,
        topic: str,
        group: str,
        member: str,
        sink: KafkaSink,
        options: Mapping[str, Any],
        fresh: Callable[[], StreamClusterer],
        every: float = 10.0,
    ) -> None:
        self.topic, self.group, self.member, self.sink, self.every = topic, group, member, sink, every
        self.options, self._fresh = dict(options), fresh
        self.members: dict[str, MemberStatus] = {}
        """The latest status of each member that has told of itself, by name."""
        self.leads = False
        self.checked_at = 0.0
        """When all summaries known were in the model, as the leader has told; seconds since 1970."""
        self.bytes_sent = 0
        self._latest: State | None = None
        self._sequence = 0
        self._followed: tuple[StreamModel, int | None] | None = None
        self._publication: Publication | None = None
        self._shown: tuple[int, StreamClusterer] | None = None
        self._error: Exception | None = None
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._stopping, self._renewed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    # ---------------------------------------------------------------- the loop's side

    def guide(self, learner: StreamModel) -> None:
        """Let a learner follow the latest model; starts the thread. Raises what the thread has failed with."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="streamclust-group", daemon=True)
            self._thread.start()
        if self._error is not None:
            raise self._error
        latest = self._latest
        version = version_of(latest)
        if self._followed is None or self._followed[0] is not learner or self._followed[1] != version:
            assert isinstance(learner, StreamClusterer)
            learner.follow(latest)
            self._followed = learner, version

    @property
    def ready(self) -> bool:
        """Whether there is a model."""
        return self.version is not None

    @property
    def version(self) -> int | None:
        """Version of the latest model."""
        return version_of(self._latest)

    @property
    def n_seen(self) -> int:
        """Number of events in the latest model."""
        return 0 if self._latest is None else int(self._latest.values["n_seen"])

    @property
    def staleness(self) -> float | None:
        """Seconds since all summaries that the leader knew were in the model; None before the first model."""
        return None if self._latest is None else max(0.0, time.time() - self.checked_at)

    @property
    def clusterer(self) -> StreamClusterer | None:
        """The whole group's clusterer as it was published last, to read; None before the first model."""
        with self._reading:
            latest, sequence = self._latest, self._sequence
            if latest is None:
                return None
            if self._shown is None or self._shown[0] != sequence:
                self._shown = sequence, StreamClusterer.from_state(latest)
            return self._shown[1]

    def lead(self, positions: Mapping[Partition, int]) -> None:
        """Lead the group if the first partition is among those held, else no longer."""
        leads = (self.topic, FIRST_PARTITION) in positions
        if leads != self.leads:
            log.info("%s the group's model", "leading" if leads else "following")
            self.leads = leads
            self.forget()

    def forget(self) -> None:
        """Drop what was not committed: the leader begins anew from what was."""
        with self._lock:
            self._publication = None
            self._renewed.set()

    def publish(self) -> tuple[Change, ...]:
        """Send the model that waits in the sink's open transaction; returns the lifecycle events to tell with it."""
        with self._lock:
            waiting, self._publication = self._publication, None
        if waiting is None:
            return ()
        assert self.sink.largest is not None
        messages = parts(self.group, MODEL, waiting.body, self.sink.largest)
        self.sink.keep(model_topic(self.topic), messages, 0)
        self.bytes_sent += len(waiting.body)
        return waiting.changes

    def tell(self, status: MemberStatus) -> None:
        """Send this member's status in the sink's open transaction."""
        told = replace(
            status, member=self.member, leads=self.leads, checked_at=self.checked_at if self.leads else 0.0
        )
        # Under the number of its first partition: so the topic has no more keys than the input has partitions.
        numbers = [int(name.rpartition("-")[2]) for name in status.positions]
        name = f"{MEMBER}/{min(numbers, default='none')}"
        (message,) = parts(self.group, name, msgspec.json.encode(told), 1 << 20)
        self.sink.keep(model_topic(self.topic), [message], 0)

    def present(self) -> list[MemberStatus]:
        """The members that have told of themselves lately, by name."""
        oldest = time.time() - GONE_AFTER_INTERVALS * max(self.every, 5.0)
        return [status for _, status in sorted(self.members.items()) if status.at >= oldest]

    def close(self) -> None:
        """Stop the thread."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(5.0)

    # ---------------------------------------------------------------- the thread's side

    def _run(self) -> None:
        while not self._stopping.is_set():
            model = StateLog(model_topic(self.topic), self.group, self.options)
            states = StateLog(state_topic(self.topic), self.group, self.options, lenient=True)
            try:
                self._follow_and_lead(model, states)
            except Transient as error:
                log.warning("the group's model cannot be followed for now: %s", error)
                if isinstance(error, OpenTransaction) and self.leads:  # of the last leader, most likely dead
                    own = self.sink.transactional_id
                    end_abandoned(self.group, model_topic(self.topic), 0, self.options, own)
                else:
                    self._stopping.wait(RETRY_SECONDS)
            except Exception as error:  # the loop ends with it
                self._error = error
                return
            finally:
                model.close()
                states.close()

    def _follow_and_lead(self, model: StateLog, states: StateLog) -> None:
        n_partitions = prepare(self.topic, self.options)
        for whole in model.newest(0, MODEL).values():
            self._take(whole)
        leader: Leader | None = None
        due = 0.0
        while not self._stopping.is_set():
            for _, whole in model.follow(FOLLOW_SECONDS):
                self._take(whole)
            if not self.leads:
                leader = None
                continue
            if leader is None or self._renewed.is_set():
                self._renewed.clear()
                for whole in model.newest(0, MODEL).values():  # a predecessor's last word
                    self._take(whole)
                leader, due = self._new_leader(n_partitions, states), 0.0
            leader.read()
            if time.monotonic() >= due and leader.sequence <= self._sequence:
                due = time.monotonic() + (self.every if self._latest is not None else 0.0)
                self._offer(leader)

    def _new_leader(self, n_partitions: int, states: StateLog) -> Leader:
        """A leader that goes on from the latest model's lineage."""
        changes: list[Change] = []
        start = self._fresh() if self._latest is None else StreamClusterer.from_state(self._latest)
        start.lineage.on_event = changes.append
        leader = Leader(self.topic, n_partitions, states, start, self._sequence)
        leader.changes = changes
        return leader

    def _offer(self, leader: Leader) -> None:
        """Let the loop publish a new model, unless the loop has begun anew meanwhile."""
        began = time.time()
        found = leader.publication()
        with self._lock:
            if self._renewed.is_set():
                return
            self._publication = found
        if found is None:
            self.checked_at = began

    def _take(self, whole: Whole) -> None:
        """Know what was published: a model later than the one known, or a member's status."""
        if whole.name == MODEL and whole.body is not None:
            state = whole.state()
            sequence = int(state.values["sequence"])
            version, known = version_of(state), version_of(self._latest)
            if sequence <= self._sequence or (known is not None and (version is None or version < known)):
                return  # an older one, of whoever it was
            with self._lock:
                self._latest, self._sequence = state, sequence
            self.checked_at = max(self.checked_at, float(state.values["published_at"]))
        elif whole.name.startswith(f"{MEMBER}/"):
            self._know(whole)

    def _know(self, whole: Whole) -> None:
        try:
            status = msgspec.json.decode(whole.body or b"", type=MemberStatus)
        except msgspec.DecodeError as error:  # of another version: it is only shown
            log.debug("%s cannot be read: %s", whole.name, error)
            return
        self.members = {**self.members, status.member: status}
        self.checked_at = max(self.checked_at, status.checked_at)


def version_of(state: State | None) -> int | None:
    """Version of the model in a state; None if there is none."""
    values = None if state is None else state.values.get("model")
    return None if values is None else int(values["version"])
