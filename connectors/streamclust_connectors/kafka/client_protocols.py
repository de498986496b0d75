"""Protocols of the producer and consumer clients that `KafkaSink` uses, and a time limit for their calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from streamclust_connectors.interfaces import Output, Partition

T = TypeVar("T")

BROKER_TIMEOUT_SECONDS = 15.0
"""Seconds to wait for a broker before Transient is raised, which the loop retries."""

COMMITTED_TIMEOUT_SECONDS = 2.0
"""Seconds to wait for committed offsets, which the open transaction of a dead process can delay."""


class MessageTooLarge(Exception):  # noqa: N818
    """The broker refused a message because of its size."""


class Sender(Protocol):
    """A producer. All methods may raise Transient, Fenced or MessageTooLarge."""

    def n_partitions(self, topic: str) -> int:
        """Number of partitions of a topic."""

    def send(self, topic: str, outputs: Sequence[Output], partition: int | None) -> None:
        """Queue messages for a partition; if it is None, keys determine the partitions."""

    @property
    def in_flight(self) -> int:
        """Number of messages not yet acknowledged."""

    def flush(self) -> None:
        """Wait until all messages are acknowledged."""

    def begin(self) -> None:
        """Begin a transaction."""

    def commit(self, positions: Mapping[Partition, int], membership: object) -> None:
        """Commit the transaction, with offsets of a consumer group if there are any."""

    def close(self, seconds: float) -> None:
        """Close the client; unsent messages and the open transaction are discarded."""


class Member(Protocol):
    """A source that is a member of a consumer group and can connect a producer."""

    def sender(self, transactional_id: str | None, options: Mapping[str, Any]) -> Sender:
        """Connect a producer with the source's options and these."""

    def membership(self, partitions: Collection[Partition]) -> object:
        """Group membership with which to commit offsets of these partitions, so that the broker can refuse it."""

    def committed(self, partition: Partition) -> int | None:
        """Offset committed by the group; waits for pending transactions."""


def within(seconds: float, call: Callable[..., T], *arguments: Any) -> T:
    """Run a call in a thread with a time limit: some calls of the clients may block forever."""
    done: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            done.append(call(*arguments))
        except BaseException as error:  # raised below, in the calling thread
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not done:
        raise TimeoutError(f"{call.__name__} took more than {seconds:.0f} s")
    return done[0]
