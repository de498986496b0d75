"""Commands webhooks and archive: outputs of the service handed on."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from streamclust_connectors.cli.options import Config, Servers, Set, TopicName, examples, settings_from

if TYPE_CHECKING:
    from streamclust_connectors.interfaces import Channel
    from streamclust_connectors.relay.output_topics import OutputTopics
    from streamclust_connectors.settings import Settings

app = typer.Typer()
log = logging.getLogger(__name__)
FLAT_CHANNELS: tuple[Channel, ...] = ("assignments", "lifecycle", "refusals")
"""Channels whose messages are rows."""
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 10.0


class Relay(Protocol):
    """A loop that reads topics."""

    stopping: bool

    def start(self) -> None:
        """Seek the partitions; called again after each failure."""

    def run_once(self) -> None:
        """Handle one poll."""


@app.command(
    epilog=examples(
        "streamclust webhooks --topic events --url https://hooks.example.com/clusters",
        "STREAMCLUST_WEBHOOK__SECRET=... streamclust webhooks --config service.toml --novelty 25",
    )
)
def webhooks(
    topic: TopicName = None,
    url: Annotated[str | None, typer.Option(help="URL to which alerts are posted.")] = None,
    novelty: Annotated[float | None, typer.Option(help="Novelty from which on an event is an alert.")] = None,
    servers: Servers = None,
    config: Config = None,
    given: Set = None,
) -> None:
    """Post lifecycle events and novel events to a URL: signed, retried, each once. Runs beside the service."""
    flags = {
        "kafka.topic": topic,
        "webhook.url": url,
        "webhook.novelty": novelty,
        "kafka.bootstrap_servers": servers,
    }
    settings = settings_from(config, given, flags)
    from streamclust_connectors.relay.webhooks import Receiver, Selection, Webhooks
    from streamclust_connectors.settings import ConfigError

    chosen = settings.webhook
    if chosen.url is None:
        raise ConfigError("webhook.url is not set; give the URL to which alerts are posted")
    wanted: tuple[Channel, ...] = ("lifecycle", "assignments")
    if chosen.novelty is None:
        wanted = ("lifecycle",)
    names = topics_of(settings, wanted)
    secret = None if chosen.secret is None else chosen.secret.get_secret_value()
    relay = Webhooks(
        output_topics(settings, names, f"{settings.kafka.group_id}.webhooks"),
        {name: (channel, output_reader(settings)) for name, channel in names.items()},
        Selection(frozenset(chosen.kinds), chosen.novelty),
        Receiver(chosen.url, secret, chosen.timeout_seconds),
        chosen.give_up_seconds,
    )
    run(relay, settings)
    log.info(
        "stopped", extra={"posted": relay.posted, "repeated": relay.repeated, "abandoned": relay.abandoned}
    )


@app.command(
    epilog=examples(
        "streamclust archive found --topic events",
        "streamclust archive found --config service.toml --seconds 600",
    )
)
def archive(
    directory: Annotated[Path, typer.Argument(help="Directory of the files; one below it for each topic.")],
    topic: TopicName = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Longest time until a file is written.")] = 60.0,
    servers: Servers = None,
    config: Config = None,
    given: Set = None,
) -> None:
    """Write assignments, lifecycle events and refusals to Parquet files, each record once. Runs beside the service."""
    settings = settings_from(config, given, {"kafka.topic": topic, "kafka.bootstrap_servers": servers})
    from streamclust_connectors.cli.service_factory import flat_records
    from streamclust_connectors.relay.parquet_archive import ParquetArchive, TopicFiles

    records = flat_records(settings.model)
    names = topics_of(settings, FLAT_CHANNELS)
    files = {
        name: TopicFiles(directory / name, records[channel], output_reader(settings))
        for name, channel in names.items()
    }
    relay = ParquetArchive(output_topics(settings, names, None), files, seconds)
    run(relay, settings)
    relay.finish()
    log.info("stopped", extra={"files": sum(each.files for each in files.values())})


def topics_of(settings: Settings, channels: Sequence[Channel]) -> dict[str, Channel]:
    """The channel of each topic that the service sends."""
    from streamclust_connectors.settings import ConfigError

    found = {settings.topics[channel]: channel for channel in channels if channel in settings.topics}
    if settings.kafka.topic is None or not found:
        raise ConfigError(
            "kafka.topic is not set, or its outputs are disabled; name the topic that the service reads"
        )
    return found


def output_topics(settings: Settings, names: dict[str, Channel], group: str | None) -> OutputTopics:
    """A reader of these topics."""
    from kafka import KafkaConsumer

    from streamclust_connectors.cli.service_factory import client_options
    from streamclust_connectors.relay.output_topics import OutputTopics

    return OutputTopics(list(names), client_options(settings, KafkaConsumer), group)


def output_reader(settings: Settings) -> Callable[[bytes], Any]:
    """A function that reads outputs in the format of the settings."""
    from streamclust_connectors.cli.service_factory import registry
    from streamclust_connectors.decode import READERS
    from streamclust_connectors.registry import reader
    from streamclust_connectors.settings import SCHEMA_FORMATS

    format = settings.output.format
    return reader(format, registry(settings)) if format in SCHEMA_FORMATS else READERS[format]


def run(relay: Relay, settings: Settings) -> None:
    """Run a loop until a signal; after a failure that a retry may cure it starts again."""
    from streamclust_connectors.cli.logs import set_up_logging
    from streamclust_connectors.incidents import Incident
    from streamclust_connectors.interfaces import Transient

    set_up_logging(settings.logging.level, settings.logging.format)

    def stop(*_: object) -> None:
        relay.stopping = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    trouble, started, wait = Incident(log, "reading is interrupted"), False, FIRST_WAIT_SECONDS
    while not relay.stopping:
        try:
            if not started:
                relay.start()
                started = True
            relay.run_once()
        except Transient as failure:
            trouble.note(failure)
            started = False
            time.sleep(wait)
            wait = min(2.0 * wait, LONGEST_WAIT_SECONDS)
        else:
            trouble.end()
            wait = FIRST_WAIT_SECONDS
