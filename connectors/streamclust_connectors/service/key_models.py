"""A model for each key: those used last in memory, all in the databases of their partitions.

A model belongs to a key of one partition. It moves with its partition, and never learns events of two partitions,
whose order is chance: a topic is to be partitioned by that key.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias

from streamclust.checkpoint import State
from streamclust.lineage import Change
from streamclust.streaming import StreamClusterer
from streamclust_connectors.interfaces import (
    Partition,
    SavedPosition,
    StreamModel,
    Transient,
    positions_from_state,
)
from streamclust_connectors.service.key_database import (
    KeyDatabase,
    SavedModel,
    database_path,
    packed,
    saved_position,
)

log = logging.getLogger(__name__)

Name = tuple[Partition, str]
"""A partition and a key."""
Learner: TypeAlias = "StreamModel | KeyModels"
"""The model that a service trains, or its models."""


class KeyChange(NamedTuple):
    """A lifecycle event of a key's clusters."""

    key: str
    change: Change


class KeyModels:
    """Models by partition and key. A model beyond `max_models` leaves memory once it is saved, the oldest first."""

    feature_names: tuple[Any, ...] = ()
    """None: each model has its own."""
    model = None
    """None: each key has its own."""

    def __init__(
        self,
        options: Mapping[str, Any],
        directory: Path,
        max_models: int = 5000,
        by_record_key: bool = False,
    ) -> None:
        self.options, self.directory, self.max_models = dict(options), directory, max_models
        self.by_record_key = by_record_key
        """Whether the key is that of the record; else the decoder finds it."""
        self.changes: list[KeyChange] = []
        """Lifecycle events since this was last cleared."""
        self.n_loaded = self.n_evicted = 0
        self.kinds: Counter[str] = Counter()
        """Number of lifecycle events by kind since the start of the process."""
        self._live: OrderedDict[Name, StreamClusterer] = OrderedDict()
        self._changed: dict[Partition, set[str]] = {}
        """Keys whose models have learnt since they were last saved."""
        self._databases: dict[Partition, KeyDatabase] = {}
        self._leaving: dict[Partition, KeyDatabase] = {}
        """Databases of partitions that were released, and not saved yet."""
        self._n_seen: dict[Partition, int] = {}
        self._n_keys: dict[Partition, int] = {}
        self._places: dict[str, Partition] = {}
        """Partition in which each key was first seen."""
        self._told = False
        """Whether it was said that a key is in several partitions."""

    # ---------------------------------------------------------------- models

    def get(self, partition: Partition, key: str) -> StreamClusterer:
        """The model of a key, to learn from; new if the key is."""
        found = self._live.get((partition, key))
        if found is None:
            found = self._load(partition, key)
            if found is None:
                found = self._new(key)
            self._live[partition, key] = found
        self._live.move_to_end((partition, key))
        return found

    def peek(self, partition: Partition, key: str) -> StreamClusterer | None:
        """The model of a key, to look at; None if the key has none. It stays where it is."""
        found = self._live.get((partition, key))
        return self._load(partition, key) if found is None else found

    def _new(self, key: str) -> StreamClusterer:
        return StreamClusterer(**self.options | {"background": False, "on_event": self._note(key)})

    def _load(self, partition: Partition, key: str) -> StreamClusterer | None:
        state = self.database(partition).read(key)
        if state is None:
            return None
        self.n_loaded += 1
        return StreamClusterer.from_state(state, on_event=self._note(key))

    def _note(self, key: str) -> Callable[[Change], None]:
        return lambda change: self.changes.append(KeyChange(key, change))

    def learnt(self, partition: Partition, key: str, n: int) -> None:
        """Note that a key's model has learnt n events."""
        self._changed.setdefault(partition, set()).add(key)
        self._n_keys[partition] += self._live[partition, key].n_seen == n > 0
        self._n_seen[partition] = self._n_seen.get(partition, 0) + n
        if self._places.setdefault(key, partition) != partition and not self._told:
            self._told = True
            log.warning(
                "key %r comes in partitions %s-%d and %s-%d, and has a model in each: partition the topic by that key",
                key,
                *self._places[key],
                *partition,
            )

    def database(self, partition: Partition) -> KeyDatabase:
        """The database of a partition that is learnt here; opened if it is new."""
        if partition not in self._databases:
            self._open(partition, None)
        return self._databases[partition]

    def _open(self, partition: Partition, expected: SavedPosition | None) -> None:
        found = KeyDatabase(database_path(self.directory, partition))
        if found.position != expected:
            found.close()
            raise Transient(
                f"{found.path} was written meanwhile by the process that had the partition before"
            )
        self._databases[partition], self._n_seen[partition] = found, found.events
        self._n_keys[partition] = len(found)

    # ---------------------------------------------------------------- figures

    @property
    def n_seen(self) -> int:
        """Number of events learnt of the partitions that are here."""
        return sum(list(self._n_seen.values()))

    @property
    def shards(self) -> KeyShards:
        """The partitions that are learnt here."""
        return KeyShards(self)

    @property
    def partitions(self) -> list[Partition]:
        """The partitions that are learnt here."""
        return list(self._databases)

    @property
    def n_live(self) -> int:
        """Number of models in memory."""
        return len(self._live)

    @property
    def n_keys(self) -> int:
        """Number of keys with a model, of the partitions that are here."""
        return sum(self._n_keys[name] for name in self.partitions)

    @property
    def n_failed_refits(self) -> int:
        """Number of failed refits of the models in memory."""
        return sum(model.n_failed_refits for model in list(self._live.values()))

    def partitions_of(self, key: str) -> list[Partition]:
        """The partitions here in which a key has a model."""
        return [
            name for name in self.partitions if (name, key) in self._live or self._databases[name].has(key)
        ]

    # ---------------------------------------------------------------- saving

    def to_state(self, positions: Mapping[str, Any] | None = None) -> State:
        """The positions alone: `KeyStore.save` writes the models themselves."""
        return State({}, {"positions": dict(positions or {})})

    def save(self, positions: Mapping[Partition, SavedPosition]) -> None:
        """Write the models that have learnt, with the positions of their partitions; then free memory."""
        for partition, database in self._databases.items():
            self._write(partition, database, positions[partition])
        self.evict()

    def _write(self, partition: Partition, database: KeyDatabase, position: SavedPosition) -> None:
        keys = self._changed.get(partition, set())
        if not keys and database.position == position:
            return
        database.write(position, self._n_seen[partition], self._saved(partition, sorted(keys)))
        self._changed.pop(partition, None)

    def _saved(self, partition: Partition, keys: list[str]) -> Iterator[SavedModel]:
        for key in keys:
            model = self._live[partition, key]
            yield SavedModel(key, model.n_seen, model.n_clusters, packed(model.to_state()))

    @property
    def crowded(self) -> bool:
        """Whether there are more models in memory than there may be."""
        return len(self._live) > self.max_models

    def evict(self) -> None:
        """Drop models that are saved, those used longest ago first, until there are no more than there may be."""
        too_many = len(self._live) - self.max_models
        if too_many > 0:
            saved = [name for name in self._live if name[1] not in self._changed.get(name[0], ())]
            for name in saved[:too_many]:
                del self._live[name]
                self.n_evicted += 1

    def reset(self) -> Self:
        """Drop everything that is not saved; the partitions are adopted anew."""
        self.close()
        self._live.clear()
        self._changed, self._n_seen = {}, {}
        self.changes.clear()
        return self

    def close(self) -> None:
        """Close the databases."""
        for database in [*self._databases.values(), *self._leaving.values()]:
            database.close()
        self._databases, self._leaving = {}, {}

    # ---------------------------------------------------------------- partitions that move

    def release(self, partition: Partition) -> State:
        """Give a partition up; `hand_over` saves it."""
        self._leaving[partition] = self._databases.pop(partition)
        return State({}, {})

    def adopt(self, partition: Partition, found: State) -> None:
        """Take over a partition; Transient if its last owner still has it, or has saved it meanwhile."""
        if partition in self._leaving:
            self._databases[partition] = self._leaving.pop(partition)
        else:
            self._open(partition, SavedPosition(*found.values["position"]))

    def hand_over(self, partition: Partition, position: SavedPosition) -> None:
        """Save the models of a released partition for its next owner, and forget them."""
        self._write(partition, self._leaving[partition], position)
        self._leaving.pop(partition).close()
        for name in [name for name in self._live if name[0] == partition]:
            del self._live[name]
        del self._n_seen[partition]
        self._places = {key: place for key, place in self._places.items() if place != partition}


class KeyShards:
    """The partitions of `KeyModels`, by the names and methods that a clusterer's shards have."""

    def __init__(self, models: KeyModels) -> None:
        self._models = models

    @property
    def n_seen(self) -> dict[Partition, int]:
        """Number of events learnt of each partition."""
        return {name: self._models._n_seen.get(name, 0) for name in self._models.partitions}

    @property
    def names(self) -> tuple[Partition, ...]:
        """The partitions."""
        return tuple(self._models.partitions)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.names)

    def __contains__(self, partition: object) -> bool:
        return partition in self.names

    def __len__(self) -> int:
        return len(self.names)

    def release(self, partition: Partition) -> State:
        """Give a partition up."""
        return self._models.release(partition)

    def adopt(self, partition: Partition, found: State) -> None:
        """Take a partition over."""
        self._models.adopt(partition, found)


class KeyStore:
    """Store of a service with a model for each key: writes what has changed, by partition, with its offset."""

    transactional = False

    def __init__(self, models: KeyModels) -> None:
        self._models = models

    def latest(self) -> State | None:
        """Return None: partitions are looked up one by one, by `find`."""
        return None

    def save(self, state: State) -> None:
        """Write the models that have learnt since they were last written."""
        self._models.save(positions_from_state(state.values["positions"]))

    def find(self, partition: Partition) -> tuple[SavedPosition, State] | None:
        """Position of a partition in its database."""
        position = saved_position(database_path(self._models.directory, partition))
        return None if position is None else (position, State({}, {"position": position}))

    def hand_over(self, partition: Partition, position: SavedPosition, summary: State) -> None:
        """Save a released partition, and let its next owner have it."""
        self._models.hand_over(partition, position)

    def close(self) -> None:
        """Close the databases."""
        self._models.close()
