"""demo: a stream that drifts, and what is made of it, live."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamclust_connectors.cli.options import examples, messages, results

if TYPE_CHECKING:
    from rich.console import RenderableType

    from streamclust import StreamClusterer

app = typer.Typer()

BATCH = 2000
CHANGES = 8
"""Lifecycle events that are on show."""
WIDTH = 30
"""Characters of the bar of a cluster that has everything."""


@app.command(epilog=examples("streamclust demo", "streamclust demo --events 1000000 --features 8 --seed 3"))
def demo(
    events: Annotated[int, typer.Option(min=1000, help="How many events.")] = 300_000,
    features: Annotated[int, typer.Option(min=1, help="Of how many numbers each.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Of the stream.")] = 1,
    pictures: Annotated[Path | None, typer.Option(help="A directory for a picture of the hierarchy.")] = None,
) -> None:
    """Clusters that move, appear, split and vanish, and how they are followed; ends by itself."""
    console, remarks = results(), messages()
    with remarks.status("loading; the first time, compiling takes a minute or two"):
        from rich.live import Live

        from streamclust import StreamClusterer
        from streamclust_connectors.synthetic import Drift

        warm = StreamClusterer()
        for rows, _ in Drift(features, n_events=4000, seed=0).batches(BATCH):
            warm.learn_many(rows)
        warm.snapshot()

    changes: deque[str] = deque(maxlen=CHANGES)
    show = Show(events, changes)

    def told(change: Any) -> None:  # noqa: ANN401
        changes.append(repr(change))
        if not console.is_terminal:
            console.print(f"  {change!r}", markup=False)

    model = StreamClusterer(on_event=told)
    with Live(console=console, refresh_per_second=8, auto_refresh=False, transient=True) as live:
        for rows, labels in Drift(features, n_events=events, seed=seed).batches(BATCH):
            show.follow(model, rows, labels)
            if console.is_terminal:
                live.update(show.screen(model), refresh=True)
    from streamclust_connectors.cli.tables import clusters

    console.print(clusters(model))
    console.print(show.figures(model), markup=False)
    if pictures is not None:
        from streamclust_connectors.cli.snapshots import write

        pictures.mkdir(parents=True, exist_ok=True)
        write(model.snapshot(), pictures / "hierarchy.png", "png", None)
        console.print(f"picture  {pictures / 'hierarchy.png'}", soft_wrap=True, markup=False)


class Show:
    """What the demo measures and shows."""

    def __init__(self, total: int, changes: deque[str]) -> None:
        self.total, self.changes = total, changes
        self.seconds = 0.0
        self.there = 0
        self.scores: list[float] = []

    def follow(self, model: StreamClusterer, rows: Any, labels: Any) -> None:  # noqa: ANN401
        """Predict a batch, judge that, then learn it."""
        from sklearn.metrics import adjusted_rand_score

        start = perf_counter()
        found = model.predict_many(rows) if model.n_seen else None
        model.learn_many(rows)
        self.seconds += perf_counter() - start
        if found is not None:
            self.scores.append(float(adjusted_rand_score(labels, found)))
        self.there = len(set(labels.tolist()))

    def screen(self, model: StreamClusterer) -> RenderableType:
        """The terminal, now."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        from streamclust_connectors.cli.tables import mean, table

        rows = [
            (c.id, f"{c.share:6.1%}", "█" * round(WIDTH * c.share), c.born, mean(c.mean))
            for c in model.clusters
        ]
        found = table(None, ("id", "share", "", "born at", "mean"), rows)
        log = Text("\n".join(self.changes))
        return Group(ProgressBar(self.total, model.n_seen), Text("\n" + self.figures(model)), found, log)

    def figures(self, model: StreamClusterer) -> str:
        """In a few lines: how many, how right, how fast."""
        score = sum(self.scores) / len(self.scores) if self.scores else 0.0
        return (
            f"found    {model.n_clusters} clusters; {self.there} are there now\n"
            f"agreed   adjusted Rand index {score:.3f} on average, each batch before it was learnt\n"
            f"rate     {model.n_seen / max(self.seconds, 1e-9):,.0f} events a second, predicted and learnt"
        )
