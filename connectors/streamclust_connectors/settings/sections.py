"""The sections of the settings but for the engine's: sources, Kafka, outputs, checkpoints, logs, HTTP."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator
from pydantic_settings import NoDecode

from streamclust_connectors.dialect import WORDS
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


def _delimiter(value: object) -> object:
    """A delimiter, also by its name."""
    return WORDS.get(value.lower(), value) if isinstance(value, str) else value


class SourceSection(Section):
    """Where events come from."""

    kind: SourceKind | None = None
    """Inferred if not set: from the path's ending, or Kafka where there is a topic."""
    path: Path | None = None
    """The file to read; "-" is standard input."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1), BeforeValidator(_delimiter)] | None = None
    """CSV: what stands between cells, or tab, comma, semicolon, pipe, space; found in the file, if not set."""
    decimal: Literal[".", ","] | None = None
    """CSV: the decimal mark; found in the file, if not set."""
    encoding: str | None = None
    """CSV: as utf-8, latin-1, utf-16; found in the file, if not set."""
    header: bool | None = None
    """CSV: whether the first row has the names of the columns; found in the file, if not set."""
    null: Names = None
    """CSV: more cells that say a value is missing; empty ones, NA, NaN, null, ? and - always do."""
    events: Count = 300_000
    """Synthetic: how many."""
    features: Count = 2
    """Synthetic: of how many numbers."""
    clusters: Annotated[int, Field(ge=3)] = 8
    """Synthetic: how many clusters there are at first."""
    seed: Seed = 0
    """Synthetic: of the generator."""


PASSED = (
    *("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password"),
    *("sasl_mechanism", "sasl_plain_username", "sasl_plain_password"),
)
"""Options that every client of kafka-python is given where they are set."""


class KafkaSection(Section):
    """The broker, with the names that kafka-python gives these options."""

    client: Literal["kafka-python", "confluent"] = "kafka-python"
    """The library: kafka-python, or confluent-kafka, which is faster and comes with streamclust[confluent]."""
    bootstrap_servers: Annotated[tuple[str, ...], Field(min_length=1), NoDecode, BeforeValidator(listed)] = (
        "localhost:9092",
    )
    """Brokers to begin with, as host:port, with commas between them."""
    topic: str | None = None
    """The topic to read."""
    group_id: str = "streamclust"
    """The consumer group. Processes of one group share the partitions."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where to start a partition without a saved offset."""
    group_instance_id: str | None = None
    """Static membership: a name of its own for each process, which keeps its partitions through a restart."""
    client_id: str = "streamclust"
    """Name of this process in the broker's logs."""
    transactional_id: str | None = None
    """Id of the transactions of exactly-once outputs; made from group and instance if not set."""
    session_timeout_ms: Count = 45_000
    """After so long without a heartbeat the group goes on without this process."""
    max_poll_records: Count = 5000
    """Records of one poll, at most."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """TLS and SASL, or neither."""
    ssl_cafile: Path | None = None
    """Certificates of the authorities to trust."""
    ssl_certfile: Path | None = None
    """This client's certificate."""
    ssl_keyfile: Path | None = None
    """This client's key."""
    ssl_password: SecretStr | None = None
    """Of the key; by the environment only."""
    ssl_password_file: Path | None = None
    """A file that holds it."""
    ssl_check_hostname: bool = True
    """Whether the broker's certificate must bear its name."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER"] | None = None
    """Authentication mechanism."""
    sasl_plain_username: str | None = None
    """User name."""
    sasl_plain_password: SecretStr | None = None
    """By the environment only."""
    sasl_plain_password_file: Path | None = None
    """A file that holds it."""
    options: Annotated[dict[str, Any], BeforeValidator(plain_values)] = Field(
        default_factory=dict, repr=False
    )
    """Further options, passed to the client unchanged; librdkafka's, for confluent, may have dots or underscores."""

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.security_protocol.startswith("SASL") and self.sasl_mechanism is None:
            raise ValueError(f"{self.security_protocol} needs sasl_mechanism, for example SCRAM-SHA-512")
        if self.sasl_mechanism is not None and not self.security_protocol.startswith("SASL"):
            raise ValueError("sasl_mechanism needs a security_protocol of SASL_SSL or SASL_PLAINTEXT")
        if named := sorted(self.options.keys() & KafkaSection.model_fields.keys()):
            raise ValueError(f"{', '.join(named)} must stand beside options, not in them")
        _read_secrets(self, "ssl_password", "sasl_plain_password")
        return self

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
    """Read each secret whose file is given."""
    for name in names:
        path = getattr(section, f"{name}_file")
        if path is not None and getattr(section, name) is not None:
            raise ValueError(f"{name} and {name}_file are both given; keep one")
        if path is not None:
            object.__setattr__(section, name, SecretStr(_secret(name, path)))


def _secret(name: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{name}_file {str(path)!r} cannot be read: {cause(error)}") from None


class DecodeSection(Section):
    """How messages are read. Paths have dots: payload.vector."""

    format: Literal["json", "msgpack"] = "json"
    """Format of messages."""
    events: str | None = None
    """Path of the list of events in a message."""
    vector: str | None = None
    """Path of the object, array of numbers or base64 of float32 in an event; the event itself, if not set."""
    features: Names = None
    """Which members of that object count; all but key, time and weight, if not set."""
    exclude: Annotated[tuple[str, ...], NoDecode, BeforeValidator(listed)] = ()
    """Which members of that object do not count."""
    key: str | None = None
    """Path of an event's key, which is copied to its assignment."""
    time: str | None = None
    """Path of an event's time (a number or an ISO 8601 date), for a half-life in time."""
    weight: str | None = None
    """Path of an event's weight; 1 if not set."""


class OutputSection(Section):
    """Where results go."""

    kind: OutputKind | None = None
    """Inferred if not set: from the path, or Kafka where the events are from there, else standard output."""
    path: Path | None = None
    """A file of JSON lines, appended to; "-" is standard output."""
    assignments: Topic = True
    """Each event's cluster, its probability, and how novel it is. A topic's name, or true for <topic>.assignments."""
    lifecycle: Topic = True
    """Clusters born, split, merged, died, returned."""
    snapshots: Topic = True
    """Hierarchies."""
    dlq: Topic = True
    """Messages that could not be read, true for <topic>.dlq; with false they are only counted."""
    delivery: Literal["at-least-once", "exactly-once"] = "at-least-once"
    """Whether a restart may send some outputs twice, or they go out in transactions."""
    assignments_per_message: Count = 1
    """Kafka: with more than one a message is a list of so many assignments, and has no key."""
    component: bool = False
    """Whether assignments name the component of the cluster, too: its number in the model of that version."""
    max_message_bytes: Annotated[int, Field(ge=2000)] = 900_000
    """Kafka: larger dead letters go without their value, larger snapshots without their details or not at all."""


class CheckpointSection(Section):
    """Checkpoints, from which a restart continues."""

    directory: Path | None = None
    """Where checkpoints are kept, unless state is "kafka". Without one a restart begins anew."""
    every_seconds: Positive = 10.0
    """Time between checkpoints."""
    every_events: Count | None = None
    """A checkpoint is also written after so many events."""
    keep: Count = 3
    """How many are kept."""
    wait_seconds: NotNegative = 60.0
    """How long to wait at the start while another process uses the directory; members of a Kafka group share it."""


class GroupSection(Section):
    """One model for a whole consumer group; used with state = "kafka"."""

    model_every_seconds: Positive = 10.0
    """How often the leader looks at all partitions' latest summaries, and publishes the model: how old it may be."""
    max_staleness_seconds: Positive = 300.0
    """A process whose model is older than this is not ready (/readyz)."""


class SnapshotSection(Section):
    """Hierarchies of everything learnt until now."""

    every_seconds: Positive | None = None
    """Time between snapshots; none, if not set."""
    method: Literal["rbhc", "abc", "bhc"] = "rbhc"
    """How clusters are merged."""


class LoggingSection(Section):
    """Logs, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest severity logged."""
    format: Literal["json", "text"] = "json"
    """One JSON object on each line, or text for people."""
    every_seconds: Positive = 30.0
    """Time between reports of how far the service is."""


class HttpSection(Section):
    """The API and the dashboard, without TLS: between them and the world put a proxy that has it and keeps Host."""

    enabled: bool = False
    """Whether `streamclust run` serves them beside its source; `streamclust serve` always does."""
    host: str = "127.0.0.1"
    """The address to listen at; 127.0.0.1 is reached from this machine alone."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    """0 takes any that is free."""
    token: SecretStr | None = None
    """Token that requests must send as "Authorization: Bearer ..."; by the environment only."""
    token_file: Path | None = None
    """A file that holds it."""
    max_bytes: Count = 8_000_000
    """The largest body of a request."""
    max_events: Count = 100_000
    """The most events of a request: while they are learnt, everything else waits."""
    max_features: Count = 4096
    """How many features /v1/learn may come to know; engine.max_features holds as well."""
    max_connections: Count = 512
    """How many connections there may be; fewer where file handles are few. One more closes the one idle longest."""
    header_seconds: Positive = 10.0
    """A connection is closed if the header of its next request has not come within this time."""
    body_seconds: Positive = 60.0
    """A connection is closed if a body takes longer to come, or the rest of an answer to be taken."""
    max_streams: Annotated[int, Field(ge=0)] = 32
    """How many may follow /v1/events as a stream at a time."""

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        _read_secrets(self, "token")
        if self.token is not None and not re.fullmatch(r"[\x21-\x7e]+", self.token.get_secret_value()):
            raise ValueError("token must be printable characters without spaces")
        return self


class HealthSection(Section):
    """Health file, for supervisors."""

    file: Path | None = None
    """Written every few seconds with the age of the loop's heartbeat; `streamclust health` reads it."""
    max_age_seconds: Positive = 60.0
    """Unhealthy if the last heartbeat is older."""


def cause(error: Exception) -> str:
    """Short reason why a file could not be read."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
