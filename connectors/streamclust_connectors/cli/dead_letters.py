"""Commands dlq ls and dlq replay: dead letters, the messages that could not be learnt."""

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

app = typer.Typer(no_args_is_help=True, help="List and replay dead letters.")

BROKER_TIMEOUT_MS = 10_000
"""Time limit of each call to the broker."""

MILLISECONDS = re.compile("[0-9]{1,14}")
"""Moments in headers: until the year 5138, so that each is a date."""

BATCH_LETTERS = 500
"""Number of letters sent between two commits."""

Topic = Annotated[str | None, typer.Option("--topic", "-t", help="Input topic of the dead letters.")]
DlqTopic = Annotated[
    str | None, typer.Option("--dlq", help="Topic of the dead letters; by default <topic>.dlq.")
]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Maximal number of dead letters.")]


@app.command(
    epilog=examples("streamclust dlq ls --topic events", "streamclust dlq ls --dlq events.dlq --limit 20")
)
def ls(
    topic: Topic = None,
    dlq: DlqTopic = None,
    limit: Limit = None,
    servers: Servers = None,
    config: Config = None,
    given: Set = None,
) -> None:
    """List the origin and reason of each dead letter, without its content."""
    from streamclust_connectors.cli.tables import counted, table

    settings, name = dead_letter_topic(topic, dlq, servers, config, given)
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
    console.print(f"{counted(len(rows), 'dead letter')} in {name}", markup=False)


@app.command(
    epilog=examples(
        "streamclust dlq replay --topic events --dry-run",
        "streamclust dlq replay --topic events --to events.repaired",
    )
)
def replay(
    topic: Topic = None,
    dlq: DlqTopic = None,
    to: Annotated[
        str | None, typer.Option(help="Topic to send to; by default the topic each came from.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print how many would be sent.")] = False,
    limit: Limit = None,
    servers: Servers = None,
    config: Config = None,
    given: Set = None,
) -> None:
    """Send dead letters again, unchanged. Each is sent once: the next replay continues after this one.

    Dead letters that were too large to keep their value are skipped and counted.
    """
    from streamclust_connectors.cli.tables import counted
    from streamclust_connectors.service.outputs import LEFT_OUT

    settings, name = dead_letter_topic(topic, dlq, servers, config, given)
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
    typer.echo(f"{counted(sent, 'dead letter')} {'would be ' if dry_run else ''}sent again")
    if left:
        was = "was skipped: it" if left == 1 else "were skipped: they"
        typer.echo(f"{left:,} {was} had been too large to keep the value", err=True)


def dead_letter_topic(
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
        raise typer.BadParameter("the input topic of the dead letters is required", param_hint="--topic")
    if "dead-letters" not in settings.topics:
        raise typer.BadParameter("output.dlq is false, so dead letters are not stored", param_hint="--dlq")
    return settings, settings.topics["dead-letters"]


# -------------------------------------------------------------------- Kafka


def consumer(settings: Settings, group: str | None) -> KafkaConsumer:
    """A consumer with manually assigned partitions; it joins no group, but may store a group's offsets."""
    from kafka import KafkaConsumer

    from streamclust_connectors.cli.service_factory import client_options

    options = {"group_id": group, "enable_auto_commit": False, "auto_offset_reset": "none"}
    options |= {"isolation_level": "read_committed"}
    return KafkaConsumer(**client_options(settings, KafkaConsumer) | options)


def read(settings: Settings, name: str, group: str | None, limit: int | None) -> Iterator[Any]:
    """All current dead letters, or those that a group has not replayed yet."""
    from kafka import TopicPartition

    client = consumer(settings, group)
    try:
        numbers = client.partitions_for_topic(name)
        if not numbers:
            raise BadData(
                f"there is no topic {name}: there are no dead letters yet, or the topic has another name (--dlq)"
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
                for record in poll_partition(client, part, left or BATCH_LETTERS):
                    if record.offset < end[part]:
                        left = None if left is None else left - 1
                        yield record
    finally:
        client.close(autocommit=False)


def poll_partition(client: KafkaConsumer, part: TopicPartition, most: int) -> list[Any]:
    """The next letters of a partition; none if only transaction markers are left."""
    deadline, before = monotonic() + BROKER_TIMEOUT_MS / 1000, client.position(part)
    while monotonic() < deadline:
        records: list[Any] = client.poll(timeout_ms=200, max_records=most).get(part, [])
        if records or client.position(part) > before:
            return records
    raise TimeoutError(
        f"the broker did not deliver the next dead letters within {BROKER_TIMEOUT_MS // 1000} s"
    )


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

    from streamclust_connectors.cli.service_factory import client_options
    from streamclust_connectors.service.outputs import ERROR_HEADER_PREFIX

    producer = KafkaProducer(**client_options(settings, KafkaProducer))
    try:
        futures = []
        for letter in batch:
            target = to or errors(letter).get("topic")
            if target is None:
                raise BadData(
                    f"dead letter {letter.partition}:{letter.offset} has no header with its topic; give one with --to"
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
    """Origin and reason of a dead letter, from its headers."""
    from streamclust_connectors.service.outputs import ERROR_HEADER_PREFIX

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
