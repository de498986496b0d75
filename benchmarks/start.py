"""How long a start takes: import and first event, by CPU time, with nothing compiled, and with kernels from the disk.

    python benchmarks/start.py [--repeats N] [--warm]

Cold starts learn as many events as bring the first refits, since those compile as well; three processes that start
together share the work. Python's bytecode is kept in a directory of its own, as an installation has it.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).parents[1]
FIRST_EVENT = "from streamclust import StreamClusterer; StreamClusterer().learn_one({'x': 1.0, 'y': 2.0})"
FIRST_REFITS = """
import numpy as np
from streamclust import StreamClusterer
rng = np.random.default_rng(0)
model = StreamClusterer()
for x, y in rng.normal(size=(2000, 2)) + 9.0 * rng.integers(3, size=(2000, 1)):
    model.predict_one({"x": x, "y": y})
    model.learn_one({"x": x, "y": y})
"""


def started(code: str, kernels: Path, bytecode: Path, processes: int = 1) -> tuple[float, float]:
    """CPU seconds of all processes together, and seconds until the last has ended."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {
        "NUMBA_CACHE_DIR": str(kernels),
        "PYTHONPYCACHEPREFIX": str(bytecode),
        "PYTHONPATH": str(ROOT),
    }
    before, start = cpu_seconds(), perf_counter()
    running = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(processes)]
    if any(process.wait() for process in running):
        raise RuntimeError("a process has failed")
    return cpu_seconds() - before, perf_counter() - start


def cpu_seconds() -> float:
    """CPU time of the processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--repeats", type=int, default=5, help="warm starts")
    arguments.add_argument("--warm", action="store_true", help="no cold starts but the one that warms")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as place:
        kernels, bytecode = Path(place, "kernels"), Path(place, "bytecode")
        started("import streamclust.streaming", Path(place, "none"), bytecode)
        cold = started(FIRST_EVENT if given.warm else FIRST_REFITS, kernels, bytecode)
        print(f"cold start{'' if given.warm else ', 2,000 events'}: {cold[0]:.1f} s of CPU, {cold[1]:.1f} s")
        warm = [started(FIRST_EVENT, kernels, bytecode) for _ in range(given.repeats)]
        cpu, wall = (sorted(times) for times in zip(*warm, strict=True))
        print(
            f"warm start, first event: {cpu[len(cpu) // 2]:.2f} s of CPU ({cpu[0]:.2f} to {cpu[-1]:.2f}), "
            f"{wall[len(wall) // 2]:.2f} s"
        )
        if not given.warm:
            three = started(FIRST_REFITS, Path(place, "three"), bytecode, processes=3)
            print(f"three cold starts at once, 2,000 events each: {three[0]:.1f} s of CPU, {three[1]:.1f} s")


if __name__ == "__main__":
    main()
