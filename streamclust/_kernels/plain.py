"""Kernels by numba alone: where its internals are not those that `cache` needs, or the user asks for it.

Every kernel then contains all that it calls, and processes do not wait for each other's kernels: a first start takes
longer. Kernels that came with the package are not used. Results are the same.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba import config, njit

from streamclust._kernels.progress import LINE
from streamclust._kernels.sources import source_stamp
from streamclust._kernels.target import BUILD

VARIABLE = "STREAMCLUST_PLAIN_NUMBA"
"""Environment variable: 1 has kernels compiled by numba alone."""

Function = TypeVar("Function", bound=Callable[..., Any])

_names: dict[object, str] = {}
"""Kernels as numba has them, and their names."""


def is_wanted() -> bool:
    """Whether the user asks for it."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


def tested_numba() -> str:
    """The requirement on numba, as pip takes it."""
    from importlib.metadata import PackageNotFoundError, requires  # slow to import

    with suppress(PackageNotFoundError):
        for requirement in requires("streamclust") or ():
            if requirement.startswith("numba"):
                return requirement
    return "numba"


def warn(reason: Exception) -> None:
    """Say why kernels are compiled by numba alone, and what to do."""
    warnings.warn(
        f"numba {numba.__version__} lacks internals that streamclust uses ({type(reason).__name__}: {reason}): "
        f"kernels are compiled by numba alone. Results are the same; the first start takes longer. Install a newer "
        f"streamclust, or pip install '{tested_numba()}'; {VARIABLE}=1 hides this warning",
        RuntimeWarning,
        stacklevel=2,
    )


def keep_by_numba(function: Function, options: dict[str, Any], directory: Path | None) -> Function:
    """Compile a function at its first call, and have numba keep the result in a directory of its sources' hash.

    Numba sees a change of the function's own file, but not of those that it imports.
    """
    if directory is None or config.DISABLE_JIT:
        compiled = njit(**options)(function)
    else:
        stamp = source_stamp(Path(function.__code__.co_filename)) + repr(BUILD).encode()
        place = directory / "plain" / hashlib.sha256(stamp).hexdigest()[:20]
        with cache_directory(place):
            compiled = njit(**options, cache=True)(function)
        if not str(compiled.stats.cache_path).startswith(str(place)):  # its rules have changed
            compiled = njit(**options)(function)
    module = function.__module__.removeprefix("streamclust._kernels.")
    _names[compiled] = f"{module}.{function.__qualname__}"
    return compiled


@contextmanager
def cache_directory(place: Path) -> Iterator[None]:
    """Have numba keep functions that are decorated meanwhile in this directory."""
    before, config.CACHE_DIR = config.CACHE_DIR, str(place)
    try:
        yield
    finally:
        config.CACHE_DIR = before


def show_progress() -> object:
    """Show which kernel is compiling, if numba tells; returns the listener that it tells."""
    with suppress(AttributeError, ImportError, TypeError):
        from numba.core import event

        class Watcher(event.Listener):  # type: ignore[misc]  # numba has no types
            def on_start(self, event: event.Event) -> None:
                with suppress(AttributeError, KeyError, TypeError):
                    LINE.show(_names[event.data["dispatcher"]])

            def on_end(self, event: event.Event) -> None:
                with suppress(AttributeError, KeyError, TypeError):
                    LINE.clear(_names[event.data["dispatcher"]])

        listener = Watcher()
        event.register("numba:compile", listener)
        return listener
    return None
