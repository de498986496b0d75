"""A trial of numba's internals, once per numba: a small kernel is compiled, kept and loaded as all others will be.

A file beside the compiled kernels says that the trial was passed, so that later starts do without it.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

import numpy as np
from numba import njit
from numba.core import event

from streamclust._kernels.cache import KernelCache, Watcher, kernels_called, packed, use_cache
from streamclust._kernels.sources import source_stamp
from streamclust._kernels.target import BUILD
from streamclust._kernels.types import Floats


@njit(forceinline=True, no_cfunc_wrapper=True, no_cpython_wrapper=True)
def total(a: float, b: float) -> float:
    """A sum; contained in its caller."""
    return a + b


@njit(no_cfunc_wrapper=True, no_cpython_wrapper=True)
def add_to_all(values: Floats, addend: float) -> None:
    """Add a number to each value; `sevens` calls it by name."""
    for i in range(values.size):
        values[i] = total(values[i], addend)


def sevens(n: int) -> Floats:
    """An array that another function has filled."""
    values = np.zeros(n)
    add_to_all(values, 7.0)
    return values


class KernelInMemory(KernelCache):
    """Finds one compiled kernel, for any signature."""

    content: bytes

    def _read(self, *_: object) -> bytes:
        return self.content


def file_name() -> str:
    """Name of the file that says that this numba has passed."""
    key = hashlib.sha256(repr(BUILD).encode() + source_stamp(Path(__file__))).hexdigest()
    return f"trial.passed-{key[:20]}.nbc"


def use_internals(directory: Path | None, shipped: Path | None) -> None:
    """Watch numba compile kernels for the cache; raises whatever fails if the internals are not as expected."""
    watcher = Watcher()
    event.register("numba:compile", watcher)
    if any(place is not None and (place / file_name()).is_file() for place in (shipped, directory)):
        return
    try:
        run()
    except BaseException:
        event.unregister("numba:compile", watcher)
        raise
    if directory is not None:
        with suppress(OSError):
            (directory / file_name()).touch()


def run() -> None:
    """Compile a kernel and the one that it calls, and load the first again."""
    use_cache(add_to_all, None, None)
    first, again = njit(no_cfunc_wrapper=True)(sevens), njit(no_cfunc_wrapper=True)(sevens)
    use_cache(first, None, None)
    expect(first(3).tolist() == [7.0, 7.0, 7.0], "a kernel's result is wrong")
    (compiled,) = first.overloads.values()
    called = [kernel.function for kernel in kernels_called(compiled.library)]
    expect(called == ["add_to_all"], "a kernel does not refer to another by its name")
    again._cache = KernelInMemory(sevens, None, None)
    again._cache.content = packed(compiled)
    expect(again(3).tolist() == [7.0, 7.0, 7.0], "a loaded kernel's result is wrong")
    expect(sum(again.stats.cache_hits.values()) == 1, "a kernel is compiled although the cache has it")


def expect(condition: bool, message: str) -> None:
    """Raise an error unless the condition holds."""
    if not condition:
        raise RuntimeError(message)
