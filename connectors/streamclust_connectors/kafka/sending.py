"""Messages of one partition, sent together.

kafka-python takes messages one by one, and each costs what a hundred events cost the engine. Here they are laid out as
record batches of a batch's size, and handed over whole, each with one future for all its messages. From there on they
are batches like any others: numbered, acknowledged and tried again by the client.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from kafka import KafkaProducer, TopicPartition, errors
from kafka.producer.future import FutureRecordMetadata
from kafka.producer.producer_batch import ProducerBatch
from kafka.record.memory_records import MemoryRecordsBuilder
from kafka.record.util import encode_varint

from streamclust_connectors.ports import Output

OVERHEAD = 40
"""Bytes that a message takes beside its key and value, at most."""
MAGIC = 2
"""The version of record batches that is written here."""


class Varints(dict[int, bytes]):
    r"""Numbers as Kafka writes them, each worked out once.

    >>> Varints()[3], Varints()[150]
    (b'\x06', b'\xac\x02')
    """

    def __missing__(self, number: int) -> bytes:
        written = bytearray()
        encode_varint(number, written.append)
        self[number] = bytes(written)
        return self[number]


varints = Varints()


class Whole(ProducerBatch):  # type: ignore[misc]
    """A batch that the client takes for one message, so that it does not split it where the broker finds it too large.

    The one future would go with the first part alone, and nobody would hear of the other.
    """

    record_count = 1


class Delivery(FutureRecordMetadata):  # type: ignore[misc]  # kafka-python is untyped
    """What becomes of a batch; one that the broker finds too large, and the client splits, has failed."""

    def rebind(self, *_: Any) -> None:  # noqa: ANN401
        """Fail: of the parts of a batch nobody would hear."""
        self.failure(errors.MessageSizeTooLargeError("a batch was larger than the broker takes"))


def send_together(
    producer: KafkaProducer, name: TopicPartition, outputs: Sequence[Output]
) -> list[tuple[Any, int]]:
    """Futures, each with how many messages it stands for, of messages without headers to one partition."""
    settings = producer._accumulator.config
    size = settings["batch_size"]
    largest = max(len(output.value) + len(output.key or b"") for output in outputs) + OVERHEAD
    if largest > size or settings["message_version"] != MAGIC:
        return [(producer.send(name.topic, o.value, o.key, [], name.partition), 1) for o in outputs]
    if producer._transaction_manager and producer._transaction_manager.is_transactional():
        producer._transaction_manager.maybe_add_partition_to_transaction(name)
    return [(hand_over(producer, name, part), len(part)) for part in batches(outputs, size)]


def batches(outputs: Sequence[Output], size: int) -> Iterator[Sequence[Output]]:
    """Runs of outputs, each of which fits into so many bytes."""
    start = filled = 0
    for i, output in enumerate(outputs):
        more = len(output.value) + len(output.key or b"") + OVERHEAD
        if filled + more > size and i > start:
            yield outputs[start:i]
            start, filled = i, 0
        filled += more
    yield outputs[start:]


def hand_over(producer: KafkaProducer, name: TopicPartition, outputs: Sequence[Output]) -> Any:  # noqa: ANN401
    """Put a batch at the end of those that wait to be sent."""
    accumulator = producer._accumulator
    records = MemoryRecordsBuilder(
        MAGIC, accumulator.config["compression_attrs"], accumulator.config["batch_size"]
    )
    lay_out(records, outputs)
    batch = Whole(name, records)
    future = Delivery(batch.produce_future, 0, None, None, -1, -1, -1)
    batch._record_futures.append(future)
    with accumulator._tp_lock(name):
        if accumulator._closed:
            raise errors.IllegalStateError("the producer is closed")
        accumulator._batches[name].append(batch)
        accumulator._incomplete.add(batch)
    producer._sender.wakeup()
    return future


def lay_out(records: MemoryRecordsBuilder, outputs: Sequence[Output]) -> None:
    """Write messages into an empty batch, as `records.append` would one by one [Kafka protocol, record batch v2].

    Attributes and the time since the batch's first message are 0; lengths are varints, that of a missing key is -1.
    """
    bodies = [
        b"\0\0%b%b%b%b\0"
        % (
            varints[i],
            b"\1" if output.key is None else varints[len(output.key)] + output.key,
            varints[len(output.value)],
            output.value,
        )
        for i, output in enumerate(outputs)
    ]
    builder = records._builder
    builder._buffer += b"".join([part for body in bodies for part in (varints[len(body)], body)])
    builder._first_timestamp = builder._max_timestamp = int(time.time() * 1000)
    builder._num_records = records._next_offset = len(bodies)
    builder._last_offset = len(bodies) - 1
