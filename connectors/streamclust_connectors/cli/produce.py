"""Command produce: writes events to a Kafka topic."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, count, islice
from pathlib import Path
from typing import Annotated

import typer

from streamclust_connectors.cli.options import (
    Config,
    Input,
    Servers,
    Set,
    TopicName,
    examples,
    messages,
    settings_from,
)

app = typer.Typer()


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
    events: Annotated[int | None, typer.Option(min=1, help="Maximal number of events.")] = None,
    rate: Annotated[float, typer.Option(min=0.0, help="Events per second; 0: as fast as possible.")] = 0.0,
    repeat: Annotated[
        bool, typer.Option("--repeat", help="Start again at the end, until interrupted.")
    ] = False,
) -> None:
    """Write the events of a file, or a synthetic drifting stream, to a Kafka topic."""
    flags = {
        "source.path": path,
        "kafka.topic": topic,
        "kafka.bootstrap_servers": servers,
        "source.events": events,
    }
    settings = settings_from(config, given, flags | {"source.kind": None if path else "synthetic"})
    if settings.kafka.topic is None:
        raise typer.BadParameter("the topic to write to is required", param_hint="--topic")
    from kafka import KafkaProducer

    from streamclust_connectors.cli.service_factory import client_options, file_source
    from streamclust_connectors.cli.tables import counted
    from streamclust_connectors.sources import IteratorSource, SyntheticSource

    given_source = settings.source
    origin: IteratorSource = (
        SyntheticSource(given_source.features, n_events=given_source.events, seed=given_source.seed)
        if settings.source_kind == "synthetic"
        else file_source(given_source.path or Path(), settings.source_kind)
    )
    producer = KafkaProducer(**client_options(settings, KafkaProducer), linger_ms=20)
    sent, start = 0, time.monotonic()
    try:
        with stop_signal() as over, messages().status(f"writing to {settings.kafka.topic}"):
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
        typer.echo(f"{counted(sent, 'event')} in {time.monotonic() - start:.1f} s", err=True)


@contextmanager
def stop_signal() -> Iterator[threading.Event]:
    """An event that is set by SIGTERM or SIGINT."""
    over = threading.Event()
    numbers = signal.SIGTERM, signal.SIGINT
    before = [signal.signal(number, lambda *_: over.set()) for number in numbers]
    try:
        yield over
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
