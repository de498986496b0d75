"""A drifting stream: clusters found against the truth, what happens to them as it happens, and pictures.

Every cluster moves, two appear, one splits and two vanish. What one sees: each change when it is noticed, the
clusters at the end with the latest events, the river of clusters over the whole stream, and their hierarchy.

Run it: python examples/drifting_stream.py [--events N] [--quick] [--output DIR]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer
from streamclust_connectors.synthetic import Drift

BATCH = 5000


def main() -> None:
    """Parse the arguments, follow the stream, draw the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=300_000, help="how many events (default: 300,000)")
    parser.add_argument("--quick", action="store_true", help="a short stream")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="where the pictures go")
    arguments = parser.parse_args()
    console = Console(soft_wrap=True, highlight=False)
    n = 60_000 if arguments.quick else arguments.events

    stream = Drift(n_features=2, n_events=n, seed=1)
    with console.status("compiling, which takes a minute or two the first time"):
        warm = StreamClusterer()
        for events, _ in Drift(n_features=2, n_events=n // 8, seed=0).batches(BATCH):
            warm.learn_many(events)
        warm.snapshot()

    model = StreamClusterer(on_event=lambda change: console.print(f"  {change!r}"))
    seconds, scores = 0.0, []
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("learning", total=n)
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
    console.print(f"rate     {n / seconds:,.0f} events a second, predicted and learnt")
    for cluster in model.clusters:
        centre = ", ".join(f"{value:.1f}" for value in cluster.mean.values())
        console.print(
            f"  cluster {cluster.id:3d}  {cluster.share:6.1%}  born at {cluster.born:>7,}  at ({centre})"
        )

    arguments.output.mkdir(parents=True, exist_ok=True)
    pictures = {"clusters": model.plot, "lineage": model.lineage.plot, "hierarchy": model.snapshot().plot}
    for name, plot in pictures.items():
        plot().figure.savefig(arguments.output / f"{name}.png", dpi=150)
    console.print("pictures " + ", ".join(str(arguments.output / f"{name}.png") for name in pictures))


if __name__ == "__main__":
    main()
