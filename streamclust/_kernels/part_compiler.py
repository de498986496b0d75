"""How parts of kernels are compiled: as far as the code that goes into the kernels that call them, and no further.

Numba would optimise each part by itself, with all that it calls, and make machine code of it, which nobody calls: the
kernel contains a copy, which is optimised with it. That would take as long as the kernels themselves.

Parts of numba that may change without notice are used here and in `cache` alone; tests/test_kernel_parts.py fails if
they do.
"""

from __future__ import annotations

from llvmlite.ir import Module
from numba import _dynfunc
from numba.core.base import BaseContext
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.funcdesc import FunctionDescriptor


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


class SmallPartLibrary(PartLibrary):
    """The code of a part whose loops are neither unrolled nor vectorised, whatever kernel it is linked into."""

    def add_ir_module(self, module: Module) -> None:
        """Add code to it."""
        for function in module.functions:
            if not function.is_declaration:
                function.attributes.add("optsize")
        super().add_ir_module(module)


class PartCompiler(Compiler):  # type: ignore[misc]  # numba has no types
    """Compiles one part."""

    library = PartLibrary

    def __init__(self, typing: object, target: BaseContext, library: object, *more: object) -> None:
        super().__init__(typing, target, self.library(target.codegen(), "part"), *more)
        self.state.targetctx.get_executable = placeholder  # of a context made for this part alone


class SmallPartCompiler(PartCompiler):
    """Compiles one part for size."""

    library = SmallPartLibrary
