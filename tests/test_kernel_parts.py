"""Parts of kernels have no wrapper for Python: called from there, they would end the process."""

import ast
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import njit
from numba.core import compiler, event
from numba.core.runtime import _nrt_python, rtsys

from streamclust._kernels import cache
from streamclust._kernels.compile import part, small_part
from streamclust._kernels.part_compiler import NEEDLESS, KernelCompiler, PartLibrary

ROOT = Path(__file__).parent.parent / "streamclust"
KERNELS = ROOT / "_kernels"
PARTS = {"part", "small_part", "part_with_free_sums", "shared_part", "small_shared_part", "fused_part"}


def parts():
    """(module, name) of every part."""
    for path in KERNELS.rglob("*.py"):
        module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and {ast.unparse(d) for d in node.decorator_list} & PARTS:
                yield module, node.name


def used(tree):
    """(module, name) of what a file imports, or reaches through a module that it imports."""
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield node.module, alias.name
                modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name: alias.name for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in modules:
            yield modules[ast.unparse(node.value)], node.attr


def test_only_kernels_call_parts():
    forbidden = set(parts())
    assert ("streamclust._kernels.hierarchy.costs", "union_costs") in forbidden
    outside = [path for path in ROOT.rglob("*.py") if KERNELS not in path.parents]
    reached = {(path.name, *use) for path in outside for use in used(ast.parse(path.read_text()))}
    assert ("problem.py", "streamclust._kernels.hierarchy.costs", "fill_table") in reached
    assert {use for use in reached if use[1:] in forbidden} == set()


@part
def halved(x):
    """A part of these tests."""
    if x < 0.0:
        raise ValueError("negative")
    return x / 2


@part
def quartered(x):
    """A part that calls another."""
    return halved(halved(x))


def address(compiled):
    """Where the machine code of a function is; 0 if there is none."""
    return compiled.library.get_pointer_to_function(compiled.fndesc.mangled_name)


@pytest.mark.compiled
def test_a_part_is_compiled_as_far_as_its_kernels_need_it():
    """If this fails, numba has changed what `_kernels/part_compiler.py` relies on."""
    whole = njit(lambda x: 1.0 + quartered(x))
    assert whole(6.0) == 2.5
    with pytest.raises(ValueError, match="negative"):
        whole(-6.0)
    for one in (halved, quartered):
        (compiled,) = one.overloads.values()
        assert isinstance(compiled.library, PartLibrary)
        assert not address(compiled)
    (kernel,) = whole.overloads.values()
    assert address(kernel)


@small_part
def add_up(values):
    """A part with a loop."""
    for i in range(values.size):
        values[i] += 1.0


@pytest.mark.compiled
def test_a_small_part_is_compiled_for_size():
    """If this fails, numba or LLVM no longer takes "optsize" from a part."""

    def loops(values):
        add_up(values)
        add_up(values)

    values = np.arange(5.0)
    whole = njit(loops)
    whole(values)
    assert values.tolist() == [2.0, 3.0, 4.0, 5.0, 6.0]
    (part_of_it,) = add_up.overloads.values()
    assert " optsize" in part_of_it.library.get_llvm_str()


@pytest.mark.compiled
def test_numba_still_has_the_passes_that_kernels_do_without():
    """If this fails, numba compiles by other passes: see what `NEEDLESS` should be."""
    flags = compiler.Flags()
    state = compiler.StateDict({"func_ir": None, "flags": flags})
    passes = {one for one, _ in compiler.DefaultPassBuilder.define_nopython_pipeline(state).passes}
    assert passes > NEEDLESS


def total_of_zeros(n):
    """Calls functions of numba's own."""
    return np.zeros((n, 7)).size + max(n, 2)


@pytest.mark.compiled
def test_functions_of_numba_are_parts_of_kernels_and_of_use_to_others(tmp_path):
    """If this fails, numba has changed how its own functions are compiled into others."""
    kernel = njit(total_of_zeros)
    cache.use_cache(kernel, tmp_path, None)
    with event.install_recorder("numba:compile") as recorder:
        assert kernel(3) == 24
    own = {e.data["dispatcher"] for _, e in recorder.buffer} - {kernel}
    libraries = [compiled.library for one in own for compiled in one.overloads.values()]
    assert any(isinstance(library, PartLibrary) for library in libraries)
    assert njit(total_of_zeros)(4) == 32
    assert njit(lambda n: np.zeros((n, 7)))(2).shape == (2, 7)


@part
def first_of(pair, several):
    """A part that is given arrays alone and in a tuple."""
    both = (pair, several[1])
    return both[0][0] + both[1][0]


@pytest.mark.compiled
def test_references_are_counted_as_numba_counts_them():
    """If this fails, arrays that kernels are given or make are freed too early, or never."""

    @njit(pipeline_class=KernelCompiler)
    def use(values, several):
        made = np.empty(3)
        made[0] = first_of(values, several)
        return made, several[0]

    values, several = np.ones(3), (np.ones(2), np.full(2, 5.0))
    arrays = (values, *several)
    before = [sys.getrefcount(array) for array in arrays]
    _nrt_python.memsys_enable_stats()
    try:
        use(values, several)
        start = rtsys.get_allocation_stats()
        for _ in range(3):
            made, same = use(values, several)
            assert (made[0], same.tolist()) == (6.0, [1.0, 1.0])
            del made, same
        end = rtsys.get_allocation_stats()
    finally:
        _nrt_python.memsys_disable_stats()
    assert end.mi_alloc - start.mi_alloc == end.mi_free - start.mi_free > 0
    assert [sys.getrefcount(array) for array in arrays] == before
