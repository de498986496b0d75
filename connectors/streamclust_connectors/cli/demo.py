"""demo: clusters of a drifting stream, live in the terminal and in the browser."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamclust_connectors.cli.options import examples, messages, results

if TYPE_CHECKING:
    import threading

    from rich.console import Console, RenderableType

    from streamclust.lineage import Change
    from streamclust_connectors.cli.scene import Paced
    from streamclust_connectors.service import Service
    from streamclust_connectors.synthetic import Floats

app = typer.Typer()

MAX_SHOWN_CHANGES = 8
"""Number of lifecycle events shown."""
BAR_CHARACTERS = 30
"""Width of the bar of a cluster with all the weight."""
JUDGED_EVENTS = 2000
"""Number of events over which one adjusted Rand index is computed."""
REFRESH_SECONDS = 0.125
"""Time between two refreshes of the screen."""
LOCK_TIMEOUT_SECONDS = 30.0
"""Seconds to wait for the loop."""


@app.command(
    epilog=examples(
        "streamclust demo",
        "streamclust demo --serve --port 8080",
        "streamclust demo --rate 0 --no-http --out pictures",
    )
)
def demo(
    events: Annotated[int, typer.Option(min=1000, help="How many events.")] = 240_000,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long the stream lasts.")] = 36.0,
    rate: Annotated[
        float | None,
        typer.Option(min=0.0, help="Events a second, whatever --seconds says; 0: all it can do."),
    ] = None,
    serve: Annotated[bool, typer.Option("--serve", help="Go on serving when the stream has ended.")] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Of the dashboard; 0 is any that is free.")
    ] = 0,
    http: Annotated[bool, typer.Option("--http/--no-http", help="Whether to serve the dashboard.")] = True,
    out: Annotated[Path, typer.Option(help="A directory for the pictures.")] = Path("demo-output"),
) -> None:
    """Clusters that move, appear, split, merge and vanish, and how they are followed; ends by itself."""
    console = results()
    with messages().status("loading"):
        from streamclust_connectors.cli.producing import told_to_stop
        from streamclust_connectors.cli.scene import Paced, Scene

        pace = events / seconds if rate is None else rate or math.inf
        stream = Paced(lambda: Scene(events), pace)
        service = service_of(stream, serve)
        show = Show(service, stream, events, console)
        page = serving(service, port) if http else None
    with ExitStack() as beside:
        if page is not None:  # before kernels are compiled, which takes a minute the first time
            url = beside.enter_context(page)
            console.print(f"dashboard {url}", soft_wrap=True, markup=False)
        with messages().status("the first time, compiling takes a minute or two; the stream starts then"):
            warm_up()
        over = beside.enter_context(told_to_stop())  # not before: Ctrl-C ends the compiling, too
        loop = beside.enter_context(ThreadPoolExecutor(1)).submit(service.run)
        beside.callback(service.stop)
        show.follow(loop, over)
        if loop.done():
            loop.result()  # raises what went wrong
        report(console, show)
        draw(console, service, out)
        if serve and not over.is_set():
            told = "" if page is None else f"serving at {url} "
            console.print(f"{told}until interrupted (Ctrl-C)", soft_wrap=True, markup=False)
            while not (over.wait(REFRESH_SECONDS) or loop.done()):
                pass


def warm_up() -> None:
    """Compile the kernels of streams before this one starts; those of hierarchies, when the first is asked for."""
    from streamclust_connectors.cli.scene import Paced, Scene

    service = service_of(Paced(lambda: Scene(4000, seed=0)), serve=False)
    service.run()
    service.clusterer.predict_one({"x": 0.0, "y": 0.0})


def service_of(stream: Paced, serve: bool) -> Service:
    """The service of the demo."""
    from streamclust import StreamClusterer
    from streamclust_connectors.service import Policy, Service
    from streamclust_connectors.sinks import LinesSink

    return Service(stream, LinesSink(channels=()), StreamClusterer(), policy=Policy(stop_at_end=not serve))


def serving(service: Service, port: int) -> AbstractContextManager[str]:
    """The API and the dashboard beside the stream."""
    from streamclust_connectors.cli.options import settings_from

    try:
        from streamclust_connectors.http.server import serving
    except ImportError as error:
        raise ImportError(
            f"the dashboard needs {error.name}: pip install 'streamclust[http]', or run with --no-http"
        ) from None
    return serving(service, settings_from(flags={"source.kind": "synthetic", "http.port": port}))


class Show:
    """Measures the quality of the clusters and shows it."""

    def __init__(self, service: Service, stream: Paced, total: int, console: Console) -> None:
        from sklearn.metrics import adjusted_rand_score

        self._agreement = adjusted_rand_score
        self.service, self.stream, self.total, self.console = service, stream, total, console
        self.scores: list[float] = []
        self.there = 0
        self.told = 0
        self._found: list[int] = []
        self._true: list[int] = []
        stream.judge = self.judge

    def judge(self, rows: Floats, labels: Sequence[int]) -> None:
        """Score the model's predictions for events not learnt yet against their true clusters."""
        model = self.service.clusterer.model
        if model is None:
            return
        self._found += model.predict(rows).tolist()
        self._true += labels
        if len(self._true) >= JUDGED_EVENTS:
            self.scores.append(float(self._agreement(self._true, self._found)))
            self.there = len(set(self._true))
            self._found, self._true = [], []

    def follow(self, loop: Future[None], over: threading.Event) -> None:
        """Show the stream until it ends or the user stops it."""
        from rich.live import Live

        terminal = self.console.is_terminal
        with (
            Live(console=self.console, auto_refresh=False, transient=True)
            if terminal
            else nullcontext() as live
        ):
            while not (self.stream.finished or loop.done() or over.wait(REFRESH_SECONDS)):
                with self.service.lock.within(LOCK_TIMEOUT_SECONDS):
                    model = self.service.clusterer
                    changes, clusters = model.events, model.clusters if terminal else []
                if live is not None:
                    live.update(self.screen(clusters, changes), refresh=True)
                self.tell(changes)

    def tell(self, changes: Sequence[Change]) -> None:
        """Without a live terminal, print the lifecycle events since the last call."""
        if not self.console.is_terminal:
            for change in changes[self.told :]:
                self.console.print(f"  {change!r}", markup=False)
        self.told = len(changes)

    def screen(self, clusters: Sequence[Any], changes: Sequence[Change]) -> RenderableType:
        """The terminal, now."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        from streamclust_connectors.cli.tables import mean, table

        rows = [
            (c.id, f"{c.share:6.1%}", "█" * round(BAR_CHARACTERS * c.share), c.born, mean(c.mean))
            for c in clusters
        ]
        return Group(
            ProgressBar(self.total, self.service.stats.events),
            Text("\n" + self.figures()),
            table(None, ("id", "share", "", "born at", "mean"), rows),
            Text("\n".join(map(repr, changes[-MAX_SHOWN_CHANGES:]))),
        )

    def figures(self) -> str:
        """Number of events and clusters, agreement with the truth, and speed."""
        from streamclust_connectors.cli.tables import counted

        score = f"{sum(self.scores) / len(self.scores):.3f} on average" if self.scores else "not yet known"
        there = f"; {self.there} are there now" if self.scores else ""
        stats = self.service.stats
        busy = sum(stats.seconds.get(stage, 0.0) for stage in ("decode", "learn"))
        capacity = stats.events / max(busy, 1e-9)
        return (
            f"found    {counted(self.service.clusterer.n_clusters, 'cluster')}{there}\n"
            f"agreed   adjusted Rand index {score}, each event before it was learnt\n"
            f"rate     {stats.rate:,.0f} events a second as they came, {capacity:,.0f} while at work"
        )


def report(console: Console, show: Show) -> None:
    """Print the final clusters and their lifecycle."""
    from streamclust_connectors.cli.tables import clusters, table

    with show.service.lock.within(LOCK_TIMEOUT_SECONDS):
        model = show.service.clusterer
        found, changes = clusters(model), model.events
    show.tell(changes)
    console.print(found)
    ids = [(", ".join(map(str, side)) for side in (change.parents, change.children)) for change in changes]
    rows = [(c.kind, *sides, c.at) for c, sides in zip(changes, ids, strict=True)]
    console.print(table("what happened to them", ("", "from", "to", "at event"), rows))
    console.print(show.figures(), markup=False)


def draw(console: Console, service: Service, out: Path) -> None:
    """Pictures of the clusters, of what happened to them, and of their hierarchy."""
    try:
        import matplotlib as mpl
    except ImportError:
        console.print("no pictures: they need matplotlib (pip install 'streamclust[plots]')", markup=False)
        return
    mpl.use("agg")
    from matplotlib import pyplot

    out.mkdir(parents=True, exist_ok=True)
    with service.lock.within(LOCK_TIMEOUT_SECONDS):
        model = service.clusterer
        if model.model is None:  # interrupted before the first event
            return
        pictures = {
            "clusters": model.plot,
            "lineage": model.lineage.plot,
            "dendrogram": model.snapshot().plot,
        }
        for name, plot in pictures.items():
            plot()
            pyplot.savefig(out / f"{name}.png", dpi=150)
            pyplot.close()
            console.print(f"picture  {out / name}.png", soft_wrap=True, markup=False)
