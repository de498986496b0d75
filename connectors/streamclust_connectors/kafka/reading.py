"""Record batches, read whole.

kafka-python reads a batch record by record, byte by byte, which takes most of a consumer's time. Here a kernel finds
where all records of a batch and their parts begin, and the parts are then cut out. Only what is read in one way is
read here: where transactions were aborted, or bytes are not what they should be, the client's own reader goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

import numpy as np
from kafka import KafkaConsumer
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError
from kafka.record.util import decode_varint
from numpy.typing import NDArray

from streamclust._kernels.compile import kernel
from streamclust_connectors.ports import Message

OFFSET, TIME, KEY, KEY_END, VALUE, VALUE_END, HEADERS, N_HEADERS = range(8)
"""What is known of a record: columns of the table that `find_records` fills. Where there is no key, KEY is -1."""
LONGEST = 63
"""Bits that a number may have: more is no record."""


def read_whole_batches(consumer: KafkaConsumer) -> None:
    """Let a consumer read batches whole; its records are then Messages."""
    consumer._fetcher.PartitionRecords = WholeBatches


class WholeBatches(Fetcher.PartitionRecords):  # type: ignore[misc]  # kafka-python is untyped
    """The records of one partition that one fetch has brought."""

    next_fetch_offset: int

    def take(self, n: int | None = None) -> list[Any]:
        """The next records; remembers where the next fetch should begin."""
        records: list[Any] = super().take(n)
        if records:  # the end of a batch, where reached, may lie farther: a compacted topic has gaps
            self.next_fetch_offset = max(self.next_fetch_offset, records[-1].offset + 1)
        return records

    def _unpack_records(self, tp: Any, records: Any, *deserializers: Any) -> Iterator[Any]:  # noqa: ANN401
        batch = records.next_batch()
        while batch is not None and self._simple(batch):
            if self.check_crcs and not batch.validate_crc():
                raise CorruptRecordError(
                    f"the batch at {batch.base_offset} of {tp} does not match its checksum"
                )
            self.leader_epoch = batch.leader_epoch
            if not batch.is_control_batch:
                yield from read_batch(batch)
            self.records_read += batch.records_count
            self.bytes_read += batch.size_in_bytes
            self.next_fetch_offset = batch.next_offset
            batch = records.next_batch()
        yield from super()._unpack_records(tp, Rest(batch, records), *deserializers)

    def _simple(self, batch: Any) -> bool:  # noqa: ANN401
        """Whether all records of a batch count, or, of one that controls transactions, none."""
        return batch.magic == 2 and not self.aborted_transactions and not self.aborted_producer_ids


class Rest:
    """Batches not yet read, the first of them taken already."""

    def __init__(self, first: Any, others: Any) -> None:  # noqa: ANN401
        self.first, self.others = first, others

    def next_batch(self) -> Any:  # noqa: ANN401
        """The next one, None at the end."""
        first, self.first = self.first, None
        return self.others.next_batch() if first is None else first


def read_batch(batch: Any) -> Iterable[Any]:  # noqa: ANN401
    """All records of a batch. Where it is damaged the client's reader, which then has them, says how."""
    iter(batch)  # unpacks what was compressed
    content = bytes(batch._buffer)
    table = np.empty((min(max(batch.records_count, 0), len(content)), 8), dtype=np.int64)
    end = find_records(np.frombuffer(content, dtype=np.uint8), batch._pos, table)
    columns = table.T
    headers: Iterable[Any] = repeat(())
    damaged = end != len(content) or len(table) != batch.records_count
    if not damaged and columns[N_HEADERS].any():
        try:
            headers = [read_headers(content, at, n) for at, n in columns[HEADERS:].T.tolist()]
        except UnicodeDecodeError:
            damaged = True
    if damaged:
        found: Iterable[Any] = batch
        return found
    times: Iterable[int] = repeat(batch.max_timestamp)
    if batch.timestamp_type == batch.CREATE_TIME:
        times = (batch.first_timestamp + columns[TIME]).tolist()
    fields = zip(
        (batch.base_offset + columns[OFFSET]).tolist(),
        cut(content, *columns[VALUE : VALUE_END + 1]),
        cut(content, *columns[KEY : KEY_END + 1]),
        headers,
        times,
        strict=False,  # what repeats has no end
    )
    return map(tuple.__new__, repeat(Message), fields)


def cut(content: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Iterable[bytes | None]:
    """Parts of something; None where one begins before it."""
    missing = starts < 0
    if missing.all():
        return repeat(None)
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    if missing.any():
        return [None if start < 0 else content[start:end] for start, end in pairs]
    return [content[start:end] for start, end in pairs]


def read_headers(content: bytes, at: int, n: int) -> list[tuple[str, bytes | None]]:
    """The headers of a record."""
    found = []
    for _ in range(n):
        size, at = decode_varint(content, at)
        name, at = content[at : at + size].decode(), at + size
        size, at = decode_varint(content, at)
        found.append((name, content[at : at + size] if size >= 0 else None))
        at += max(size, 0)
    return found


@kernel
def find_records(content: NDArray[np.uint8], at: int, table: NDArray[np.int64]) -> int:
    """Where the parts of each record are [Kafka protocol, record batch v2]; where the last one ends, or -1 if damaged.

    A record is its length, attributes (one byte), time and offset less those of the batch, key, value and headers. All
    numbers are zigzag varints; a key or a value is its length, -1 for none, and its bytes.
    """
    size = len(content)
    for i in range(len(table)):
        length, at = varint(content, at)
        end = at + length
        if at < 0 or length < 1 or end > size or content[at]:  # there are no attributes yet
            return -1
        table[i, TIME], at = varint(content, at + 1)
        if at < 0:
            return -1
        table[i, OFFSET], at = varint(content, at)
        for part in (KEY, VALUE):
            if at < 0:
                return -1
            length, at = varint(content, at)
            if at < 0 or length > end - at:
                return -1
            table[i, part] = at if length >= 0 else -1
            at += max(length, 0)
            table[i, part + 1] = at
        table[i, N_HEADERS], at = varint(content, at)
        table[i, HEADERS] = at
        if at < 0 or table[i, N_HEADERS] < 0:
            return -1
        for _ in range(table[i, N_HEADERS]):
            for least in (0, -1):  # a name there must be
                length, at = varint(content, at)
                if at < 0 or length < least or length > end - at:
                    return -1
                at += max(length, 0)
        if at != end:
            return -1
    return at


@kernel
def varint(content: NDArray[np.uint8], at: int) -> tuple[int, int]:
    """The number that begins there, and where it ends, -1 if it does not."""
    value = shift = 0
    while at < len(content) and shift < LONGEST:
        byte = int(content[at])
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    return 0, -1
