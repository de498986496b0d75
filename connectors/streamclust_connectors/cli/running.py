"""run, serve, health: the service, and its health check."""

from __future__ import annotations

import gc
import json
import logging
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamclust_connectors.cli.errors import Code, fail
from streamclust_connectors.cli.listening import Http, beside, listen
from streamclust_connectors.cli.options import (
    Config,
    Input,
    Servers,
    Set,
    TopicName,
    examples,
    settings_from,
)

if TYPE_CHECKING:
    from streamclust_connectors.ports import StreamModel
    from streamclust_connectors.service import Service
    from streamclust_connectors.settings import Settings

app = typer.Typer()
log = logging.getLogger(__name__)

Kind = Annotated[
    str | None, typer.Option("--source", help="kafka, jsonl, csv, parquet, stdin, synthetic or http.")
]
State = Annotated[Path | None, typer.Option("--state", help="Where checkpoints are kept.")]
LogLevel = Annotated[str | None, typer.Option(help="debug, info, warning or error.")]
PULSE_SECONDS = 2.0
"""Time between two updates of the health file."""


@app.command(
    epilog=examples(
        "streamclust run --topic events --state state",
        "streamclust run --config service.toml --set engine.half_life=50000",
        "streamclust run --input events.jsonl --output found.jsonl",
        "streamclust run --topic images --state state --model features",
        "streamclust run --source synthetic --set output.kind=none --http 8080",
        "cat events.jsonl | streamclust run --input - --set output.assignments=false",
    )
)
def run(
    config: Config = None,
    given: Set = None,
    source: Kind = None,
    path: Input = None,
    topic: TopicName = None,
    servers: Servers = None,
    model: Annotated[str | None, typer.Option(help="clusters or features: what is learnt.")] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="The consumer group.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A file of JSON lines for the results; - is standard output."),
    ] = None,
    state: State = None,
    checkpoint_events: Annotated[
        int | None, typer.Option(min=1, help="Write a checkpoint after so many events too.")
    ] = None,
    on_data_loss: Annotated[
        str | None, typer.Option(help="fail or continue, when events are gone that were not yet learnt.")
    ] = None,
    log_level: LogLevel = None,
    http: Http = None,
) -> None:
    """Cluster a stream, or find its features: read events, learn them, send what was found, until the end or a signal.

    Settings come from flags, then from the environment (STREAMCLUST_KAFKA__TOPIC), then from a file.

    SIGTERM and SIGINT end it in order; SIGUSR1 takes a snapshot.
    """
    settings = settings_from(
        config,
        given,
        {
            "model": model,
            "source.kind": source,
            "source.path": path,
            "kafka.topic": topic,
            "kafka.bootstrap_servers": servers,
            "kafka.group_id": group,
            "output.path": output,
            "checkpoint.directory": state,
            "checkpoint.every_events": checkpoint_events,
            "on_data_loss": on_data_loss,
            "logging.level": log_level,
            **listen(http),
        },
    )
    run_service(settings)


@app.command(
    epilog=examples(
        "streamclust serve --state state",
        "STREAMCLUST_HTTP__TOKEN=... streamclust serve --http 0.0.0.0:8080 --state state",
        """curl localhost:8080/v1/learn --data '[{"x": 1.5, "y": 2}, {"x": 8, "y": 9}]'""",
        """curl localhost:8080/v1/predict --data '{"x": 1.5, "y": 2}'""",
    )
)
def serve(
    config: Config = None,
    given: Set = None,
    state: State = None,
    log_level: LogLevel = None,
    http: Http = None,
) -> None:
    """Cluster what is sent by HTTP: an API at /v1, its description at /docs, a dashboard at /.

    What was learnt is kept in the state directory, every checkpoint.every_seconds and at the end.

    SIGTERM and SIGINT end it in order.
    """
    flags = {
        "source.kind": "http",
        "checkpoint.directory": state,
        "logging.level": log_level,
        "http.enabled": True,
        **listen(http),
    }
    run_service(settings_from(config, given, flags))


def run_service(settings: Settings) -> None:
    """Set up logging and run a service."""
    settings.check()
    from streamclust_connectors.cli.logs import set_up

    set_up(settings.logging.level, settings.logging.format)
    if settings.source_kind == "http" and settings.checkpoint.directory is None:
        log.warning("nothing that is learnt is kept: name a directory by --state")
    watch_over(settings)


def watch_over(settings: Settings) -> None:
    """Run a service, with a thread that writes its health file and logs its progress."""
    from streamclust_connectors.cli.wiring import service, warm_up

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(Code.OK))  # nothing is held yet, nor learnt
    running = service(settings)
    running.stop_on_signals()
    if settings.source_kind == "kafka":
        threading.Thread(target=warm_up, args=(settings,), daemon=True).start()
    gc.freeze()  # what was imported stays: the collector need not look at it again with every few thousand events
    log.info("started", extra={"source": settings.source_kind, "output": settings.output_kind})
    over = threading.Event()
    watch = threading.Thread(target=watched, args=(running, settings, over), daemon=True)
    watch.start()
    try:
        with beside(running, settings):
            running.run()
    finally:
        over.set()
        watch.join(PULSE_SECONDS)
        if settings.health.file is not None:
            settings.health.file.unlink(missing_ok=True)
    log.info("stopped", extra=figures(running))


def watched(running: Service, settings: Settings, over: threading.Event) -> None:
    """Write the health file and log the progress periodically, until the service ends."""
    due = time.monotonic() + settings.logging.every_seconds
    failed = False
    while True:
        if settings.health.file is not None:
            try:
                write_health(settings.health.file, running.stats.age, running.stats.ready)
                failed = False
            except OSError as error:  # a full disk is no reason to stop
                if not failed:
                    log.error("the health file cannot be written: %s", error)
                failed = True
        if time.monotonic() >= due:
            due = time.monotonic() + settings.logging.every_seconds
            log.info("progress", extra=figures(running))
        if over.wait(PULSE_SECONDS):
            return


def figures(running: Service) -> dict[str, Any]:
    """Figures of a service for a log line."""
    stats = running.stats
    names = "messages", "events", "dead_letters", "assignments", "checkpoints", "retries"
    age = stats.checkpoint_age
    return {name: getattr(stats, name) for name in names} | {
        **stats_of(running.learner),
        "events_per_second": round(stats.rate, 1),
        "lag": sum(stats.lag.values()),
        "checkpoint_age_seconds": None if age is None else round(age, 1),
    }


def stats_of(learner: StreamModel) -> dict[str, int]:
    """How many clusters or features there are."""
    from streamclust.streaming import StreamClusterer

    if isinstance(learner, StreamClusterer):
        return {"clusters": learner.n_clusters}
    return {"features": learner.n_features}


# -------------------------------------------------------------------- health


def write_health(path: Path, age: float, ready: bool) -> None:
    """Write the health file atomically."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps({"time": time.time(), "age": age, "ready": ready}))
    part.replace(path)


@app.command(
    epilog=examples(
        "streamclust health /state/health.json",
    )
)
def health(
    file: Annotated[
        Path | None, typer.Argument(help="The service's health.file; from the settings if not given.")
    ] = None,
    config: Config = None,
    given: Set = None,
) -> None:
    """Whether the service is well: 0 if its loop turned lately, else 1 and why."""
    settings = settings_from(config, given, {"health.file": file})
    path, limit = settings.health.file, settings.health.max_age_seconds
    if path is None:
        raise typer.BadParameter("name the service's health.file", param_hint="FILE")
    try:
        found = json.loads(path.read_text())
        age = time.time() - float(found["time"]) + float(found["age"])
    except (OSError, ValueError, KeyError, TypeError):
        fail(f"{path} cannot be read: no service writes it")
    if age > limit:
        fail(f"the loop last turned {age:.0f} s ago, which is more than {limit:g} s")
    typer.echo(
        f"well: the loop turned {max(age, 0.0):.0f} s ago, {'ready' if found['ready'] else 'not ready'}"
    )
