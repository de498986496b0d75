"""Settings: all sections, and what follows from them together."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from streamclust_connectors.settings.sections import (
    Checkpoint,
    Decode,
    Engine,
    Health,
    Http,
    Kafka,
    Logging,
    Output,
    OutputKind,
    Section,
    Snapshot,
    Source,
    SourceKind,
)

PREFIX = "STREAMCLUST_"
STANDARD = Path("-")
"""As a path: standard input, or standard output."""
KINDS: dict[str, SourceKind] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
"""What the name of a file says about what is in it."""


class ConfigError(ValueError):
    """Settings that cannot be used, each with a sentence."""


class Settings(BaseSettings):
    """Everything the service is told."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )

    engine: Engine = Engine()
    source: Source = Source()
    kafka: Kafka = Kafka()
    decode: Decode = Decode()
    output: Output = Output()
    checkpoint: Checkpoint = Checkpoint()
    snapshot: Snapshot = Snapshot()
    logging: Logging = Logging()
    health: Health = Health()
    http: Http = Http()
    on_data_loss: Literal["fail", "continue"] = "fail"
    """What to do when records between the checkpoint and what the source still has are gone."""

    # ---------------------------------------------------------------- what follows from it

    @property
    def source_kind(self) -> SourceKind:
        """Where events come from, as far as anything says so."""
        source = self.source
        if source.kind is not None:
            return source.kind
        if source.path == STANDARD:
            return "stdin"
        if source.path is not None:
            if source.path.suffix.lower() not in KINDS:
                raise ConfigError(
                    f"the name of {source.path} does not say what is in it; set source.kind to jsonl, csv or parquet"
                )
            return KINDS[source.path.suffix.lower()]
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
            return "stdout" if output.path == STANDARD else "jsonl"
        usual: dict[SourceKind, OutputKind] = {"kafka": "kafka", "http": "none"}
        return usual.get(self.source_kind, "stdout")

    @property
    def topics(self) -> dict[str, str]:
        """The output topic of each channel that is wanted."""
        output, stem = self.output, self.kafka.topic or "streamclust"
        wanted = {
            "assignments": output.assignments,
            "lifecycle": output.lifecycle,
            "snapshots": output.snapshots,
            "dead-letters": output.dlq,
        }
        usual = {"dead-letters": "dlq"}
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
        if source == "kafka" and self.checkpoint.directory is None:
            problems.append(
                "checkpoint.directory is not set: a restart would lose what was learnt from the topic"
            )
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
        if problems:
            raise ConfigError("\n".join(problems))


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
