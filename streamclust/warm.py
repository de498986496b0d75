"""Compile kernels ahead of their first use: `streamclust warm`, or `python -m streamclust.warm`.

Kernels are compiled by using them, in scenes: small runs of the public classes. Scenes run in several processes, which
share the work by themselves: one compiles a kernel, the others wait for it or go on with another. (Where numba compiles
alone, nobody waits for others; one process compiles everything.)

    python -m streamclust.warm                      what a stream with the usual settings needs
    python -m streamclust.warm --all                every family and kind of refit too
    python -m streamclust.warm --portable           for any x86-64-v3 processor, to come with the package
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from streamclust._kernels.compile import HAS_INTERNALS
from streamclust._kernels.directories import SHIPPED
from streamclust._kernels.plain import VARIABLE, tested_numba
from streamclust._kernels.progress import FIRST, LINE
from streamclust._kernels.target import HAS_LEVEL, LEVEL
from streamclust._kernels.types import Floats
from streamclust.parameters import FamilyName

FAMILIES: tuple[FamilyName, ...] = ("diagonal", "spherical", "multinomial", "bernoulli", "poisson")


def events(n: int = 2500) -> Floats:
    """Three clusters in two dimensions: enough events for a full tree to change its shape."""
    import numpy as np

    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 2)) + 9.0 * rng.integers(3, size=(n, 1))


def trees() -> None:
    """Events into trees, and trees into one."""
    from streamclust.tree import SummaryTree

    tree, other = SummaryTree(2, max_leaves=64), SummaryTree(2, max_leaves=64, seed=1)
    tree.insert(events())
    other.insert(events(200))
    tree.merge(other)
    tree.sample()


def refits() -> None:
    """Bayesian k-means on points: all that a refit needs but the tree."""
    from streamclust.batch import BayesianKMeans

    BayesianKMeans().fit(events(400))


def stream() -> None:
    """A stream with the usual settings, what is asked of it, and its hierarchy."""
    from streamclust import StreamClusterer

    model = StreamClusterer()
    for x, y in events(200):
        model.learn_one({"x": x, "y": y})
        model.predict_one({"x": x, "y": y})
    model.learn_many([{"x": x, "y": y} for x, y in events()])
    model.settle()
    model.predict_proba_one({"x": 0.0})
    model.score_one({"x": 0.0, "y": 0.0})
    model.tail_one({"x": 40.0, "y": 0.0})
    model.snapshot()


def forgetting() -> None:
    """A stream that forgets."""
    from streamclust import StreamClusterer

    model = StreamClusterer(half_life=20.0)
    model.learn_many(events(1500))


def missing_values() -> None:
    """Streams of measurements and of counts that lack some values."""
    import numpy as np

    from streamclust import StreamClusterer

    rows = abs(events(300).round())
    rows[5::3, 1] = np.nan
    for name in ("gaussian", "poisson"):
        StreamClusterer(family=name, missing="impute").learn_many(rows)


def families() -> None:
    """Streams of every other family, with their hierarchies."""
    from streamclust import StreamClusterer

    for name in FAMILIES:
        rows = abs(events(600).round())
        model = StreamClusterer(family=name)
        model.learn_many(rows.clip(max=1.0) if name == "bernoulli" else rows)
        model.snapshot()


def other_refits() -> None:
    """The other kinds of refits, and features."""
    from streamclust import StreamClusterer, StreamFeatures

    for kind in ("chunky-em", "dp-means"):
        StreamClusterer(refit=kind).learn_many(events(600))
    StreamFeatures(warmup=64).learn_many(events(200))


USUAL: tuple[Callable[[], None], ...] = (trees, refits, stream)
"""Kernels of the demo and most streams; `stream` comes last, to find most of its kernels compiled."""
OTHERS: tuple[Callable[[], None], ...] = (families, other_refits, forgetting, missing_values)


def play(names: Sequence[str]) -> None:
    """Run scenes, in this process."""
    known = {scene.__name__: scene for scene in (*USUAL, *OTHERS)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the scenes' data, which nobody looks at
        for name in names:
            known[name]()


def processes(scenes: Sequence[str], workers: int) -> list[list[str]]:
    """Scenes for each process: all of them for each, in turn from another one, so that whoever is done helps.

    >>> processes(["trees", "refits", "stream"], 2)
    [['trees', 'refits', 'stream'], ['refits', 'stream', 'trees']]
    """
    return [[*scenes[k:], *scenes[:k]] for k in range(min(workers, len(scenes)))]


def warm(
    everything: bool = False, workers: int | None = None, cache: Path | None = None, portable: bool = False
) -> None:
    """Compile the kernels of all scenes, in several processes; raises what the first of them that fails says."""
    scenes = [scene.__name__ for scene in (*USUAL, *(OTHERS if everything else ()))]
    environment = os.environ | {"TERM": "dumb"}  # of several processes, none shows its progress
    if not HAS_INTERNALS:
        environment[VARIABLE] = "1"  # one warning is enough
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = str(cache)
    if portable:
        environment |= {"NUMBA_CPU_NAME": LEVEL, "NUMBA_CPU_FEATURES": ""}
    command = [sys.executable, "-m", "streamclust.warm", "--scenes"]
    running = [
        subprocess.Popen([*command, *own], env=environment)
        for own in processes(scenes, (workers or os.cpu_count() or 1) if HAS_INTERNALS else 1)
    ]
    failed = [process.returncode for process in running if process.wait() != 0]
    if failed:
        raise RuntimeError(f"a process that compiles kernels ended with exit code {failed[0]}")


def ship(into: Path = SHIPPED, everything: bool = True, workers: int | None = None) -> int:
    """Compile kernels to come with the package; returns how many files.

    They are for any processor of LEVEL; on one that is none, which cannot try them, for its own kind.
    """
    if not HAS_INTERNALS:
        raise RuntimeError(
            "kernels that numba compiles alone are of no use on other machines: "
            f"unset {VARIABLE}, or install '{tested_numba()}'"
        )
    with tempfile.TemporaryDirectory() as built:
        warm(everything, workers, Path(built), portable=HAS_LEVEL)
        into.mkdir(parents=True, exist_ok=True)
        files = list(Path(built).glob("*/*.nbc"))
        for path in files:
            shutil.copyfile(path, into / path.name)
    return len(files)


def compiled() -> tuple[int, int]:
    """Number of kernels that this process has compiled or loaded, of those of a usual stream, and the number of these.

    >>> done, total = compiled()
    >>> 0 <= done <= total
    True
    """
    return len(LINE.ready & FIRST), len(FIRST)


def main() -> None:
    """Run this module as a command, where the `streamclust` command's own packages are not installed yet."""
    parser = argparse.ArgumentParser(prog="python -m streamclust.warm", description="Compile kernels ahead.")
    parser.add_argument("--all", action="store_true", help="every family and kind of refit")
    parser.add_argument(
        "--portable", action="store_true", help=f"for any {LEVEL} processor, into the package"
    )
    parser.add_argument("--into", type=Path, default=SHIPPED, help="where portable kernels go")
    parser.add_argument("--scenes", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.scenes:
        play(given.scenes)
    elif given.portable:
        print(f"{ship(given.into)} compiled kernels in {given.into}")
    else:
        warm(given.all)


if __name__ == "__main__":
    main()
