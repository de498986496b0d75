"""Write the pages of all tables and figures: `python -m benchmarks.papers [--quick] [--data DIR]`.

Every script runs in a process of its own; what follows is handed on to it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import perf_counter

HERE = Path(__file__).parent
SCRIPTS = sorted(
    path.stem for path in HERE.glob("*.py") if path.stem not in ("__init__", "__main__", "page", "pictures")
)


def main() -> None:
    for name in SCRIPTS:
        start = perf_counter()
        subprocess.run([sys.executable, "-m", f"benchmarks.papers.{name}", *sys.argv[1:]], check=True)
        print(f"{name}: {perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
