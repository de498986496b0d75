"""A million events into a summary tree, and the clusters in it: how fast, how exact, and what it looks like.

What one sees: the leaves of the tree, each an ellipse, darker the more events it stands for, over a sample of
the events; and the clusters that were found from the leaves alone, with the number that was planted.

Run it: python examples/tree_of_a_million.py [--events N] [--leaves N] [--quick] [--output DIR]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from streamclust.moments import Moments
from streamclust.plots import plot_clusters
from streamclust.refit import refit_bkm
from streamclust.tree import SummaryTree
from streamclust_connectors.synthetic import SyntheticMixture

BATCH = 4096


def main() -> None:
    """Parse the arguments, learn the stream, draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000, help="how many events (default: a million)")
    parser.add_argument(
        "--leaves", type=int, default=512, help="the most leaves the tree may have (default: 512)"
    )
    parser.add_argument("--quick", action="store_true", help="a short stream")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="where the picture goes")
    arguments = parser.parse_args()
    n = 30_000 if arguments.quick else arguments.events
    console = Console(soft_wrap=True, highlight=False)

    mixture = SyntheticMixture(n_features=2, n_clusters=12, tau=3.0, seed=4)
    tree = SummaryTree(n_features=2, max_leaves=arguments.leaves)
    with console.status("compiling, which takes half a minute the first time"):
        warm = SummaryTree(n_features=2)
        warm.insert(mixture.sample(20 * BATCH)[0])
        refit_bkm("gaussian", warm)

    seconds = 0.0
    every = Moments.empty(1, 2)
    shown = []
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("learning", total=n)
        for batch in mixture.batches(n, BATCH):
            start = perf_counter()
            tree.insert(batch)
            seconds += perf_counter() - start
            every += Moments.of_points(batch)
            shown.append(batch[: max(1, 20_000 * len(batch) // n)])
            progress.update(task, advance=len(batch))

    start = perf_counter()
    found = refit_bkm("gaussian", tree)
    refitting = perf_counter() - start
    error = np.abs(tree.total.scatter - every.scatter).max() / np.abs(every.scatter).max()
    points, _ = tree.sample()
    console.print(f"{tree!r}")
    console.print(f"rate     {n / seconds / 1e6:.1f} million events a second, on one core")
    console.print(
        f"exact    the scatter of everything differs by {error:.0e} of itself from that of the events"
    )
    console.print(f"sample   {len(points):,} real events kept, {tree.n_leaves} leaves")

    console.print(
        f"clusters {found.n_clusters} found in {refitting:.2f} s from the leaves; {len(mixture.centroids)} were planted"
    )

    arguments.output.mkdir(parents=True, exist_ok=True)
    picture = arguments.output / "tree.png"
    ax = plot_clusters(
        found.clusters, edgecolors="crimson", linewidths=2.0, ax=tree.plot(events=np.concatenate(shown))
    )
    ax.figure.savefig(picture, dpi=150)
    console.print(f"picture  {picture}")


if __name__ == "__main__":
    main()
