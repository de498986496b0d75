"""Connectors, examples, benchmarks and tests use the public surface of the library."""

import ast
import importlib
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PUBLIC = (
    "batch",
    "checkpoint",
    "hierarchy",
    "lineage",
    "parameters",
    "plots",
    "schema",
    "sketch",
    "streaming",
    "summaries",
    "warm",
)
PRIVATE = {"_engine", "_pipeline"}
"""Parts of a clusterer that only its own modules may touch."""
OUTSIDE = ("connectors", "examples", "benchmarks", "tests")


def sources(folder):
    return [(path, ast.parse(path.read_text())) for path in sorted((ROOT / folder).rglob("*.py"))]


def reached(tree):
    """Names after a dot, and names given to getattr and the like as text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr, node.lineno
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "setattr", "vars"):
            yield from ((a.value, a.lineno) for a in node.args if isinstance(a, ast.Constant))


@pytest.mark.parametrize("folder", OUTSIDE)
def test_nobody_reaches_into_a_clusterer(folder):
    found = sources(folder)
    assert found
    over = [f"{path}:{line}" for path, tree in found for name, line in reached(tree) if name in PRIVATE]
    assert over == []


def test_the_walk_finds_what_it_looks_for():
    tree = ast.parse('model._engine.shards\ngetattr(model, "_pipeline")\nmodel.tree')
    assert {name for name, _ in reached(tree)} >= PRIVATE


def imported(tree):
    """Modules of the library that a file imports from."""
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        yield from (name for name in names if name.split(".")[0] == "streamclust")


def test_connectors_import_public_modules_alone():
    allowed = {"streamclust", *(f"streamclust.{name}" for name in PUBLIC)}
    found = {module for _, tree in sources("connectors") for module in imported(tree)}
    assert "streamclust.streaming" in found
    assert found <= allowed


def test_the_contract_forbids_all_that_is_not_public():
    top = {
        path.stem
        for path in (ROOT / "streamclust").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    contract = next(c for c in contracts() if c["name"].startswith("Connectors use"))
    forbidden = {name.removeprefix("streamclust.") for name in contract["forbidden_modules"]}
    assert top - {"__init__"} - set(PUBLIC) == forbidden - {"*.*"}


def contracts():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


@pytest.mark.parametrize("name", PUBLIC)
def test_public_modules_say_what_they_offer(name):
    module = importlib.import_module(f"streamclust.{name}")
    offered = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    assert all(hasattr(module, each) for each in offered)
