"""Command demo: clusters of a drifting stream, live in the terminal and in the browser."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamclust_connectors.cli.options import examples, messages, results

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from streamclust.lineage import Change
    from streamclust_connectors.cli.demo_stream import PacedSource
    from streamclust_connectors.service import Service
    from streamclust_connectors.synthetic import Floats

app = typer.Typer()

MAX_SHOWN_CHANGES = 8
"""Number of lifecycle events shown."""
BAR_CHARACTERS = 30
"""Width of the bar of a cluster with all the weight."""
SCORED_EVENTS = 2000
"""Number of events per adjusted Rand index."""
REFRESH_SECONDS = 0.125
"""Time between two refreshes of the screen."""
DEFAULT_PORT = 8080
"""Port of the dashboard."""
TOLD_KERNELS = 10
"""Number of kernels between two lines of progress where the output is not a terminal."""
LOCK_TIMEOUT_SECONDS = 30.0
"""Seconds to wait for the service loop."""


@app.command(
    epilog=examples(
        "streamclust demo",
        "streamclust demo --serve --port 9000",
        "streamclust demo --rate 0 --no-http --out pictures",
    )
)
def demo(
    events: Annotated[int, typer.Option(min=1000, help="Number of events.")] = 240_000,
    seconds: Annotated[float, typer.Option(min=0.1, help="Duration of the stream.")] = 36.0,
    rate: Annotated[
        float | None,
        typer.Option(min=0.0, help="Events per second; overrides --seconds. 0: as fast as possible."),
    ] = None,
    serve: Annotated[
        bool | None,
        typer.Option(
            "--serve/--no-serve",
            help="Keep serving the dashboard after the end of the stream. Default: on a terminal.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help=f"Port of the dashboard; 0 for any free port. Default: {DEFAULT_PORT}, if it is free.",
        ),
    ] = None,
    http: Annotated[bool, typer.Option("--http/--no-http", help="Whether to serve the dashboard.")] = True,
    out: Annotated[Path, typer.Option(help="Directory for the plots.")] = Path("demo-output"),
) -> None:
    """Cluster a synthetic stream whose clusters move, appear, split, merge and vanish."""
    console = results()
    serve = console.is_terminal if serve is None else serve
    step(console, "loading", "the library")
    with messages().status("loading"):
        from streamclust_connectors.cli.demo_stream import DemoStream, PacedSource
        from streamclust_connectors.cli.produce import stop_signal

        pace = events / seconds if rate is None else rate or math.inf
        stream = PacedSource(lambda: DemoStream(events), pace)
        service = service_of(stream, serve)
        screen = DemoScreen(service, stream, events, console)
        server = http_server(service, free_port() if port is None else port) if http else None
    with ExitStack() as stack:
        if server is not None:  # before kernels are compiled, which takes a minute at the first run
            url = stack.enter_context(server)
            console.print(f"dashboard {url}", soft_wrap=True, markup=False)
        with compile_progress(console):
            warm_up()
        over = stack.enter_context(stop_signal())  # not earlier: Ctrl-C must also stop the compiling
        pace_words = f"{events / pace:.0f} s" if pace < math.inf else "as fast as possible"
        step(console, "stream", f"{events:,} events, {pace_words}")
        loop = stack.enter_context(ThreadPoolExecutor(1)).submit(service.run)
        stack.callback(service.stop)
        screen.follow(loop, over)
        if loop.done():
            loop.result()  # raises the error of the loop
        report(console, screen)
        draw(console, service, out)
        if serve and not over.is_set():
            serving = "running " if server is None else f"serving at {url} "
            console.print(f"{serving}until interrupted (Ctrl-C)", soft_wrap=True, markup=False)
            while not (over.wait(REFRESH_SECONDS) or loop.done()):
                pass


def step(console: Console, name: str, what: str) -> None:
    """Print a step of the demo."""
    console.print(f"{name:<9} {what}", soft_wrap=True, markup=False)


def free_port() -> int:
    """DEFAULT_PORT if nothing listens there, else 0 for any free port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", DEFAULT_PORT))
        except OSError:
            return 0
    return DEFAULT_PORT


@contextmanager
def compile_progress(console: Console) -> Iterator[None]:
    """Print how many kernels are compiled; on a terminal the library writes a line of its own."""
    from streamclust.warm import compiled

    over, start = threading.Event(), compiled()[0]
    step(console, "compiling", "kernels, once per machine: a minute or two at the first run, else seconds")

    def watch() -> None:
        told = start
        while not over.wait(REFRESH_SECONDS):
            done, total = compiled()
            if done >= told + TOLD_KERNELS:
                told = done
                step(console, "", f"{done} of {total}")

    thread = threading.Thread(target=watch, daemon=True)
    if not console.is_terminal:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if thread.ident is not None:
            thread.join()
    done, total = compiled()
    step(console, "compiled", f"{done} of {total} kernels are ready")


def warm_up() -> None:
    """Compile the kernels of streams before this one starts; those of hierarchies are compiled at the first use."""
    from streamclust_connectors.cli.demo_stream import DemoStream, PacedSource

    service = service_of(PacedSource(lambda: DemoStream(4000, seed=0)), serve=False)
    service.run()
    service.clusterer.predict_one({"x": 0.0, "y": 0.0})


def service_of(stream: PacedSource, serve: bool) -> Service:
    """The service of the demo."""
    from streamclust import StreamClusterer
    from streamclust_connectors.service import Policy, Service
    from streamclust_connectors.sinks import LinesSink

    return Service(stream, LinesSink(channels=()), StreamClusterer(), policy=Policy(stop_at_end=not serve))


def http_server(service: Service, port: int) -> AbstractContextManager[str]:
    """HTTP server with the API and the dashboard."""
    from streamclust_connectors.cli.options import settings_from

    try:
        from streamclust_connectors.http.server import serving
    except ImportError as error:
        raise ImportError(
            f"the dashboard needs {error.name}; run: pip install 'streamclust[http]', or use --no-http"
        ) from None
    return serving(service, settings_from(flags={"source.kind": "synthetic", "http.port": port}))


class DemoScreen:
    """Scores the clusters and displays the stream."""

    def __init__(self, service: Service, stream: PacedSource, total: int, console: Console) -> None:
        from sklearn.metrics import adjusted_rand_score

        self._score = adjusted_rand_score
        self.service, self.stream, self.total, self.console = service, stream, total, console
        self.scores: list[float] = []
        self.n_true_clusters = 0
        self.n_printed = 0
        """Number of lifecycle events printed."""
        self._found: list[int] = []
        self._true: list[int] = []
        stream.observer = self.score

    def score(self, rows: Floats, labels: Sequence[int]) -> None:
        """Compare the model's predictions for new events with their true clusters."""
        model = self.service.clusterer.model
        if model is None:
            return
        self._found += model.predict(rows).tolist()
        self._true += labels
        if len(self._true) >= SCORED_EVENTS:
            self.scores.append(float(self._score(self._true, self._found)))
            self.n_true_clusters = len(set(self._true))
            self._found, self._true = [], []

    def follow(self, loop: Future[None], over: threading.Event) -> None:
        """DemoScreen the stream until it ends or the user stops it."""
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
                self.print_changes(changes)

    def print_changes(self, changes: Sequence[Change]) -> None:
        """Print new lifecycle events, unless the terminal shows them live."""
        if not self.console.is_terminal:
            for change in changes[self.n_printed :]:
                self.console.print(f"  {change!r}", markup=False)
        self.n_printed = len(changes)

    def screen(self, clusters: Sequence[Any], changes: Sequence[Change]) -> RenderableType:
        """Content of the terminal: progress, figures, clusters and the latest lifecycle events."""
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
        """Number of clusters, adjusted Rand index and speed, as text."""
        from streamclust_connectors.cli.tables import counted

        score = f"{sum(self.scores) / len(self.scores):.3f} on average" if self.scores else "not yet known"
        true = f"; the stream has {self.n_true_clusters} now" if self.scores else ""
        stats = self.service.stats
        busy = sum(stats.seconds.get(stage, 0.0) for stage in ("decode", "learn"))
        capacity = stats.events / max(busy, 1e-9)
        return (
            f"found    {counted(self.service.clusterer.n_clusters, 'cluster')}{true}\n"
            f"score    adjusted Rand index {score}, each event predicted before it is learnt\n"
            f"rate     {stats.rate:,.0f} events per second received, {capacity:,.0f} per second of computing"
        )


def report(console: Console, screen: DemoScreen) -> None:
    """Print the final clusters and their lifecycle."""
    from streamclust_connectors.cli.tables import clusters, table

    with screen.service.lock.within(LOCK_TIMEOUT_SECONDS):
        model = screen.service.clusterer
        found, changes = clusters(model), model.events
    screen.print_changes(changes)
    console.print(found)
    ids = [(", ".join(map(str, side)) for side in (change.parents, change.children)) for change in changes]
    rows = [(c.kind, *sides, c.at) for c, sides in zip(changes, ids, strict=True)]
    console.print(table("lifecycle events", ("kind", "from", "to", "at event"), rows))
    console.print(screen.figures(), markup=False)


def draw(console: Console, service: Service, out: Path) -> None:
    """Plot the clusters, their lineage and their hierarchy."""
    try:
        import matplotlib as mpl
    except ImportError:
        console.print(
            "no plots: matplotlib is not installed; run: pip install 'streamclust[plots]'", markup=False
        )
        return
    mpl.use("agg")
    from matplotlib import pyplot

    out.mkdir(parents=True, exist_ok=True)
    with service.lock.within(LOCK_TIMEOUT_SECONDS):
        model = service.clusterer
        if model.model is None:  # interrupted before the first event
            return
        plots = {
            "clusters": model.plot,
            "lineage": model.lineage.plot,
            "dendrogram": model.snapshot().plot,
        }
        for name, plot in plots.items():
            plot()
            pyplot.savefig(out / f"{name}.png", dpi=150)
            pyplot.close()
            console.print(f"plot     {out / name}.png", soft_wrap=True, markup=False)
