"""Settings -> the objects that the service is made of."""

from __future__ import annotations

import logging
import os
import socket
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from streamclust_connectors.settings import ConfigError, Settings

if TYPE_CHECKING:
    from kafka import KafkaConsumer, KafkaProducer

    from streamclust.streaming import StreamClusterer
    from streamclust_connectors.decode import Decoder
    from streamclust_connectors.file_sources import FileSource
    from streamclust_connectors.kafka import KafkaSource
    from streamclust_connectors.kafka.confluent import ConfluentSource
    from streamclust_connectors.ports import Sink, Source, StreamModel
    from streamclust_connectors.service import Policy, Service
    from streamclust_connectors.shared_state import SharedState

log = logging.getLogger(__name__)
GROUP_TRANSACTION_TIMEOUT_MS = 10_000
GROUP_MAX_POLL_INTERVAL_MS = 120_000
"""How long a rebalance waits for a member, with state in Kafka; meanwhile none learns. Clients' default is 300 s."""
FILES = ("csv", "jsonl", "parquet")
"""Kinds of sources that are files."""


def service(settings: Settings) -> Service:
    """A service that is ready to run."""
    from streamclust_connectors.service import Service
    from streamclust_connectors.shared_state import SharedState

    settings.check()
    kept = settings.checkpoint
    store: SharedState | None = None
    if kept.directory is not None:
        place = (
            None if settings.source_kind == "kafka" else 0
        )  # of a group each member has a place of its own
        store = SharedState(kept.directory, kept.keep, place, kept.wait_seconds)
    origin = source(settings)
    if settings.state == "kafka":
        return group_service(settings, origin)
    return Service(
        origin,
        sink(settings, origin, store),
        learner(settings),
        store,
        decoder(settings)
        if settings.source_kind not in FILES
        else file_decoder(settings, cast("FileSource", origin)),
        policy(settings),
    )


def group_service(settings: Settings, origin: Source) -> Service:
    """A member of a group that has one model, and its state in Kafka."""
    from kafka import KafkaConsumer

    from streamclust_connectors.kafka import GroupModel, KafkaSink, KafkaState
    from streamclust_connectors.service import Service

    kafka = settings.kafka
    assert kafka.topic is not None
    out = cast(KafkaSink, sink(settings, origin, None))
    options = client(settings, KafkaConsumer)
    store = KafkaState(kafka.topic, kafka.group_id, out, options)

    def fresh() -> StreamClusterer:
        return cast("StreamClusterer", learner(settings))

    group = GroupModel(
        kafka.topic, kafka.group_id, member_name(settings), out, options, fresh,
        settings.group.model_every_seconds,
    )  # fmt: skip
    return Service(origin, out, fresh(), store, decoder(settings), policy(settings), group=group)


def member_name(settings: Settings) -> str:
    """What a process of a group is called: its group_instance_id, or host and process."""
    return settings.kafka.group_instance_id or f"{socket.gethostname()}-{os.getpid()}"


def policy(settings: Settings) -> Policy:
    """Intervals of the loop."""
    from streamclust_connectors.service import Policy

    kept = settings.checkpoint
    bundle = settings.output.assignments_per_message if settings.output_kind == "kafka" else 1
    return Policy(
        checkpoint_every=kept.every_seconds,
        checkpoint_events=kept.every_events,
        snapshot_every=settings.snapshot.every_seconds,
        snapshot_method=settings.snapshot.method,
        start=settings.kafka.start,
        on_data_loss=settings.on_data_loss,
        assignments_per_message=bundle,
        component=settings.output.component,
    )


def learner(settings: Settings) -> StreamModel:
    """The clusterer or the features that the service feeds."""
    if settings.model == "features":
        from streamclust.streaming import StreamFeatures

        return StreamFeatures(**settings.features.model_dump())
    from streamclust.streaming import StreamClusterer

    return StreamClusterer(**settings.engine.model_dump())


def warm_up(settings: Settings) -> None:
    """Load the compiled kernels; done in a thread while a client waits for its broker."""
    import numpy as np

    model = learner(settings)
    model.learn_many(np.eye(2))  # which every family takes
    model.assign_many(np.eye(2))


def decoder(settings: Settings) -> Decoder:
    """The decoder of messages."""
    from streamclust_connectors.decode import Decoder, Fields

    fields = settings.decode.model_dump(exclude={"format"})
    return Decoder(Fields(**fields), settings.decode.format)


def source(settings: Settings) -> Source:
    """Where events come from."""
    from streamclust_connectors.sources import Brought, StandardInput, SyntheticSource

    kind, given = settings.source_kind, settings.source
    if kind == "kafka":
        return kafka_source(settings)
    if kind == "stdin":
        return StandardInput()
    if kind == "http":
        return Brought()
    if kind == "synthetic":
        return SyntheticSource(
            given.features, n_events=given.events, n_clusters=given.clusters, seed=given.seed
        )
    assert given.path is not None
    return file_source(given.path, kind, settings)


def file_source(path: Path, kind: str, settings: Settings | None = None) -> FileSource:
    """The events of a file, in the dialect that the settings tell."""
    from streamclust_connectors.dialect import Told
    from streamclust_connectors.file_sources import CsvSource, LinesSource, ParquetSource

    if kind == "csv" and settings is not None:
        given = settings.source
        told = Told(given.delimiter, given.decimal, given.encoding, given.header, given.null or ())
        return CsvSource(path, told=told, as_text=[settings.decode.key or ""])
    kinds: dict[str, type[Any]] = {"jsonl": LinesSource, "csv": CsvSource, "parquet": ParquetSource}
    found: FileSource = kinds[kind](path)
    return found


def file_decoder(settings: Settings, origin: FileSource) -> Decoder:
    """The decoder of a file's events; columns that are not numbers are left out, and logged."""
    from streamclust_connectors.cli.reading import look_at

    looked = look_at(origin, decoder(settings), settings)
    for note in looked.notes:
        log.info(note)
    if looked.warning:
        log.warning(looked.warning)
    return looked.decoder


def kafka_source(settings: Settings) -> KafkaSource | ConfluentSource:
    """A member of the consumer group."""
    kafka = settings.kafka
    options: dict[str, Any] = {
        "session_timeout_ms": kafka.session_timeout_ms,
        "max_poll_records": kafka.max_poll_records,
    }
    if kafka.group_instance_id is not None:
        options["group_instance_id"] = kafka.group_instance_id
    defaults: dict[str, Any] = {}
    if settings.state == "kafka":
        defaults["max_poll_interval_ms"] = max(GROUP_MAX_POLL_INTERVAL_MS, kafka.session_timeout_ms)
    topics = [] if kafka.topic is None else [kafka.topic]
    if kafka.client == "kafka-python":
        from kafka import KafkaConsumer

        from streamclust_connectors.kafka import KafkaSource

        return KafkaSource(topics, kafka.group_id, **defaults | client(settings, KafkaConsumer) | options)
    from streamclust_connectors.kafka.confluent import ConfluentSource

    found = ConfluentSource(topics, kafka.group_id, **defaults | kafka.shared | options)
    try:
        found.check()
    except ValueError as error:
        raise ConfigError(f"kafka: {error}") from None
    return found


def sink(settings: Settings, origin: Source, store: SharedState | None) -> Sink:
    """Where results go."""
    from streamclust_connectors.sinks import LinesSink

    kind, topics = settings.output_kind, dict(settings.topics)
    if kind == "jsonl":
        return LinesSink(settings.output.path, tuple(topics))
    if kind != "kafka":
        return LinesSink(None, tuple(topics) if kind == "stdout" else ())
    from streamclust_connectors.kafka import KafkaSink

    member: Any = origin if settings.source_kind == "kafka" else kafka_source(settings)
    topics.setdefault("dead-letters", "")
    options: dict[str, Any] = {}  # librdkafka's producer has those of the source
    if settings.kafka.client == "kafka-python":
        from kafka import KafkaProducer

        options |= client(settings, KafkaProducer)
    if settings.state == "kafka":  # a process that dies holds others up until its transaction ends
        options["transaction_timeout_ms"] = GROUP_TRANSACTION_TIMEOUT_MS
    largest = settings.output.max_message_bytes
    return KafkaSink(member, topics, transactional_id(settings, store), largest, **options)


def transactional_id(settings: Settings, store: SharedState | None) -> str | None:
    """Transactional id: unique to this process, and the same after a restart if its state is on this machine.

    With state in Kafka a process without a name has an id of its own each time: the broker fences by group membership.
    """
    kafka = settings.kafka
    if not settings.exactly_once:
        return None
    if kafka.transactional_id is not None:
        return kafka.transactional_id
    if settings.state == "kafka" and kafka.group_instance_id is None:
        return f"{kafka.group_id}.{kafka.topic}.{uuid.uuid4().hex[:12]}"
    place = kafka.group_instance_id or (0 if store is None else store.place)
    return f"{kafka.group_id}.{kafka.topic}.{place}"


def client(settings: Settings, kind: type[KafkaConsumer | KafkaProducer]) -> dict[str, Any]:
    """Options for a kafka-python client; an option that no client knows is refused.

    Options given for confluent-kafka are left out: commands other than `run` use kafka-python.
    """
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

    given = settings.kafka.shared
    if settings.kafka.client == "confluent":
        given = {name: value for name, value in given.items() if name not in settings.kafka.options}
    known = {
        name for each in (KafkaAdminClient, KafkaConsumer, KafkaProducer) for name in each.DEFAULT_CONFIG
    }
    if unknown := sorted(given.keys() - known):
        raise ConfigError(f"kafka.options: kafka-python knows no {', '.join(unknown)}")
    return {name: value for name, value in given.items() if name in kind.DEFAULT_CONFIG}
