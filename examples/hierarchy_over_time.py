"""Hierarchy over time: the tree of clusters, taken again and again while the stream drifts.

A snapshot is the whole hierarchy of everything learnt, from the summary's leaves up; cut at the published
clusters it gives just these, with their ids. It costs the number of leaves, whatever the stream's length.
What one sees: the trees at four moments, where a cluster keeps its colour and its id while others appear,
split and vanish around it; which clusters are kin of which; and the river of all of them below. Each snapshot
is also written as JSON, to be read by `Dendrogram.from_dict`.

Run it: python examples/hierarchy_over_time.py [--events N] [--snapshots N] [--quick] [--output DIR]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from time import perf_counter

import numpy as np
from matplotlib import pyplot

from streamclust import StreamClusterer
from streamclust.hierarchy import Dendrogram
from streamclust_connectors.synthetic import Drift


def main() -> None:
    """Parse the arguments, follow the stream, write the snapshots, draw them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=200_000, help="how many events (default: 200,000)")
    parser.add_argument("--snapshots", type=int, default=4, help="how many snapshots (default: 4)")
    parser.add_argument("--quick", action="store_true", help="a short stream")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="where everything goes")
    arguments = parser.parse_args()
    n = 40_000 if arguments.quick else arguments.events
    arguments.output.mkdir(parents=True, exist_ok=True)

    model = StreamClusterer(half_life=n / 12, refit_every=n // 20)
    stream = Drift(n_features=3, n_clusters=6, n_events=n, distance=5.0, seed=3)
    taken: list[tuple[int, Dendrogram]] = []
    for events, _ in stream.batches(n // arguments.snapshots):
        model.learn_many(events)
        start = perf_counter()
        tree = model.snapshot()
        seconds = perf_counter() - start
        taken.append((model.n_seen, tree))
        path = arguments.output / f"hierarchy_{model.n_seen}.json"
        path.write_text(json.dumps(stored(tree)))
        ids = tree.ids[tree.cut_nodes(k=model.n_clusters)]
        print(f"at {model.n_seen:>8,}  {tree.n_leaves} leaves in {seconds * 1000:.0f} ms, ", end="")
        print(f"clusters {sorted(ids.tolist())}, {path}")

    picture = arguments.output / "hierarchy_over_time.png"
    draw(model, taken).savefig(picture, dpi=150)
    print(f"picture     {picture}")


def stored(tree: Dendrogram) -> dict[str, object]:
    """A snapshot as JSON can hold it."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in tree.to_dict().items()
    }


def draw(model: StreamClusterer, taken: list[tuple[int, Dendrogram]]) -> pyplot.Figure:
    """The trees side by side, the river below."""
    figure = pyplot.figure(figsize=(3.2 * len(taken), 7), layout="constrained")
    grid = figure.add_gridspec(2, len(taken), height_ratios=[1, 1.1])
    for k, (at, tree) in enumerate(taken):
        ax = figure.add_subplot(grid[0, k])
        tree.plot(ax=ax, show=60)
        ax.set(title=f"after {at:,} events", ylabel="height" if k == 0 else "")
    below = figure.add_subplot(grid[1, :])
    model.lineage.plot(ax=below)
    for at, _ in taken[:-1]:
        below.axvline(at, color="black", linewidth=0.8, linestyle="--")
    return figure


if __name__ == "__main__":
    main()
