"""One way to compile a kernel."""

from __future__ import annotations

from typing import Any, Protocol

from numba import config, njit

from streamclust._kernels.directories import DIRECTORY, PREBUILT
from streamclust._kernels.plain import Function, is_wanted, keep_by_numba, show_progress, warn


class Decorator(Protocol):
    """Makes a compiled function of one in Python."""

    def __call__(self, function: Function, /) -> Function: ...


def find_internals() -> bool:
    """Whether numba's internals are as `cache` needs them; warns if not, unless the user wants to do without."""
    if is_wanted() or config.DISABLE_JIT:
        return False
    try:
        from streamclust._kernels.trial import use_internals

        use_internals(DIRECTORY, PREBUILT)
    except Exception as error:  # whatever a numba of the future raises
        warn(error)
        return False
    return True


HAS_INTERNALS = find_internals()
if HAS_INTERNALS:
    from streamclust._kernels.cache import use_cache
elif not config.DISABLE_JIT:
    show_progress()

COMMON: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
"""Options of all: none is called from C."""

INTERNAL_OPTIONS = frozenset({"forceinline", "no_cfunc_wrapper", "no_cpython_wrapper"})
"""Options that save time and that numba's manual does not promise; left out where its internals are others."""


def complete(options: dict[str, Any]) -> dict[str, Any]:
    """Options for numba."""
    every = COMMON | options
    return {name: every[name] for name in every if HAS_INTERNALS or name not in INTERNAL_OPTIONS}


def kept(**options: Any) -> Decorator:
    """A decorator that compiles at the first call, and keeps the result on disk."""
    own = complete({"fastmath": False} | options)  # not its first caller's fastmath

    def decorate(function: Function, /) -> Function:
        if not HAS_INTERNALS:
            return keep_by_numba(function, own, DIRECTORY)
        compiled = njit(**own)(function)
        use_cache(compiled, DIRECTORY, PREBUILT)
        return compiled

    return decorate


def unkept(**options: Any) -> Decorator:
    """A decorator for what only kernels call: compiled into them, neither kept by itself nor callable from Python."""
    compiler: Decorator = njit(**complete({"no_cpython_wrapper": True} | options))
    return compiler


FREE_SUMS = frozenset({"reassoc", "nsz"})
"""Sums may be taken in any order, so in vectors: for loops whose result is a choice, not a number kept."""

kernel = kept()
"""Compiled once and kept on disk, free of the interpreter's lock, with IEEE division (no check per division).

No fastmath: sums keep their order.
"""

kernel_with_free_sums = kept(fastmath=set(FREE_SUMS))
"""`kernel` with sums in any order."""

part = unkept()
"""A part of kernels: called by them alone, compiled into them, not kept by itself."""

part_with_free_sums = unkept(forceinline=True, fastmath=set(FREE_SUMS))
"""`part` with sums in any order. It is always compiled into its callers: beside the copy in a kernel, numba compiles a
part by itself, and while a process compiles, its kernels call that one, whose order of sums may be another."""

shared_part = kept(no_cpython_wrapper=True)
"""A part of several kernels, large enough for a call: compiled and kept by itself, once for all of them."""

fused_part = kept(no_cpython_wrapper=True, fastmath={"contract"})
"""`shared_part` with a product and the sum it goes into as one operation, rounded once."""

inlined: Decorator = njit(**complete({"inline": "always"}))
"""Written into its callers by numba instead of compiled on its own: for small parts."""
