"""The loop: poll, decode, learn, emit, checkpoint, until told to stop.

The model and the next offset of every partition are one checkpoint, so each record changes the state once, whatever
happens to the process. Outputs of a record are out before its checkpoint is written; with a sink that delivers exactly
once, records between the checkpoint and what the sink has committed are learnt again, and not emitted again.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from streamclust.lineage import Change
from streamclust.streaming import StreamClusterer
from streamclust_connectors.decode import Decoded, Decoder
from streamclust_connectors.handing import HandedLock
from streamclust_connectors.holdings import Holdings, OnDataLoss, Start
from streamclust_connectors.outputs import assignments, dead_letter, lifecycle, snapshot
from streamclust_connectors.ports import Assigned, Batch, Partition, Revoked, Sink, Source, Store, Transient
from streamclust_connectors.stats import Stats

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Policy:
    """When things are done, in seconds, and what is done when they go wrong."""

    poll: float = 0.5
    checkpoint_every: float = 10.0
    checkpoint_events: int | None = None
    """A checkpoint is also due after so many events, at the end of the turn that brings the last of them."""
    snapshot_every: float | None = None
    snapshot_method: Literal["rbhc", "abc", "bhc"] = "rbhc"
    start: Start = "earliest"
    """Where to begin a partition of which nothing is known."""
    on_data_loss: OnDataLoss = "fail"
    assignments_per_message: int = 1
    """More than one makes each message a list: a client sends one message at the price of many events."""
    backoff: float = 0.1
    longest_backoff: float = 10.0
    stop_at_end: bool = True
    """Whether to stop when the source says that nothing more will come."""


class Service:
    """Feeds a clusterer from a source, sends what it finds to a sink, and keeps its state in a store.

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
        clusterer: StreamClusterer,
        store: Store | None = None,
        decoder: Decoder | None = None,
        policy: Policy | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.source, self.sink = source, sink
        self.decoder = decoder or Decoder()
        self.policy = policy = policy or Policy()
        self.stats = Stats(clock)
        self.lock = HandedLock()
        """Held while the clusterer changes: whoever wants to read it meanwhile takes this."""
        self.held = Holdings(source, sink, store, clusterer, policy.start, policy.on_data_loss)
        self.held.on_event = lambda change: self._changes.append(change)
        self._changes: list[Change] = []
        self._clock, self._sleep = clock, sleep
        self._stopping = self._snapshot_wanted = False
        self._astray = True
        """Whether memory and positions may not belong together: go back to the checkpoint before anything else."""
        self._failures = 0
        self._checkpoint_due = clock() + policy.checkpoint_every
        self._events_kept = 0
        """How many events had been learnt at the last checkpoint."""
        self._snapshot_due = clock() + (policy.snapshot_every or 0.0)

    @property
    def clusterer(self) -> StreamClusterer:
        """What has learnt; another object after each return to a checkpoint."""
        return self.held.clusterer

    # ---------------------------------------------------------------- the loop

    def run(self) -> None:
        """Serve until `stop`, or until the source has come to its end; then leave everything in order."""
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
                with self.lock:
                    self.checkpoint()
        finally:
            self.source.close()
            self.sink.close()

    def turn(self) -> None:
        """One turn of the loop. Others may read what was learnt while it polls."""
        with self.lock:
            self._make_ready()
        with self.stats.timed("poll"):
            happened = self.source.poll(self.policy.poll)
        with self.lock:
            self._take_in(happened)

    def _make_ready(self) -> None:
        """Be where the checkpoint, or the turn before, has left off, with the partitions that have come since."""
        if self._astray:
            self._changes.clear()
            self.held.load()
            self._astray = False
        self.held.begin()
        self._press_back()

    def _take_in(self, happened: Sequence[Assigned | Revoked | Batch]) -> None:
        """Learn what a poll has brought, and do what falls due."""
        self._astray = True  # until all that was delivered is learnt
        for event in happened:
            match event:
                case Assigned(partitions):
                    self.held.take(partitions)
                case Revoked(partitions):
                    self.held.let_go(partitions)
                case Batch(partition, records) if partition in self.held.positions:
                    # The first event of all tells the features: those after it are read faster.
                    alone = 0 if self.clusterer.feature_names else 1
                    self.learn(Batch(partition, records[:alone]))
                    self.learn(Batch(partition, records[alone:]))
        self._take_snapshot_if_due()
        if (
            self.sink.exactly_once
        ):  # at each turn, so that no rebalance, which comes with a poll, finds outputs open
            self._commit()
        if self._clock() >= self._checkpoint_due or self._enough_events():
            self.checkpoint()
        self._astray = False
        self._observe()

    def stop(self) -> None:
        """Finish the batch, leave everything in order, and return from `run`."""
        self._stopping = True

    def stop_on_signals(self) -> None:
        """Stop on SIGTERM and SIGINT, take a snapshot on SIGUSR1."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        signal.signal(signal.SIGUSR1, lambda *_: self.request_snapshot())

    def _back_off(self, failure: Transient) -> None:
        """Wait a while, longer each time."""
        self.stats.retries += 1
        self.stats.last_error = str(failure)
        wait = min(self.policy.backoff * 2**self._failures, self.policy.longest_backoff)
        self._failures += 1
        log.warning("%s; trying again in %.1f s", failure, wait)
        until = self._clock() + wait
        while not self._stopping and self._clock() < until:
            self._sleep(min(0.1, wait))
            self.stats.beat()

    def _press_back(self) -> None:
        """Stop reading while the sink has more to send than it can."""
        if self.sink.full:
            self.source.pause()
        else:
            self.source.resume()

    def _observe(self) -> None:
        self.stats.ready = bool(self.held.positions)
        self.stats.positions = dict(self.held.positions)
        self.stats.lag = self.source.lag()
        self.stats.dropped = self.sink.dropped

    # ---------------------------------------------------------------- records

    def learn(self, batch: Batch) -> None:
        """Learn what a batch holds and emit what that brings; what cannot be learnt goes to the dead letters."""
        partition, records, stats = batch.partition, batch.records, self.stats
        watermark = self.held.positions[partition]
        if records and records[0].offset < watermark:
            records = [record for record in records if record.offset >= watermark]
            stats.skipped += len(batch.records) - len(records)
        if not records:
            return
        with stats.timed("decode"):
            events = self.decoder.decode(records, self.clusterer.feature_names)
            events = self._readable(partition, events)
        start = 0
        while start < len(events):
            end = min(len(events), start + max(1, self.clusterer.until_due))
            self._learn_run(partition, events, slice(start, end))
            start = end
        stats.messages += len(records)
        stats.tombstones += events.tombstones
        stats.events += len(events)
        self.held.positions[partition] = records[-1].offset + 1

    def _readable(self, partition: Partition, events: Decoded) -> Decoded:
        """The events that can be learnt; the records of all others go to the dead letters."""
        failures = events.failures
        if len(events) and (reasons := self.clusterer.refusals(events.vectors, events.weights, events.times)):
            failures = sorted(failures + events.refused(reasons), key=lambda failure: failure.record.offset)
            events = events.without(set(reasons))
        self.stats.dead_letters += len(failures)
        fresh = [f for f in failures if f.record.offset >= self.held.emitted[partition]]
        if fresh and self.sink.wants("dead-letters"):
            self.sink.emit(
                "dead-letters", [dead_letter(partition, failure, self.sink.largest) for failure in fresh]
            )
        return events

    def _learn_run(self, partition: Partition, events: Decoded, run: slice) -> None:
        """Learn events after which alone the model may change; each is assigned by the model that it met."""
        stats, clusterer, emitted = self.stats, self.clusterer, self.held.emitted[partition]
        fresh = slice(min(run.stop, max(run.start, events.first_from(emitted))), run.stop)
        stats.replayed += fresh.start - run.start
        if self.sink.wants("assignments") and fresh.start < fresh.stop:
            with stats.timed("assign"):
                found = clusterer.assign_many(events.vectors[fresh])
            with stats.timed("emit"):
                version = None if clusterer.model is None else clusterer.model.version
                bundle = self.policy.assignments_per_message
                self.sink.emit("assignments", assignments(partition, events, fresh, found, version, bundle))
            stats.assignments += fresh.stop - fresh.start
        with stats.timed("learn"):
            weight = None if events.weights is None else events.weights[run]
            forgets = clusterer.half_life is not None  # without a half-life time does not matter
            moments = events.times[run] if events.times is not None and forgets else None
            clusterer.learn_many(events.vectors[run], weight, moments, shard=partition)
        if self._changes:
            if fresh.start < fresh.stop and self.sink.wants("lifecycle"):
                self.sink.emit("lifecycle", lifecycle(partition, events, run.stop - 1, self._changes))
                stats.lifecycle += len(self._changes)
            self._changes.clear()

    def put(self, partition: Partition, vectors: Any, refused: int = 0) -> None:  # noqa: ANN401
        """Learn events that somebody brings, who holds the lock and has refused some others."""
        if len(vectors):
            with self.stats.timed("learn"):
                self.clusterer.learn_many(vectors, shard=partition)
        self._changes.clear()
        self.stats.messages += len(vectors) + refused
        self.stats.events += len(vectors)
        self.stats.refused += refused
        self.held.positions[partition] += len(vectors) + refused

    # ---------------------------------------------------------------- state

    def checkpoint(self) -> None:
        """Keep the state and the positions together, once all outputs are out; then tell the source."""
        self._checkpoint_due = self._clock() + self.policy.checkpoint_every
        self._events_kept = self.stats.events
        self._commit()
        with self.stats.timed("checkpoint"):
            self.held.save()
        self.stats.checkpoints += 1
        self.stats.last_checkpoint = self._clock()
        if not self.sink.exactly_once:
            self.source.commit(self.held.positions)

    def _enough_events(self) -> bool:
        wanted = self.policy.checkpoint_events
        return wanted is not None and self.stats.events - self._events_kept >= wanted

    def _commit(self) -> None:
        with self.stats.timed("commit"):
            self.sink.commit(self.held.out)
        self.stats.commits += 1

    # ---------------------------------------------------------------- snapshots

    def request_snapshot(self) -> None:
        """Take a snapshot at the end of this turn."""
        self._snapshot_wanted = True

    def _take_snapshot_if_due(self) -> None:
        due = self.policy.snapshot_every is not None and self._clock() >= self._snapshot_due
        if not (due or self._snapshot_wanted) or not self.clusterer.shards or self.clusterer.model is None:
            return
        self._snapshot_wanted = False
        self._snapshot_due = self._clock() + (self.policy.snapshot_every or 0.0)
        if self.sink.wants("snapshots"):
            with self.stats.timed("snapshot"):
                method, largest = self.policy.snapshot_method, self.sink.largest
                output = snapshot(self.clusterer, method, self.held.positions, largest)
                self.sink.emit("snapshots", [output])
            self.stats.snapshots += 1
