"""A directory of states that several processes share, so that partitions move between them with their summaries.

    state/0/000000000042.checkpoint     the first process: everything it knows, and where its partitions stand
    state/1/...                         the second
    state/partitions/events-3.checkpoint    what was learnt of a partition by a process that has let it go

Whatever is kept of a partition has learnt just the records below its offset, each once. So of several, whoever wrote
them, the one with the largest offset is right to go on from, and no process has to wait for another.
"""

from __future__ import annotations

import fcntl
import logging
import os
from itertools import count
from pathlib import Path
from urllib.parse import quote

from streamclust.checkpoint import CheckpointError, Checkpoints, State, read, write
from streamclust_connectors.ports import Partition, Place

log = logging.getLogger(__name__)


class SharedState:
    """The states of this process, in the first place of the directory that is free, and those of all others.

    A place is held by a lock that ends with the process, however it ends: a restarted process finds its own state.
    """

    def __init__(self, directory: str | os.PathLike[str], keep: int = 3, place: int | None = None) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.place, self._lock = self._take_place(place)
        self._own = Checkpoints(self.directory / str(self.place), keep)

    def _take_place(self, wanted: int | None) -> tuple[int, int]:
        for place in count() if wanted is None else (wanted,):
            folder = self.directory / str(place)
            folder.mkdir(exist_ok=True)
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return place, lock
            except BlockingIOError:
                os.close(lock)
        raise RuntimeError(f"place {wanted} of {self.directory} is taken by another process")

    def save(self, state: State) -> Path:
        """Keep a state of this process."""
        return self._own.save(state)

    def latest(self) -> State | None:
        """The latest state of this process, or None."""
        return self._own.latest()

    # ---------------------------------------------------------------- partitions

    def find(self, partition: Partition) -> tuple[Place, State] | None:
        """The farthest that any other process has left of a partition: the place, and the summary."""
        found = [
            kept for kept in (self._handed_over(partition), *self._elsewhere(partition)) if kept is not None
        ]
        return max(found, key=lambda kept: kept[0].offset, default=None)

    def hand_over(self, partition: Partition, place: Place, summary: State) -> None:
        """Keep a partition's summary for whoever takes it over, unless one that is as far is kept elsewhere."""
        known = self.find(partition)
        if known is None or known[0].offset < place.offset:
            path = self._path(partition)
            path.parent.mkdir(exist_ok=True)
            write(path, State(summary.arrays, summary.values | {"place": place}))

    def _path(self, partition: Partition) -> Path:
        return self.directory / "partitions" / f"{quote(partition[0], safe='')}-{partition[1]}.checkpoint"

    def _handed_over(self, partition: Partition) -> tuple[Place, State] | None:
        path = self._path(partition)
        if not path.exists():
            return None
        try:
            state = read(path)
        except CheckpointError as error:
            log.error("%s", error)
            return None
        return Place(*state.values["place"]), state

    def _elsewhere(self, partition: Partition) -> list[tuple[Place, State] | None]:
        """What the latest checkpoints of other processes hold of a partition."""
        others = (folder for folder in self.directory.iterdir() if folder.name.isdigit())
        return [_part(folder, partition) for folder in others if folder.name != str(self.place)]

    def close(self) -> None:
        """Free the place."""
        os.close(self._lock)


def _part(folder: Path, partition: Partition) -> tuple[Place, State] | None:
    try:
        state = Checkpoints(folder).latest()
    except CheckpointError as error:
        log.error("%s", error)
        return None
    if state is None:
        return None
    places = {(topic, number): Place(*place) for topic, number, *place in state.values["positions"]["next"]}
    for i, part in enumerate(state.values["shards"]):
        if tuple(part["key"]) == partition and partition in places:
            prefix = f"shard{i}."
            arrays = {n.removeprefix(prefix): a for n, a in state.arrays.items() if n.startswith(prefix)}
            return places[partition], State(arrays, part | {"schema": state.values["schema"]})
    return None
