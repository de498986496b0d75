"""A sink that sends outputs to Kafka, in transactions for exactly-once delivery."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from streamclust_connectors.kafka.sending import Member, MessageTooLarge, Sender
from streamclust_connectors.ports import Channel, Fenced, Output, Partition, Transient

BATCH_BYTES = 1 << 18
"""Size of a producer's batches."""
DEFAULT_MAX_BYTES = 900_000
"""Default limit of a message: slightly below a broker's default."""
MIN_LIMIT_BYTES = 2000
"""The limit is not lowered further when a broker refuses messages."""
MAX_IN_FLIGHT_MESSAGES = 100_000
"""Messages in flight above which the source is paused."""
TRANSACTION_TIMEOUT_SECONDS = 60.0
"""After so long a broker aborts a transaction and fences its producer, by the clients' defaults."""

log = logging.getLogger(__name__)


class KafkaSink:
    """Sends outputs to topics, by channel; dead letters go to `<input>.dlq` unless told otherwise.

    The client is that of `source`. With a `transactional_id`, which no other process may use, outputs go out in
    transactions together with the positions of `source`.

    Outputs larger than `largest` are dropped, except that dead letters and snapshots are made smaller before. Where the
    broker takes less than that, its first refusal halves `largest`, and so on.
    """

    def __init__(
        self,
        source: Member,
        topics: Mapping[Channel, str],
        transactional_id: str | None = None,
        largest: int = DEFAULT_MAX_BYTES,
        **options: Any,
    ) -> None:
        self.source, self.topics = source, {"dead-letters": "{topic}.dlq", **topics}
        self.transactional_id = transactional_id
        self.options: dict[str, Any] = {"batch_size": BATCH_BYTES} | options
        self.exactly_once = transactional_id is not None
        self.largest, self.dropped = largest, 0
        self._refused = False
        """Whether the broker has refused a message because of its size."""
        self._sender: Sender | None = None
        self._open = False
        """Whether a transaction is open."""
        self._fenced_at: float | None = None
        self._positions: dict[Partition, int] = {}
        self.when_held_up: Callable[[], None] | None = None
        """Called when an open transaction of another process holds back a committed offset."""

    @property
    def sender(self) -> Sender:
        """The client, connected when first needed; ends transactions that a predecessor left open."""
        if self._sender is None:
            self._sender = self.source.sender(self.transactional_id, self.options)
        return self._sender

    def wants(self, channel: Channel) -> bool:
        """Whether a channel has a topic."""
        return bool(self.topics.get(channel))

    def emit(self, channel: Channel, outputs: Sequence[Output]) -> None:
        """Hand outputs to the client, which sends them in batches of its own."""
        topic = self.topics[channel]
        if self._refused or channel != "assignments":  # which are small, and many
            outputs = [output for output in outputs if self._fits(channel, output)]
        if not outputs:
            return
        with self._sending() as sender:
            self._begin(sender)
            if channel == "assignments":
                sender.send(topic, outputs, self._like_input(sender, topic, outputs[0].origin))
                return
            for output in outputs:
                name = topic if output.origin is None else topic.format(topic=output.origin[0])
                sender.send(name, [output], None)

    def keep(self, topic: str, messages: Sequence[Output], partition: int) -> None:
        """Send parts of a state to a partition of a topic, within the open transaction."""
        with self._sending() as sender:
            self._begin(sender)
            sender.send(topic, messages, partition)

    def abandon(self) -> None:
        """Discard what was sent since the last commit."""
        if self._open:
            self._drop()

    @staticmethod
    def _like_input(sender: Sender, topic: str, origin: Partition | None) -> int:
        """Partition of assignments: the one that has the number of the one their events came from.

        So those of a key stay together, those of a partition in order, and an output topic of as many partitions as
        the input is partitioned like it.
        """
        assert origin is not None
        return origin[1] % sender.n_partitions(topic)

    def _fits(self, channel: Channel, output: Output) -> bool:
        if output.size <= self.largest:
            return True
        self.dropped += 1
        log.error(
            "%d bytes for %s are too many: output.max_message_bytes is %d", output.size, channel, self.largest
        )
        return False

    @contextmanager
    def _sending(self) -> Iterator[Sender]:
        """The client, dropped after a failure; a message too large lowers the limit."""
        try:
            yield self.sender
        except MessageTooLarge as error:
            self._drop()
            self._take_less()
            raise Transient(str(error)) from error
        except Transient:
            self._drop()
            raise
        except Fenced as error:
            self._drop()
            if self._has_rival():
                raise
            raise Transient(f"a transaction took too long, or {error}") from error

    def _has_rival(self) -> bool:
        """Whether another process uses the transactional id: this one is fenced twice, too soon for a time-out.

        A process that was frozen with an open transaction is fenced by the broker, and may go on with a new client.
        """
        before, self._fenced_at = self._fenced_at, time.monotonic()
        limit = self.options.get("transaction_timeout_ms", 1000 * TRANSACTION_TIMEOUT_SECONDS) / 1000
        return before is not None and self._fenced_at - before < limit

    def _take_less(self) -> None:
        if self.largest < 2 * MIN_LIMIT_BYTES:
            raise ValueError(
                f"the broker refuses messages of {self.largest} bytes; let its topics take more: max.message.bytes"
            )
        self._refused = True
        self.largest //= 2
        self.options["batch_size"] = min(self.options["batch_size"], self.largest)
        log.warning("the broker has refused a message; from now on the largest is of %d bytes", self.largest)

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
        """Offset committed by transactions of the group, after any open one of a predecessor has ended."""
        assert self.sender is not None
        try:
            found = self.source.committed(partition)
        except Transient:
            if self.when_held_up is not None:
                self.when_held_up()
            raise
        if found is not None:
            self._positions[partition] = found
        return found

    @property
    def full(self) -> bool:
        """Whether more than MAX_IN_FLIGHT_MESSAGES are in flight."""
        return self._sender is not None and self._sender.in_flight > MAX_IN_FLIGHT_MESSAGES

    def close(self) -> None:
        """Close the client; what was not committed is dropped."""
        if self._sender is not None:
            sender, self._sender = self._sender, None
            sender.close(5.0)
