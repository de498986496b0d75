"""Settings: all sections, and what follows from them together."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from streamclust_connectors.ports import Channel
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
    SnapshotSection,
    SourceKind,
    SourceSection,
)

PREFIX = "STREAMCLUST_"
STANDARD_STREAM = Path("-")
"""The path that stands for standard input or output."""
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
"""Kind of a file by the ending of its name."""
COMPRESSED = (".gz", ".bz2", ".xz")


class ConfigError(ValueError):
    """Invalid settings, with a sentence for each."""


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
    """What is learnt: clusters, of which an event has one, or features (BP-means), of which it has any number."""
    engine: EngineSection = EngineSection()
    features: FeaturesSection = FeaturesSection()
    source: SourceSection = SourceSection()
    kafka: KafkaSection = KafkaSection()
    decode: DecodeSection = DecodeSection()
    output: OutputSection = OutputSection()
    state: Literal["directory", "kafka"] = "directory"
    """Where state is kept: in checkpoint.directory or, for one model of a whole consumer group, in Kafka."""
    checkpoint: CheckpointSection = CheckpointSection()
    group: GroupSection = GroupSection()
    snapshot: SnapshotSection = SnapshotSection()
    logging: LoggingSection = LoggingSection()
    health: HealthSection = HealthSection()
    http: HttpSection = HttpSection()
    on_data_loss: Literal["fail", "continue"] = "fail"
    """What to do when records between the checkpoint and what the source still has are gone."""

    # ---------------------------------------------------------------- what follows from it

    @property
    def source_kind(self) -> SourceKind:
        """Kind of source: as set, or inferred from path and topic; None if unknown."""
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
                    f"the name of {source.path} does not say what is in it; set source.kind to jsonl, csv or parquet "
                    "(for a command on a file: --kind)"
                )
            return KINDS[endings[-1]]
        if self.kafka.topic is not None:
            return "kafka"
        raise ConfigError(
            "nothing says where events come from: set kafka.topic, source.path, or source.kind to synthetic"
        )

    @property
    def output_kind(self) -> OutputKind:
        """Where results go."""
        output = self.output
        if output.kind is not None:
            return output.kind
        if output.path is not None:
            return "stdout" if output.path == STANDARD_STREAM else "jsonl"
        usual: dict[SourceKind, OutputKind] = {"kafka": "kafka", "http": "none"}
        return usual.get(self.source_kind, "stdout")

    @property
    def topics(self) -> dict[Channel, str]:
        """The output topic of each channel that is wanted."""
        output, stem = self.output, self.kafka.topic or "streamclust"
        wanted: dict[Channel, bool | str] = {
            "assignments": output.assignments,
            "lifecycle": output.lifecycle,
            "snapshots": output.snapshots,
            "dead-letters": output.dlq,
        }
        usual: dict[Channel, str] = {"dead-letters": "dlq"}
        return {
            channel: name if isinstance(name, str) else f"{stem}.{usual.get(channel, channel)}"
            for channel, name in wanted.items()
            if name is not False
        }

    def check(self) -> None:
        """Refuse settings that a service could not be run with."""
        source, output = self.source_kind, self.output_kind
        problems = []
        if source == "kafka" and self.kafka.topic is None:
            problems.append("kafka.topic is not set: there is nothing to read")
        if source == "kafka" and self.checkpoint.directory is None and self.state == "directory":
            problems.append(
                "checkpoint.directory is not set: a restart would lose what was learnt from the topic; or set state to "
                "kafka, and it is kept there"
            )
        if self.state == "kafka":
            problems += self._unfit_for_kafka_state()
        if source in ("jsonl", "csv", "parquet"):
            if self.source.path is None:
                problems.append(f"source.path is not set: there is no {source} file to read")
            elif not self.source.path.is_file():
                problems.append(f"source.path: there is no file {self.source.path}")
        if source == "http" and not self.http.enabled:
            problems.append(
                "http.enabled is false: with source.kind http, events could not come from anywhere"
            )
        if output == "jsonl" and self.output.path is None:
            problems.append("output.path is not set: there is no file to write to")
        if self.output.delivery == "exactly-once" and (source, output) != ("kafka", "kafka"):
            problems.append(
                f'output.delivery "exactly-once" goes from Kafka to Kafka, not from {source} to {output}'
            )
        if self.kafka.topic is not None and self.kafka.topic in self.topics.values() and output == "kafka":
            problems.append(
                f"output: {self.kafka.topic} is the topic that is read; outputs need topics of their own"
            )
        if self.model == "features":
            problems += self._unfit_for_features()
        if problems:
            raise ConfigError("\n".join(problems))

    def _unfit_for_kafka_state(self) -> list[str]:
        """Settings that do not go with state in Kafka."""
        found = []
        if (self.source_kind, self.output_kind) != ("kafka", "kafka"):
            found.append(
                f'state "kafka" goes from Kafka to Kafka, not from {self.source_kind} to {self.output_kind}'
            )
        if self.model == "features":
            found.append('model "features" keeps its state in a directory, not in Kafka')
        return found

    @property
    def exactly_once(self) -> bool:
        """Whether outputs go out in transactions; those of state in Kafka always do."""
        return self.output.delivery == "exactly-once" or self.state == "kafka"

    def _unfit_for_features(self) -> list[str]:
        """Settings that features have no use for."""
        found = []
        if self.source_kind == "http":
            found.append('model "features" learns from a source: nothing is learnt by HTTP')
        if self.decode.weight is not None:
            found.append('decode.weight: model "features" counts every event once')
        if self.snapshot.every_seconds is not None:
            found.append('snapshot.every_seconds: model "features" has no hierarchy')
        return found


def sections() -> dict[str, type[Section]]:
    """The sections by name."""
    kinds = {name: field.annotation for name, field in Settings.model_fields.items()}
    return {name: k for name, k in kinds.items() if isinstance(k, type) and issubclass(k, Section)}


def secrets(section: str) -> set[str]:
    """The settings of a section that are never shown.

    >>> sorted(secrets("kafka"))
    ['sasl_plain_password', 'ssl_password']
    """
    kind = sections().get(section)
    if kind is None:
        return set()
    return {name for name, field in kind.model_fields.items() if field.annotation == SecretStr | None}
