"""One model for all processes of a consumer group, shared by a compacted topic.

The owner of the input's first partition is the leader. It reads the summaries of all partitions from the state topic,
refits, and publishes the model with its ids and lineage. The model is sent in a transaction with the offsets of the
leader's partitions: the broker refuses it from a process that has lost them, so a former leader cannot publish. Every
process, including the leader, uses the committed model.

A thread reads and refits; the loop fetches its results between two polls.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from streamclust.checkpoint import State
from streamclust.lineage import Change
from streamclust.streaming import StreamClusterer
from streamclust_connectors.incidents import Incident
from streamclust_connectors.interfaces import (
    EventKey,
    MemberStatus,
    Partition,
    StreamModel,
    Transient,
    UnfitTopic,
)
from streamclust_connectors.kafka.cluster_names import READ_TO, GivenNames, name_record, names_in
from streamclust_connectors.kafka.example_keys import example_keys
from streamclust_connectors.kafka.group_leader import Leader, Publication
from streamclust_connectors.kafka.sink import KafkaSink
from streamclust_connectors.kafka.state_log import OpenTransaction, StateLog
from streamclust_connectors.kafka.state_records import StoredState, parts
from streamclust_connectors.kafka.topics import model_topic, prepare, state_topic
from streamclust_connectors.kafka.transactions import end_abandoned

MODEL, MEMBER = "model", "member"
FIRST_PARTITION = 0
FOLLOW_SECONDS = 0.2
"""Time limit of a poll for new records."""
GONE_AFTER_INTERVALS = 3.0
"""Number of model intervals without a status after which a member is considered gone."""
GROW_SECONDS = 10.0
"""Time between two attempts to add partitions to the topic of states."""
RETRY_SECONDS = 1.0
"""Time to wait after a Transient error of the thread."""

log = logging.getLogger(__name__)


class GroupModel:
    """Follows the model of a group and, if the first partition is assigned here, computes it as the leader.

    The loop calls the methods; a separate thread reads, merges and refits.
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
        """Latest status of each member, by name."""
        self.leads = self._may_publish = False
        self.checked_at = 0.0
        """Time at which the leader last found all summaries in the model; seconds since 1970."""
        self.bytes_sent = 0
        self._given = GivenNames()
        self._latest: State | None = None
        self._sequence = 0
        self._followed: tuple[StreamModel, int] | None = None
        """The learner that follows, and the number of the publication that it follows."""
        self._n_partitions = 0
        """Number of partitions of the input, as far as positions tell."""
        self._n_prepared = 0
        """Number of partitions that the topic of states had when it was last prepared."""
        self._growing = Incident(log, "the topic of states cannot grow")
        self._trouble = Incident(log, "the group's model cannot be read now")
        self._publication: Publication | None = None
        self._shown: tuple[int, StreamClusterer] | None = None
        self._error: Exception | None = None
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._stopping, self._restart_leader = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    # ---------------------------------------------------------------- called by the loop

    def update_learner(self, learner: StreamModel) -> None:
        """Give the latest model to a learner; starts the thread, and raises its error if it has failed."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="streamclust-group", daemon=True)
            self._thread.start()
        if self._error is not None:
            raise self._error
        with self._lock:
            latest, sequence = self._latest, self._sequence
        if self._followed is None or self._followed[0] is not learner or self._followed[1] != sequence:
            assert isinstance(learner, StreamClusterer)
            learner.sharing.follow(latest)
            self._followed = learner, sequence

    @property
    def ready(self) -> bool:
        """Whether there is a model."""
        return self.version is not None

    @property
    def version(self) -> int | None:
        """Version of the latest model."""
        return version_of(self._latest)

    @property
    def revision(self) -> int | None:
        """Number of the publication that the learner follows: a version is published again after clusters have moved.

        Assignments of the same version and revision are those of the same model, whoever made them.
        """
        return None if self._followed is None or self._latest is None else self._followed[1]

    @property
    def n_seen(self) -> int:
        """Number of events in the latest model."""
        return 0 if self._latest is None else int(self._latest.values["n_seen"])

    @property
    def staleness(self) -> float | None:
        """Seconds since the model included all summaries that the leader knew; None before the first model."""
        return None if self._latest is None else max(0.0, time.time() - self.checked_at)

    @property
    def clusterer(self) -> StreamClusterer | None:
        """The group's clusterer as last published, read-only; None before the first model."""
        with self._reading:
            latest, sequence = self._latest, self._sequence
            if latest is None:
                return None
            if self._shown is None or self._shown[0] != sequence:
                self._shown = sequence, StreamClusterer.from_state(latest)
                self._given.give_to(self._shown[1])
            return self._shown[1]

    @property
    def names(self) -> dict[int, str]:
        """Names of clusters in the latest model."""
        return names_in(self._latest)

    @property
    def example_keys(self) -> dict[int, EventKey]:
        """Keys of the examples of clusters in the latest model, by the fingerprints of events."""
        return example_keys(self._latest)

    def name(self, cluster: int, name: str | None) -> None:
        """Name a cluster: `send_status` sends it, and a model of the leader has it soon; here it is shown at once.

        KeyError if there is no such cluster, ValueError if it cannot be a name.
        """
        shown = self.clusterer
        if shown is None:
            raise KeyError("there is no cluster yet")
        shown.name(cluster, name)
        self._given.add(cluster, name)

    def update_leadership(self, positions: Collection[Partition], waiting: Collection[Partition]) -> None:
        """Become the leader if the first partition is assigned here, else a follower.

        While it waits to be read nothing is published: the broker checks the leadership by its offset.
        """
        first = (self.topic, FIRST_PARTITION)
        self._may_publish = first in positions
        leads = self._may_publish or (self.leads and first in waiting)
        self._n_partitions = max([self._n_partitions, *(number + 1 for _, number in positions)])
        if leads != self.leads:
            log.info("this process is now %s of the group", "the leader" if leads else "a follower")
            self.leads = leads
            self.discard_uncommitted()

    def discard_uncommitted(self) -> None:
        """Discard a model that was not committed; the leader restarts from the committed one."""
        with self._lock:
            self._publication = None
            self._restart_leader.set()

    def publish(self) -> tuple[Change, ...]:
        """Send a new model, if any, in the sink's open transaction; returns its lifecycle events, to emit with it."""
        if not self._may_publish:
            return ()
        with self._lock:
            publication, self._publication = self._publication, None
        if publication is None:
            return ()
        assert self.sink.max_message_bytes is not None
        messages = parts(self.group, MODEL, publication.body, self.sink.max_message_bytes)
        self.sink.send_state(model_topic(self.topic), messages, 0)
        self.bytes_sent += len(publication.body)
        return publication.changes

    def send_status(self, status: MemberStatus) -> None:
        """Send this member's status and the names given here in the sink's open transaction."""
        status = replace(
            status, member=self.member, leads=self.leads, checked_at=self.checked_at if self.leads else 0.0
        )
        # The key is its first partition, so that the topic has no more keys than the input has partitions.
        numbers = [int(name.rpartition("-")[2]) for name in status.positions]
        name = f"{MEMBER}/{min(numbers, default='none')}"
        (message,) = parts(self.group, name, msgspec.json.encode(status), 1 << 20)
        self.sink.send_state(model_topic(self.topic), [message, *self._given.messages(self.group)], 0)

    def active_members(self) -> list[MemberStatus]:
        """Latest status of each member that is not gone, by name."""
        oldest = time.time() - GONE_AFTER_INTERVALS * max(self.every, 5.0)
        return [status for _, status in sorted(self.members.items()) if status.at >= oldest]

    def close(self) -> None:
        """Stop the thread."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(5.0)

    # ---------------------------------------------------------------- run by the thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            model = StateLog(model_topic(self.topic), self.group, self.options)
            states = StateLog(state_topic(self.topic), self.group, self.options, lenient=True)
            try:
                self._follow_and_lead(model, states)
            except Transient as error:
                self._trouble.note(error)
                if (
                    isinstance(error, OpenTransaction) and self.leads
                ):  # probably of the last leader, which has died
                    own = self.sink.transactional_id
                    end_abandoned(self.group, model_topic(self.topic), 0, self.options, own)
                else:
                    self._stopping.wait(RETRY_SECONDS)
            except Exception as error:  # update_learner raises it in the loop
                self._error = error
                return
            finally:
                model.close()
                states.close()

    def _follow_and_lead(self, model: StateLog, states: StateLog) -> None:
        n_partitions = self._prepare()
        for stored in model.newest(0, MODEL).values():
            self._apply(stored)
        leader: Leader | None = None
        due = grow_due = 0.0
        while not self._stopping.is_set():
            for _, stored in model.follow(FOLLOW_SECONDS):
                self._apply(stored)
                if (record := name_record(stored)) is not None:
                    self._given.seen(record, model.position(0))
                if leader is not None:
                    leader.rename(stored)
            if leader is not None:
                leader.names_read_to = model.position(0)
            self._trouble.end()
            if not self.leads:
                leader = None
                continue
            if self._n_partitions > n_partitions and time.monotonic() >= grow_due:  # partitions were added
                grow_due = time.monotonic() + GROW_SECONDS
                known, n_partitions = n_partitions, self._prepare()
                if n_partitions > known:
                    states.close()  # a new client knows the new partitions
                    self._restart_leader.set()
            if leader is None or self._restart_leader.is_set():
                self._restart_leader.clear()
                for stored in model.newest(0, MODEL).values():  # published by the last leader
                    self._apply(stored)
                leader, due = self._new_leader(n_partitions, states), 0.0
                for stored in model.since(0, self._names_read_to()):
                    leader.rename(stored)
            leader.read()
            if time.monotonic() >= due and leader.sequence <= self._sequence:
                due = time.monotonic() + (self.every if self._latest is not None else 0.0)
                self._offer(leader)

    def _prepare(self) -> int:
        """Create missing topics; returns the number of partitions whose states can be written."""
        try:
            self._n_prepared = prepare(self.topic, self.options)
        except UnfitTopic as error:
            if not self._n_prepared:
                raise  # at the start
            self._growing.note(error)
        else:
            self._growing.end()
        self._n_partitions = max(self._n_partitions, self._n_prepared)
        return self._n_prepared

    def _new_leader(self, n_partitions: int, states: StateLog) -> Leader:
        """A leader that continues the lineage of the latest model."""
        changes: list[Change] = []
        start = self._fresh() if self._latest is None else StreamClusterer.from_state(self._latest)
        start.lineage.on_event = changes.append
        leader = Leader(self.topic, n_partitions, states, start, self._sequence)
        leader.changes = changes
        return leader

    def _names_read_to(self) -> int:
        """Offset up to which the leader of the latest model had read names."""
        return 0 if self._latest is None else int(self._latest.values.get(READ_TO, 0))

    def _offer(self, leader: Leader) -> None:
        """Refit, and offer the model to the loop unless it has discarded uncommitted results meanwhile."""
        started = time.time()
        found = leader.publication()
        with self._lock:
            if self._restart_leader.is_set():
                return
            self._publication = found
        if found is None:
            self.checked_at = started

    def _apply(self, stored: StoredState) -> None:
        """Apply a published record: a newer model, or the status of a member."""
        if stored.name == MODEL and stored.body is not None:
            state = stored.state()
            sequence = int(state.values["sequence"])
            version, known = version_of(state), version_of(self._latest)
            if sequence <= self._sequence or (known is not None and (version is None or version < known)):
                return  # an older model
            self._given.published(state.values)
            with self._lock:
                self._latest, self._sequence = state, sequence
            self.checked_at = max(self.checked_at, float(state.values["published_at"]))
        elif stored.name.startswith(f"{MEMBER}/"):
            self._update_member(stored)

    def _update_member(self, stored: StoredState) -> None:
        try:
            status = msgspec.json.decode(stored.body or b"", type=MemberStatus)
        except msgspec.DecodeError as error:  # of another version; the status is only displayed
            log.debug("%s cannot be read: %s", stored.name, error)
            return
        self.members = {**self.members, status.member: status}
        numbers = [int(name.rpartition("-")[2]) + 1 for name in status.positions]
        self._n_partitions = max([self._n_partitions, *numbers])
        self.checked_at = max(self.checked_at, status.checked_at)


def version_of(state: State | None) -> int | None:
    """Version of the model in a state; None if it has no model."""
    values = None if state is None else state.values.get("model")
    return None if values is None else int(values["version"])
