"""run, serve, health, produce: the service, whether it is well, and something for it to read."""

from __future__ import annotations

import gc
import json
import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamclust_connectors.cli.errors import fail
from streamclust_connectors.cli.listening import Http, beside, listen
from streamclust_connectors.cli.options import (
    Config,
    Servers,
    Set,
    TopicName,
    examples,
    messages,
    settings_from,
)

if TYPE_CHECKING:
    from streamclust_connectors.service import Service
    from streamclust_connectors.settings import Settings

app = typer.Typer()
log = logging.getLogger(__name__)

Input = Annotated[Path | None, typer.Option("--input", "-i", help="A file to read; - is standard input.")]
Kind = Annotated[
    str | None, typer.Option("--source", help="kafka, jsonl, csv, parquet, stdin, synthetic or http.")
]
State = Annotated[Path | None, typer.Option("--state", help="Where checkpoints are kept.")]
LogLevel = Annotated[str | None, typer.Option(help="debug, info, warning or error.")]
PULSE = 2.0
"""Seconds between two looks at the loop."""


@app.command(
    epilog=examples(
        "streamclust run --topic events --state state",
        "streamclust run --config service.toml --set engine.half_life=50000",
        "streamclust run --input events.jsonl --output found.jsonl",
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
    """Cluster a stream: read events, learn them, send what was found, until the end or a signal.

    Settings come from flags, then from the environment (STREAMCLUST_KAFKA__TOPIC), then from a file.

    SIGTERM and SIGINT end it in order; SIGUSR1 takes a snapshot.
    """
    settings = settings_from(
        config,
        given,
        {
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
    """Run a service to its end, with its logs."""
    settings.check()
    from streamclust_connectors.cli.logs import set_up

    set_up(settings.logging.level, settings.logging.format)
    if settings.source_kind == "http" and settings.checkpoint.directory is None:
        log.warning("nothing that is learnt is kept: name a directory by --state")
    watch_over(settings)


def watch_over(settings: Settings) -> None:
    """Run a service to its end, with someone beside it who tells how it does."""
    from streamclust_connectors.cli.wiring import service, warm_up

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
        watch.join(PULSE)
        if settings.health.file is not None:
            settings.health.file.unlink(missing_ok=True)
    log.info("stopped", extra=figures(running))


def watched(running: Service, settings: Settings, over: threading.Event) -> None:
    """Until it is over: write how old the loop's heartbeat is, and log how far it is."""
    due = time.monotonic() + settings.logging.every_seconds
    while True:
        if settings.health.file is not None:
            write_health(settings.health.file, running.stats.age, running.stats.ready)
        if time.monotonic() >= due:
            due = time.monotonic() + settings.logging.every_seconds
            log.info("progress", extra=figures(running))
        if over.wait(PULSE):
            return


def figures(running: Service) -> dict[str, Any]:
    """What a log line says of a service."""
    stats = running.stats
    names = "messages", "events", "dead_letters", "assignments", "checkpoints", "retries"
    return {name: getattr(stats, name) for name in names} | {
        "clusters": running.clusterer.n_clusters,
        "events_per_second": round(stats.rate, 1),
        "lag": sum(stats.lag.values()),
    }


# -------------------------------------------------------------------- health


def write_health(path: Path, age: float, ready: bool) -> None:
    """Write the file whole or not at all."""
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


# -------------------------------------------------------------------- produce


@app.command(
    epilog=examples(
        "streamclust produce --topic events --events 100000",
        "streamclust produce --topic events --input events.csv --rate 500",
    )
)
def produce(
    config: Config = None,
    given: Set = None,
    path: Input = None,
    topic: TopicName = None,
    servers: Servers = None,
    events: Annotated[int | None, typer.Option(min=1, help="How many events, at most.")] = None,
    rate: Annotated[float, typer.Option(min=0.0, help="Events a second; 0 is as fast as it goes.")] = 0.0,
    repeat: Annotated[
        bool, typer.Option("--repeat", help="Begin anew at the end, until interrupted.")
    ] = False,
) -> None:
    """Write events to a Kafka topic: those of a file, or synthetic ones that drift."""
    flags = {
        "source.path": path,
        "kafka.topic": topic,
        "kafka.bootstrap_servers": servers,
        "source.events": events,
    }
    settings = settings_from(config, given, flags | {"source.kind": None if path else "synthetic"})
    if settings.kafka.topic is None:
        raise typer.BadParameter("name the topic to write to", param_hint="--topic")
    from kafka import KafkaProducer

    from streamclust_connectors.cli.wiring import client, file_source
    from streamclust_connectors.sources import IteratorSource, SyntheticSource

    given_source = settings.source
    origin: IteratorSource = (
        SyntheticSource(given_source.features, n_events=given_source.events, seed=given_source.seed)
        if settings.source_kind == "synthetic"
        else file_source(given_source.path or Path(), settings.source_kind)
    )
    producer = KafkaProducer(**client(settings, KafkaProducer), linger_ms=20)
    sent, start = 0, time.monotonic()
    try:
        with told_to_stop() as over, messages().status(f"writing to {settings.kafka.topic}"):
            values = chain.from_iterable(
                islice(origin.values(), events) for _ in (count() if repeat else (0,))
            )
            for value in values:
                producer.send(settings.kafka.topic, value)
                sent += 1
                if rate:
                    over.wait(max(0.0, start + sent / rate - time.monotonic()))
                if over.is_set():
                    break
        producer.flush()
    finally:
        producer.close()
        typer.echo(f"{sent:,} events in {time.monotonic() - start:.1f} s", err=True)


@contextmanager
def told_to_stop() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set."""
    over = threading.Event()
    numbers = signal.SIGTERM, signal.SIGINT
    before = [signal.signal(number, lambda *_: over.set()) for number in numbers]
    try:
        yield over
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
