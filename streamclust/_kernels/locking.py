"""Locks between processes: one compiles a kernel, the others wait for it."""

from __future__ import annotations

import os
import time
import zlib
from pathlib import Path

from numba.core.compiler_lock import global_compiler_lock

try:
    import fcntl
except ImportError:  # not POSIX: every process compiles for itself
    fcntl = None  # type: ignore[assignment]  # a module elsewhere

MAX_WAIT_SECONDS = 120.0
"""A process that has waited so long, for all kernels together, compiles for itself: about twice the time in which it
would have compiled those of a first start. The process that it waits for may have been stopped."""
POLL_SECONDS = 0.02

_open_files: dict[Path, int] = {}


class Patience:
    """Time that this process has waited for others to compile."""

    def __init__(self) -> None:
        self.waited = 0.0

    @property
    def is_over(self) -> bool:
        """Whether it compiles for itself from now on."""
        return self.waited >= MAX_WAIT_SECONDS


PATIENCE = Patience()


class Lock:
    """A lock of that name, held by at most one process. The system releases it when its process ends, however it ends.

    All locks of a directory are bytes of one file, by record locks: no lock file is left behind for each kernel, and
    a process that was forked holds none of its parent's.
    """

    def __init__(self, directory: Path | None, name: str) -> None:
        self._path = None if directory is None else directory / "lock"
        self._byte = zlib.crc32(name.encode())

    def acquire(self) -> bool:
        """Wait until this process holds the lock; False if it cannot be had, or the process has waited enough."""
        file = self._file()
        if fcntl is None or file is None:
            return False
        while True:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._byte)
            except BlockingIOError:
                if PATIENCE.is_over:
                    return False
                start = time.monotonic()
                time.sleep(POLL_SECONDS)
                PATIENCE.waited += time.monotonic() - start
            except OSError:  # a file system without locks
                return False
            else:
                return True

    def release(self) -> None:
        """Let others have it; nothing happens if this process does not hold it."""
        file = self._file()
        if fcntl is not None and file is not None:
            try:
                fcntl.lockf(file, fcntl.LOCK_UN, 1, self._byte)
            except OSError:
                return

    def _file(self) -> int | None:
        """The open file, kept open: closing it would release every lock of this process in it."""
        if self._path is None:
            return None
        if self._path not in _open_files:
            try:
                _open_files[self._path] = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError:
                return None
        return _open_files[self._path]


if hasattr(
    os, "register_at_fork"
):  # else a child would wait for ever for a thread that compiles, and is not there
    os.register_at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=global_compiler_lock.release,
    )
