"""Creates the service and its parts from the settings."""

from __future__ import annotations

import logging
import os
import socket
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from streamclust_connectors.settings import SCHEMA_FORMATS, ConfigError, Settings

if TYPE_CHECKING:
    from kafka import KafkaConsumer, KafkaProducer
    from msgspec import Struct

    from streamclust.streaming import StreamClusterer
    from streamclust_connectors.decode import Decoder
    from streamclust_connectors.files.sources import FileSource
    from streamclust_connectors.interfaces import Channel, Encode, Sink, Source, StreamModel
    from streamclust_connectors.kafka import KafkaSource
    from streamclust_connectors.kafka.confluent import ConfluentSource
    from streamclust_connectors.registry import Registry
    from streamclust_connectors.service import Policy, Service
    from streamclust_connectors.state_directory import StateDirectory

log = logging.getLogger(__name__)
GROUP_TRANSACTION_TIMEOUT_MS = 10_000
"""Transaction time-out with state in Kafka: a dead process delays the others until then."""
GROUP_MAX_POLL_INTERVAL_MS = 120_000
"""Maximal time a rebalance waits for a member with state in Kafka; none learns meanwhile. Default of clients: 300 s."""
FILES = ("csv", "jsonl", "parquet")
"""Kinds of sources that read files."""


def create_service(settings: Settings) -> Service:
    """A service that is ready to run."""
    from streamclust_connectors.service import Service
    from streamclust_connectors.state_directory import StateDirectory

    settings.check()
    checkpoint = settings.checkpoint
    store: StateDirectory | None = None
    if checkpoint.directory is not None:
        slot = None if settings.source_kind == "kafka" else 0  # each member of a group takes a free slot
        store = StateDirectory(checkpoint.directory, checkpoint.keep, slot, checkpoint.wait_seconds)
    origin = source(settings)
    if settings.state == "kafka":
        return group_service(settings, origin)
    out, read, how = sink(settings, origin, store), service_decoder(settings, origin), policy(settings)
    if settings.per.key is None:
        return Service(origin, out, learner(settings), store, read, how)
    from streamclust_connectors.service.key_models import KeyModels, KeyStore

    assert checkpoint.directory is not None
    models = KeyModels(
        settings.engine.model_dump(), checkpoint.directory, settings.per.max_models, settings.per.by_record
    )
    return Service(origin, out, models, KeyStore(models), read, how)


def group_service(settings: Settings, origin: Source) -> Service:
    """A member of a group that shares one model and keeps its state in Kafka."""
    from kafka import KafkaConsumer

    from streamclust_connectors.kafka import GroupModel, KafkaSink, KafkaState
    from streamclust_connectors.service import Service

    kafka = settings.kafka
    assert kafka.topic is not None
    out = cast(KafkaSink, sink(settings, origin, None))
    options = client_options(settings, KafkaConsumer)
    store = KafkaState(kafka.topic, kafka.group_id, out, options)

    def fresh() -> StreamClusterer:
        return cast("StreamClusterer", learner(settings))

    group = GroupModel(
        kafka.topic, kafka.group_id, member_name(settings), out, options, fresh,
        settings.group.model_every_seconds,
    )  # fmt: skip
    return Service(origin, out, fresh(), store, decoder(settings), policy(settings), group=group)


def member_name(settings: Settings) -> str:
    """Name of a member: its group_instance_id, or host name and process id."""
    return settings.kafka.group_instance_id or f"{socket.gethostname()}-{os.getpid()}"


def policy(settings: Settings) -> Policy:
    """Intervals and error handling of the loop."""
    from streamclust_connectors.service import Policy
    from streamclust_connectors.service.outputs import AssignmentForm

    checkpoint, output = settings.checkpoint, settings.output
    bundle = output.assignments_per_message if settings.output_kind == "kafka" else 1
    return Policy(
        checkpoint_every=checkpoint.every_seconds,
        checkpoint_events=checkpoint.every_events,
        snapshot_every=settings.snapshot.every_seconds,
        snapshot_method=settings.snapshot.method,
        start=settings.kafka.start,
        on_data_loss=settings.on_data_loss,
        form=AssignmentForm(
            bundle, output.component, output.copy_headers, output.copy_timestamp, output.levels
        ),
        encoders=encoders(settings),
    )


def registry(settings: Settings) -> Registry:
    """The schema registry of the settings; ImportError if a package that the formats need is missing."""
    from streamclust_connectors.registry import Registry, import_packages

    import_packages({settings.decode.format, settings.output.format})
    given = settings.registry
    assert given.url is not None
    return Registry(
        given.url,
        given.username,
        None if given.password is None else given.password.get_secret_value(),
        None if given.ssl_cafile is None else str(given.ssl_cafile),
        given.register_schemas,
    )


def encoders(settings: Settings) -> dict[Channel, Encode]:
    """Writers of the channels whose records have a schema in the registry."""
    if settings.output.format not in SCHEMA_FORMATS:
        return {}
    from streamclust_connectors.registry import writer

    connected, format = registry(settings), settings.output.format
    return {
        channel: writer(format, connected, settings.topics[channel], record)
        for channel, record in flat_records(settings.model).items()
        if channel in settings.topics
    }


def flat_records(model: str) -> dict[Channel, type[Struct]]:
    """The class of the records of each channel that can have a schema."""
    from streamclust_connectors import output_records as records

    assigned = records.FeaturesOutput if model == "features" else records.AssignmentOutput
    return {
        "assignments": assigned,
        "lifecycle": records.LifecycleOutput,
        "refusals": records.RefusalOutput,
    }


def learner(settings: Settings) -> StreamModel:
    """The model that the service trains: a clusterer, or features."""
    if settings.model == "features":
        from streamclust.streaming import StreamFeatures

        return StreamFeatures(**settings.features.model_dump())
    from streamclust.streaming import StreamClusterer

    return StreamClusterer(**settings.engine.model_dump())


def decoder(settings: Settings) -> Decoder:
    """The decoder of messages."""
    from streamclust_connectors.decode import Decoder, Fields

    fields = Fields(**settings.decode.model_dump(exclude={"format"}) | {"key": settings.key_path})
    format = settings.decode.format
    if format in SCHEMA_FORMATS:
        from streamclust_connectors.registry import reader

        return Decoder(fields, reader(format, registry(settings)))
    return Decoder(fields, format)


def service_decoder(settings: Settings, origin: Source) -> Decoder:
    """The decoder of a service's messages or file."""
    if settings.source_kind in FILES:
        return file_decoder(settings, cast("FileSource", origin))
    return decoder(settings)


def source(settings: Settings) -> Source:
    """The source of events."""
    from streamclust_connectors.sources import HttpSource, StandardInput, SyntheticSource

    kind, given = settings.source_kind, settings.source
    if kind == "kafka":
        return kafka_source(settings)
    if kind == "stdin":
        return StandardInput()
    if kind == "http":
        return HttpSource()
    if kind == "synthetic":
        return SyntheticSource(
            given.features, n_events=given.events, n_clusters=given.clusters, seed=given.seed
        )
    assert given.path is not None
    return file_source(given.path, kind, settings)


def file_source(path: Path, kind: str, settings: Settings | None = None) -> FileSource:
    """The source of a file, with the CSV dialect of the settings."""
    from streamclust_connectors.files.csv_dialect import DialectOptions
    from streamclust_connectors.files.sources import CsvSource, LinesSource, ParquetSource

    if kind == "csv" and settings is not None:
        given = settings.source
        dialect = DialectOptions(
            given.delimiter, given.decimal, given.encoding, given.header, given.null or ()
        )
        return CsvSource(path, dialect_options=dialect, as_text=[settings.key_path or ""])
    kinds: dict[str, type[Any]] = {"jsonl": LinesSource, "csv": CsvSource, "parquet": ParquetSource}
    found: FileSource = kinds[kind](path)
    return found


def file_decoder(settings: Settings, origin: FileSource) -> Decoder:
    """The decoder of a file's events; columns that are not numeric are ignored and logged."""
    from streamclust_connectors.cli.file_preview import preview_file

    preview = preview_file(origin, decoder(settings), settings)
    for note in preview.notes:
        log.info(note)
    if preview.warning:
        log.warning(preview.warning)
    return preview.decoder


def kafka_source(settings: Settings) -> KafkaSource | ConfluentSource:
    """The source of a Kafka topic, as a member of the consumer group."""
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
    if kafka.library == "kafka-python":
        from kafka import KafkaConsumer

        from streamclust_connectors.kafka import KafkaSource

        return KafkaSource(
            topics, kafka.group_id, **defaults | client_options(settings, KafkaConsumer) | options
        )
    from streamclust_connectors.kafka.confluent import ConfluentSource

    found = ConfluentSource(topics, kafka.group_id, **defaults | kafka.shared | options)
    try:
        found.check_options()
    except ValueError as error:
        raise ConfigError(
            f"kafka: {error} (the client is confluent-kafka; options of kafka-python need kafka.client = kafka-python)"
        ) from None
    return found


def sink(settings: Settings, origin: Source, store: StateDirectory | None) -> Sink:
    """The sink of results."""
    from streamclust_connectors.sinks import LinesSink

    kind, topics = settings.output_kind, dict(settings.topics)
    if kind == "jsonl":
        return LinesSink(settings.output.path, tuple(topics))
    if kind != "kafka":
        return LinesSink(None, tuple(topics) if kind == "stdout" else ())
    from streamclust_connectors.kafka import KafkaSink

    member: Any = origin if settings.source_kind == "kafka" else kafka_source(settings)
    topics.setdefault("dead-letters", "")
    options: dict[str, Any] = {}  # librdkafka's producer takes them from the source
    if settings.kafka.library == "kafka-python":
        from kafka import KafkaProducer

        options |= client_options(settings, KafkaProducer)
    if settings.state == "kafka":  # a dead process delays the others until its transaction ends
        options["transaction_timeout_ms"] = GROUP_TRANSACTION_TIMEOUT_MS
    limit = settings.output.max_message_bytes
    return KafkaSink(member, topics, transactional_id(settings, store), limit, **options)


def transactional_id(settings: Settings, store: StateDirectory | None) -> str | None:
    """Transactional id: unique to this process, and unchanged by a restart if its state is in a directory.

    With state in Kafka, a process without group_instance_id gets a new id at each start: the broker fences by group
    membership.
    """
    kafka = settings.kafka
    if not settings.exactly_once:
        return None
    if kafka.transactional_id is not None:
        return kafka.transactional_id
    if settings.state == "kafka" and kafka.group_instance_id is None:
        return f"{kafka.group_id}.{kafka.topic}.{uuid.uuid4().hex[:12]}"
    name = kafka.group_instance_id or (0 if store is None else store.slot)
    return f"{kafka.group_id}.{kafka.topic}.{name}"


def with_token_provider(options: dict[str, Any]) -> dict[str, Any]:
    """Options for kafka-python: a provider of tokens instead of the settings of OAUTHBEARER."""
    if "sasl_oauth_token_url" not in options:
        return options
    from streamclust_connectors.kafka.oauth import ClientCredentials

    names = ("sasl_oauth_token_url", "sasl_oauth_client_id", "sasl_oauth_client_secret", "sasl_oauth_scope")
    url, id, secret, scope = (options.get(name) for name in names)
    provider = ClientCredentials(str(url), str(id), str(secret), scope)
    return {name: value for name, value in options.items() if name not in names} | {
        "sasl_oauth_token_provider": provider
    }


def client_options(settings: Settings, kind: type[KafkaConsumer | KafkaProducer]) -> dict[str, Any]:
    """Options for a kafka-python client; unknown options are refused.

    Options for confluent-kafka are left out: commands other than `run` use kafka-python.
    """
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

    given = with_token_provider(settings.kafka.shared)
    if settings.kafka.library == "confluent":
        given = {name: value for name, value in given.items() if name not in settings.kafka.options}
    known = {
        name for each in (KafkaAdminClient, KafkaConsumer, KafkaProducer) for name in each.DEFAULT_CONFIG
    }
    if unknown := sorted(given.keys() - known):
        raise ConfigError(f"kafka.options: kafka-python has no option {', '.join(unknown)}")
    return {name: value for name, value in given.items() if name in kind.DEFAULT_CONFIG}
