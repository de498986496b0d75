"""Sections: settings that belong together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from json import JSONDecodeError, loads
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import NoDecode

SourceKind = Literal["kafka", "jsonl", "csv", "parquet", "stdin", "synthetic", "http"]
OutputKind = Literal["kafka", "jsonl", "stdout", "none"]


def _switch(value: object) -> object:
    """Words for yes and no, as the environment gives them."""
    words = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
    return words.get(value.strip().lower(), value) if isinstance(value, str) else value


def _listed(value: object) -> object:
    """A list as the environment and flags write it: with commas, or as JSON."""
    if isinstance(value, str) and not isinstance(_plain(value), list):
        return [part.strip() for part in value.split(",") if part.strip()]
    return _plain(value)


def _plain_values(value: object) -> object:
    """Numbers and truth values that the environment holds as text."""
    return {name: _plain(v) for name, v in value.items()} if isinstance(value, Mapping) else value


def _plain(value: object) -> object:
    if isinstance(value, str):
        try:
            return loads(value)
        except JSONDecodeError:
            return value
    return value


Topic = Annotated[bool | str, BeforeValidator(_switch)]
"""True for a topic of the usual name, its own name, or False for none."""
Names = Annotated[tuple[str, ...] | None, NoDecode, BeforeValidator(_listed)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Section(BaseModel):
    """Some settings that belong together. An empty value is one that was not given."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True
    )

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, given: Any) -> Any:  # noqa: ANN401
        return {k: v for k, v in given.items() if v != ""} if isinstance(given, Mapping) else given


class Engine(Section):
    """The clusterer, as `streamclust.StreamClusterer` has it."""

    family: Literal["gaussian", "diagonal", "spherical", "multinomial", "bernoulli", "poisson"] = "gaussian"
    """What a cluster is."""
    refit: Literal["bkm", "chunky-em"] = "bkm"
    """Bayesian k-means, or chunky EM."""
    mixture: Literal["finite", "infinite", "uninformative"] = "finite"
    """How clusters share the events under "bkm"."""
    max_leaves: Annotated[int, Field(ge=2)] = 512
    """The bound on the summary's size, and so on memory and on the cost of a refit."""
    refit_every: Count = 20_000
    """Events between refits."""
    warmup: Count = 100
    """Events before the first refit."""
    half_life: Positive | None = None
    """An event's weight halves after so many events, or so much time if times are given; never, if not set."""
    birth_penalty: Positive | None = None
    """Squared distance beyond which an event may open a cluster between refits."""
    missing: Literal["impute", "error"] = "impute"
    """Whether events may lack features or bring new ones."""
    background: bool = True
    """Whether refits run beside the stream."""
    seed: Seed = 0
    """The same seed and events give the same clusters."""


class Source(Section):
    """Where events come from."""

    kind: SourceKind | None = None
    """Inferred if not set: from the path's ending, or Kafka where there is a topic."""
    path: Path | None = None
    """The file to read; "-" is standard input."""
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


class Kafka(Section):
    """The broker, with the names that kafka-python gives these options."""

    bootstrap_servers: Annotated[tuple[str, ...], Field(min_length=1), NoDecode, BeforeValidator(_listed)] = (
        "localhost:9092",
    )
    """Brokers to begin with, as host:port, with commas between them."""
    topic: str | None = None
    """The topic to read."""
    group_id: str = "streamclust"
    """The consumer group. Processes of one group share the partitions."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where to begin a partition of which nothing is known."""
    group_instance_id: str | None = None
    """Static membership: a name of its own for each process, which keeps its partitions through a restart."""
    client_id: str = "streamclust"
    """What the broker's logs call this process."""
    transactional_id: str | None = None
    """Of exactly-once outputs; made from the group and the instance if not set."""
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
    """How to log in."""
    sasl_plain_username: str | None = None
    """Who logs in."""
    sasl_plain_password: SecretStr | None = None
    """By the environment only."""
    sasl_plain_password_file: Path | None = None
    """A file that holds it."""
    options: Annotated[dict[str, Any], Field(repr=False), BeforeValidator(_plain_values)] = {}
    """Anything else that kafka-python's clients take, as it is."""

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.security_protocol.startswith("SASL") and self.sasl_mechanism is None:
            raise ValueError(f"{self.security_protocol} needs sasl_mechanism, for example SCRAM-SHA-512")
        if self.sasl_mechanism is not None and not self.security_protocol.startswith("SASL"):
            raise ValueError("sasl_mechanism needs a security_protocol of SASL_SSL or SASL_PLAINTEXT")
        if named := sorted(self.options.keys() & Kafka.model_fields.keys()):
            raise ValueError(f"{', '.join(named)} must stand beside options, not in them")
        _read_secrets(self, "ssl_password", "sasl_plain_password")
        return self

    @property
    def client(self) -> dict[str, Any]:
        """What every client of kafka-python is given: where the brokers are and how to talk to them."""
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


class Decode(Section):
    """How messages are read. Paths have dots: payload.vector."""

    format: Literal["json", "msgpack"] = "json"
    """What messages are written in."""
    events: str | None = None
    """Where a message has a list of events."""
    vector: str | None = None
    """Where an event has its object or array of numbers; the event itself, if not set."""
    features: Names = None
    """Which members of that object count; all but key, time and weight, if not set."""
    key: str | None = None
    """Where an event says what it is about; handed on with its assignment."""
    time: str | None = None
    """Where an event has its time, a number, for a half-life that goes by time."""
    weight: str | None = None
    """Where an event has its weight; 1 if not set."""


class Output(Section):
    """Where results go."""

    kind: OutputKind | None = None
    """Inferred if not set: from the path, or Kafka where the events are from there, else standard output."""
    path: Path | None = None
    """A file of JSON lines, appended to; "-" is standard output."""
    assignments: Topic = True
    """Each event's cluster, its probability, and how novel it is. A topic's name, or true for <topic>.assignments."""
    lifecycle: Topic = True
    """Clusters born, split, merged, died."""
    snapshots: Topic = True
    """Hierarchies."""
    dlq: Topic = True
    """Messages that could not be read, true for <topic>.dlq; with false they are only counted."""
    delivery: Literal["at-least-once", "exactly-once"] = "at-least-once"
    """Whether a restart may send some outputs twice, or they go out in transactions."""
    assignments_per_message: Count = 1
    """Kafka: with more than one a message is a list of so many assignments, and has no key."""
    max_message_bytes: Annotated[int, Field(ge=2000)] = 900_000
    """Kafka: larger dead letters go without their value, larger snapshots without their details or not at all."""


class Checkpoint(Section):
    """What a restart goes on from."""

    directory: Path | None = None
    """Where checkpoints are kept. Without one a restart begins anew."""
    every_seconds: Positive = 10.0
    """Time between checkpoints."""
    every_events: Count | None = None
    """A checkpoint is also written after so many events."""
    keep: Count = 3
    """How many are kept."""


class Snapshot(Section):
    """Hierarchies of everything learnt until now."""

    every_seconds: Positive | None = None
    """Time between snapshots; none, if not set."""
    method: Literal["rbhc", "abc", "bhc"] = "rbhc"
    """How clusters are merged."""


class Logging(Section):
    """What is said on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """From which severity on."""
    format: Literal["json", "text"] = "json"
    """One JSON object on each line, or text for people."""
    every_seconds: Positive = 30.0
    """Time between reports of how far the service is."""


class Http(Section):
    """The API and the dashboard, without TLS: between them and the world put a proxy that has it and keeps Host."""

    enabled: bool = False
    """Whether `streamclust run` serves them beside its source; `streamclust serve` always does."""
    host: str = "127.0.0.1"
    """The address to listen at; 127.0.0.1 is reached from this machine alone."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    """0 takes any that is free."""
    token: SecretStr | None = None
    """What callers must bring as "Authorization: Bearer ..."; by the environment only."""
    token_file: Path | None = None
    """A file that holds it."""
    max_bytes: Count = 8_000_000
    """The largest body of a request."""
    max_events: Count = 100_000
    """The most events of a request: while they are learnt, everything else waits."""
    max_features: Count = 256
    """How many features /v1/learn may come to know: the summary of a Gaussian grows with their square."""
    max_streams: Annotated[int, Field(ge=0)] = 32
    """How many may follow /v1/events as a stream at a time."""

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        _read_secrets(self, "token")
        if self.token is not None and not re.fullmatch(r"[\x21-\x7e]+", self.token.get_secret_value()):
            raise ValueError("token must be printable characters without spaces")
        return self


class Health(Section):
    """What tells others that the service is well."""

    file: Path | None = None
    """Written every few seconds with the age of the loop's heartbeat; `streamclust health` reads it."""
    max_age_seconds: Positive = 60.0
    """A heartbeat older than this is none."""


def cause(error: Exception) -> str:
    """Why something could not be read, in a few words."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
