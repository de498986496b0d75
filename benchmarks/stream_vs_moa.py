"""Our clusterer against MOA's CluStream, ClusTree and StreamKM++ on the same rows, in one run: rate, ARI, NMI, K.

MOA's learn event by event in Java, are told K, and are timed inside Java, without the start of the machine. Ours
learns batches of 10,000 and finds K. Needs a Java development kit and Maven, which fetches MOA into the user's cache.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from streamclust import StreamClusterer
from streamclust_connectors.synthetic import SyntheticMixture

HERE = Path(__file__).parent / "moa"
CHUNK = 10_000


def jars() -> Path:
    """MOA's jars, fetched once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "streamclust" / "moa"
    if not (cache / "complete").exists():
        print("fetching MOA by Maven", flush=True)
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
        subprocess.run(
            [
                "mvn",
                "--quiet",
                "--batch-mode",
                "--file",
                HERE / "pom.xml",
                goal,
                f"-DoutputDirectory={cache}",
            ],
            check=True,
        )
        (cache / "complete").touch()
    return cache


def moa(name: str, rows: np.ndarray, k: int, folder: Path) -> tuple[float, float, np.ndarray, int]:
    labels = folder / "labels"
    rows.tofile(folder / "rows")
    command = ["java", "-Xmx2g", "-cp", f"{jars()}/*", HERE / "Peer.java", name, folder / "rows"]
    done = subprocess.run(
        [*command, str(rows.shape[1]), str(k), labels], check=True, capture_output=True, text=True
    )
    learning, labelling, clusters = done.stdout.split()[-3:]
    return float(learning), float(labelling), np.fromfile(labels, dtype=">i4"), int(clusters)


def ours(rows: np.ndarray) -> tuple[float, float, np.ndarray, int]:
    model = StreamClusterer()
    start = perf_counter()
    for first in range(0, len(rows), CHUNK):
        model.learn_many(rows[first : first + CHUNK])
    model.settle()
    learnt = perf_counter()
    found = model.predict_many(rows)
    return learnt - start, perf_counter() - learnt, found, model.n_clusters


def compare(d: int, n: int, repeats: int, folder: Path) -> None:
    rows, labels = SyntheticMixture(d, 10, 2.0, seed=3).sample(n)
    ours(rows[: 2 * CHUNK])  # compiled
    contenders = {"streamclust": lambda: ours(rows)} | {
        f"MOA {name}, told 10": lambda name=name: moa(name, rows, 10, folder)
        for name in ("CluStream", "ClusTree", "StreamKM")
    }
    print(f"\n{n:,} rows, D = {d}, K = 10, medians of {repeats}")
    print(f"  {'':<24} {'learns /s':>12} {'predicts /s':>12} {'ARI':>6} {'NMI':>6} {'K':>4}")
    rates = {name: [] for name in contenders}
    for repeat in range(repeats):
        for name, run in contenders.items():
            learning, labelling, found, clusters = run()
            rates[name].append((n / learning, n / labelling))
            if repeat == repeats - 1:
                learns, predicts = np.median(rates[name], axis=0)
                scores = adjusted_rand_score(labels, found), normalized_mutual_info_score(labels, found)
                print(
                    f"  {name:<24} {learns:>12,.0f} {predicts:>12,.0f} {scores[0]:6.3f} {scores[1]:6.3f} {clusters:4d}",
                    flush=True,
                )
    mine = np.array(rates.pop("streamclust"))[:, 0]
    for name, theirs in rates.items():
        ratios = mine / np.array(theirs)[:, 0]
        print(
            f"  learning, ours / {name}: {np.median(ratios):.1f} ({ratios.min():.1f} to {ratios.max():.1f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=500_000, help="rows of each mixture (default: 500,000)")
    parser.add_argument("--repeats", type=int, default=3, help="rounds (default: 3)")
    parser.add_argument("--quick", action="store_true", help="50,000 rows, one round, D = 2")
    given = parser.parse_args()
    if missing := [tool for tool in ("javac", "mvn") if shutil.which(tool) is None]:
        sys.exit(f"needs a Java development kit and Maven; not found: {', '.join(missing)}")
    jars()
    with tempfile.TemporaryDirectory() as folder:
        for d in (2,) if given.quick else (2, 8, 16):
            rows, repeats = (50_000, 1) if given.quick else (given.rows, given.repeats)
            compare(d, rows, repeats, Path(folder))


if __name__ == "__main__":
    main()
