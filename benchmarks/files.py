"""A large CSV file through `streamclust fit`: rows a second of CPU time, and peak memory beside that of a small one."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from streamclust_connectors.synthetic import SyntheticMixture


def write(path: Path, n_rows: int, n_features: int) -> None:
    """A table with semicolons, decimal commas and a column of text."""
    rows, _ = SyntheticMixture(n_features, n_clusters=8, seed=1).sample(100_000)
    cells = [";".join(f"{value:.5f}" for value in row).replace(".", ",") for row in np.asarray(rows)]
    with path.open("w") as file:
        file.write(";".join(["city", *(f"x{i}" for i in range(n_features))]) + "\n")
        for i in range(n_rows):
            file.write(f"Oslo;{cells[i % len(cells)]}\n")


def fit(path: Path) -> tuple[float, float]:
    """CPU seconds and peak resident megabytes of `streamclust fit`, in a process of its own."""
    script = (
        "import resource, sys; from streamclust_connectors.cli import app;"
        "app(['fit', sys.argv[1], '-o', sys.argv[1] + '.m'], standalone_mode=False);"
        "u = resource.getrusage(resource.RUSAGE_SELF); print(u.ru_utime + u.ru_stime, u.ru_maxrss, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    seconds, kilobytes = map(float, done.stderr.splitlines()[-1].split())
    return seconds, kilobytes / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000, help="of the large file (default: 2 million)")
    parser.add_argument("--features", type=int, default=8)
    a = parser.parse_args()
    with TemporaryDirectory() as where:
        found = []
        for n in (a.rows // 20, a.rows):
            path = Path(where) / f"{n}.csv"
            write(path, n, a.features)
            seconds, megabytes = fit(path)
            found.append((n, seconds))
            print(
                f"{n:>10,} rows, {path.stat().st_size / 2**20:7.1f} MB: {seconds:6.1f} s of CPU, "
                f"peak {megabytes:.0f} MB",
                flush=True,
            )
            path.unlink()
        (few, short), (many, long) = found
        print(f"{(many - few) / max(1e-9, long - short):,.0f} rows a second of CPU")


if __name__ == "__main__":
    main()
