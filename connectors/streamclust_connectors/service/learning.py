"""Learns batches of records: decodes them, assigns their events under the current model, learns and emits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from streamclust.lineage import Change
from streamclust.streaming import Checked, Model, StreamClusterer
from streamclust_connectors.decode import Decoded, Decoder, learnable_events
from streamclust_connectors.event_keys import fingerprints
from streamclust_connectors.interfaces import Batch, Group, Partition, Record, StreamModel
from streamclust_connectors.service.assigned_partitions import AssignedPartitions
from streamclust_connectors.service.emitter import Emitter
from streamclust_connectors.service.key_models import KeyModels
from streamclust_connectors.service.outputs import ModelName
from streamclust_connectors.service.progress import Progress
from streamclust_connectors.service.stats import Stats


class LearntBatch(NamedTuple):
    """Counts of a batch that was learnt."""

    events: int
    dead_letters: int
    tombstones: int
    assignments: int


class BatchLearning:
    """Learns the records of batches by one model for all, and emits their outputs."""

    def __init__(
        self,
        partitions: AssignedPartitions,
        emitter: Emitter,
        decoder: Decoder,
        stats: Stats,
        group: Group | None = None,
    ) -> None:
        self.partitions, self.emitter, self.decoder, self.stats = partitions, emitter, decoder, stats
        self.group = group
        self.progress = Progress()
        self.changes: list[Change] = []
        """Lifecycle events of the run that is learnt."""
        self.answered: list[Sequence[Record]] = []
        """Records that were learnt for the first time since this was last cleared."""

    @property
    def learner(self) -> StreamModel:
        """The model."""
        learner = self.partitions.learner
        assert not isinstance(learner, KeyModels)
        return learner

    @property
    def checkpoint_due(self) -> bool:
        """Whether a checkpoint is needed to free memory."""
        return False

    def forget(self) -> None:
        """Forget what a failed iteration left."""
        self.changes.clear()

    def learn_all(self, batch: Batch) -> None:
        """Learn a batch; the very first event alone: once its features are known, records are decoded as a table."""
        partition, records = batch
        if not self.learner.feature_names:
            self.learn(Batch(partition, records[:1]))
            records = records[1:]
        self.learn(Batch(partition, records))

    def learn(self, batch: Batch) -> None:
        """Learn a batch and emit its outputs; events that cannot be learnt become dead letters.

        Records that were learnt before a failure are not counted again.
        """
        partition, records = batch
        stats, watermark = self.stats, self.partitions.positions[partition]
        if records and records[0].offset < watermark:
            records = [record for record in records if record.offset >= watermark]
            stats.skipped += len(batch.records) - len(records)
        again, new = self.progress.split(Batch(partition, records))
        if again:
            self.learn_records(partition, again)
            self.partitions.positions[partition] = again[-1].offset + 1
        if new:
            learnt = self.learn_records(partition, new)
            self.partitions.positions[partition] = new[-1].offset + 1
            stats.messages += len(new)
            stats.tombstones += learnt.tombstones
            stats.events += learnt.events
            stats.dead_letters += learnt.dead_letters
            stats.assignments += learnt.assignments
            self.progress.count(partition, new)
            self.answered.append(new)

    def learn_records(self, partition: Partition, records: Sequence[Record]) -> LearntBatch:
        """Learn records and emit their outputs."""
        learner = self.learner
        with self.stats.timed("decode"):
            events = self.decoder.decode(records, learner.feature_names)
            events, checked, failures = learnable_events(learner, events, partition)
            self.emitter.dead_letters(partition, failures, self.partitions.emitted[partition])
        # The model refuses events of an implausible time, which are dead letters.
        refused = frozenset(i for i, why in checked.refused.items() if why.of_time)
        start = n_assigned = 0
        for run in learner.runs(checked):
            n_assigned += self._learn_run(partition, events, run, start, refused)
            start += len(run)
        return LearntBatch(len(events) - len(refused), len(failures), events.tombstones, n_assigned)

    def _learn_run(
        self, partition: Partition, events: Decoded, run: Checked, start: int, refused: frozenset[int]
    ) -> int:
        """Assign a run of events under the current model, then learn them. The model does not change within a run.

        Returns the number of assignments; `refused` events get none.
        """
        stats, learner, emitted = self.stats, self.learner, self.partitions.emitted[partition]
        stop = start + len(run)
        fresh = slice(min(stop, max(start, events.index_from_offset(emitted))), stop)
        stats.replayed += fresh.start - start
        n_assigned = 0
        if self.emitter.wants("assignments") and fresh.start < stop:
            with stats.timed("assign"):
                found = learner.assign_many(run[fresh.start - start :])
            clusterer = learner if isinstance(learner, StreamClusterer) else None
            names = None if self.group is None else self.group.names
            model = self._model_name()
            self.emitter.assignments(partition, events, fresh, found, model, refused, clusterer, names)
            n_assigned = stop - fresh.start - sum(fresh.start <= i < stop for i in refused)
        with stats.timed("learn"):
            learnt = [i for i in range(start, stop) if i not in refused]
            self._learn_and_keep_keys(partition, events, run, learnt, start)
        if self.changes:
            if fresh.start < stop:
                (cause,) = events.ids(partition, slice(stop - 1, stop))
                self.emitter.lifecycle(cause, self.changes)
            self.changes.clear()
        return n_assigned

    def _learn_and_keep_keys(
        self, partition: Partition, events: Decoded, run: Checked, learnt: list[int], start: int
    ) -> None:
        """Learn a run, of which these events will be learnt; keep the keys of those that may be shown as examples."""
        learner = self.learner
        if not isinstance(learner, StreamClusterer):
            learner.learn(run)
            return
        before, places = learner.n_seen, learner.sampled(run[: len(learnt)]).tolist()
        learner.learn(run)
        if learner.n_seen - before == len(learnt):  # else the numbers are not known
            chosen = [learnt[place] for place in places]
            if self.group is None:
                numbers = [before + place for place in places]
            else:  # whose members number events each in its own way
                numbers = fingerprints(run.table()[[i - start for i in chosen]], tuple(run.columns))
            self.partitions.keys.add(partition, numbers, events, chosen)

    def _model_name(self) -> ModelName:
        """Version and revision of the model that assigns events now."""
        model = self.learner.model
        if model is None:
            return ModelName(None, None)
        if self.group is not None:
            return ModelName(model.version, self.group.revision)
        return ModelName(model.version, model.revision if isinstance(model, Model) else None)
