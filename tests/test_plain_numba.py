"""Kernels by numba alone: where its internals are missing, one warning and the same results."""

import ast
import json
import os
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path

import pytest
from numba import config
from numba.core import event
from packaging.requirements import Requirement
from packaging.version import Version

from streamclust import warm
from streamclust._kernels import plain, sources, trial
from streamclust._kernels.compile import HAS_INTERNALS

ROOT = Path(__file__).parent.parent

HIDDEN_ATTRIBUTES = [
    "numba.core.codegen:CPUCodeLibrary._linking_libraries",
    "numba.core.codegen:CPUCodeLibrary.get_defined_functions",
    "numba.core.codegen:CPUCodeLibrary.has_dynamic_globals",
    "numba.core.codegen:JITCPUCodegen.magic_tuple",
    "numba.core.compiler:CompileResult._rebuild",
    "numba.core.compiler:CompileResult._reduce",
    "numba.core.compiler:CompileResult.fndesc",
    "numba.core.dispatcher:Dispatcher._cache",
    "numba.core.event:Event.data",
    "numba.core.runtime:rtsys.initialize",
]
"""Attributes that `cache` and `trial` use of objects that numba makes."""


def hidden_imports():
    """Everything that `cache` and `trial` import from numba's internals."""
    for name in ("cache.py", "trial.py"):
        for node in ast.walk(ast.parse((sources.KERNELS / name).read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith(("numba.core", "llvmlite")):
                yield from (f"{node.module} {alias.name}" for alias in node.names)


# Forks a process for each internal that is hidden from the package, though not from numba itself. Numba is loaded
# once, and kernels that it has compiled alone are kept for the next process.
HIDE = '''
import builtins, importlib, json, os, sys, warnings
import numpy as np
import numba
from numba.core import compiler, runtime
numba.njit(lambda x: x + 1.0)(1.0)

def asked_by_package():
    return sys._getframe(2).f_globals["__name__"].startswith("streamclust.")

class Hidden:
    """An attribute that is there for numba alone."""
    def __init__(self, name, found):
        self.name, self.found = name, found
    def __get__(self, instance, owner=None):
        if asked_by_package():
            raise AttributeError(self.name)
        if hasattr(self.found, "__get__"):
            return self.found.__get__(instance, owner)
        return vars(instance)[self.name]
    def __set__(self, instance, value):
        if asked_by_package():
            raise AttributeError(self.name)
        if hasattr(self.found, "__set__"):
            self.found.__set__(instance, value)
        else:
            vars(instance)[self.name] = value

def hide(internal):
    if ":" in internal:
        module, path = internal.split(":")
        owner, name = path.split(".")
        owner = getattr(importlib.import_module(module), owner)
        owner = owner if isinstance(owner, type) else type(owner)
        found = next((vars(base)[name] for base in owner.__mro__ if name in vars(base)), None)
        setattr(owner, name, Hidden(name, found))
    else:
        module, name = internal.split()
        original = builtins.__import__
        def without(asked, variables=None, local=None, names=(), level=0):
            inside = str((variables or {}).get("__name__")).startswith("streamclust.")
            if inside and asked == module and name in (names or ()):
                raise ImportError(f"cannot import name {name!r} from {module!r}")
            return original(asked, variables, local, names, level)
        builtins.__import__ = without

def use():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from streamclust._kernels.check import all_within
        from streamclust._kernels.compile import HAS_INTERNALS
        from streamclust._kernels.moments import group_rows
        good = all_within(np.ones(3), 1.0) and not all_within(np.ones(3), 0.5)
        groups = group_rows(np.ones(4), np.arange(12.0).reshape(4, 3), np.empty((4, 0)), np.array([0, 1, 0, 1]), 2, 9)
    results = [bool(good), *(each.tolist() for each in groups)]
    return [HAS_INTERNALS, [str(warning.message) for warning in caught], results]

for internal in json.loads(sys.argv[1]):
    read, write = os.pipe()
    if os.fork() == 0:
        if internal:
            hide(internal)
        os.write(write, json.dumps(use()).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        print(pipe.read() or "null")
    os.wait()
'''


@pytest.mark.compiled
@pytest.mark.own_cache
def test_without_an_internal_kernels_work_after_one_warning(tmp_path):
    internals = [
        *HIDDEN_ATTRIBUTES,
        *dict.fromkeys(hidden_imports()),
        "",
    ]  # whoever passes leaves a file that says so
    assert "numba.core.caching _Cache" in internals
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    done = subprocess.run(
        [sys.executable, "-c", HIDE, json.dumps(internals)], capture_output=True, text=True, check=True,
        env=environment | {"NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_OPT": "1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    *others, complete = map(json.loads, done.stdout.splitlines())
    assert complete[:2] == [True, []], done.stderr
    assert len(others) == len(internals) - 1
    for internal, found in zip(internals[:-1], others, strict=True):
        assert found is not None, (internal, done.stderr)
        has_internals, warned, results = found
        assert (has_internals, len(warned)) == (False, 1), (internal, warned)
        assert results == complete[2], internal
        assert "streamclust, or pip install 'numba" in warned[0]


def test_numba_is_tried_once_unless_the_package_brings_the_result(tmp_path, monkeypatch):
    runs = []
    monkeypatch.setattr(trial, "run", lambda: runs.append("run"))
    monkeypatch.setattr(event, "register", lambda kind, listener: None)
    trial.use_internals(tmp_path, None)
    assert [path.name for path in tmp_path.iterdir()] == [trial.file_name()]
    assert runs == ["run"]
    trial.use_internals(tmp_path, None)
    trial.use_internals(None, tmp_path)
    assert runs == ["run"]
    monkeypatch.setattr(trial, "BUILD", (*trial.BUILD, "other"))
    trial.use_internals(tmp_path, None)
    assert runs == ["run", "run"]


def halved(x):
    """A kernel of these tests."""
    return x / 2


def cache_hits(compiled):
    """How often a call of the kernel, which has just been made, finds it on disk."""
    assert compiled(3.0) == 1.5
    return sum(compiled.stats.cache_hits.values())


@pytest.mark.compiled
def test_numba_keeps_kernels_for_the_same_sources_alone(tmp_path, monkeypatch):
    before = config.CACHE_DIR
    assert cache_hits(plain.keep_by_numba(halved, {}, tmp_path)) == 0
    assert cache_hits(plain.keep_by_numba(halved, {}, tmp_path)) == 1
    monkeypatch.setattr(plain, "source_stamp", lambda path: b"an imported file has changed")
    assert cache_hits(plain.keep_by_numba(halved, {}, tmp_path)) == 0
    assert len(list(tmp_path.glob("plain/*/*/*.nbc"))) == 2
    assert before == config.CACHE_DIR


@pytest.mark.compiled
def test_nothing_is_kept_where_numba_would_choose_the_place(tmp_path, monkeypatch):
    """There it would not see a change of an imported file."""
    assert plain.keep_by_numba(halved, {}, None).stats.cache_path is None
    monkeypatch.setattr(plain, "cache_directory", lambda place: nullcontext())
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "other"))
    assert plain.keep_by_numba(halved, {}, tmp_path).stats.cache_path is None


@pytest.mark.compiled
def test_progress_is_shown(monkeypatch):
    shown = []
    monkeypatch.setattr(plain.LINE, "show", lambda name: shown.append(f"{name} starts"))
    monkeypatch.setattr(plain.LINE, "clear", lambda name: shown.append(f"{name} ends"))
    watcher = plain.show_progress()
    try:
        assert plain.keep_by_numba(halved, {}, None)(3.0) == 1.5
    finally:
        event.unregister("numba:compile", watcher)
    told = list(dict.fromkeys(shown))  # twice, where all kernels are compiled so
    assert told == [f"{__name__}.halved starts", f"{__name__}.halved ends"]


def test_kernels_that_numba_compiles_alone_are_not_shipped(tmp_path, monkeypatch):
    monkeypatch.setattr(warm, "HAS_INTERNALS", False)
    with pytest.raises(RuntimeError, match=f"unset {plain.VARIABLE}, or install 'numba"):
        warm.ship(tmp_path)


# -------------------------------------------------------------------- versions of numba


def bounds():
    """The bounds on numba: operator and version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (numba,) = (one for one in map(Requirement, project["dependencies"]) if one.name == "numba")
    return {bound.operator: Version(bound.version) for bound in numba.specifier}


def test_the_oldest_and_the_newest_numba_of_the_bounds_are_tested():
    """If this fails after a release of numba, raise the bound and run all tests, or install what it allows."""
    installed = Version(version("numba"))
    if os.environ.get("NOX_CURRENT_SESSION") == "oldest":
        assert installed == bounds()[">="]
    else:
        newest = bounds()["<"]
        assert (installed.major, installed.minor + 1) == (newest.major, newest.minor)


def test_a_numba_within_the_bounds_has_the_internals():
    assert (not plain.is_wanted() and not config.DISABLE_JIT) == HAS_INTERNALS
