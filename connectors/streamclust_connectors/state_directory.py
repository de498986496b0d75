"""A state directory shared by several processes, so that partitions can move between them.

    state/0/000000000042.checkpoint         checkpoint of the first process: its model and the offsets of its partitions
    state/0/order                           order in which its partitions were learnt since the latest checkpoint
    state/1/...                             checkpoints of the second process
    state/partitions/events-3.checkpoint    summary of a partition that was revoked from a process

The summary of a partition has learnt exactly the records below its offset, each once. If there are several summaries,
the one with the largest offset is the one to continue from, so no process has to wait for another.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from urllib.parse import quote

from streamclust.checkpoint import CheckpointError, Checkpoints, State, read, shard_in, write
from streamclust_connectors.interfaces import (
    Partition,
    ReplayStep,
    SavedPosition,
    StateInUse,
    positions_from_state,
)

log = logging.getLogger(__name__)

SLOT = re.compile(r"0|[1-9][0-9]*")
"""Names of the subdirectories of processes; others belong to other programs."""
LOCK_POLL_SECONDS = 0.1
"""Time between two attempts to get a lock that another process holds."""


class StateDirectory:
    """Checkpoints of this process in a numbered subdirectory (its slot), and access to those of other processes.

    Members of a consumer group take the first free slot. Any other service takes slot 0, and waits up to
    `wait_seconds` for a process that still uses it.

    A slot is locked until the process ends, also if it is killed; a restarted process finds its own state.
    """

    transactional = False

    def __init__(
        self,
        directory: str | os.PathLike[str],
        keep: int = 3,
        slot: int | None = None,
        wait_seconds: float = 0.0,
    ) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        if slot is None:
            self.slot, self._lock = self._first_free()
        else:
            self.slot, self._lock = slot, self._wait_for(slot, wait_seconds)
        folder = self.directory / str(self.slot)
        self._order = folder / "order"
        self._own = Checkpoints(folder, keep)
        self._own.remove_unfinished()

    def _first_free(self) -> tuple[int, int]:
        tried = ((slot, self._try_lock(slot)) for slot in count())
        return next((slot, lock) for slot, lock in tried if lock is not None)

    def _wait_for(self, slot: int, seconds: float) -> int:
        """Lock a slot; StateInUse if another process holds it for longer than `seconds`."""
        deadline = time.monotonic() + seconds
        warned = False
        while (lock := self._try_lock(slot)) is None:
            if time.monotonic() >= deadline:
                raise StateInUse(
                    f"{self.directory} is in use by another process, which did not exit within {seconds:g} s; stop "
                    "that process, wait longer (checkpoint.wait_seconds), or use another state directory"
                )
            if not warned:
                log.warning(
                    "%s is in use by another process; waiting up to %g s for its exit",
                    self.directory,
                    seconds,
                )
                warned = True
            time.sleep(LOCK_POLL_SECONDS)
        if warned:
            log.info("%s is free; continuing from the other process's checkpoint", self.directory)
        return lock

    def _try_lock(self, slot: int) -> int | None:
        folder = self.directory / str(slot)
        folder.mkdir(exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    def save(self, state: State) -> Path:
        """Write a checkpoint of this process; steps noted before it are no longer needed."""
        path = self._own.save(state)
        with suppress(OSError):  # steps below the checkpoint's offsets are skipped
            self._order.unlink(missing_ok=True)
        return path

    def note_order(self, steps: Sequence[ReplayStep]) -> None:
        """Add steps to the file `order`; it survives a kill of the process, not a loss of power."""
        with self._order.open("ab") as file:
            file.write(b"".join(json.dumps([*step.partition, step.end]).encode() + b"\n" for step in steps))

    def noted_order(self) -> list[ReplayStep]:
        """The steps since the latest checkpoint, and perhaps some before it."""
        try:
            lines = self._order.read_bytes().split(b"\n")
        except OSError:
            return []
        found = []
        for line in lines[:-1]:  # a line without an end was not written completely
            try:
                topic, number, end = json.loads(line)
            except ValueError:
                log.error(
                    "%s is damaged; the order in which partitions were learnt is not known", self._order
                )
                return []
            found.append(ReplayStep((topic, number), end))
        return found

    def latest(self) -> State | None:
        """The latest state of this process, or None."""
        return self._own.latest()

    # ---------------------------------------------------------------- partitions

    def find(self, partition: Partition) -> tuple[SavedPosition, State] | None:
        """Position and summary of a partition with the largest offset saved by any other process."""
        found = [
            saved
            for saved in (self._handed_over(partition), *self._of_others(partition))
            if saved is not None
        ]
        return max(found, key=lambda saved: saved[0].offset, default=None)

    def hand_over(self, partition: Partition, position: SavedPosition, summary: State) -> None:
        """Save a partition's summary for its next owner, unless one with as large an offset exists."""
        known = self.find(partition)
        if known is None or known[0].offset < position.offset:
            path = self._path(partition)
            path.parent.mkdir(exist_ok=True)
            write(path, State(summary.arrays, summary.values | {"place": position}))

    def _path(self, partition: Partition) -> Path:
        return self.directory / "partitions" / f"{quote(partition[0], safe='')}-{partition[1]}.checkpoint"

    def _handed_over(self, partition: Partition) -> tuple[SavedPosition, State] | None:
        path = self._path(partition)
        if not path.exists():
            return None
        try:
            state = read(path)
        except CheckpointError as error:
            log.error("%s", error)
            return None
        return SavedPosition(*state.values["place"]), state

    def _of_others(self, partition: Partition) -> list[tuple[SavedPosition, State] | None]:
        """Positions and summaries of a partition in the latest checkpoints of other processes."""
        others = (path for path in self.directory.iterdir() if SLOT.fullmatch(path.name) and path.is_dir())
        return [_summary_in(folder, partition) for folder in others if folder.name != str(self.slot)]

    def close(self) -> None:
        """Release the lock."""
        os.close(self._lock)


def _summary_in(folder: Path, partition: Partition) -> tuple[SavedPosition, State] | None:
    try:
        state = Checkpoints(folder).latest()
    except CheckpointError as error:
        log.error("%s", error)
        return None
    if state is None:
        return None
    position, summary = (
        positions_from_state(state.values["positions"]).get(partition),
        shard_in(state, partition),
    )
    return None if position is None or summary is None else (position, summary)
