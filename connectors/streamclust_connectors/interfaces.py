"""Protocols of sources, sinks and stores, and the types they exchange."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from streamclust.checkpoint import State
    from streamclust.lineage import Change
    from streamclust.streaming import StreamClusterer, StreamFeatures

StreamModel: TypeAlias = "StreamClusterer | StreamFeatures"
"""The model that a service trains: a clusterer, or the features of a stream."""

Partition = tuple[str, int]
"""An ordered part of a stream: topic or file name, and partition number."""
Headers = Sequence[tuple[str, bytes]]
Channel = Literal["assignments", "lifecycle", "snapshots", "dead-letters", "refusals"]
Encode = Callable[[Any], bytes]
"""Writes an output record as the value of a message."""


class Transient(Exception):  # noqa: N818
    """A failure that a retry may cure: a broker restart, a time-out."""


class DataLoss(Exception):  # noqa: N818
    """Records were deleted from the source before they were learnt; the message says what to do."""


class Fenced(Exception):  # noqa: N818
    """Another process with the same transactional or group instance id has taken over."""


class MissingCodec(Exception):  # noqa: N818
    """Records are compressed by a codec that is not installed; the message names the package."""


class UnfitTopic(Exception):  # noqa: N818
    """A topic is missing or configured wrongly; the message says what to create or change."""


class UnfitSchema(Exception):  # noqa: N818
    """The schema registry does not have, or refuses, the schema of an output; the message says what to do."""


EXHAUSTED_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Error numbers of exhausted disk space, file handles or memory, which are retried."""


class StateInUse(Exception):  # noqa: N818
    """Another process uses the state directory, and did not exit in time."""


class Record(Protocol):
    """A message as received; Kafka's records satisfy this protocol."""

    @property
    def offset(self) -> int:
        """Position in its partition."""

    @property
    def value(self) -> bytes | None:
        """Content; None is a tombstone."""

    @property
    def key(self) -> bytes | None:
        """Key."""

    @property
    def headers(self) -> Headers:
        """Headers."""

    @property
    def timestamp(self) -> int | None:
        """Milliseconds since 1970."""


class Message(NamedTuple):
    """A record that did not come from Kafka."""

    offset: int
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None


class Batch(NamedTuple):
    """Records of one partition, in order."""

    partition: Partition
    records: Sequence[Record]


class Assigned(NamedTuple):
    """Partitions assigned to this process; each delivers nothing before `seek`."""

    partitions: Collection[Partition]


class Revoked(NamedTuple):
    """Partitions taken away from this process."""

    partitions: Collection[Partition]


class EventKey(NamedTuple):
    """Origin of an event: its record, its place in it if that has several, its key and time where it has them."""

    partition: Partition
    offset: int
    place: int | None
    key: Any
    time: float | None

    @property
    def id(self) -> str:
        """Id of the event in outputs."""
        end = "" if self.place is None else f"-{self.place}"
        return f"{self.partition[0]}-{self.partition[1]}-{self.offset}{end}"


class Extent(NamedTuple):
    """First and end offset of a partition, and the topic id, which changes if the topic is recreated."""

    first: int
    """Offset of the oldest record."""
    end: int
    """Offset after the newest record."""
    topic_id: str | None = None
    n_partitions: int = 1


class SavedPosition(NamedTuple):
    """Saved position of a partition."""

    offset: int
    """Next offset to learn."""
    topic_id: str | None
    n_partitions: int


def positions_to_state(positions: Mapping[Partition, SavedPosition]) -> dict[str, Any]:
    """Positions of partitions as a checkpoint holds them."""
    return {"next": [[*name, *position] for name, position in positions.items()]}


def positions_from_state(positions: Mapping[str, Any]) -> dict[Partition, SavedPosition]:
    """Inverse of `positions_to_state`."""
    return {(topic, number): SavedPosition(*saved) for topic, number, *saved in positions["next"]}


class Source(Protocol):
    """Where records come from."""

    @property
    def remote(self) -> bool:
        """Whether `extent` asks another machine, which may not answer soon; it may then be called by any thread."""

    @property
    def connecting(self) -> bool:
        """Whether `poll` returned nothing because there is no connection yet."""

    def poll(self, seconds: float) -> Sequence[Assigned | Revoked | Batch]:
        """Batches, assignments and revocations, in order; blocks for at most `seconds`. May raise Transient."""

    def extent(self, partition: Partition) -> Extent:
        """Current extent of an assigned partition."""

    def seek(self, partition: Partition, offset: int) -> None:
        """Deliver an assigned partition from this record on."""

    def pause(self) -> None:
        """Deliver no records until `resume`; `poll` must still be called, for its heartbeats."""

    def resume(self) -> None:
        """Deliver records again."""

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Commit offsets for monitoring tools; the service itself never reads them."""

    def lag(self) -> dict[Partition, int]:
        """Number of records of each partition not yet delivered, where known."""

    def unread(self) -> dict[Partition, str]:
        """Sought partitions that deliver nothing though they have records, and the reason."""

    @property
    def finished(self) -> bool:
        """Whether everything was delivered and nothing more will come."""

    def close(self) -> None:
        """Close all resources."""


class Output(NamedTuple):
    """A message to send."""

    value: bytes
    key: bytes | None = None
    headers: Headers = ()
    origin: Partition | None = None
    """Partition of the record that caused it."""
    timestamp: int | None = None
    """Milliseconds since 1970; None for the time at which it is sent."""

    @property
    def size(self) -> int:
        """Upper estimate of its size in bytes."""
        headers = sum(len(name.encode()) + len(value) + 10 for name, value in self.headers)
        return len(self.value) + len(self.key or b"") + headers + 30


class Sink(Protocol):
    """Where outputs go."""

    def emit(self, channel: Channel, outputs: Sequence[Output]) -> None:
        """Send outputs, now or by the next `commit`."""

    def wants(self, channel: Channel) -> bool:
        """Whether outputs of this channel are enabled."""

    def discard_uncommitted(self) -> None:
        """Discard the outputs emitted since the last commit, if `exactly_once`."""

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Wait until all emitted outputs are delivered; raise if that is uncertain.

        A sink that delivers exactly once makes them visible together with the positions, or not at all.
        """

    @property
    def exactly_once(self) -> bool:
        """Whether `commit` stores the positions together with the outputs."""

    def committed(self, partition: Partition) -> int | None:
        """Committed offset of a partition, if `exactly_once`; None if there is none."""

    @property
    def full(self) -> bool:
        """Whether the source should pause because too many outputs are in flight."""

    @property
    def max_message_bytes(self) -> int | None:
        """Maximal size of a message in bytes; None for no limit."""

    @property
    def dropped(self) -> int:
        """Number of outputs dropped because of their size."""

    def close(self) -> None:
        """Close all resources; uncommitted outputs may be lost."""


class ReplayStep(NamedTuple):
    """A run of records that is learnt: those of a partition below an offset."""

    partition: Partition
    end: int


@runtime_checkable
class OrderNotes(Protocol):
    """Notes of the order in which records of several partitions were learnt since the latest checkpoint."""

    def note_order(self, steps: Sequence[ReplayStep]) -> None:
        """Add steps that are about to be taken."""

    def noted_order(self) -> list[ReplayStep]:
        """The steps since the latest checkpoint, and perhaps some before it."""


class Store(Protocol):
    """Storage of checkpoints: of this process, and of partitions that moved between processes."""

    @property
    def transactional(self) -> bool:
        """Whether a saved state takes effect only when the sink commits."""

    def save(self, state: State) -> object:
        """Write a state."""

    def latest(self) -> State | None:
        """The latest state, or None."""

    def find(self, partition: Partition) -> tuple[SavedPosition, State] | None:
        """Position and summary of a partition with the largest offset saved by another process; or None."""

    def hand_over(self, partition: Partition, position: SavedPosition, summary: State) -> None:
        """Save a partition's summary for its next owner."""

    def close(self) -> None:
        """Close all resources."""


@dataclass(frozen=True)
class MemberStatus:
    """Status that a member of a group sends to the others."""

    member: str = ""
    """Its name: group_instance_id, or host and process."""
    at: float = field(default_factory=time.time)
    """Time of the status, in seconds since 1970."""
    positions: dict[str, int] = field(default_factory=dict)
    """Next offset of each assigned partition, by topic and number."""
    lag: dict[str, int] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    """Assigned partitions that it does not read, and why."""
    events: int = 0
    """Number of events learnt from its partitions."""
    events_per_second: float = 0.0
    model_version: int | None = None
    """Version of the model that its assignments use."""
    leads: bool = False
    """Whether it is the leader, which computes the model."""
    checked_at: float = 0.0
    """Time at which it last found, as the leader, all summaries in the model."""


class Group(Protocol):
    """One model for all processes of a consumer group."""

    @property
    def ready(self) -> bool:
        """Whether there is a model."""

    @property
    def leads(self) -> bool:
        """Whether this process is the leader, which computes the model."""

    @property
    def version(self) -> int | None:
        """Version of the latest model."""

    @property
    def revision(self) -> int | None:
        """Revision of the model that the learner follows: a model may change within its version."""

    @property
    def staleness(self) -> float | None:
        """Seconds since the model included all summaries that the leader knew."""

    @property
    def names(self) -> Mapping[int, str]:
        """Names of clusters in the latest model."""

    @property
    def example_keys(self) -> Mapping[int, EventKey]:
        """Keys of the examples of clusters in the latest model, by the fingerprints of events."""

    def name(self, cluster: int, name: str | None) -> None:
        """Name a cluster for all members; KeyError if there is none, ValueError if it cannot be a name."""

    @property
    def clusterer(self) -> StreamClusterer | None:
        """The group's latest clusterer, read-only; None before the first model."""

    def update_learner(self, learner: StreamModel) -> None:
        """Give the latest model to a learner."""

    def update_leadership(self, positions: Collection[Partition], waiting: Collection[Partition]) -> None:
        """Become the leader if the first partition is assigned here, else a follower.

        While it waits to be read nothing is published: the broker checks the leadership by its offset.
        """

    def discard_uncommitted(self) -> None:
        """Discard a model that was not committed."""

    def publish(self) -> tuple[Change, ...]:
        """Send a new model with the sink's next commit; returns its lifecycle events, to be emitted with it."""

    def send_status(self, status: MemberStatus) -> None:
        """Send this member's status with the next commit of the sink."""

    def active_members(self) -> list[MemberStatus]:
        """Latest status of each active member."""

    def close(self) -> None:
        """Stop following."""
