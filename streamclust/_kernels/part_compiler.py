"""How kernels and their parts are compiled: the parts as far as the code that goes into the kernels that call them.

Numba would optimise each part by itself, with all that it calls, and make machine code of it, which nobody calls: the
kernel contains a copy, which is optimised with it. That would take as long as the kernels themselves. (Large parts of
several kernels are compiled as kernels are, so that none of those contains them.)

Parts of numba that may change without notice are used here and in `cache` alone; tests/test_kernel_parts.py fails if
they do.
"""

from __future__ import annotations

from typing import Any

from llvmlite.ir import IRBuilder, Module
from numba import _dynfunc
from numba.core.base import BaseContext
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, PassManager
from numba.core.dispatcher import Dispatcher
from numba.core.funcdesc import FunctionDescriptor
from numba.core.runtime.context import NRTContext
from numba.core.typed_passes import InlineOverloads, NopythonRewrites
from numba.core.types import Type
from numba.core.untyped_passes import InlineClosureLikes, WithLifting

NEEDLESS = frozenset({InlineClosureLikes, InlineOverloads, NopythonRewrites, WithLifting})
"""Passes of numba's for what kernels do not contain: closures and comprehensions, sums of whole arrays, `with`."""


class PartLibrary(JITCodeLibrary):  # type: ignore[misc]  # numba has no types
    """The code of one part, to be linked into kernels."""

    def _optimize_final_module(self) -> None:
        """Left to the kernels."""

    def _finalize_final_module(self) -> None:
        """No machine code is made."""
        self._finalize_dynamic_globals()
        self._finalized = True


def placeholder(library: PartLibrary, description: FunctionDescriptor, environment: object) -> object:
    """What stands for the part as a function of Python, which cannot be called: numba finds its code by it."""
    library._ensure_finalized()
    name = description.qualname.split(".")[-1]
    return _dynfunc.make_function(description.lookup_module(), name, "", 0, environment, (library,))


class SmallCode:
    """Code whose loops are neither unrolled nor vectorised, whatever kernel it is linked into."""

    def add_ir_module(self, module: Module) -> None:
        """Add code to it."""
        for function in module.functions:
            if not function.is_declaration:
                function.attributes.add("optsize")
        super().add_ir_module(module)  # type: ignore[misc]  # of the library


class SmallLibrary(SmallCode, JITCodeLibrary):  # type: ignore[misc]  # numba has no types
    """The code of a kernel or of a part that is shared, compiled for size."""


class SmallPartLibrary(SmallCode, PartLibrary):
    """The code of a part, compiled for size."""


class References(NRTContext):  # type: ignore[misc]  # numba has no types
    """Counts references to arrays, as numba does; but what no reference counts (sizes, strides) is not read first.

    That was a fifth of all code before it is optimised.
    """

    def get_meminfos(self, builder: IRBuilder, kind: Type, value: object) -> list[tuple[Type, object]]:
        """What is counted of a value: an array, or a tuple of some."""
        models = self._context.data_model_manager
        model = models[kind]
        found = [(kind, model.get_nrt_meminfo(builder, value))] if model.has_nrt_meminfo() else []
        for inner, read in model.traverse(builder):
            if models[inner].contains_nrt_meminfo():
                found += self.get_meminfos(builder, inner, read(value))
        return found


class KernelCompiler(Compiler):  # type: ignore[misc]  # numba has no types
    """Compiles one kernel."""

    library: type[JITCodeLibrary] = JITCodeLibrary
    needless: frozenset[type] = NEEDLESS
    unique_id: int | None = 0
    """In the name of its code, the same in every process: others find it by that. Numba counts from 1."""

    def __init__(self, typing: object, target: BaseContext, _: object, *more: object) -> None:
        library = self.library(target.codegen(), "kernel")
        library.enable_object_caching()  # as numba does where it makes the library
        super().__init__(typing, target, library, *more)
        own = self.state.targetctx  # a context made for this function alone
        own.nrt = References(own, own.enable_nrt)

    def define_pipelines(self) -> list[PassManager]:
        """Numba's passes but those that a kernel does not need."""
        if self.unique_id is not None:
            self.state.func_id.unique_id = self.unique_id
        pipelines: list[PassManager] = super().define_pipelines()
        for pipeline in pipelines:
            pipeline.passes = [one for one in pipeline.passes if one[0] not in self.needless]
        return pipelines


class SmallKernelCompiler(KernelCompiler):
    """Compiles one part that is shared, for size."""

    library = SmallLibrary


class PartCompiler(KernelCompiler):
    """Compiles one part."""

    library = PartLibrary
    unique_id = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state.targetctx.get_executable = placeholder


class OverloadCompiler(PartCompiler):
    """Compiles a function of numba's own that a kernel calls, as a part of it, with all passes."""

    needless = frozenset()


class SmallPartCompiler(PartCompiler):
    """Compiles one part for size."""

    library = SmallPartLibrary


def compile_as_part(dispatcher: Dispatcher) -> None:
    """Compile a function that a kernel calls as a part of it, if it is one of numba's own that Python cannot call."""
    compiler = dispatcher._compiler  # type: ignore[attr-defined]  # private
    if compiler.pipeline_class is Compiler and compiler.targetoptions.get("no_cpython_wrapper"):
        compiler.pipeline_class = OverloadCompiler
