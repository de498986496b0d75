"""One way to compile a kernel."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from numba import config, njit

from streamclust._kernels.cache import KERNELS, SHIPPED, use_cache
from streamclust._kernels.part_compiler import (
    KernelCompiler,
    PartCompiler,
    SmallKernelCompiler,
    SmallPartCompiler,
)


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

Function = TypeVar("Function", bound=Callable[..., Any])


class Decorator(Protocol):
    """What makes a compiled function of one in Python."""

    def __call__(self, function: Function, /) -> Function: ...


COMMON: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
"""Options of all: none is called from C."""


def kept(pipeline_class: type[KernelCompiler] = KernelCompiler, **options: Any) -> Decorator:
    """A decorator that compiles at the first call, and keeps the result on disk."""
    own = (
        COMMON | {"fastmath": False, "pipeline_class": pipeline_class} | options
    )  # not its first caller's fastmath
    compiler: Decorator = njit(**own)

    def decorate(function: Function, /) -> Function:
        compiled = compiler(function)
        use_cache(compiled, DIRECTORY, PREBUILT)
        return compiled

    return decorate


def unkept(pipeline_class: type[PartCompiler] = PartCompiler, **options: Any) -> Decorator:
    """A decorator for what only kernels call: compiled into them, neither kept by itself nor callable from Python."""
    compiler: Decorator = njit(**COMMON, no_cpython_wrapper=True, pipeline_class=pipeline_class, **options)
    return compiler


FREE_SUMS = frozenset({"reassoc", "nsz"})
"""Sums may be taken in any order, so in vectors: for loops whose result is a choice, not a number kept."""

kernel = kept()
"""Compiled once and kept on disk, free of the interpreter's lock, with IEEE division (no check per division).

No fastmath: sums keep their order.
"""

kernel_with_free_sums = kept(fastmath=set(FREE_SUMS))
"""The same, with sums in any order."""

part = unkept()
"""A part of kernels: called by them alone. It compiles in a sixth of the time, as nothing else can call it."""

small_part = unkept(SmallPartCompiler)
"""A part compiled for size, in half of the time: for what runs seldom, or has no loops worth vectorising.

The same bits come out: without free sums a vector is summed in order, too.
"""

part_with_free_sums = unkept(fastmath=set(FREE_SUMS))
"""The same, with sums in any order."""

shared_part = kept(no_cpython_wrapper=True)
"""A part of several kernels, large enough for a call: compiled and kept by itself, once for all of them."""

small_shared_part = kept(SmallKernelCompiler, no_cpython_wrapper=True)
"""The same, compiled for size."""

fused_part = kept(no_cpython_wrapper=True, fastmath={"contract"})
"""The same, with a product and the sum it goes into as one operation, rounded once."""

inlined: Decorator = njit(**COMMON, inline="always")
"""Written into its callers by numba instead of compiled on its own: for small parts."""
