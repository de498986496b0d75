"""Compiled kernels on disk: found again, compiled once by many processes, never taken for what they are not."""

import ast
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numba import njit
from numba.core import event
from numba.core.errors import TypingError

import streamclust
from streamclust._kernels import cache, directories, locking, progress, sources, target

pytestmark = [pytest.mark.compiled, pytest.mark.own_cache]
PACKAGE = Path(streamclust.__file__).parent

LISTEN = """
import sys
import numpy as np
from numba.core import event
from streamclust._kernels.check import all_within
from streamclust._kernels.moments import group_rows
from streamclust._kernels.cache import KernelCache
class Names(event.Listener):
    def on_start(self, event):
        if isinstance(event.data["dispatcher"]._cache, KernelCache):
            print("compiled", event.data["dispatcher"].py_func.__name__)
    def on_end(self, event): pass
event.register("numba:compile", Names())
"""
COUNT = LISTEN + "assert all_within(np.ones(3), 1.0) and not all_within(np.ones(3), 0.5)"


SUMS = """
import numpy as np
from streamclust._kernels.sketch import project_rows
rng = np.random.default_rng(0)
x, to = rng.normal(size=(20, 90)), rng.normal(size=(3, 90))
z, squares = np.empty((20, 3)), np.empty(20)
project_rows(x, np.zeros(90), np.ones(90), to, False, 1.0, z, squares)
print(sum(project_rows.stats.cache_hits.values()), z.tobytes().hex(), squares.tobytes().hex())
"""


def double(x):
    """A kernel of these tests."""
    return 2 * x


def kept(directory, shipped=None):
    """The kernel as a process that has just started has it."""
    compiled = njit(double)
    cache.use_cache(compiled, directory, shipped)
    return compiled


def compiles(function, *arguments):
    """Whether a call compiles the function."""
    with event.install_recorder("numba:compile") as recorder:
        assert function(*arguments) == 2 * arguments[0]
    return any(e.data["dispatcher"] is function for _, e in recorder.buffer)


# -------------------------------------------------------------------- numba's own parts


def test_numba_calls_the_cache_as_it_always_did(tmp_path):
    """If this fails, numba has changed what `_kernels/cache.py` relies on."""
    first, second = kept(tmp_path), kept(tmp_path)
    assert compiles(first, 3)
    assert [path.name.split("-")[0] for path in tmp_path.glob("*.nbc")] == [f"{__name__}.double"]
    assert not compiles(second, 3)
    assert sum(second.stats.cache_hits.values()) == 1
    assert compiles(second, 3.0)
    assert len(list(tmp_path.glob("*.nbc"))) == 2


def test_sums_in_any_order_have_the_same_bits_where_they_were_compiled_and_from_disk(tmp_path):
    """A part that is compiled by itself, too, may sum in another order than its copy in a kernel."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(PACKAGE.parent)}
    told = [
        subprocess.run(
            [sys.executable, "-c", SUMS], env=environment, capture_output=True, text=True, check=True
        )
        for _ in range(2)
    ]
    (fresh, *compiled), (hits, *loaded) = (one.stdout.split() for one in told)
    assert (fresh, hits) == ("0", "1")
    assert compiled == loaded


def test_a_kernel_from_disk_is_called_by_others(tmp_path):
    kept(tmp_path)(3)
    loaded = kept(tmp_path)
    assert not compiles(loaded, 3)
    (library,) = (found.library for found in loaded.overloads.values())
    assert library._shared_module is None  # LLVM holds many times as much as is on disk

    @njit
    def four_times(x):
        return loaded(loaded(x))

    assert four_times(3) == 12


def test_a_processor_is_named_by_its_kind_and_its_features():
    kind = njit(double).targetctx.codegen().magic_tuple()
    assert len(kind) == 3
    assert all(isinstance(word, str) for word in kind)


GROUPS = (
    LISTEN
    + """
rows = np.arange(12.0).reshape(4, 3)
labels = np.array([0, 1, 0, 1])
weight, mean, scatter = group_rows(np.ones(4), rows, np.empty((4, 0)), labels, 2, 9)
assert weight.tolist() == [2.0, 2.0] and mean.tolist() == [[3.0, 4.0, 5.0], [6.0, 7.0, 8.0]]
assert (scatter == 18.0).all()
"""
)


def test_a_kernel_is_loaded_with_those_that_it_calls(tmp_path):
    """If this fails, numba or LLVM no longer links code by its name."""
    process = partial(run, PACKAGE.parent, tmp_path, GROUPS, NUMBA_CACHE_DIR=str(tmp_path))
    first = output(process())[0]
    assert sorted(first.splitlines()) == ["compiled add_outer", "compiled group_rows"]
    assert output(process())[0] == ""
    (path,) = tmp_path.glob("*/moments.add_outer-*.nbc")
    path.unlink()  # compiled again its code has another name, which the caller's does not know
    assert sorted(output(process())[0].splitlines()) == ["compiled add_outer", "compiled group_rows"]
    assert output(process())[0] == ""


def test_code_that_refers_to_other_names_is_not_used(tmp_path):
    double_of = kept(tmp_path)
    double_of(3)
    (kernel,) = (found.library.kernel for found in double_of.overloads.values())
    place = type(sys)("place_of_double")
    place.double = double_of
    sys.modules[place.__name__] = place
    try:
        there = kernel._replace(module=place.__name__)
        assert cache.is_there(there)
        assert not cache.is_there(there._replace(code="another"))
    finally:
        del sys.modules[place.__name__]


# -------------------------------------------------------------------- what is compiled code of what


STAMPS = """
from streamclust._kernels.sources import KERNELS, source_stamp
print(*(source_stamp(KERNELS / name).hex() for name in ("check.py", "refit/iterations.py", "refit/merge_path.py")))
"""


def test_a_change_is_seen_by_the_kernels_that_contain_it_alone(tmp_path):
    kernels = tmp_path / "streamclust" / "_kernels"
    shutil.copytree(sources.KERNELS, kernels, ignore=shutil.ignore_patterns("__pycache__", "compiled"))
    (kernels.parent / "__init__.py").touch()
    before = output(run(tmp_path, tmp_path, STAMPS))[0].split()
    for name, expected in {
        "refit/merge_path.py": [False, False, True],
        "blocks.py": [False, True, True],
        "hierarchy/costs.py": [False, False, False],
        "compile.py": [True, True, True],
    }.items():
        with (kernels / name).open("a") as file:
            file.write("\n")
        after = output(run(tmp_path, tmp_path, STAMPS))[0].split()
        assert [a != b for a, b in zip(after, before, strict=True)] == expected, name
        before = after


def test_kernel_files_import_each_other_in_the_way_that_is_looked_for():
    for path in sources.KERNELS.rglob("*.py"):
        imported = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (
                node.level or str(node.module).startswith("streamclust")
            ):
                assert node.level == 0, path
                imported.add(node.module)
            elif isinstance(node, ast.Import):
                assert not any(name.name.startswith("streamclust") for name in node.names), path
        names = {
            f"streamclust._kernels.{name.decode()}" for name in sources.IMPORT.findall(path.read_bytes())
        }
        assert names == imported
        assert all(file.is_file() for file in sources.read_source(path)[1])


def test_code_of_other_sources_is_not_used_and_gives_way(tmp_path, monkeypatch):
    assert compiles(kept(tmp_path), 3)
    monkeypatch.setattr(cache, "source_stamp", lambda path: bytes(32))
    assert compiles(kept(tmp_path), 3)
    assert not compiles(kept(tmp_path), 3)
    assert len(list(tmp_path.glob("*.nbc"))) == 1


def test_code_of_another_numba_is_not_used(tmp_path, monkeypatch):
    assert compiles(kept(tmp_path), 3)
    monkeypatch.setattr(cache, "BUILD", (*cache.BUILD, "other"))
    assert compiles(kept(tmp_path), 3)


def test_a_damaged_file_is_no_reason_to_fail(tmp_path):
    assert compiles(kept(tmp_path), 3)
    (path,) = tmp_path.glob("*.nbc")
    path.write_bytes(path.read_bytes()[:20])
    assert compiles(kept(tmp_path), 3)
    path.write_bytes(path.read_bytes()[:2000])
    assert compiles(kept(tmp_path), 3)
    assert not compiles(kept(tmp_path), 3)


# -------------------------------------------------------------------- kernels that come compiled


def run(place, temporary, code=COUNT, **environment):
    """Run code with the package at `place`, without a directory to keep kernels in but an empty temporary one."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "XDG_", "COV_"))}
    variables |= {
        "PYTHONPATH": str(place),
        "XDG_CACHE_HOME": "/dev/null",
        "TMPDIR": str(temporary),
    } | environment
    return subprocess.Popen(
        [sys.executable, "-c", code], env=variables, cwd="/", text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def output(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out, err


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """A package with one kernel compiled for the level, in directories that cannot be made."""
    if not target.host_has_level():
        pytest.skip(f"this processor is no {target.LEVEL}")
    place = tmp_path_factory.mktemp("site")
    kernels = place / "streamclust" / "_kernels"
    ignored = shutil.ignore_patterns("__pycache__", "compiled")
    shutil.copytree(sources.KERNELS, kernels, ignore=ignored)
    (kernels.parent / "__init__.py").touch()
    (kernels / "__pycache__").touch()  # a file: nothing can be kept there, not even by root
    out, _ = output(
        run(
            place,
            place,
            NUMBA_CPU_NAME=target.LEVEL,
            NUMBA_CPU_FEATURES="",
            NUMBA_CACHE_DIR=str(place / "built"),
        )
    )
    assert out == "compiled all_within\n"
    (kernels / "compiled").mkdir()
    for path in (place / "built").rglob("*.nbc"):
        path.rename(kernels / "compiled" / path.name)
    return place


def test_kernels_that_came_with_the_package_are_used(shipped, tmp_path):
    out, err = output(run(shipped, tmp_path))
    assert (out, err) == ("", "")


def test_on_a_processor_below_the_level_they_are_not(shipped, tmp_path):
    poor = "import llvmlite.binding as b; b.get_host_cpu_features = lambda: b.targets.FeatureMap(sse2=True)\n"
    out, err = output(run(shipped, tmp_path, poor + COUNT))
    assert (out, err) == ("compiled all_within\n", "")


def test_nor_where_the_user_asks_for_another_processor(shipped, tmp_path):
    out, _ = output(run(shipped, tmp_path, NUMBA_CPU_NAME="x86-64-v2"))
    assert out == "compiled all_within\n"


def test_nor_after_a_change_of_their_sources(shipped, tmp_path):
    changed = shutil.copytree(shipped, tmp_path / "site")
    with (changed / "streamclust" / "_kernels" / "check.py").open("a") as file:
        file.write("\n")
    out, _ = output(run(changed, tmp_path))
    assert out == "compiled all_within\n"


def test_one_process_compiles_and_the_others_wait_for_it(tmp_path):
    processes = [run(PACKAGE.parent, tmp_path, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(3)]
    outputs = [output(process) for process in processes]
    assert sorted(outputs) == [("", ""), ("", ""), ("compiled all_within\n", "")]


# -------------------------------------------------------------------- locks

HOLD = """
import sys
from pathlib import Path
from streamclust._kernels.locking import Lock
assert Lock(Path(sys.argv[1]), "one").acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds a lock until it ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_waiting_for_a_lock_ends(tmp_path, holder, monkeypatch):
    monkeypatch.setattr(locking, "MAX_WAIT_SECONDS", 0.1)
    monkeypatch.setattr(locking, "PATIENCE", locking.Patience())
    assert not locking.Lock(tmp_path, "one").acquire()
    assert locking.Lock(tmp_path, "two").acquire()


def test_a_process_waits_for_a_stopped_one_only_once(tmp_path, monkeypatch):
    """All kernels that the other holds together, not each of them, are waited for."""
    monkeypatch.setattr(locking, "MAX_WAIT_SECONDS", 0.5)
    monkeypatch.setattr(locking, "PATIENCE", locking.Patience())
    hold_many = HOLD.replace(
        'assert Lock(Path(sys.argv[1]), "one").acquire()',
        "assert all(Lock(Path(sys.argv[1]), str(i)).acquire() for i in range(50))",
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold_many, str(tmp_path)], env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "held\n"
        process.send_signal(signal.SIGSTOP)
        slept = []
        monkeypatch.setattr(
            locking.time, "sleep", lambda seconds, sleep=time.sleep: slept.append(sleep(seconds))
        )
        assert not any(locking.Lock(tmp_path, str(i)).acquire() for i in range(50))
        assert 1 <= len(slept) <= 0.5 / locking.POLL_SECONDS + 1
        assert locking.Lock(tmp_path, "free").acquire()
        process.kill()


def test_a_killed_process_leaves_no_lock_behind(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    assert locking.Lock(tmp_path, "one").acquire()


def test_a_kernel_that_does_not_compile_leaves_no_lock_behind(tmp_path):
    function = kept(tmp_path)
    with pytest.raises(TypingError):
        function(None)
    name = f"{__name__}.double"
    take = HOLD.replace('"one"', repr(name)).replace("sys.stdin.read()", "")
    done = subprocess.run(
        [sys.executable, "-c", take, str(tmp_path)], capture_output=True, text=True, check=False, timeout=100,
        env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)},
    )  # fmt: skip
    assert done.stdout == "held\n"


def test_a_directory_without_locks_stops_nobody(tmp_path):
    lock = locking.Lock(tmp_path / "missing", "one")
    assert not lock.acquire()
    lock.release()


# -------------------------------------------------------------------- what a user sees


def test_a_terminal_shows_one_line_and_erases_it(tmp_path):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", COUNT], stdout=subprocess.PIPE, stderr=theirs,
        env=os.environ | {"PYTHONPATH": str(PACKAGE.parent), "NUMBA_CACHE_DIR": str(tmp_path), "TERM": "xterm"},
    )  # fmt: skip
    with process:
        assert process.wait(timeout=300) == 0
    os.close(theirs)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    *trial, last, end = shown.split("\r\x1b[K")
    assert (last, end) == (f"compiling for this machine, once: 1 of {len(progress.FIRST)}", "")
    assert set(filter(None, trial)) == {"compiling for this machine, once: trial.sevens"}


def test_a_notebook_shows_a_bar(monkeypatch):
    shown = []

    class Html(str):
        pass

    class Handle:
        def update(self, bar):
            shown.append(bar)

    def display(bar, display_id):
        shown.append(bar)
        return Handle()

    fake = type(sys)("IPython.display")
    fake.HTML, fake.display = Html, display
    for name, module in {"IPython": fake, "IPython.display": fake, "ipykernel": fake}.items():
        monkeypatch.setitem(sys.modules, name, module)
    line = progress.Line()
    for name in ("check.all_within", "tree.learn.sum_nodes", "hierarchy.tree.cut_tree"):
        line.show(name)
        line.clear(name)
    assert [bar.split("once: ")[1] for bar in shown] == [
        f"1 of {len(progress.FIRST)}",
        f"2 of {len(progress.FIRST)}",
        "hierarchy.tree.cut_tree",
    ]


def test_the_count_is_that_of_a_usual_stream():
    """A few kernels more or less do no harm to a count; list them in `progress.FIRST` all the same."""
    code = """
import numpy as np
from streamclust import StreamClusterer
from streamclust._kernels.progress import LINE
rng = np.random.default_rng(0)
model = StreamClusterer()
for x, y in rng.normal(size=(600, 2)) + 9.0 * rng.integers(3, size=(600, 1)):
    model.predict_one({"x": x, "y": y})
    model.learn_one({"x": x, "y": y})
model.clusters
print(*LINE.ready)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    needed = set(done.stdout.split())
    assert len(needed ^ progress.FIRST) <= 5, (needed - progress.FIRST, progress.FIRST - needed)


def test_directories_are_tried_in_turn(tmp_path, monkeypatch):
    monkeypatch.setattr(directories.config, "CACHE_DIR", str(tmp_path))
    own, beside, *_ = directories.lasting_directories()
    assert own.parent == tmp_path
    assert beside == sources.KERNELS / "__pycache__"
    assert directories.can_write(own)
    assert not directories.can_write(Path("/dev/null/here"))
    assert np.all([path.is_absolute() for path in directories.lasting_directories()])


FORK = """
import os, signal, threading, time
from numba import njit
from numba.core.compiler_lock import global_compiler_lock
import streamclust.tree
held = threading.Event()
def compiling():
    with global_compiler_lock:
        held.set()
        time.sleep(0.5)
threading.Thread(target=compiling).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(30)
    njit(lambda x: x + 1)(1)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_forked_while_another_thread_compiles_can_compile():
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=120)
