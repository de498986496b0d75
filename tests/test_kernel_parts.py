"""Parts of kernels have no wrapper for Python: called from there, they would end the process."""

import ast
from pathlib import Path

import pytest
from numba import njit

from streamclust._kernels.compile import part

ROOT = Path(__file__).parent.parent / "streamclust"
KERNELS = ROOT / "_kernels"
PARTS = {"part", "part_with_free_sums", "shared_part", "fused_part"}


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


def test_a_part_is_called_by_kernels_and_by_other_parts():
    whole = njit(lambda x: 1.0 + quartered(x))
    assert whole(6.0) == 2.5
    with pytest.raises(ValueError, match="negative"):
        whole(-6.0)
