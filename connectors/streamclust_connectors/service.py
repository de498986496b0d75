"""The loop: poll, decode, learn, emit, checkpoint, until told to stop.

The model and the next offset of every partition are one checkpoint, so each record changes the state once, whatever
happens to the process. Outputs of a record are out before its checkpoint is written; with a sink that delivers exactly
once, records between the checkpoint and what the sink has committed are learnt again, and not emitted again.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamclust.lineage import Change
from streamclust.streaming import Checked, StreamClusterer
from streamclust_connectors.checkpointing import Checkpointer, unsaved
from streamclust_connectors.decode import Decoded, Decoder, check
from streamclust_connectors.handing import HandedLock
from streamclust_connectors.holdings import Holdings
from streamclust_connectors.outputs import assignments, dead_letter, group_lifecycle, lifecycle, snapshot
from streamclust_connectors.policy import Policy
from streamclust_connectors.ports import (
    SCARCE,
    Assigned,
    Batch,
    DataLoss,
    Fenced,
    Group,
    MemberStatus,
    Partition,
    Revoked,
    Sink,
    Source,
    Store,
    StreamModel,
    Transient,
)
from streamclust_connectors.shelf import Shelf
from streamclust_connectors.stats import Stats

__all__ = ["Policy", "Service"]

log = logging.getLogger(__name__)


class Service:
    """Feeds a clusterer, or features, from a source, sends what it finds to a sink, and keeps its state in a store.

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
        learner: StreamModel,
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
        self.shelf = Shelf()
        """The latest snapshots."""
        self.lock = HandedLock()
        """Held while the clusterer changes; readers on other threads must acquire it."""
        isolate = group is not None
        self.held = Holdings(source, sink, store, learner, policy.start, policy.on_data_loss, isolate)
        self.held.on_event = lambda change: self._changes.append(change)
        self._changes: list[Change] = []
        self._clock, self._sleep = clock, sleep
        self._stopping = self._snapshot_wanted = False
        self._astray = True
        """Whether a failure may have left clusterer and offsets inconsistent: the checkpoint is then reloaded first."""
        self._failures = 0
        self._checkpointer = Checkpointer(self.held, self.stats, policy, clock)
        self._snapshot_due = clock() + (policy.snapshot_every or 0.0)
        self._first_model_due = clock()

    @property
    def learner(self) -> StreamModel:
        """The current clusterer or features; a new object after each reload of a checkpoint."""
        return self.held.learner

    @property
    def clusterer(self) -> StreamClusterer:
        """The current clusterer; TypeError for a service that learns features."""
        if not isinstance(self.learner, StreamClusterer):
            raise TypeError("this service learns features: it has no clusters")
        return self.learner

    @property
    def shown(self) -> StreamClusterer:
        """The clusterer to show: the whole group's, where there is one and it has a model."""
        return (self.group and self.group.clusterer) or self.clusterer

    # ---------------------------------------------------------------- the loop

    def run(self) -> None:
        """Run until `stop` or the end of the source; then write a checkpoint and close everything."""
        try:
            while not self._stopping:
                self.stats.beat()
                try:
                    self.turn()
                    self._failures = 0
                except Transient as failure:
                    self._back_off(failure)
                if self.source.finished and self.policy.stop_at_end and not self._astray:
                    break
            self.stats.ready = False
            if not self._astray:
                self._last_checkpoint_if_possible()
        finally:
            if self.group is not None:
                self.group.close()
                assert self.held.store is not None
                self.held.store.close()
            self.source.close()
            self.sink.close()

    def turn(self) -> None:
        """One iteration of the loop. The lock is free while it polls."""
        with self.lock:
            self._make_ready()
        with self.stats.timed("poll"):
            happened = self._poll()
        with self.lock:
            self._take_in(happened)

    def _poll(self) -> Sequence[Assigned | Revoked | Batch]:
        try:
            return self.source.poll(self.policy.poll)
        except DataLoss as error:
            if self.group is None:
                raise
            self._astray = True  # seeking all partitions again tells which one it is, and sets it aside
            raise Transient(str(error)) from error

    def _make_ready(self) -> None:
        """Reload the checkpoint if necessary, and seek newly assigned partitions."""
        try:
            if self._astray:
                self._changes.clear()
                self.sink.abandon()
                if self.group is not None:
                    self.group.forget()
                self.held.load()
                self._astray = False
            if self.group is not None:
                self.group.guide(self.learner)
            self.held.begin()
        except OSError as error:
            if error.errno in SCARCE:
                raise Transient(f"the state cannot be read: {error}") from error
            raise
        self._press_back()

    def _take_in(self, happened: Sequence[Assigned | Revoked | Batch]) -> None:
        """Handle the results of a poll, then write outputs, checkpoints and snapshots that are due."""
        self._astray = True  # until all that was delivered is learnt
        for event in happened:
            match event:
                case Assigned(partitions):
                    self.held.take(partitions)
                case Revoked(partitions):
                    self.held.let_go(partitions)
                case Batch(partition, records) if partition in self.held.positions:
                    self._learn_or_set_aside(Batch(partition, records))
        self._take_snapshot_if_due()
        self._publish_model()
        if self._checkpointer.due or self._first_model_wanted():
            self.checkpoint()
        elif self.sink.exactly_once:
            self._commit()  # at each turn, so that no rebalance, which comes with a poll, finds outputs open
        self._astray = False
        self._observe()

    def _learn_or_set_aside(self, batch: Batch) -> None:
        """Learn a batch; in a group a partition that cannot be learnt does not stop the others."""
        partition, records = batch
        try:
            # The first event of all tells the features: those after it are read faster.
            alone = 0 if self.learner.feature_names else 1
            self.learn(Batch(partition, records[:alone]))
            self.learn(Batch(partition, records[alone:]))
        except (Transient, DataLoss, Fenced, OSError):
            raise
        except Exception as error:
            if self.group is None:
                raise
            log.exception("a batch of %s-%d cannot be learnt", *partition)
            self.held.set_aside(partition, f"{type(error).__name__}: {error}")
            raise Transient(f"{partition[0]}-{partition[1]} was set aside") from error

    def stop(self) -> None:
        """Make `run` finish the batch, write a checkpoint and return."""
        self._stopping = True

    def stop_on_signals(self) -> None:
        """Stop on SIGTERM and SIGINT, take a snapshot on SIGUSR1."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        signal.signal(signal.SIGUSR1, lambda *_: self.request_snapshot())

    def _back_off(self, failure: Transient) -> None:
        """Wait, longer after each failure in a row."""
        self.stats.retries += 1
        self.stats.last_error = str(failure)
        self._failures += 1
        wait = self.policy.wait_after(self._failures)
        log.warning("%s; trying again in %.1f s", failure, wait)
        self._pause(wait, lambda: self._stopping)

    def _pause(self, seconds: float, over: Callable[[], bool] = lambda: False) -> None:
        """Wait, with a heartbeat."""
        until = self._clock() + seconds
        while not over() and self._clock() < until:
            self._sleep(min(0.1, seconds))
            self.stats.beat()

    def _press_back(self) -> None:
        """Pause the source while the sink is full (back-pressure)."""
        if self.sink.full:
            self.source.pause()
        else:
            self.source.resume()

    def _observe(self) -> None:
        self.stats.positions = dict(self.held.positions)
        self.stats.stopped = dict(self.held.stopped)
        self.stats.ready = bool(self.held.positions) and (self.group is None or self.group.ready)
        self.stats.lag = self.source.lag()
        self.stats.dropped = self.sink.dropped

    # ---------------------------------------------------------------- records

    def learn(self, batch: Batch) -> None:
        """Learn a batch and emit its outputs; events that cannot be learnt become dead letters."""
        partition, records, stats = batch.partition, batch.records, self.stats
        watermark = self.held.positions[partition]
        if records and records[0].offset < watermark:
            records = [record for record in records if record.offset >= watermark]
            stats.skipped += len(batch.records) - len(records)
        if not records:
            return
        with stats.timed("decode"):
            events = self.decoder.decode(records, self.learner.feature_names)
            events, checked = self._check(partition, events)
        start = 0
        for run in self.learner.runs(checked):
            self._learn_run(partition, events, run, start)
            start += len(run)
        stats.messages += len(records)
        stats.tombstones += events.tombstones
        stats.events += len(events)
        self.held.positions[partition] = records[-1].offset + 1

    def _check(self, partition: Partition, events: Decoded) -> tuple[Decoded, Checked]:
        """Events that can be learnt, and their rows; the records of all others become dead letters."""
        events, checked, failures = check(self.learner, events, partition)
        self.stats.dead_letters += len(failures)
        fresh = [f for f in failures if f.record.offset >= self.held.emitted[partition]]
        if fresh and self.sink.wants("dead-letters"):
            self.sink.emit(
                "dead-letters", [dead_letter(partition, failure, self.sink.largest) for failure in fresh]
            )
        return events, checked

    def _learn_run(self, partition: Partition, events: Decoded, run: Checked, start: int) -> None:
        """Assign a run of events by the model, which does not change meanwhile, and learn them."""
        stats, learner, emitted = self.stats, self.learner, self.held.emitted[partition]
        stop = start + len(run)
        fresh = slice(min(stop, max(start, events.first_from(emitted))), stop)
        stats.replayed += fresh.start - start
        if self.sink.wants("assignments") and fresh.start < stop:
            with stats.timed("assign"):
                found = learner.assign_many(run[fresh.start - start :])
            with stats.timed("emit"):
                version = None if learner.model is None else learner.model.version
                asked = self.policy.assignments_per_message, self.policy.component
                self.sink.emit("assignments", assignments(partition, events, fresh, found, version, *asked))
            stats.assignments += stop - fresh.start
        with stats.timed("learn"):
            learner.learn(run)
        if self._changes:
            if fresh.start < stop and self.sink.wants("lifecycle"):
                self.sink.emit("lifecycle", lifecycle(partition, events, stop - 1, self._changes))
                stats.lifecycle += len(self._changes)
            self._changes.clear()

    def put(self, checked: Checked) -> None:
        """Learn events that came by HTTP, checked for the partition that they go to. The caller holds the lock."""
        partition: Any = checked.shard
        with self.stats.timed("learn"):
            self.learner.learn(checked)
        self._changes.clear()
        refused = len(checked.refused)
        self.stats.messages += len(checked) + refused
        self.stats.events += len(checked)
        self.stats.refused += refused
        self.held.positions[partition] += len(checked) + refused

    # ---------------------------------------------------------------- state

    def checkpoint(self) -> OSError | None:
        """Commit all outputs, write state and offsets as one checkpoint, then commit the offsets to the source.

        Returns why it could not be written, if so: the loop goes on, and the source is told nothing. A transactional
        store's state is committed with the outputs.
        """
        store = self.held.store
        if store is not None and store.transactional:
            self._checkpointer.write()
            self._tell_group()
            self._commit()
            return None
        self._commit()
        failure = self._checkpointer.write()
        if failure is None and not self.sink.exactly_once:
            self.source.commit(self.held.positions)
        return failure

    def _last_checkpoint_if_possible(self) -> None:
        """Write the final checkpoint; in a group the next owners can do without it, if the broker refuses it."""
        try:
            self._last_checkpoint()
        except Transient as failure:
            if self.group is None:
                raise
            log.warning(
                "the last state was not committed (%s); others learn again what came since the one before",
                failure,
            )

    def _last_checkpoint(self) -> None:
        """Write the final checkpoint, with retries; raises after a time limit."""
        give_up = self._clock() + self.policy.longest_backoff
        while True:
            with self.lock:
                failure = self.checkpoint()
            if failure is None:
                return
            if self._clock() >= give_up:
                log.error("stopping, and %s", unsaved(self.stats))
                raise failure
            self._pause(self._checkpointer.wait)

    def _commit(self) -> None:
        with self.stats.timed("commit"):
            self.sink.commit(self.held.out)
        self.stats.commits += 1

    # ---------------------------------------------------------------- the group

    def _publish_model(self) -> None:
        """Send the group's new model, if this process leads and has one, with the lifecycle events that led to it."""
        if self.group is None:
            return
        self.group.lead(self.held.positions)
        changes = self.group.publish()
        if changes and self.sink.wants("lifecycle"):
            self.sink.emit("lifecycle", group_lifecycle(next(iter(self.held.positions))[0], changes))
            self.stats.lifecycle += len(changes)

    def _first_model_wanted(self) -> bool:
        """Whether to save at once, for the first model: until there is one, each second."""
        if (
            self.group is None
            or self.group.ready
            or not self.held.changed
            or self._clock() < self._first_model_due
        ):
            return False
        self._first_model_due = self._clock() + 1.0
        return True

    def _tell_group(self) -> None:
        """Tell the others of the group how this process does."""
        if self.group is None:
            return

        def named(by_partition: Mapping[Partition, Any]) -> dict[str, Any]:
            return {f"{topic}-{number}": value for (topic, number), value in by_partition.items()}

        model = self.learner.model
        self.group.tell(
            MemberStatus(
                positions=named(self.held.positions),
                lag=named(self.source.lag()),
                stopped=named(self.held.stopped),
                events=sum(self.learner.n_seen_by_shard.values()),
                events_per_second=self.stats.rate,
                model_version=None if model is None else model.version,
            )
        )

    # ---------------------------------------------------------------- snapshots

    def request_snapshot(self) -> None:
        """Take a snapshot at the end of the current iteration."""
        self._snapshot_wanted = True

    def _take_snapshot_if_due(self) -> None:
        due = self.policy.snapshot_every is not None and self._clock() >= self._snapshot_due
        if not (due or self._snapshot_wanted):
            return
        if not isinstance(self.learner, StreamClusterer):  # features have no hierarchy
            self._snapshot_wanted = False
            return
        shown = self.shown
        if not shown.shards or shown.model is None:
            return
        self._snapshot_wanted = False
        self._snapshot_due = self._clock() + (self.policy.snapshot_every or 0.0)
        with self.stats.timed("snapshot"):
            tree = shown.snapshot(self.policy.snapshot_method).to_dict()
            self.shelf.keep(tree, shown, self.policy.snapshot_method)
            if self.sink.wants("snapshots") and (self.group is None or self.group.leads):
                output = snapshot(tree, shown, self.held.positions, self.sink.largest)
                self.sink.emit("snapshots", [output])
        self.stats.snapshots += 1
