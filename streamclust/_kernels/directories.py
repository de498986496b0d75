"""Directories of compiled kernels: the one that came with the package, and the one of this machine."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from numba import config

from streamclust._kernels.sources import KERNELS

SHIPPED = KERNELS / "compiled"
"""Kernels that came with the package, in platform wheels and images."""


def can_write(directory: Path) -> bool:
    """Whether files can be made in the directory, or in a new one of that name."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False


def private_directory() -> Path | None:
    """A temporary directory that only this user can write, or nothing: compiled code must not come from others."""
    try:
        own = os.getuid()
        place = Path(tempfile.gettempdir(), f"streamclust-numba-{own}")
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
    except (AttributeError, OSError):  # no user ids, or nowhere to write
        return None
    safe = stat.S_ISDIR(found.st_mode) and found.st_uid == own and not found.st_mode & 0o077
    return place if safe else None


def lasting_directories() -> Iterator[Path]:
    """Where compiled kernels may be kept, best first: as the user says, beside the package, in the user's cache."""
    own = f"streamclust-{hashlib.sha256(str(KERNELS).encode()).hexdigest()[:12]}"  # each copy of the package
    if config.CACHE_DIR:
        yield Path(config.CACHE_DIR, own)
    yield KERNELS / "__pycache__"
    with suppress(RuntimeError):  # a user without a home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", own)


def choose_directory(warn: bool) -> Path | None:
    """The directory of kernels that are compiled here: one that lasts, or else one among temporary files."""
    for directory in lasting_directories():
        if can_write(directory):
            return directory
    place = private_directory()
    if warn:
        kept = f"are kept in {place}" if place else "will be compiled anew at each start"
        warnings.warn(
            f"neither the package's directory nor the user's cache can be written: compiled kernels {kept}. "
            "Set NUMBA_CACHE_DIR to a directory that lasts and can be written",
            RuntimeWarning,
            stacklevel=2,
        )
    return place


PREBUILT = SHIPPED if SHIPPED.is_dir() else None
DIRECTORY = choose_directory(warn=PREBUILT is None)
