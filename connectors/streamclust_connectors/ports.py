"""What a source and a sink are to the service, and the few types they exchange."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

Partition = tuple[str, int]
"""A part of a stream that keeps its own order: a topic, or the name of a file, and a number."""
Headers = Sequence[tuple[str, bytes]]
Channel = Literal["assignments", "lifecycle", "snapshots", "dead-letters"]


class Transient(Exception):  # noqa: N818  # it is the kind of failure that passes
    """Something failed that may succeed when tried again later: a broker that restarts, a time-out."""


class DataLoss(Exception):  # noqa: N818
    """Records between what was learnt and what the source still has are gone; says what to do."""


class Fenced(Exception):  # noqa: N818
    """Another process has taken this one's place."""


class Record(Protocol):
    """One message as it came. Kafka's own records are such."""

    @property
    def offset(self) -> int:
        """Its place in its partition."""

    @property
    def value(self) -> bytes | None:
        """What it says; None is a tombstone."""

    @property
    def key(self) -> bytes | None:
        """What it is about."""

    @property
    def headers(self) -> Headers:
        """What else came with it."""

    @property
    def timestamp(self) -> int | None:
        """Milliseconds since 1970."""


class Message(NamedTuple):
    """A record of our own making."""

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
    """These partitions are ours from now on; each waits until it is told by `seek` where to begin."""

    partitions: Collection[Partition]


class Revoked(NamedTuple):
    """These partitions are no longer ours."""

    partitions: Collection[Partition]


class Extent(NamedTuple):
    """What a partition holds, and what would tell that it is not the one it was."""

    first: int
    """The offset of the oldest record there is."""
    end: int
    """The offset after the newest."""
    topic_id: str | None = None
    n_partitions: int = 1


class Place(NamedTuple):
    """Where a partition stood when it was left."""

    offset: int
    """The next record to learn."""
    topic_id: str | None
    n_partitions: int


class Source(Protocol):
    """Where records come from."""

    def poll(self, seconds: float) -> Sequence[Assigned | Revoked | Batch]:
        """What happened since, in order; waits at most so long for something to. May raise Transient."""

    def extent(self, partition: Partition) -> Extent:
        """What an assigned partition holds now."""

    def seek(self, partition: Partition, offset: int) -> None:
        """Deliver an assigned partition from this record on."""

    def pause(self) -> None:
        """Deliver no records until `resume`; `poll` goes on, so that nobody thinks us dead."""

    def resume(self) -> None:
        """Deliver records again."""

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Tell the world how far we are. Nothing here depends on it."""

    def lag(self) -> dict[Partition, int]:
        """How many records of each partition are still to be delivered, as far as known."""

    @property
    def finished(self) -> bool:
        """Whether everything was delivered and nothing more will come."""

    def close(self) -> None:
        """Let go of everything."""


class Output(NamedTuple):
    """A message to send."""

    value: bytes
    key: bytes | None = None
    headers: Headers = ()
    origin: Partition | None = None
    """Where the record came from that it speaks of."""

    @property
    def size(self) -> int:
        """Bytes that it takes, a little more than less."""
        headers = sum(len(name.encode()) + len(value) + 10 for name, value in self.headers)
        return len(self.value) + len(self.key or b"") + headers + 30


class Sink(Protocol):
    """Where outputs go."""

    def emit(self, channel: Channel, outputs: Sequence[Output]) -> None:
        """Send outputs, now or by the next `commit`."""

    def wants(self, channel: Channel) -> bool:
        """Whether anybody asked for these outputs."""

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """See to it that all outputs emitted have arrived or, where that is in doubt, raise.

        A sink that delivers exactly once makes them visible together with the positions, or not at all.
        """

    @property
    def exactly_once(self) -> bool:
        """Whether `commit` stores the positions together with the outputs."""

    def committed(self, partition: Partition) -> int | None:
        """How far the outputs of a partition are out, where `exactly_once`; None where they never were."""

    @property
    def full(self) -> bool:
        """Whether so much is on its way that the source should pause."""

    @property
    def largest(self) -> int | None:
        """Bytes of the largest message that it takes; None if any will do."""

    @property
    def dropped(self) -> int:
        """How many outputs were too large for it, and are lost."""

    def close(self) -> None:
        """Let go of everything; what was not committed may be lost."""


class Store(Protocol):
    """Where checkpoints are kept: those of this process, and the summaries of partitions that moved."""

    def save(self, state: Any) -> object:  # noqa: ANN401
        """Keep a state."""

    def latest(self) -> Any:  # noqa: ANN401
        """The latest state, or None."""

    def find(self, partition: Partition) -> tuple[Place, Any] | None:
        """The place and the summary of a partition that another process left, the farthest there is."""

    def hand_over(self, partition: Partition, place: Place, summary: Any) -> None:  # noqa: ANN401
        """Keep a partition's summary for whoever takes it over."""
