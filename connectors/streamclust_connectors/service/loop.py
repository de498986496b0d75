"""The service loop: poll, decode, assign, learn, emit, checkpoint.

A checkpoint holds the model and the next offset of every partition, so every record changes the state exactly once,
even if the process is killed. Outputs of a record are sent before the checkpoint that includes it is written. With an
exactly-once sink, records between the checkpoint and the sink's committed offset are learnt again, but not emitted
again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from streamclust.streaming import Checked, StreamClusterer
from streamclust_connectors.decode import Decoder
from streamclust_connectors.incidents import Incident
from streamclust_connectors.interfaces import (
    EXHAUSTED_ERRNOS,
    Assigned,
    Batch,
    DataLoss,
    EventKey,
    Fenced,
    Group,
    OrderNotes,
    Partition,
    ReplayStep,
    Revoked,
    Sink,
    Source,
    Store,
    Transient,
    UnfitSchema,
)
from streamclust_connectors.service.assigned_partitions import AssignedPartitions
from streamclust_connectors.service.checkpointer import Checkpointer, checkpoint_failure_message
from streamclust_connectors.service.emitter import Emitter
from streamclust_connectors.service.fair_lock import FairLock
from streamclust_connectors.service.group_duties import GroupDuties
from streamclust_connectors.service.key_learning import KeyLearning
from streamclust_connectors.service.key_models import KeyModels, Learner
from streamclust_connectors.service.learning import BatchLearning
from streamclust_connectors.service.policy import Policy
from streamclust_connectors.service.readiness import not_ready_reason
from streamclust_connectors.service.recent_snapshots import RecentSnapshots
from streamclust_connectors.service.replay_order import ReplayOrder, steps_of, steps_to_take
from streamclust_connectors.service.signals import stop_on_signals
from streamclust_connectors.service.stats import Stats

log = logging.getLogger(__name__)

Trace = Callable[[Batch], AbstractContextManager[object]]


def untraced(batch: Batch) -> AbstractContextManager[object]:
    """No span."""
    return nullcontext()


class Service:
    """Trains a clusterer (or features) on the records of a source, sends results to a sink, and saves its state.

    >>> from streamclust_connectors.sources import MemorySource
    >>> from streamclust_connectors.sinks import ListSink
    >>> source = MemorySource({("events", 0): [b'{"x": 1.0}', b'{"x": 1.1}', b"oops", b'{"x": 0.9}']})
    >>> service = Service(source, ListSink(), StreamClusterer())
    >>> service.run()
    >>> service.stats.events, service.stats.dead_letters
    (3, 1)
    """

    def __init__(
        self,
        source: Source,
        sink: Sink,
        learner: Learner,
        store: Store | None = None,
        decoder: Decoder | None = None,
        policy: Policy | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        group: Group | None = None,
    ) -> None:
        self.source, self.sink, self.group = source, sink, group
        self.decoder = decoder or Decoder()
        self.policy = policy = policy or Policy()
        self.stats = Stats(clock)
        self.snapshots = RecentSnapshots()
        """The latest snapshots."""
        self.lock = FairLock()
        """Held while the clusterer changes; other threads must acquire it to read the clusterer."""
        isolate = group is not None
        self.partitions = AssignedPartitions(
            source, sink, store, learner, policy.start, policy.on_data_loss, isolate
        )
        self.trace: Trace = untraced
        """Returns a context manager within which a batch is learnt: its span, where traces are sent."""
        self._clock, self._sleep = clock, sleep
        self._stopping = self._snapshot_wanted = self._finished = False
        self._needs_reload = True
        """Whether clusterer and offsets may be inconsistent after a failure; the checkpoint is reloaded first."""
        self._failures = 0
        self._notes = store if isinstance(store, OrderNotes) else None
        self._order = ReplayOrder([])
        self._silence = Incident(log, "partitions deliver no records", clock)
        self._interruption = Incident(log, "the service is interrupted", clock)
        self._emitter = Emitter(sink, policy, self.stats)
        learning = KeyLearning if isinstance(learner, KeyModels) else BatchLearning
        self._learning = learning(self.partitions, self._emitter, self.decoder, self.stats, group)
        self.partitions.on_event = self._learning.changes.append
        self._duties: GroupDuties | None = None
        if group is not None:
            self._duties = GroupDuties(group, self.partitions, source, self._emitter, self.stats, clock)
        self._checkpointer = Checkpointer(self.partitions, self.stats, policy, clock)
        self._snapshot_due = clock() + (policy.snapshot_every or 0.0)

    @property
    def learner(self) -> Learner:
        """The current clusterer or features; a new object after each reload of a checkpoint."""
        return self.partitions.learner

    @property
    def clusterer(self) -> StreamClusterer:
        """The current clusterer; TypeError for a service that learns features."""
        if not isinstance(self.learner, StreamClusterer):
            raise TypeError("this service learns features and has no clusters; use `learner`")
        return self.learner

    @property
    def displayed_clusterer(self) -> StreamClusterer:
        """The clusterer that the API shows: the group's if it has a model, else this process's."""
        return (self.group and self.group.clusterer) or self.clusterer

    def example_keys(self) -> Mapping[int, EventKey]:
        """Keys of the events that `displayed_clusterer` may show as examples: by number or, in a group, fingerprint."""
        if self.group is not None and self.group.clusterer is not None:
            return self.group.example_keys
        return self.partitions.keys.copy()

    # ---------------------------------------------------------------- loop

    def run(self) -> None:
        """Run until `stop` or the end of the source; then write a checkpoint and close everything."""
        try:
            while not self._stopping:
                self._try_once()
                over = self.source.finished and self._order.over and not self._needs_reload
                if over and self.policy.stop_at_end:
                    break
            self.stats.trouble = "the service is stopping"
            self._finish()
            self._finished = True
        finally:
            self.partitions.close()
            if self.group is not None:
                self.group.close()
                assert self.partitions.store is not None
                self.partitions.store.close()
            self.source.close()
            self.sink.close()

    def _try_once(self) -> None:
        """Run one iteration of the loop; wait after a failure that a retry may cure."""
        try:
            self.run_once()
        except Transient as failure:
            self._back_off(failure)
        else:
            if not self.source.connecting:
                self._failures = 0
                self._interruption.end()

    def run_once(self) -> None:
        """Run one iteration of the loop. The lock is free during the poll."""
        self.stats.beat()
        with self.lock:
            self._prepare()
        with self.stats.timed("poll"):
            polled = self._poll()
        with self.lock:
            self._handle_poll(polled)

    def _poll(self) -> Sequence[Assigned | Revoked | Batch]:
        try:
            return self.source.poll(self.policy.poll)
        except DataLoss as error:
            if self.group is None:
                raise
            self._needs_reload = (
                True  # seeking all partitions again finds the one with lost records and stops it
            )
            raise Transient(str(error)) from error

    def _prepare(self) -> None:
        """Reload the checkpoint if necessary, and seek newly assigned partitions."""
        try:
            if self._needs_reload:
                self._learning.forget()
                self.sink.discard_uncommitted()
                if self.group is not None:
                    self.group.discard_uncommitted()
                self.partitions.load()
                noted: Sequence[ReplayStep] = () if self._notes is None else self._notes.noted_order()
                self._order = ReplayOrder(steps_to_take(noted, self.partitions.saved_offsets))
                self._needs_reload = False
            if self.group is not None:
                self.group.update_learner(self._learning.learner)
            self.partitions.seek_new()
        except OSError as error:
            if error.errno in EXHAUSTED_ERRNOS:
                raise Transient(f"the saved state cannot be read: {error}") from error
            raise
        self._apply_back_pressure()

    def _handle_poll(self, polled: Sequence[Assigned | Revoked | Batch]) -> None:
        """Handle the results of a poll, then write outputs, checkpoints and snapshots that are due."""
        self._needs_reload = True  # until all polled records are learnt
        self._learning.answered.clear()
        self._learning.progress.deliver(polled)
        polled = self._order.arrange(polled)
        self._note_order(polled)
        for item in polled:
            match item:
                case Assigned(partitions):
                    self.partitions.add(partitions)
                case Revoked(partitions):
                    self.partitions.revoke(partitions)
                case Batch(partition, records) if partition in self.partitions.positions:
                    with self.trace(Batch(partition, records)):
                        self._learn_or_stop_partition(Batch(partition, records))
        self._take_snapshot_if_due()
        if self._duties is not None:
            self._duties.publish_model()
        hurried = self._checkpointer.due or self._learning.checkpoint_due
        if hurried or (self._duties is not None and self._duties.checkpoint_due()):
            self.checkpoint()
        elif self.sink.exactly_once:
            self._commit()  # before the next poll: a rebalance must not find uncommitted outputs
        self._needs_reload = False
        for records in self._learning.answered:
            self.stats.latency.observe(records, time.time())
        self._update_stats()

    def _note_order(self, polled: Sequence[Assigned | Revoked | Batch]) -> None:
        """Note the order of batches of several partitions before they are learnt, and their outputs can be seen."""
        if self._notes is None or len(self.partitions.positions) < 2:
            return
        try:
            if steps := steps_of(polled):
                self._notes.note_order(steps)
        except OSError as error:  # a full disk: the checkpoint says so too
            log.debug("the order of partitions cannot be noted: %s", error)

    def _learn_or_stop_partition(self, batch: Batch) -> None:
        """Learn a batch; in a group, stop a partition that cannot be learnt and continue with the others."""
        try:
            self._learning.learn_all(batch)
        except (Transient, DataLoss, Fenced, UnfitSchema, OSError):
            raise
        except Exception as error:
            if self.group is None:
                raise
            topic, number = partition = batch.partition
            log.exception("a batch of %s-%d cannot be learnt", topic, number)
            self.partitions.stop_partition(partition, f"{type(error).__name__}: {error}")
            raise Transient(f"{topic}-{number} was stopped") from error

    def stop(self) -> None:
        """Ask `run` to finish the batch, write a checkpoint and return."""
        self._stopping = True

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stopping

    @property
    def finished(self) -> bool:
        """Whether its last checkpoint is written."""
        return self._finished

    def stop_on_signals(self, exit_after: float | None = None) -> None:
        """Stop on SIGTERM and SIGINT, take a snapshot on SIGUSR1; end the process if it takes longer than that."""
        stop_on_signals(self, exit_after)

    def _back_off(self, failure: Transient) -> None:
        """Wait before a retry, longer after each failure in a row."""
        self.stats.retries += 1
        self.stats.last_error = str(failure)
        self._failures += 1
        self._interruption.note(failure)
        self.stats.trouble = f"the service is interrupted: {failure}"
        self._pause(self.policy.wait_after(self._failures), lambda: self._stopping)

    def _pause(self, seconds: float, over: Callable[[], bool] = lambda: False) -> None:
        """Sleep with heartbeats, until `over` returns true."""
        until = self._clock() + seconds
        while not over() and self._clock() < until:
            self._sleep(min(0.1, seconds))
            self.stats.beat()

    def _apply_back_pressure(self) -> None:
        """Pause the source while the sink is full (back-pressure)."""
        if self.sink.full:
            self.source.pause()
        else:
            self.source.resume()

    def _update_stats(self) -> None:
        """Copy positions, lag and readiness to the statistics."""
        stats, partitions = self.stats, self.partitions
        stats.positions = dict(partitions.positions)
        stats.waiting, stats.stopped = dict(partitions.waiting), dict(partitions.stopped)
        stats.lag = self._learning.progress.lag(self.source.lag(), partitions.positions, partitions.waiting)
        stats.dropped = self.sink.dropped
        silent = self.source.unread()
        if silent:
            (topic, number), why = next(iter(silent.items()))
            self._silence.note(f"{topic}-{number}: {why}")
        else:
            self._silence.end()
        stats.trouble = not_ready_reason(self.source, partitions, self.group, silent)

    # ---------------------------------------------------------------- requests by HTTP

    def learn_checked(self, checked: Checked) -> None:
        """Learn events sent by HTTP; `checked.shard` is their partition. The caller must hold the lock."""
        partition: Any = checked.shard
        with self.stats.timed("learn"):
            self.clusterer.learn(checked)
        self._learning.forget()
        refused = len(checked.refused)
        self.stats.messages += len(checked) + refused
        self.stats.events += len(checked)
        self.stats.refused += refused
        self.partitions.positions[partition] += len(checked) + refused

    def name_cluster(self, cluster: int, name: str | None) -> None:
        """Give a name to a cluster, or take it away (None), and let a checkpoint with it be due.

        The caller must hold the lock. In a group, the leader's next model has the name, for all members.
        """
        (self.clusterer if self.group is None else self.group).name(cluster, name)
        self._checkpointer.hasten()

    # ---------------------------------------------------------------- state

    def checkpoint(self) -> OSError | None:
        """Commit all outputs, write state and offsets as one checkpoint, then commit the offsets to the source.

        If the checkpoint cannot be written, returns the error and commits no offsets; the loop continues. The state of
        a transactional store is committed together with the outputs.
        """
        store = self.partitions.store
        if store is not None and store.transactional:
            self._checkpointer.write()
            if self._duties is not None:
                self._duties.send_status()
            self._commit()
            return None
        self._commit()
        failure = self._checkpointer.write()
        if failure is None and not self.sink.exactly_once:
            self.source.commit(self.partitions.positions)
        return failure

    def _finish(self) -> None:
        """Write the final checkpoint, with retries; raises the last failure after a time limit.

        If outputs could not be delivered, the latest checkpoint is loaded, and the records since are learnt and their
        outputs sent again. In a group, or if the service was interrupted anyway, a failure is only logged: the records
        since the last checkpoint are replayed by the next owners, or the next start.
        """
        wanted, interrupted = dict(self.partitions.positions), self._interruption.under_way
        if self._needs_reload and not wanted:
            return  # nothing was read
        give_up = self._clock() + self.policy.stop_within
        while True:
            try:
                self._learn_up_to(wanted, give_up)
                failure: Exception | None = self._last_checkpoint()
            except Transient as error:
                failure, self._needs_reload = error, True
            if failure is None:
                return
            over = self._clock() >= give_up
            if self.group is not None or (interrupted and over):
                log.warning(
                    "the final state was not committed (%s); the records since the last commit will be replayed",
                    failure,
                )
                return
            if over:
                if isinstance(failure, OSError):
                    why = checkpoint_failure_message(self.stats)
                    log.error("stopping without a final checkpoint: %s", why)
                raise failure
            if isinstance(failure, Transient):
                self.stats.retries += 1
                self._interruption.note(failure)
            self._pause(self._checkpointer.wait if isinstance(failure, OSError) else self.policy.backoff)

    def _learn_up_to(self, wanted: Mapping[Partition, int], give_up: float) -> None:
        """After a failure, learn again what was learnt before it."""
        while self._needs_reload or any(
            self.partitions.positions.get(name, 0) < at for name, at in wanted.items()
        ):
            if self._clock() >= give_up:
                raise Transient("records could not be learnt again in time after a failure")
            self.run_once()

    def _last_checkpoint(self) -> OSError | None:
        with self.lock:
            if self.group is not None and not self.partitions.positions:
                return None  # there is nothing to save, and perhaps no connection
            return self.checkpoint()

    def _commit(self) -> None:
        with self.stats.timed("commit"):
            self.sink.commit(self.partitions.output_positions)
        self.stats.commits += 1

    # ---------------------------------------------------------------- snapshots

    def request_snapshot(self) -> None:
        """Ask for a snapshot at the end of the current iteration."""
        self._snapshot_wanted = True

    def _take_snapshot_if_due(self) -> None:
        due = self.policy.snapshot_every is not None and self._clock() >= self._snapshot_due
        if not (due or self._snapshot_wanted):
            return
        if not isinstance(self.learner, StreamClusterer):  # features have no hierarchy
            self._snapshot_wanted = False
            return
        clusterer = self.displayed_clusterer
        if not clusterer.shards or clusterer.model is None:
            return
        self._snapshot_wanted = False
        self._snapshot_due = self._clock() + (self.policy.snapshot_every or 0.0)
        with self.stats.timed("snapshot"):
            tree = clusterer.snapshot(self.policy.snapshot_method)
            self.snapshots.add(tree, clusterer, self.policy.snapshot_method)
            if self.group is None or self.group.leads:
                self._emitter.snapshot(tree, clusterer, self.partitions.positions)
        self.stats.snapshots += 1
