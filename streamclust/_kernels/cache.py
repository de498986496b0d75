"""Compiled kernels on disk: those that came with the package, and those compiled on this machine.

One file per kernel and signature. It is used only if it was compiled from the same sources (its own file and the
kernel files that one imports, and so on: a kernel contains what it calls), by the same numba, Python and optimiser
settings, for this processor. Files that come with the package were compiled for a level of processors, x86-64-v3, and
are used where the processor has that level. (Elsewhere, as in an image for ARM, those that come with it are for the
processor that it was built on.)

A kernel that another one calls is not contained in it, as numba would have it: machine code refers to machine code by
name. So a file names the kernels that it needs, which are loaded first.

Parts of numba that may change without notice are used here and in `trial` alone: `Dispatcher._cache`,
`CompileResult._reduce` and `_rebuild`, `_shared_module`, `_get_module_for_linking` and `_linking_libraries` of a
library, `magic_tuple`, `rtsys`, the "numba:compile" event, `fndesc` of a compiled function. `trial` tries them before
any kernel is compiled; where they are missing, numba compiles and keeps kernels alone (`plain`).
"""

from __future__ import annotations

import hashlib
import uuid
import zlib
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from llvmlite.binding import ModuleRef, parse_assembly
from numba.core import event
from numba.core.base import BaseContext
from numba.core.caching import _Cache
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.runtime import rtsys
from numba.core.serialize import dumps, loads

from streamclust._kernels.locking import Lock
from streamclust._kernels.progress import LINE
from streamclust._kernels.sources import source_stamp
from streamclust._kernels.target import BUILD, HAS_LEVEL, LEVEL


def checksum(content: bytes) -> bytes:
    """Four bytes that a damaged file has not."""
    return zlib.crc32(content).to_bytes(4, "big")


class Kernel(NamedTuple):
    """A compiled kernel, to which the code of others refers."""

    module: str
    function: str
    types: object
    code: str  # the name of its machine code


class KernelCache(_Cache):  # type: ignore[misc]  # numba has no types
    """The compiled forms of one kernel."""

    def __init__(self, function: Callable[..., Any], directory: Path | None, shipped: Path | None) -> None:
        self.name = f"{function.__module__}.{function.__qualname__}".removeprefix("streamclust._kernels.")
        self._directory = directory
        self._shipped = shipped
        self._place = function.__module__, function.__qualname__
        self._stamp = source_stamp(Path(function.__code__.co_filename))
        self._lock = Lock(directory, self.name)

    @property
    def cache_path(self) -> str | None:
        """Where kernels that are compiled here are kept."""
        return None if self._directory is None else str(self._directory)

    def load_overload(self, sig: object, target_context: BaseContext) -> CompileResult | None:
        """The compiled kernel, or None: then this process compiles it, and others wait for it."""
        rtsys.initialize(
            target_context
        )  # functions that compiled code calls; `refresh` would load all that compiling needs
        processor = target_context.codegen().magic_tuple()
        portable = (processor[0], LEVEL, "") if HAS_LEVEL else processor
        content = self._read(self._shipped, portable, sig) or self._read(self._directory, processor, sig)
        if content is None and self._lock.acquire():
            content = self._read(self._directory, processor, sig)  # another process may have compiled it
            if content is not None:
                self._lock.release()
        if content is None:
            return None
        called, compiled = loads(content)
        if not all(map(is_there, called)):  # looked up first: the code refers to theirs
            return None
        LINE.ready.add(self.name)
        compiled = CompileResult._rebuild(target_context, *compiled)
        self._link_by_name(compiled, sig)
        return compiled

    def save_overload(self, sig: object, data: CompileResult) -> None:
        """Keep a kernel that was just compiled."""
        lasts = not data.library.has_dynamic_globals  # it contains no addresses of this process
        if lasts and self._directory is not None:
            path = self._path(self._directory, data.codegen.magic_tuple(), sig)
            self._write(path, packed(data))
        self._link_by_name(data, sig)
        self.let_others_go_on()

    def let_others_go_on(self) -> None:
        """Release the processes that wait for this kernel."""
        self._lock.release()

    def _link_by_name(self, compiled: CompileResult, sig: object) -> None:
        """Have other code refer to the kernel's machine code by its name, instead of containing a copy of it."""
        compiled.library.kernel = Kernel(*self._place, sig, compiled.fndesc.llvm_func_name)
        compiled.library._shared_module = None
        compiled.library._get_module_for_linking = partial(parse_assembly, "")

    def _read(self, directory: Path | None, processor: tuple[str, ...], sig: object) -> bytes | None:
        if directory is None:
            return None
        try:
            content = self._path(directory, processor, sig).read_bytes()
        except OSError:
            return None
        head = len(self._stamp) + 4
        return content[head:] if content[:head] == self._stamp + checksum(content[head:]) else None

    def _write(self, path: Path, content: bytes) -> None:
        part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:16]}")
        try:
            part.write_bytes(self._stamp + checksum(content) + content)
            part.replace(path)
        except OSError:  # a full disk, say: the kernel is compiled, and works
            part.unlink(missing_ok=True)

    def _path(self, directory: Path, processor: tuple[str, ...], sig: object) -> Path:
        key = hashlib.sha256(repr((BUILD, processor, sig)).encode()).hexdigest()
        return directory / f"{self.name}-{key[:20]}.nbc"

    def enable(self) -> None:
        """Nothing to do: always enabled."""

    def disable(self) -> None:
        """Nothing to do: always enabled."""

    def flush(self) -> None:
        """Nothing to do: a changed kernel file is seen."""


def packed(compiled: CompileResult) -> bytes:
    """A kernel as a file holds it: the kernels that its code refers to, and the code."""
    compiled.library._shared_module = names_of(compiled)
    return bytes(dumps((kernels_called(compiled.library), compiled._reduce())))


def names_of(compiled: CompileResult) -> ModuleRef:
    """A module with functions of a kernel's names but no code: numba reads from it what a loaded kernel defines."""
    names = (compiled.fndesc.llvm_func_name, compiled.fndesc.llvm_cpython_wrapper_name)
    defined = {function.name for function in compiled.library.get_defined_functions()}
    return parse_assembly(
        "\n".join(f'define void @"{name}"() {{ unreachable }}' for name in names if name in defined)
    )


def is_there(kernel: Kernel) -> bool:
    """Load or compile a kernel; whether its code has the name by which others know it."""
    dispatcher = getattr(import_module(kernel.module), kernel.function)
    dispatcher.compile(kernel.types)
    return bool(dispatcher.overloads[kernel.types].fndesc.llvm_func_name == kernel.code)


def kernels_called(library: CPUCodeLibrary) -> list[Kernel]:
    """The kernels whose code a kernel refers to, by itself or from its parts."""
    found, seen, waiting = dict[Kernel, None](), {library}, [library]
    while waiting:
        for other in waiting.pop()._linking_libraries:
            if hasattr(other, "kernel"):
                found[other.kernel] = None
            elif other not in seen:
                seen.add(other)
                waiting.append(other)
    return list(found)


def use_cache(compiled: object, directory: Path | None, shipped: Path | None) -> None:
    """Have numba look for a function's compiled forms in these directories, and keep new ones in the first."""
    if isinstance(compiled, Dispatcher):  # not where NUMBA_DISABLE_JIT is set
        compiled._cache = KernelCache(compiled.py_func, directory, shipped)  # type: ignore[attr-defined]  # private


class Watcher(event.Listener):  # type: ignore[misc]  # numba has no types
    """Shows which kernel is compiling; if that fails, lets the processes that wait for it go on."""

    def on_start(self, event: event.Event) -> None:
        """A kernel, or something that it calls, starts to compile."""
        cache = getattr(event.data["dispatcher"], "_cache", None)
        if isinstance(cache, KernelCache):
            LINE.show(cache.name)

    def on_end(self, event: event.Event) -> None:
        """A kernel is compiled, or failed to."""
        cache = getattr(event.data["dispatcher"], "_cache", None)
        if isinstance(cache, KernelCache):
            LINE.clear(cache.name)
            if tuple(event.data["args"]) not in event.data["dispatcher"].overloads:
                cache.let_others_go_on()
