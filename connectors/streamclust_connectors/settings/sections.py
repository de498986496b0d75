"""Sections of the settings except [engine] and [features]: sources, Kafka, outputs, checkpoints, logs, HTTP."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator
from pydantic_settings import NoDecode

from streamclust_connectors.files.csv_dialect import DELIMITER_NAMES
from streamclust_connectors.settings.base import (
    Count,
    Names,
    NotNegative,
    Positive,
    Section,
    Seed,
    Topic,
    listed,
    plain_values,
)

SourceKind = Literal["kafka", "jsonl", "csv", "parquet", "stdin", "synthetic", "http"]
OutputKind = Literal["kafka", "jsonl", "stdout", "none"]
LevelChoice = Literal["fine"] | Count


def _delimiter(value: object) -> object:
    """Convert the name of a delimiter to the delimiter."""
    return DELIMITER_NAMES.get(value.lower(), value) if isinstance(value, str) else value


class SourceSection(Section):
    """Source of events."""

    kind: SourceKind | None = None
    """Inferred if not set: from the suffix of the path, or kafka if there is a topic."""
    path: Path | None = None
    """File to read; "-" for standard input."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1), BeforeValidator(_delimiter)] | None = None
    """CSV: delimiter, as a character or tab, comma, semicolon, pipe, space; detected if not set."""
    decimal: Literal[".", ","] | None = None
    """CSV: decimal mark; detected if not set."""
    encoding: str | None = None
    """CSV: encoding, for example utf-8, latin-1, utf-16; detected if not set."""
    header: bool | None = None
    """CSV: whether the first row holds column names; detected if not set."""
    null: Names = None
    """CSV: further texts of missing values, besides empty cells, NA, NaN, null, ? and -."""
    events: Count = 300_000
    """Synthetic: number of events."""
    features: Count = 2
    """Synthetic: number of features."""
    clusters: Annotated[int, Field(ge=3)] = 8
    """Synthetic: number of clusters at the start."""
    seed: Seed = 0
    """Synthetic: seed of the generator."""


PASSED = (
    *("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password"),
    *("sasl_mechanism", "sasl_plain_username", "sasl_plain_password"),
    *("sasl_oauth_token_url", "sasl_oauth_client_id", "sasl_oauth_client_secret", "sasl_oauth_scope"),
)
"""Options that are passed to every client if they are set."""


class KafkaSection(Section):
    """Kafka brokers and consumer group; most options have kafka-python's names."""

    client: Literal["auto", "kafka-python", "confluent"] = "auto"
    """Client library. auto: confluent-kafka, which is faster, if it is installed (streamclust[confluent])."""
    bootstrap_servers: Annotated[tuple[str, ...], Field(min_length=1), NoDecode, BeforeValidator(listed)] = (
        "localhost:9092",
    )
    """Bootstrap brokers as host:port, separated by commas."""
    topic: str | None = None
    """Topic to read."""
    group_id: str = "streamclust"
    """Consumer group; its processes share the partitions."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where to start a partition without a saved offset."""
    group_instance_id: str | None = None
    """Static membership: a unique name of the process, which then keeps its partitions through a restart."""
    client_id: str = "streamclust"
    """Name of this process in the broker's logs."""
    transactional_id: str | None = None
    """Id of the transactions of exactly-once outputs; made from group and instance if not set."""
    session_timeout_ms: Count = 45_000
    """Time without a heartbeat after which the group removes this process."""
    max_poll_records: Count = 5000
    """Maximal number of records per poll."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Protocol of connections to the brokers: with or without TLS (SSL) and SASL."""
    ssl_cafile: Path | None = None
    """File of trusted CA certificates."""
    ssl_certfile: Path | None = None
    """File of the client's certificate."""
    ssl_keyfile: Path | None = None
    """File of the client's private key."""
    ssl_password: SecretStr | None = None
    """Password of the private key; only from the environment."""
    ssl_password_file: Path | None = None
    """File that contains ssl_password."""
    ssl_check_hostname: bool = True
    """Whether the broker's certificate must match its host name."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER"] | None = None
    """Authentication mechanism."""
    sasl_plain_username: str | None = None
    """User name."""
    sasl_plain_password: SecretStr | None = None
    """Password; only from the environment."""
    sasl_plain_password_file: Path | None = None
    """File that contains sasl_plain_password."""
    sasl_oauth_token_url: str | None = None
    """OAUTHBEARER: endpoint that gives tokens for client credentials."""
    sasl_oauth_client_id: str | None = None
    """OAUTHBEARER: id of the client."""
    sasl_oauth_client_secret: SecretStr | None = None
    """OAUTHBEARER: secret of the client; only from the environment."""
    sasl_oauth_client_secret_file: Path | None = None
    """File that contains sasl_oauth_client_secret."""
    sasl_oauth_scope: str | None = None
    """OAUTHBEARER: scope to ask for."""
    options: Annotated[dict[str, Any], BeforeValidator(plain_values)] = Field(
        default_factory=dict, repr=False
    )
    """Further options of the client; for confluent, librdkafka's names with dots or underscores."""

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.security_protocol.startswith("SASL") and self.sasl_mechanism is None:
            raise ValueError(f"{self.security_protocol} needs sasl_mechanism, for example SCRAM-SHA-512")
        if self.sasl_mechanism is not None and not self.security_protocol.startswith("SASL"):
            raise ValueError("sasl_mechanism needs a security_protocol of SASL_SSL or SASL_PLAINTEXT")
        if named := sorted(self.options.keys() & KafkaSection.model_fields.keys()):
            raise ValueError(f"{', '.join(named)} must be set in [kafka], not in kafka.options")
        _read_secrets(self, "ssl_password", "sasl_plain_password", "sasl_oauth_client_secret")
        oauth = self.sasl_oauth_token_url, self.sasl_oauth_client_id, self.sasl_oauth_client_secret
        if any(oauth) and not (all(oauth) and self.sasl_mechanism == "OAUTHBEARER"):
            raise ValueError(
                "sasl_oauth_token_url, sasl_oauth_client_id and sasl_oauth_client_secret must be given together, with "
                "sasl_mechanism OAUTHBEARER"
            )
        return self

    @property
    def library(self) -> Literal["kafka-python", "confluent"]:
        """The client library: as set or, with auto, confluent if it is installed."""
        if self.client != "auto":
            return self.client
        return "kafka-python" if find_spec("confluent_kafka") is None else "confluent"

    @property
    def shared(self) -> dict[str, Any]:
        """Options of every client: brokers and security."""
        found: dict[str, Any] = {
            "bootstrap_servers": list(self.bootstrap_servers),
            "client_id": self.client_id,
            "security_protocol": self.security_protocol,
        }
        for name in PASSED:
            value = getattr(self, name)
            if value is not None:
                found[name] = _given(value)
        if "SSL" in self.security_protocol:
            found["ssl_check_hostname"] = self.ssl_check_hostname
        return found | self.options


def _given(value: object) -> object:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value) if isinstance(value, Path) else value


def _read_secrets(section: Section, *names: str) -> None:
    """Read secrets from the files that are given for them."""
    for name in names:
        path = getattr(section, f"{name}_file")
        if path is not None and getattr(section, name) is not None:
            raise ValueError(f"{name} and {name}_file are both given; remove one")
        if path is not None:
            object.__setattr__(section, name, SecretStr(_secret(name, path)))


def _secret(name: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{name}_file {str(path)!r} cannot be read: {cause(error)}") from None


class DecodeSection(Section):
    """Decoding of messages. Paths are dotted: payload.vector."""

    format: Literal["json", "msgpack", "avro", "protobuf", "json-schema"] = "json"
    """Format of messages; the last three with schemas of the registry."""
    events: str | None = None
    """Path of the list of events in a message."""
    vector: str | None = None
    """Path of the vector in an event: an object, array of numbers or base64 of float32. Default: the event itself."""
    features: Names = None
    """Members of the object to use as features. Default: all but key, time and weight."""
    exclude: Annotated[tuple[str, ...], NoDecode, BeforeValidator(listed)] = ()
    """Members of the object to ignore."""
    key: str | None = None
    """Path of the event's key, which is copied to its assignment."""
    time: str | None = None
    """Path of the event's time (a number or an ISO 8601 date), for a half-life in time."""
    weight: str | None = None
    """Path of the event's weight; 1 if not set."""


class RegistrySection(Section):
    """Schema registry, for messages of Avro, Protobuf or JSON Schema."""

    url: str | None = None
    """URL of its API, which is Confluent's: http://registry:8081; Apicurio's ends with /apis/ccompat/v7."""
    username: str | None = None
    """User name, for basic authentication."""
    password: SecretStr | None = None
    """Password; only from the environment."""
    password_file: Path | None = None
    """File that contains password."""
    ssl_cafile: Path | None = None
    """File of trusted CA certificates."""
    register_schemas: bool = True
    """Whether to register the schemas of outputs. If false they must be there: `streamclust config schemas`."""

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        _read_secrets(self, "password")
        if self.password is not None and self.username is None:
            raise ValueError("username is not set, but there is a password")
        return self


class OutputSection(Section):
    """Output of results."""

    kind: OutputKind | None = None
    """Inferred if not set: from the path; else kafka if events come from Kafka, else stdout."""
    path: Path | None = None
    """File of JSON lines to append to; "-" for standard output."""
    assignments: Topic = True
    """Cluster, probability and novelty of each event. Name of the topic, or true for <topic>.assignments."""
    lifecycle: Topic = True
    """Lifecycle events: clusters born, split, merged, died, returned."""
    snapshots: Topic = True
    """Snapshots of the hierarchy."""
    dlq: Topic = True
    """Dead letters: messages that could not be learnt. True for <topic>.dlq; with false they are only counted."""
    refusals: Topic = False
    """A record for each dead letter, with its origin and the reason as fields. True for <topic>.refusals."""
    format: Literal["json", "avro", "protobuf", "json-schema"] = "json"
    """Kafka: format of assignments, lifecycle events and refusals; the last three with schemas of the registry."""
    delivery: Literal["at-least-once", "exactly-once"] = "at-least-once"
    """After a restart some outputs may be sent twice (at-least-once), or transactions prevent that (exactly-once)."""
    assignments_per_message: Count = 1
    """Kafka: number of assignments per message; above 1 a message is a list, and has no key."""
    copy_headers: Annotated[tuple[str, ...], NoDecode, BeforeValidator(listed)] = (
        "traceparent",
        "tracestate",
    )
    """Kafka: headers of the input that its assignments have too; * for all. Lists of assignments have none."""
    copy_timestamp: bool = False
    """Kafka: whether assignments have the timestamp of the input instead of the time at which they are sent."""
    component: bool = False
    """Whether assignments include the component of the cluster: its number in the model of that version."""
    levels: Annotated[tuple[LevelChoice, ...], NoDecode, BeforeValidator(listed)] = ()
    """Levels of which assignments include the cluster's id, too: numbers of clusters, or fine. None by default."""
    max_message_bytes: Annotated[int, Field(ge=2000)] = 900_000
    """Kafka: larger dead letters are sent without their value, larger snapshots without details or not at all."""


class WebhookSection(Section):
    """Alerts posted by `streamclust webhooks`."""

    url: str | None = None
    """URL to which alerts are posted as JSON."""
    secret: SecretStr | None = None
    """Secret of the signature (HMAC-SHA256); only from the environment."""
    secret_file: Path | None = None
    """File that contains secret."""
    kinds: Annotated[tuple[str, ...], NoDecode, BeforeValidator(listed)] = (
        "born",
        "died",
        "merged",
        "returned",
        "split",
    )
    """Kinds of lifecycle events that are alerts."""
    novelty: float | None = None
    """Novelty from which on an event is an alert; if not set, none is."""
    timeout_seconds: Positive = 10.0
    """Time limit of a request."""
    give_up_seconds: Positive = 3600.0
    """Time after which an alert that is not taken is given up, with an error in the log."""

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        _read_secrets(self, "secret")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError("url must begin with http:// or https://")
        return self


class CheckpointSection(Section):
    """Checkpoints, from which a restart continues."""

    directory: Path | None = None
    """Directory of checkpoints, unless state is "kafka". Without one, a restart starts from scratch."""
    every_seconds: Positive = 10.0
    """Time between checkpoints."""
    every_events: Count | None = None
    """Also write a checkpoint after this number of events."""
    keep: Count = 3
    """Number of checkpoints to keep."""
    wait_seconds: NotNegative = 60.0
    """Time to wait at the start while another process uses the directory; members of a Kafka group share it."""


RECORD_KEY = "record-key"
"""Value of per.key that means the key of the Kafka record."""


class PerSection(Section):
    """A model for each key: of each customer, machine, ..."""

    key: str | None = None
    """Path of the key in an event, or "record-key" for that of the Kafka record. One model for all if not set."""
    max_models: Count = 5000
    """Number of models kept in memory; the others are on disk. A model of few events takes about 60 KB."""

    @property
    def by_record(self) -> bool:
        """Whether the key is that of the Kafka record."""
        return self.key == RECORD_KEY


class GroupSection(Section):
    """One model for a whole consumer group; used with state = "kafka"."""

    model_every_seconds: Positive = 10.0
    """Time between two models: the leader merges the latest summaries of all partitions and publishes the model."""
    max_staleness_seconds: Positive = 300.0
    """Age of the model above which a process is not ready (/readyz)."""


class SnapshotSection(Section):
    """Snapshots: hierarchies of all events learnt so far."""

    every_seconds: Positive | None = None
    """Time between snapshots; no snapshots if not set."""
    method: Literal["rbhc", "abc", "bhc"] = "rbhc"
    """Method of merging clusters."""


class LoggingSection(Section):
    """Logs, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest severity logged."""
    format: Literal["json", "text"] = "json"
    """One JSON object per line, or plain text."""
    every_seconds: Positive = 30.0
    """Time between log lines about the progress."""


class HttpSection(Section):
    """API and dashboard. There is no TLS; use a proxy for it that keeps the Host header."""

    enabled: bool = False
    """Whether `streamclust run` serves them; `streamclust serve` always does."""
    host: str = "127.0.0.1"
    """Address to listen on; 127.0.0.1 can be reached from this machine only."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    """Port; 0 for any free port."""
    token: SecretStr | None = None
    """Token that requests must send as "Authorization: Bearer ..."; only from the environment."""
    token_file: Path | None = None
    """File that contains the token."""
    max_bytes: Count = 8_000_000
    """Maximal size of a request body."""
    max_events: Count = 100_000
    """Maximal number of events per request; other requests wait while they are learnt."""
    max_features: Count = 4096
    """Maximal number of features that /v1/learn may add; engine.max_features applies as well."""
    max_connections: Count = 512
    """Maximal number of connections, also bounded by file handles. One more closes the longest idle connection."""
    header_seconds: Positive = 10.0
    """Time limit for the header of a request; then the connection is closed."""
    body_seconds: Positive = 60.0
    """Time limit for a request body, and for the client to read a response; then the connection is closed."""
    max_streams: Annotated[int, Field(ge=0)] = 32
    """Maximal number of simultaneous event streams of /v1/events."""

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        _read_secrets(self, "token")
        if self.token is not None and not re.fullmatch(r"[\x21-\x7e]+", self.token.get_secret_value()):
            raise ValueError("token must consist of printable ASCII characters without spaces")
        return self


class TelemetrySection(Section):
    """Spans of batches and metrics, sent to a collector by OTLP over HTTP (OpenTelemetry)."""

    enabled: bool = False
    """Whether they are sent. The environment variables OTEL_EXPORTER_OTLP_* (headers, certificates) apply as well."""
    endpoint: str | None = None
    """URL of the collector: http://collector:4318. Default: OTEL_EXPORTER_OTLP_ENDPOINT, or this machine."""
    service_name: str = "streamclust"
    """Name of the service in traces and metrics."""
    metrics_seconds: Positive = 30.0
    """Time between two exports of metrics."""


class HealthSection(Section):
    """Health file, for supervisors."""

    file: Path | None = None
    """Path of the health file, written every few seconds; `streamclust health` reads it."""
    max_age_seconds: Positive = 60.0
    """Unhealthy if the last heartbeat is older."""


def cause(error: Exception) -> str:
    """Short reason why a file could not be read."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
