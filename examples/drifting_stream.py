"""A drifting stream: clusters found against the truth, what happens to them as it happens, and pictures.

Run it: python examples/drifting_stream.py [--events N] [--output DIR]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

import numpy as np
from matplotlib import pyplot
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer
from streamclust.plots import plot_clusters, plot_dendrogram
from streamclust_connectors.synthetic import Drift

BATCH = 5000


def main() -> None:
    """Parse the arguments, follow the stream, draw the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=300_000, help="how many events (default: 300,000)")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="where the pictures go")
    arguments = parser.parse_args()
    console = Console(soft_wrap=True, highlight=False)

    stream = Drift(n_features=2, n_events=arguments.events, seed=1)
    with console.status("compiling, which takes a minute or two the first time"):
        warm = StreamClusterer()
        for events, _ in Drift(n_features=2, n_events=40_000, seed=0).batches(BATCH):
            warm.learn_many(events)
        warm.snapshot()

    model = StreamClusterer(on_event=lambda change: console.print(f"  {change!r}"))
    seconds, scores = 0.0, []
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("learning", total=arguments.events)
        for events, labels in stream.batches(BATCH):
            start = perf_counter()
            if model.n_seen:  # each batch is predicted before it is learnt
                scores.append(adjusted_rand_score(labels, model.predict_many(events)))
            model.learn_many(events)
            seconds += perf_counter() - start
            progress.update(task, advance=len(events))

    console.print(f"found    {model.n_clusters} clusters; {len(set(labels.tolist()))} are there at the end")
    console.print(
        f"agreed   adjusted Rand index {np.mean(scores):.3f} on average, each batch before it was learnt"
    )
    console.print(f"rate     {arguments.events / seconds:,.0f} events a second, predicted and learnt")
    for cluster in model.clusters:
        centre = ", ".join(f"{value:.1f}" for value in cluster.mean.values())
        console.print(
            f"  cluster {cluster.id:3d}  {cluster.share:6.1%}  born at {cluster.born:>7,}  at ({centre})"
        )

    arguments.output.mkdir(parents=True, exist_ok=True)
    clusters, hierarchy = arguments.output / "clusters.png", arguments.output / "hierarchy.png"
    _draw_clusters(model, events).figure.savefig(clusters, dpi=150)
    plot_dendrogram(model.snapshot()).figure.savefig(hierarchy, dpi=150)
    console.print(f"pictures {clusters} and {hierarchy}")


def _draw_clusters(model: StreamClusterer, events: np.ndarray) -> pyplot.Axes:
    """The latest events in the colours of their clusters, and the published clusters with their ids."""
    assert model.model is not None
    shown = model.model.shown.clusters
    ax = plot_clusters(shown, edgecolors="0.2", linewidths=1.2)
    ids = model.predict_many(events)
    ax.scatter(*events.T, c=ids % 20, cmap="tab20", s=3, linewidths=0, zorder=1)
    for name, mean in zip(model.model.names, shown.mean, strict=True):
        ax.annotate(str(name), mean, fontsize=14, ha="left", va="bottom", zorder=4)
    ax.set(
        xlabel="feature 0",
        ylabel="feature 1",
        title=f"{model.n_clusters} clusters and the last {len(events):,} of {model.n_seen:,} events",
    )
    return ax


if __name__ == "__main__":
    main()
