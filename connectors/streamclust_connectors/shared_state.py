"""A state directory that several processes share, so that partitions move between them with their summaries.

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
import time
from itertools import count
from pathlib import Path
from urllib.parse import quote

from streamclust.checkpoint import CheckpointError, Checkpoints, State, read, shard_in, write
from streamclust_connectors.ports import Partition, Place, StateInUse, saved_places

log = logging.getLogger(__name__)

LOCK_POLL_SECONDS = 0.1
"""Time between two tries for a lock that another process has."""


class SharedState:
    """The checkpoints of this process, in a numbered subdirectory (its place), and those of the other processes.

    Members of a consumer group take the first place that is free. A service that is no member of one takes place 0,
    which alone holds its state, and waits up to `wait_seconds` for a process that still has it.

    A place is held by a lock that ends with the process, however it ends: a restarted process finds its own state.
    """

    transactional = False

    def __init__(
        self,
        directory: str | os.PathLike[str],
        keep: int = 3,
        place: int | None = None,
        wait_seconds: float = 0.0,
    ) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        if place is None:
            self.place, self._lock = self._first_free()
        else:
            self.place, self._lock = place, self._wait_for(place, wait_seconds)
        folder = self.directory / str(self.place)
        for unfinished in folder.glob("*.part"):  # of a process that was killed while it wrote
            unfinished.unlink()
        self._own = Checkpoints(folder, keep)

    def _first_free(self) -> tuple[int, int]:
        tried = ((place, self._try_lock(place)) for place in count())
        return next((place, lock) for place, lock in tried if lock is not None)

    def _wait_for(self, place: int, seconds: float) -> int:
        """The lock of a place; StateInUse if it is not free within so many seconds."""
        deadline = time.monotonic() + seconds
        told = False
        while (lock := self._try_lock(place)) is None:
            if time.monotonic() >= deadline:
                raise StateInUse(
                    f"{self.directory} is in use by another process, which did not end within {seconds:g} s; stop that "
                    "one first, wait longer (checkpoint.wait_seconds), or use another state directory"
                )
            if not told:
                log.warning(
                    "%s is in use by another process; waiting up to %g s for it to end",
                    self.directory,
                    seconds,
                )
                told = True
            time.sleep(LOCK_POLL_SECONDS)
        if told:
            log.info("%s is free; going on from what the other process has left", self.directory)
        return lock

    def _try_lock(self, place: int) -> int | None:
        folder = self.directory / str(place)
        folder.mkdir(exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    def save(self, state: State) -> Path:
        """Write a checkpoint of this process."""
        return self._own.save(state)

    def latest(self) -> State | None:
        """The latest state of this process, or None."""
        return self._own.latest()

    # ---------------------------------------------------------------- partitions

    def find(self, partition: Partition) -> tuple[Place, State] | None:
        """Position and summary of a partition of the largest offset saved by any other process."""
        found = [
            kept for kept in (self._handed_over(partition), *self._elsewhere(partition)) if kept is not None
        ]
        return max(found, key=lambda kept: kept[0].offset, default=None)

    def hand_over(self, partition: Partition, place: Place, summary: State) -> None:
        """Save a partition's summary for its next owner, unless one as recent is saved elsewhere."""
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
        """Positions and summaries of a partition in the latest checkpoints of other processes."""
        others = (folder for folder in self.directory.iterdir() if folder.name.isdigit())
        return [_part(folder, partition) for folder in others if folder.name != str(self.place)]

    def close(self) -> None:
        """Release the lock."""
        os.close(self._lock)


def _part(folder: Path, partition: Partition) -> tuple[Place, State] | None:
    try:
        state = Checkpoints(folder).latest()
    except CheckpointError as error:
        log.error("%s", error)
        return None
    if state is None:
        return None
    place, summary = saved_places(state.values["positions"]).get(partition), shard_in(state, partition)
    return None if place is None or summary is None else (place, summary)
