"""dlq: dead letters, the messages that could not be learnt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamclust_connectors.cli.errors import BadData
from streamclust_connectors.cli.options import (
    Config,
    Servers,
    Set,
    examples,
    messages,
    results,
    settings_from,
)

if TYPE_CHECKING:
    from kafka import KafkaConsumer, TopicPartition
    from kafka.consumer.fetcher import ConsumerRecord

    from streamclust_connectors.settings import Settings

app = typer.Typer(no_args_is_help=True, help="List dead letters, and send them again.")

BROKER_TIMEOUT_MS = 10_000
"""Time limit of each call to the broker."""

MILLISECONDS = re.compile("[0-9]{1,14}")
"""Moments in headers: until the year 5138, so that each is a date."""

BATCH_LETTERS = 500
"""Number of letters sent between two commits."""

Topic = Annotated[str | None, typer.Option("--topic", "-t", help="The topic whose dead letters these are.")]
Dead = Annotated[str | None, typer.Option("--dlq", help="Their own topic, where it is not <topic>.dlq.")]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=1, help="So many, at most.")]


@app.command(
    epilog=examples("streamclust dlq ls --topic events", "streamclust dlq ls --dlq events.dlq --limit 20")
)
def ls(
    topic: Topic = None,
    dlq: Dead = None,
    limit: Limit = None,
    servers: Servers = None,
    config: Config = None,
    given: Set = None,
) -> None:
    """Origin and reason of each dead letter; its content is not shown."""
    from streamclust_connectors.cli.tables import table

    settings, name = letters_of(topic, dlq, servers, config, given)
    rows = []
    for letter in read(settings, name, None, limit):
        why = errors(letter)
        rows.append(
            (
                f"{letter.partition}:{letter.offset}",
                f"{why.get('topic', '?')}-{why.get('partition', '?')}-{why.get('offset', '?')}",
                why.get("stage"),
                why.get("exception"),
                why.get("message"),
                f"{refused_at(letter):%Y-%m-%d %H:%M:%S}",
            )
        )
    console = results()
    if rows:
        console.print(table(None, ("letter", "from", "stage", "exception", "message", "when"), rows))
    console.print(f"{len(rows):,} dead letters in {name}", markup=False)


@app.command(
    epilog=examples(
        "streamclust dlq replay --topic events --dry-run",
        "streamclust dlq replay --topic events --to events.repaired",
    )
)
def replay(
    topic: Topic = None,
    dlq: Dead = None,
    to: Annotated[
        str | None, typer.Option(help="The topic to send to; the one each came from, if not given.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be sent.")] = False,
    limit: Limit = None,
    servers: Servers = None,
    config: Config = None,
    given: Set = None,
) -> None:
    """Send dead letters again, as they came. Each is sent once: the next replay goes on where this one ends.

    Those that were too large to be kept whole are skipped, and counted.
    """
    from streamclust_connectors.outputs import LEFT_OUT

    settings, name = letters_of(topic, dlq, servers, config, given)
    group = f"{settings.kafka.group_id}.dlq-replay"
    sent = left = 0
    with messages().status(f"reading {name}"):
        for batch in batched(read(settings, name, group, limit)):
            whole = [letter for letter in batch if LEFT_OUT not in errors(letter)]
            if not dry_run:
                send(settings, whole, to)
                commit(settings, name, group, batch)
            sent += len(whole)
            left += len(batch) - len(whole)
    typer.echo(f"{sent:,} dead letters {'would be ' if dry_run else ''}sent again")
    if left:
        typer.echo(f"{left:,} are not whole: they were too large, and stay where they came from", err=True)


def letters_of(
    topic: str | None,
    dlq: str | None,
    servers: str | None,
    config: Path | None,
    given: list[str] | None,
) -> tuple[Settings, str]:
    """The settings, and the topic of dead letters."""
    flags = {"kafka.topic": topic, "output.dlq": dlq, "kafka.bootstrap_servers": servers}
    settings = settings_from(config, given, flags)
    if settings.kafka.topic is None and not isinstance(settings.output.dlq, str):
        raise typer.BadParameter("name the topic whose dead letters these are", param_hint="--topic")
    if "dead-letters" not in settings.topics:
        raise typer.BadParameter("output.dlq is false: no dead letters are kept", param_hint="--dlq")
    return settings, settings.topics["dead-letters"]


# -------------------------------------------------------------------- Kafka


def consumer(settings: Settings, group: str | None) -> KafkaConsumer:
    """A consumer with manually assigned partitions; it joins no group, but may store a group's offsets."""
    from kafka import KafkaConsumer

    from streamclust_connectors.cli.wiring import client

    options = {"group_id": group, "enable_auto_commit": False, "auto_offset_reset": "none"}
    options |= {"isolation_level": "read_committed"}
    return KafkaConsumer(**client(settings, KafkaConsumer) | options)


def read(settings: Settings, name: str, group: str | None, limit: int | None) -> Iterator[Any]:
    """All current letters, or those not yet replayed by a group."""
    from kafka import TopicPartition

    client = consumer(settings, group)
    try:
        numbers = client.partitions_for_topic(name)
        if not numbers:
            raise BadData(
                f"there is no topic {name}: nothing was ever refused, or it is called otherwise (--dlq)"
            )
        parts = [TopicPartition(name, number) for number in sorted(numbers)]
        client.assign(parts)
        first = client.beginning_offsets(parts, timeout_ms=BROKER_TIMEOUT_MS)
        end = client.end_offsets(parts, timeout_ms=BROKER_TIMEOUT_MS)
        left = limit
        for part in parts:
            done = client.committed(part, timeout_ms=BROKER_TIMEOUT_MS) if group is not None else None
            client.seek(part, max(first[part], done or 0))
            client.pause(*(other for other in parts if other != part))
            client.resume(part)
            while client.position(part, timeout_ms=BROKER_TIMEOUT_MS) < end[part] and left != 0:
                for record in polled(client, part, left or BATCH_LETTERS):
                    if record.offset < end[part]:
                        left = None if left is None else left - 1
                        yield record
    finally:
        client.close(autocommit=False)


def polled(client: KafkaConsumer, part: TopicPartition, most: int) -> list[Any]:
    """The next letters of a partition; none if only transaction markers are left."""
    deadline, before = monotonic() + BROKER_TIMEOUT_MS / 1000, client.position(part)
    while monotonic() < deadline:
        records: list[Any] = client.poll(timeout_ms=200, max_records=most).get(part, [])
        if records or client.position(part) > before:
            return records
    raise TimeoutError(f"the broker has not sent the next letters within {BROKER_TIMEOUT_MS // 1000} s")


def batched(letters: Iterator[Any], size: int = BATCH_LETTERS) -> Iterator[list[Any]]:
    """Letters in lists of at most `size`."""
    batch: list[Any] = []
    for letter in letters:
        batch.append(letter)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def send(settings: Settings, batch: list[Any], to: str | None) -> None:
    """Send letters without the added headers, and wait for acknowledgements."""
    from kafka import KafkaProducer

    from streamclust_connectors.cli.wiring import client
    from streamclust_connectors.outputs import ERROR_HEADER_PREFIX

    producer = KafkaProducer(**client(settings, KafkaProducer))
    try:
        futures = []
        for letter in batch:
            target = to or errors(letter).get("topic")
            if target is None:
                raise BadData(
                    f"letter {letter.partition}:{letter.offset} does not say where it came from; use --to"
                )
            headers = [
                (name, value) for name, value in letter.headers if not name.startswith(ERROR_HEADER_PREFIX)
            ]
            futures.append(producer.send(target, letter.value, letter.key, headers))
        producer.flush(timeout=BROKER_TIMEOUT_MS / 1000)
        for future in futures:
            future.get(timeout=BROKER_TIMEOUT_MS / 1000)
    finally:
        producer.close(timeout=5)


def commit(settings: Settings, name: str, group: str, batch: list[Any]) -> None:
    """Commit the offsets of the letters that were sent."""
    from kafka import OffsetAndMetadata, TopicPartition

    client = consumer(settings, group)
    try:
        ends = {TopicPartition(name, letter.partition): letter.offset + 1 for letter in batch}
        client.assign(list(ends))
        client.commit({part: OffsetAndMetadata(at, "", -1) for part, at in ends.items()})
    finally:
        client.close(autocommit=False)


def errors(letter: ConsumerRecord) -> dict[str, str]:
    """Why a message is a dead letter."""
    from streamclust_connectors.outputs import ERROR_HEADER_PREFIX

    return {
        name.removeprefix(ERROR_HEADER_PREFIX): (value or b"").decode("utf-8", "replace")
        for name, value in letter.headers
        if name.startswith(ERROR_HEADER_PREFIX)
    }


def refused_at(letter: ConsumerRecord) -> datetime:
    """When a message was refused; for a letter that does not say, when it was written to the topic."""
    told = errors(letter).get("timestamp", "")
    milliseconds = int(told) if MILLISECONDS.fullmatch(told) else letter.timestamp
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
