"""A sink that sends outputs to Kafka, in transactions for exactly-once delivery."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from streamclust_connectors.interfaces import Channel, Fenced, Output, Partition, Transient
from streamclust_connectors.kafka.client_protocols import Member, MessageTooLarge, Sender

BATCH_BYTES = 1 << 18
"""Size of a producer's batches."""
DEFAULT_MAX_BYTES = 900_000
"""Default limit of a message, slightly below a broker's default."""
MIN_LIMIT_BYTES = 2000
"""Lower bound of the limit when a broker refuses messages."""
MAX_IN_FLIGHT_MESSAGES = 100_000
"""Messages in flight above which the source is paused."""
TRANSACTION_TIMEOUT_SECONDS = 60.0
"""Time after which a broker aborts a transaction and fences its producer; default of the clients."""

log = logging.getLogger(__name__)


class KafkaSink:
    """Sends outputs to one topic per channel; dead letters go to `<input>.dlq` by default.

    The producer is of the same client as `source`. With a `transactional_id`, which no other process may use, outputs
    are sent in transactions together with the offsets of `source`.

    Outputs larger than `max_message_bytes` are dropped; dead letters and snapshots are shortened before that. Each time
    the broker refuses a message because of its size, the limit is halved.
    """

    def __init__(
        self,
        source: Member,
        topics: Mapping[Channel, str],
        transactional_id: str | None = None,
        max_message_bytes: int = DEFAULT_MAX_BYTES,
        **options: Any,
    ) -> None:
        self.source, self.topics = source, {"dead-letters": "{topic}.dlq", **topics}
        self.transactional_id = transactional_id
        self.options: dict[str, Any] = {"batch_size": BATCH_BYTES} | options
        self.exactly_once = transactional_id is not None
        self.max_message_bytes, self.dropped = max_message_bytes, 0
        self._refused = False
        """Whether the broker has refused a message because of its size."""
        self._sender: Sender | None = None
        self._connecting = threading.Lock()
        """Held while the producer connects: `committed` may be called by another thread."""
        self._open = False
        """Whether a transaction is open."""
        self._fenced_at: float | None = None
        self._positions: dict[Partition, int] = {}
        self.on_open_transaction: Callable[[], None] | None = None
        """Called when an open transaction of another process delays a committed offset."""

    @property
    def sender(self) -> Sender:
        """The producer, connected when first used; connecting aborts a transaction that a predecessor left open."""
        with self._connecting:
            if self._sender is None:
                self._sender = self.source.sender(self.transactional_id, self.options)
            return self._sender

    def wants(self, channel: Channel) -> bool:
        """Whether a channel has a topic."""
        return bool(self.topics.get(channel))

    def emit(self, channel: Channel, outputs: Sequence[Output]) -> None:
        """Queue outputs in the client, which sends them in batches."""
        topic = self.topics[channel]
        if self._refused or channel != "assignments":  # these are small and many
            outputs = [output for output in outputs if self._is_sendable(channel, output)]
        if not outputs:
            return
        with self._sending() as sender:
            self._begin(sender)
            if channel == "assignments":
                sender.send(topic, outputs, self._partition_of(sender, topic, outputs[0].origin))
                return
            for output in outputs:
                name = topic if output.origin is None else topic.format(topic=output.origin[0])
                sender.send(name, [output], None)

    def send_state(self, topic: str, messages: Sequence[Output], partition: int) -> None:
        """Send parts of a state to a partition of a topic, within the open transaction."""
        with self._sending() as sender:
            self._begin(sender)
            sender.send(topic, messages, partition)

    def discard_uncommitted(self) -> None:
        """Discard messages sent since the last commit."""
        if self._open:
            self._drop()

    @staticmethod
    def _partition_of(sender: Sender, topic: str, origin: Partition | None) -> int:
        """Partition of assignments: the number of the events' partition, modulo the number of partitions.

        Assignments of a key stay in one partition, and those of a partition in order.
        """
        assert origin is not None
        return origin[1] % sender.n_partitions(topic)

    def _is_sendable(self, channel: Channel, output: Output) -> bool:
        if output.size <= self.max_message_bytes:
            return True
        self.dropped += 1
        log.error(
            "an output of %d bytes for %s was dropped: output.max_message_bytes is %d",
            output.size,
            channel,
            self.max_message_bytes,
        )
        return False

    @contextmanager
    def _sending(self) -> Iterator[Sender]:
        """The producer; dropped after a failure. A message that is too large lowers the limit."""
        try:
            yield self.sender
        except MessageTooLarge as error:
            self._drop()
            self._lower_limit()
            raise Transient(str(error)) from error
        except Transient:
            self._drop()
            raise
        except Fenced as error:
            self._drop()
            if self._id_is_shared():
                raise
            raise Transient(f"the transaction timed out, or {error}") from error

    def _id_is_shared(self) -> bool:
        """Whether another process uses the transactional id: fenced twice, too soon for a transaction time-out.

        The broker also fences a process that was suspended with an open transaction; that one continues with a new
        client.
        """
        before, self._fenced_at = self._fenced_at, time.monotonic()
        limit = self.options.get("transaction_timeout_ms", 1000 * TRANSACTION_TIMEOUT_SECONDS) / 1000
        return before is not None and self._fenced_at - before < limit

    def _lower_limit(self) -> None:
        if self.max_message_bytes < 2 * MIN_LIMIT_BYTES:
            raise ValueError(
                f"the broker refuses messages of {self.max_message_bytes} bytes; raise max.message.bytes of its topics"
            )
        self._refused = True
        self.max_message_bytes //= 2
        self.options["batch_size"] = min(self.options["batch_size"], self.max_message_bytes)
        log.warning(
            "the broker refused a message because of its size; the limit is now %d bytes",
            self.max_message_bytes,
        )

    def _begin(self, sender: Sender) -> None:
        if self.exactly_once and not self._open:
            sender.begin()
            self._open = True

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Wait until all messages are acknowledged; in a transaction, commit them with the offsets."""
        moved = any(self._positions.get(name) != at for name, at in positions.items())
        if self.exactly_once and (self._open or moved):
            with self._sending() as sender:
                self._begin(sender)
                sender.flush()
                sender.commit(positions, self.source.membership(positions))
            self._open = False
        elif self._sender is not None:
            with self._sending() as sender:
                sender.flush()
        self._positions.update(positions)

    def _drop(self) -> None:
        """Close the client and discard unsent messages; the next client aborts the open transaction."""
        self._open, self._positions = False, {}
        if self._sender is not None:
            sender, self._sender = self._sender, None
            threading.Thread(target=sender.close, args=(1.0,), daemon=True).start()

    def committed(self, partition: Partition) -> int | None:
        """Offset committed by the group's transactions, after an open one of a predecessor has ended."""
        assert (
            self.sender is not None
        )  # connects the producer, which ends an open transaction of a predecessor
        try:
            found = self.source.committed(partition)
        except Transient:
            if self.on_open_transaction is not None:
                self.on_open_transaction()
            raise
        if found is not None:
            self._positions[partition] = found
        return found

    @property
    def full(self) -> bool:
        """Whether more than MAX_IN_FLIGHT_MESSAGES are in flight."""
        return self._sender is not None and self._sender.in_flight > MAX_IN_FLIGHT_MESSAGES

    def close(self) -> None:
        """Close the client; uncommitted messages are dropped."""
        if self._sender is not None:
            sender, self._sender = self._sender, None
            sender.close(5.0)
