"""Learns batches by a model for each key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import numpy as np

from streamclust.lineage import Change
from streamclust.streaming import Checked, Model, StreamClusterer
from streamclust_connectors.decode import Decoded, Failure
from streamclust_connectors.interfaces import Batch, Output, Partition, Record
from streamclust_connectors.output_records import text_key
from streamclust_connectors.service.key_models import KeyModels
from streamclust_connectors.service.learning import BatchLearning, LearntBatch
from streamclust_connectors.service.outputs import ModelName

MAX_KEY_CHARACTERS = 1000
"""Length of the longest key: a longer one is a mistake, and its event a dead letter."""


class KeyEvents(NamedTuple):
    """The events of one key in a batch."""

    key: str
    places: list[int]
    """Where they are in the batch."""
    checked: Checked


class KeyOutputs(NamedTuple):
    """Outputs of a batch, to be sent in the order of its events."""

    assignments: list[tuple[int, Output]]
    """Each with the place of its event."""
    changes: list[tuple[int, str, list[Change]]]
    """Lifecycle events of a key, with the place of the event that caused them."""


class KeyLearning(BatchLearning):
    """Learns the events of each key by the key's own model.

    Each model learns its events in their order, so results do not depend on batches. Events of several keys in one
    record are learnt together or not at all, like all events of a record.
    """

    @property
    def models(self) -> KeyModels:
        """The models."""
        return cast(KeyModels, self.partitions.learner)

    @property
    def checkpoint_due(self) -> bool:
        """Whether a checkpoint is needed to free memory."""
        return self.models.crowded

    def forget(self) -> None:
        """Forget what a failed iteration left."""
        self.models.changes.clear()

    def learn_all(self, batch: Batch) -> None:
        """Learn a batch."""
        self.learn(batch)

    def learn_records(self, partition: Partition, records: Sequence[Record]) -> LearntBatch:
        """Learn records and emit their outputs."""
        self.models.evict()
        emitted = self.partitions.emitted[partition]
        with self.stats.timed("decode"):
            events, found, failures = self._checked(partition, self.decoder.decode(records))
            self.emitter.dead_letters(partition, failures, emitted)
        first = events.index_from_offset(emitted)
        self.stats.replayed += first
        outputs, n_refused = KeyOutputs([], []), 0
        for group in found:
            n_refused += len(group.checked.refused)
            self.stats.beat()
            self._learn_key(partition, events, group, first, outputs)
        self._send(partition, events, outputs)
        return LearntBatch(
            len(events) - n_refused, len(failures), events.tombstones, len(outputs.assignments)
        )

    # ---------------------------------------------------------------- reading

    def _checked(
        self, partition: Partition, events: Decoded
    ) -> tuple[Decoded, list[KeyEvents], list[Failure]]:
        """The events that can be learnt, by key, and the records that failed."""
        failures = events.failures
        keys = self._keys(events)
        bad = {i: "the event has no key" for i, key in enumerate(keys) if not key}
        bad |= {
            i: "the event's key is too long"
            for i, key in enumerate(keys)
            if key and len(key) > MAX_KEY_CHARACTERS
        }
        while True:
            if bad:
                failures = failures + events.failures_of(bad)
                events = events.without(set(bad))
            found = self._by_key(partition, events)
            bad, mistimed = dict[int, str](), dict[int, str]()
            for group in found:
                for i, why in group.checked.refused.items():
                    (mistimed if why.of_time else bad)[group.places[i]] = why
            if not bad:
                break
        failures = failures + events.failures_of(mistimed)
        return events, found, sorted(failures, key=lambda failure: failure.record.offset)

    def _keys(self, events: Decoded) -> list[str | None]:
        if self.models.by_record_key:
            return [
                None if record.key is None else record.key.decode("utf-8", "backslashreplace")
                for record in events.records
            ]
        assert events.keys is not None, "the decoder has no path of a key"
        return [None if key is None else text_key(key) for key in events.keys]

    def _by_key(self, partition: Partition, events: Decoded) -> list[KeyEvents]:
        """The events of each key, checked by its model."""
        places: dict[str, list[int]] = {}
        for i, key in enumerate(self._keys(events)):
            places.setdefault(cast(str, key), []).append(i)
        return [
            KeyEvents(key, which, self._check(partition, key, events, which)) for key, which in places.items()
        ]

    def _check(self, partition: Partition, key: str, events: Decoded, which: list[int]) -> Checked:
        vectors, weights, times = (
            None if column is None else [column[i] for i in which]
            for column in (events.vectors, events.weights, events.times)
        )
        return self.models.get(partition, key).check(vectors or [], weights, times)

    # ---------------------------------------------------------------- learning

    def _learn_key(
        self, partition: Partition, events: Decoded, group: KeyEvents, first: int, outputs: KeyOutputs
    ) -> None:
        """Assign and learn the events of a key; outputs are those of events from place `first` on."""
        model, changes, start = self.models.get(partition, group.key), self.models.changes, 0
        refused = {i for i, why in group.checked.refused.items() if why.of_time}
        for run in model.runs(group.checked):
            places = np.array(group.places[start : start + len(run)])
            fresh = int(np.searchsorted(places, first))
            if self.emitter.wants("assignments") and fresh < len(places):
                with self.stats.timed("assign"):
                    told = self._assign(
                        partition, events, group.key, model, run[fresh:], places[fresh:].tolist()
                    )
                outputs.assignments.extend(
                    one for i, one in enumerate(told, start + fresh) if i not in refused
                )
            with self.stats.timed("learn"):
                model.learn(run)
            if changes:
                if places[-1] >= first:
                    outputs.changes.append((int(places[-1]), group.key, [one.change for one in changes]))
                self.models.kinds.update(one.change.kind for one in changes)
                changes.clear()
            start += len(run)
        self.models.learnt(partition, group.key, len(group.places) - len(refused))

    def _assign(
        self,
        partition: Partition,
        events: Decoded,
        key: str,
        model: StreamClusterer,
        run: Checked,
        places: list[int],
    ) -> Iterable[tuple[int, Output]]:
        """The assignments of a run, each with the place of its event."""
        picked = Decoded(
            [],
            [events.records[i] for i in places],
            None if events.numbers is None else [events.numbers[i] for i in places],
            [key] * len(places) if events.keys is None else [events.keys[i] for i in places],
            None if events.times is None else [events.times[i] for i in places],
        )
        published = model.model
        name = (
            ModelName(None, None)
            if not isinstance(published, Model)
            else ModelName(published.version, published.revision)
        )
        found = self.emitter.assignment_outputs(
            partition, picked, slice(0, len(places)), model.assign_many(run), name, (), model
        )
        return zip(places, found, strict=True)

    def _send(self, partition: Partition, events: Decoded, outputs: KeyOutputs) -> None:
        with self.stats.timed("emit"):
            self.emitter.send(
                "assignments", [output for _, output in sorted(outputs.assignments, key=lambda one: one[0])]
            )
        for place, key, changes in sorted(outputs.changes, key=lambda one: one[0]):
            (cause,) = events.ids(partition, slice(place, place + 1))
            self.emitter.lifecycle(cause, changes, key)
