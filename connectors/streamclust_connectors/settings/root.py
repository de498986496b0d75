"""The class Settings: all sections, values inferred from them, and checks across sections."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from streamclust_connectors.interfaces import Channel
from streamclust_connectors.settings.base import Section
from streamclust_connectors.settings.engine import EngineSection
from streamclust_connectors.settings.features import FeaturesSection
from streamclust_connectors.settings.sections import (
    CheckpointSection,
    DecodeSection,
    GroupSection,
    HealthSection,
    HttpSection,
    KafkaSection,
    LoggingSection,
    OutputKind,
    OutputSection,
    PerSection,
    RegistrySection,
    SnapshotSection,
    SourceKind,
    SourceSection,
    TelemetrySection,
    WebhookSection,
)

PREFIX = "STREAMCLUST_"
STANDARD_STREAM = Path("-")
"""Path that means standard input or output."""
KINDS: dict[str, SourceKind] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
"""Kind of a file by its suffix."""
SCHEMA_FORMATS = ("avro", "protobuf", "json-schema")
"""Formats whose messages have a schema in a registry."""
COMPRESSED = (".gz", ".bz2", ".xz")


class ConfigError(ValueError):
    """Invalid settings; the message has one line per error."""


class Settings(BaseSettings):
    """All settings of the service."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )

    model: Literal["clusters", "features"] = "clusters"
    """Model to learn: "clusters", one per event, or "features" (BP-means), any number per event."""
    per: PerSection = PerSection()
    engine: EngineSection = EngineSection()
    features: FeaturesSection = FeaturesSection()
    source: SourceSection = SourceSection()
    kafka: KafkaSection = KafkaSection()
    decode: DecodeSection = DecodeSection()
    registry: RegistrySection = RegistrySection()
    output: OutputSection = OutputSection()
    webhook: WebhookSection = WebhookSection()
    state: Literal["directory", "kafka"] = "directory"
    """Storage of the state: checkpoint.directory or, for one model of a whole consumer group, Kafka."""
    checkpoint: CheckpointSection = CheckpointSection()
    group: GroupSection = GroupSection()
    snapshot: SnapshotSection = SnapshotSection()
    logging: LoggingSection = LoggingSection()
    health: HealthSection = HealthSection()
    http: HttpSection = HttpSection()
    telemetry: TelemetrySection = TelemetrySection()
    on_data_loss: Literal["fail", "continue"] = "fail"
    """Reaction to records that were deleted before they were learnt: stop ("fail") or go on ("continue")."""

    # ---------------------------------------------------------------- inferred values

    @property
    def source_kind(self) -> SourceKind:
        """Kind of source: as set, or inferred from path and topic; ConfigError if unknown."""
        source = self.source
        if source.kind is not None:
            return source.kind
        if source.path == STANDARD_STREAM:
            return "stdin"
        if source.path is not None:
            endings = [ending.lower() for ending in source.path.suffixes]
            if endings and endings[-1] in COMPRESSED:
                endings.pop()
            if not endings or endings[-1] not in KINDS:
                raise ConfigError(
                    f"the format of {source.path} is unknown from its name; set source.kind to jsonl, csv or parquet "
                    "(--kind for commands on files)"
                )
            return KINDS[endings[-1]]
        if self.kafka.topic is not None:
            return "kafka"
        raise ConfigError(
            "no source of events is set; set kafka.topic, source.path, or source.kind (for example synthetic)"
        )

    @property
    def output_kind(self) -> OutputKind:
        """Kind of output: as set, or inferred from path and source."""
        output = self.output
        if output.kind is not None:
            return output.kind
        if output.path is not None:
            return "stdout" if output.path == STANDARD_STREAM else "jsonl"
        defaults: dict[SourceKind, OutputKind] = {"kafka": "kafka", "http": "none"}
        return defaults.get(self.source_kind, "stdout")

    @property
    def topics(self) -> dict[Channel, str]:
        """Output topic of each enabled channel."""
        output, stem = self.output, self.kafka.topic or "streamclust"
        wanted: dict[Channel, bool | str] = {
            "assignments": output.assignments,
            "lifecycle": output.lifecycle,
            "snapshots": output.snapshots,
            "dead-letters": output.dlq,
            "refusals": output.refusals,
        }
        suffixes: dict[Channel, str] = {"dead-letters": "dlq"}
        return {
            channel: name if isinstance(name, str) else f"{stem}.{suffixes.get(channel, channel)}"
            for channel, name in wanted.items()
            if name is not False
        }

    @property
    def key_path(self) -> str | None:
        """Path of the event's key."""
        return self.decode.key if self.per.key is None or self.per.by_record else self.per.key

    def check(self) -> None:
        """Refuse settings with which a service cannot run."""
        source, output = self.source_kind, self.output_kind
        problems = []
        if source == "kafka" and self.kafka.topic is None:
            problems.append("kafka.topic is not set; name the topic to read")
        if source == "kafka" and self.checkpoint.directory is None and self.state == "directory":
            problems.append(
                "checkpoint.directory is not set: a restart would lose the model; set it, or keep the state in Kafka "
                "(state = kafka)"
            )
        if self.state == "kafka":
            problems += self._unfit_for_kafka_state()
        if source in ("jsonl", "csv", "parquet"):
            if self.source.path is None:
                problems.append(f"source.path is not set; give the path of the {source} file")
            elif not self.source.path.is_file():
                problems.append(f"source.path: there is no file {self.source.path}")
        if source == "http" and not self.http.enabled:
            problems.append("http.enabled is false, but source.kind is http; enable it to receive events")
        if output == "jsonl" and self.output.path is None:
            problems.append("output.path is not set; give the path of the file to write")
        if self.output.delivery == "exactly-once" and (source, output) != ("kafka", "kafka"):
            problems.append(
                f'output.delivery "exactly-once" needs Kafka as source and output, got {source} and {output}'
            )
        if self.kafka.topic is not None and self.kafka.topic in self.topics.values() and output == "kafka":
            problems.append(f"output: {self.kafka.topic} is the input topic; outputs need other topics")
        if self.model == "features":
            problems += self._unfit_for_features()
        if self.per.key is not None:
            problems += self._unfit_for_keys()
        problems += self._unfit_for_schemas()
        if problems:
            raise ConfigError("\n".join(problems))

    def _unfit_for_kafka_state(self) -> list[str]:
        """Errors of settings that cannot be combined with state in Kafka."""
        found = []
        if (self.source_kind, self.output_kind) != ("kafka", "kafka"):
            found.append(
                f'state "kafka" needs Kafka as source and output, got {self.source_kind} and {self.output_kind}'
            )
        if self.model == "features":
            found.append('model "features" cannot keep its state in Kafka; set state to directory')
        return found

    def _unfit_for_keys(self) -> list[str]:
        """Errors of settings that cannot be combined with a model for each key."""
        found = []
        if self.state == "kafka" or self.checkpoint.directory is None:
            found.append(
                "per.key keeps its models in files; set checkpoint.directory, and state to directory"
            )
        if self.model == "features":
            found.append('per.key: model "features" is one for all; remove either')
        if self.source_kind == "http":
            found.append("per.key cannot learn by HTTP; use another source")
        if self.per.by_record and self.source_kind != "kafka":
            found.append(
                f"per.key {self.per.key!r} needs Kafka, got {self.source_kind}; give the path of a field"
            )
        if not self.per.by_record and self.decode.key not in (None, self.per.key):
            found.append("decode.key and per.key are two fields; an event has one key, remove decode.key")
        if self.snapshot.every_seconds is not None:
            found.append("snapshot.every_seconds: there is no hierarchy of all keys; remove it")
        if self.output.assignments_per_message > 1:
            found.append("output.assignments_per_message must be 1 with per.key")
        return found

    def _unfit_for_schemas(self) -> list[str]:
        """Errors of settings that cannot be combined with formats that have schemas."""
        found = []
        used = {"decode.format": self.decode.format, "output.format": self.output.format}
        for name, kind, format in zip(used, (self.source_kind, self.output_kind), used.values(), strict=True):
            if format in SCHEMA_FORMATS and kind != "kafka":
                found.append(f"{name} {format!r} needs Kafka, got {kind}")
            if format in SCHEMA_FORMATS and self.registry.url is None:
                found.append(f"{name} {format!r} needs a schema registry; set registry.url")
        if self.output.format in SCHEMA_FORMATS and self.output.assignments_per_message > 1:
            found.append(
                "output.assignments_per_message: messages with a schema hold one assignment; remove it"
            )
        return found

    @property
    def exactly_once(self) -> bool:
        """Whether outputs are sent in transactions; always with state in Kafka."""
        return self.output.delivery == "exactly-once" or self.state == "kafka"

    def _unfit_for_features(self) -> list[str]:
        """Errors of settings that cannot be combined with features."""
        found = []
        if self.source_kind == "http":
            found.append('model "features" cannot learn by HTTP; use another source')
        if self.decode.weight is not None:
            found.append('decode.weight: model "features" has no weights; remove it')
        if self.snapshot.every_seconds is not None:
            found.append('snapshot.every_seconds: model "features" has no hierarchy; remove it')
        return found


def sections() -> dict[str, type[Section]]:
    """Section classes by name."""
    kinds = {name: field.annotation for name, field in Settings.model_fields.items()}
    return {name: k for name, k in kinds.items() if isinstance(k, type) and issubclass(k, Section)}


def secrets(section: str) -> set[str]:
    """Names of a section's settings that are never printed.

    >>> sorted(secrets("kafka"))
    ['sasl_oauth_client_secret', 'sasl_plain_password', 'ssl_password']
    """
    kind = sections().get(section)
    if kind is None:
        return set()
    return {name for name, field in kind.model_fields.items() if field.annotation == SecretStr | None}
