"""Settings -> the objects that the service is made of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamclust_connectors.settings import ConfigError, Settings

if TYPE_CHECKING:
    from streamclust_connectors.decode import Decoder
    from streamclust_connectors.kafka import KafkaSource
    from streamclust_connectors.ports import Sink, Source
    from streamclust_connectors.service import Service
    from streamclust_connectors.shared_state import SharedState
    from streamclust_connectors.sources import IteratorSource


def service(settings: Settings) -> Service:
    """A service that is ready to run."""
    from streamclust import StreamClusterer
    from streamclust_connectors.service import Policy, Service
    from streamclust_connectors.shared_state import SharedState

    settings.check()
    kept = settings.checkpoint
    store = None if kept.directory is None else SharedState(kept.directory, kept.keep)
    origin = source(settings)
    bundle = settings.output.assignments_per_message if settings.output_kind == "kafka" else 1
    return Service(
        origin,
        sink(settings, origin, store),
        StreamClusterer(**settings.engine.model_dump()),
        store,
        decoder(settings),
        Policy(
            checkpoint_every=kept.every_seconds,
            checkpoint_events=kept.every_events,
            snapshot_every=settings.snapshot.every_seconds,
            snapshot_method=settings.snapshot.method,
            start=settings.kafka.start,
            on_data_loss=settings.on_data_loss,
            assignments_per_message=bundle,
        ),
    )


def warm_up(settings: Settings) -> None:
    """Bring the kernels that learn from the disk: a thread may do this while a client waits for its broker."""
    import numpy as np

    from streamclust import StreamClusterer

    clusterer = StreamClusterer(**settings.engine.model_dump())
    clusterer.learn_many(np.eye(2))  # which every family takes
    clusterer.assign_many(np.eye(2))


def decoder(settings: Settings) -> Decoder:
    """What reads messages."""
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
    return file_source(given.path, kind)


def file_source(path: Path, kind: str) -> IteratorSource:
    """The events of a file."""
    from streamclust_connectors.sources import CsvSource, LinesSource, ParquetSource

    kinds: dict[str, type[Any]] = {"jsonl": LinesSource, "csv": CsvSource, "parquet": ParquetSource}
    found: IteratorSource = kinds[kind](path)
    return found


def kafka_source(settings: Settings) -> KafkaSource:
    """A member of the consumer group."""
    from kafka import KafkaConsumer

    from streamclust_connectors.kafka import KafkaSource

    kafka = settings.kafka
    options = client(settings, KafkaConsumer) | {
        "session_timeout_ms": kafka.session_timeout_ms,
        "max_poll_records": kafka.max_poll_records,
    }
    if kafka.group_instance_id is not None:
        options["group_instance_id"] = kafka.group_instance_id
    return KafkaSource([] if kafka.topic is None else [kafka.topic], kafka.group_id, **options)


def sink(settings: Settings, origin: Source, store: SharedState | None) -> Sink:
    """Where results go."""
    from streamclust_connectors.sinks import LinesSink

    kind, topics = settings.output_kind, dict(settings.topics)
    if kind == "jsonl":
        return LinesSink(settings.output.path, tuple(topics))  # type: ignore[arg-type]
    if kind != "kafka":
        return LinesSink(None, tuple(topics) if kind == "stdout" else ())  # type: ignore[arg-type]
    from kafka import KafkaProducer

    from streamclust_connectors.kafka import KafkaSink, KafkaSource

    member = origin if isinstance(origin, KafkaSource) else kafka_source(settings)
    topics.setdefault("dead-letters", "")
    return KafkaSink(
        member,
        topics,  # type: ignore[arg-type]
        transactional_id(settings, store),
        largest=settings.output.max_message_bytes,
        **client(settings, KafkaProducer),
    )


def transactional_id(settings: Settings, store: SharedState | None) -> str | None:
    """The name of this process's transactions: the same after a restart, and no other process's."""
    kafka = settings.kafka
    if settings.output.delivery != "exactly-once":
        return None
    if kafka.transactional_id is not None:
        return kafka.transactional_id
    place = kafka.group_instance_id or (0 if store is None else store.place)
    return f"{kafka.group_id}.{kafka.topic}.{place}"


def client(settings: Settings, kind: Any) -> dict[str, Any]:  # noqa: ANN401
    """The options that a client of kafka-python takes; one that none of them takes is refused."""
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

    known = {
        name for each in (KafkaAdminClient, KafkaConsumer, KafkaProducer) for name in each.DEFAULT_CONFIG
    }
    if unknown := sorted(settings.kafka.options.keys() - known):
        raise ConfigError(f"kafka.options: kafka-python knows no {', '.join(unknown)}")
    return {name: value for name, value in settings.kafka.client.items() if name in kind.DEFAULT_CONFIG}
