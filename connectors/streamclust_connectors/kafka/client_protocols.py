"""Protocols of the producer and consumer clients that `KafkaSink` uses, and a time limit for their calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from streamclust_connectors.interfaces import Output, Partition

T = TypeVar("T")

BROKER_TIMEOUT_SECONDS = 15.0
"""Seconds to wait for a broker before Transient is raised, which the loop retries."""

COMMITTED_TIMEOUT_SECONDS = 2.0
"""Seconds to wait for committed offsets, which the open transaction of a dead process can delay."""

INQUIRY_TIMEOUT_SECONDS = 5.0
"""Seconds to wait for the offsets of a partition; another attempt is made with a new client."""


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


class Connection(Generic[T]):
    """Connects a client in a thread, so that the service can be stopped meanwhile.

    >>> connection = Connection(lambda: "client", lambda client: None)
    >>> connection.wait(10.0)
    'client'
    """

    def __init__(self, connect: Callable[[], T], close: Callable[[T], object]) -> None:
        self._connect, self._close = connect, close
        self._lock = threading.Lock()
        self._attempt: Attempt[T] | None = None

    @property
    def under_way(self) -> bool:
        """Whether an attempt has begun and its result was not fetched."""
        return self._attempt is not None

    def wait(self, seconds: float) -> T | None:
        """The client, or None if it is not connected within some seconds; raises the error of a failed attempt."""
        if self._attempt is None:
            self._attempt = Attempt(self)
        if not self._attempt.over.wait(seconds):
            return None
        attempt, self._attempt = self._attempt, None
        if attempt.error is not None:
            raise attempt.error
        return attempt.client

    def abandon(self) -> None:
        """Close the client as soon as it is connected."""
        with self._lock:
            attempt, self._attempt = self._attempt, None
            if attempt is not None:
                attempt.abandoned = True
        if attempt is not None and attempt.client is not None:
            self._close(attempt.client)


class Attempt(Generic[T]):
    """An attempt to connect a client, in a thread."""

    def __init__(self, connection: Connection[T]) -> None:
        self._connection = connection
        self.client: T | None = None
        self.error: BaseException | None = None
        self.over, self.abandoned = threading.Event(), False
        threading.Thread(target=self._run, name="streamclust-connect", daemon=True).start()

    def _run(self) -> None:
        try:
            client = self._connection._connect()
        except BaseException as error:  # raised by `wait`
            self.error = error
        else:
            with self._connection._lock:
                if not self.abandoned:
                    self.client = client
            if self.abandoned:
                self._connection._close(client)
        self.over.set()
