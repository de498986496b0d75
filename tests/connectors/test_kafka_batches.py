"""Record batches read and written whole, against the client's own ways."""

import struct
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import KafkaProducer, TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError, MessageSizeTooLargeError
from kafka.producer.producer_batch import ProducerBatch
from kafka.protocol.consumer import IsolationLevel
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecordsBuilder
from kafka.record.util import calc_crc32c

from streamclust import StreamClusterer
from streamclust_connectors.kafka import KafkaSink, KafkaSource, names
from streamclust_connectors.kafka.reading import WholeBatches
from streamclust_connectors.kafka.sending import OVERHEAD, Delivery, batches, lay_out
from streamclust_connectors.ports import Output
from streamclust_connectors.service import Policy, Service
from tests.connectors.cluster import events, until

NAME = TopicPartition("t", 0)
ATTRIBUTES, CRC = DefaultRecordBatchBuilder.ATTRIBUTES_OFFSET, DefaultRecordBatchBuilder.CRC_OFFSET
COMMIT, ABORT = struct.pack(">hh", 0, 1), struct.pack(">hh", 0, 0)

content = st.one_of(st.none(), st.binary(max_size=200))
headers = st.lists(st.tuples(st.text(max_size=4), content), max_size=2)
records = st.tuples(st.integers(0, 2**41), content, content, headers, st.integers(0, 3))
"""Time, key, value, headers, and how many offsets were compacted away before."""


class Aborted:
    """A transaction that came to nothing."""

    def __init__(self, producer_id, first_offset):
        self.producer_id, self.first_offset = producer_id, first_offset


def signed(batch):
    """With a checksum that fits."""
    struct.pack_into(">I", batch, CRC, calc_crc32c(memoryview(batch)[ATTRIBUTES:]))
    return batch


def built(base, rows, compression=0, attributes=0, producer=-1, tail=0):
    """A batch as a broker would have it, `tail` offsets shorter at its end than when it was written."""
    number = min(producer, 0)  # of its first message, and of its incarnation
    builder = MemoryRecordsBuilder(2, compression, 1 << 20, 0, producer >= 0, producer, number, number)
    for time, key, value, more, gap in rows:
        builder.skip(gap)
        builder.append(time, key, value, more)
    size = builder.next_offset() + tail
    builder.close()
    batch = bytearray(builder.buffer())
    struct.pack_into(">q", batch, 0, base)
    (flags,) = struct.unpack_from(">h", batch, ATTRIBUTES)
    struct.pack_into(">hi", batch, ATTRIBUTES, flags | attributes, size - 1)
    return signed(batch), base + size


@st.composite
def logs(draw):
    """Batches of all kinds, one after the other, and the transactions that were aborted."""
    log, at, aborted = bytearray(), draw(st.integers(0, 10**12)), []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(
            st.sampled_from(["plain", "plain", "gzip", "log time", "transaction", "commit", "abort", "empty"])
        )
        rows = [] if kind == "empty" else draw(st.lists(records, min_size=1, max_size=5))
        tail = draw(st.integers(0, 2)) if kind != "empty" else 1
        producer = draw(st.integers(1, 2))
        if kind in ("commit", "abort"):
            rows = [(5, COMMIT if kind == "commit" else ABORT, b"\0" * 6, [], 0)]
            batch, end = built(at, rows, 0, 0x20, producer)
        elif kind == "transaction":
            batch, end = built(at, rows, 0, 0, producer, tail)
            if draw(st.booleans()):
                aborted.append(Aborted(producer, at))
        else:
            batch, end = built(at, rows, kind == "gzip", 8 * (kind == "log time"), -1, tail)
        log, at = log + batch, end
    return bytes(log), aborted


def read(kind, log, aborted, start, sizes, isolation):
    """What a consumer gets by takes of some sizes, and where it stands after each."""
    part = kind(start, NAME, MemoryRecords(log), isolation_level=isolation, aborted_transactions=aborted)
    found = []
    while part:
        try:
            taken = part.take(sizes[len(found) % len(sizes)])
        except CorruptRecordError:
            return [*found, "corrupt"]
        parts = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in taken]
        found.append((parts, part.next_fetch_offset, part.leader_epoch))
    return found


def everything(found):
    """The records, and where a consumer stood at the end."""
    rows = [row for parts in found if parts != "corrupt" for row in parts[0]]
    return rows, found[-1] if found[-1] == "corrupt" else found[-1][1:]


sizes = st.lists(st.integers(1, 6), min_size=1, max_size=3)
isolations = st.sampled_from([IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED])


@given(logs(), sizes, st.integers(0, 8), isolations)
def test_batches_read_whole_hold_what_the_client_reads(log, sizes, ahead, isolation):
    data, aborted = log
    if isolation is IsolationLevel.READ_UNCOMMITTED:
        aborted = []
    start = struct.unpack_from(">q", data)[0] + ahead
    theirs = read(Fetcher.PartitionRecords, data, aborted, start, sizes, isolation)
    ours = read(WholeBatches, data, aborted, start, sizes, isolation)
    assert ours == theirs


@given(st.lists(records, min_size=1, max_size=6), sizes, st.data())
def test_damage_is_found_where_the_client_finds_it(rows, sizes, data):
    batch, _ = built(0, rows)
    at = data.draw(st.integers(DefaultRecordBatchBuilder.HEADER_STRUCT.size - 4, len(batch) - 1))
    batch[at] = data.draw(st.integers(0, 255))
    log = bytes(signed(batch)) + bytes(built(100, [(0, None, b"next", [], 0)])[0])
    theirs = everything(read(Fetcher.PartitionRecords, log, [], 0, sizes, IsolationLevel.READ_COMMITTED))
    assert everything(read(WholeBatches, log, [], 0, sizes, IsolationLevel.READ_COMMITTED)) == theirs


def test_a_wrong_checksum_is_told():
    batch, _ = built(0, [(0, None, b"value", [], 0)])
    batch[-3] ^= 1
    with pytest.raises(CorruptRecordError, match="checksum"):
        WholeBatches(0, NAME, MemoryRecords(bytes(batch))).take(1)


# -------------------------------------------------------------------- writing

outputs = st.lists(
    st.builds(Output, st.binary(max_size=300), st.one_of(st.none(), st.binary(max_size=200))),
    min_size=1,
    max_size=8,
)


@given(outputs, st.integers(0, 1))
def test_messages_laid_out_together_are_what_the_client_writes(given, compression):
    ours, theirs = (MemoryRecordsBuilder(2, compression, 1 << 16) for _ in range(2))
    lay_out(ours, given)
    now = ours._builder._first_timestamp
    for output in given:
        theirs.append(now, output.key, output.value, [])
    assert ours.next_offset() == theirs.next_offset()
    last = Output(b"one more", b"k")
    for records in (ours, theirs):
        assert records.append(now + 3, last.key, last.value, [])
        records.set_producer_state(7, 1, 5, False)
        records.close()
    assert ours.buffer() == theirs.buffer()


def test_a_batch_that_the_client_splits_has_failed():
    batch = ProducerBatch(NAME, MemoryRecordsBuilder(2, 0, 1 << 16))
    future = Delivery(batch.produce_future, 0, None, None, -1, -1, -1)
    future.rebind(ProducerBatch(NAME, None).produce_future, 0)
    assert future.failed()
    assert isinstance(future.exception, MessageSizeTooLargeError)


@given(outputs, st.integers(600, 2000))
def test_batches_are_all_messages_and_none_is_too_large(given, size):
    parts = list(batches(given, size))
    assert [output for part in parts for output in part] == given
    weights = [sum(len(o.value) + len(o.key or b"") + OVERHEAD for o in part) for part in parts]
    assert max(weights) <= size
    assert all(one + len(part[0].value) + len(part[0].key or b"") + OVERHEAD > size
               for one, part in zip(weights, parts[1:], strict=False))  # fmt: skip
    assert all(pair[0] and pair[1] for pair in pairwise(parts))


# -------------------------------------------------------------------- on a broker


def serve(cluster, topic, out, n, delivery):
    """Learn a topic, here; the assignments, and the sums of what was learnt."""
    source = KafkaSource([topic], out, cluster.address)
    sink = KafkaSink(source, {"assignments": out}, out if delivery == "exactly-once" else None)
    service = Service(source, sink, StreamClusterer(seed=1), policy=Policy(poll=0.2))
    try:
        until("all events", lambda: service.turn() or service.stats.events >= n)
        service.checkpoint()
        totals = {name: part.tree.total for name, part in service.clusterer._engine.shards.items()}
    finally:
        source.close()
        sink.close()
    found = sorted((r.partition, r.offset, r.key, r.value) for r in cluster.read(out))
    return [(partition, key, value) for partition, _, key, value in found], totals


@pytest.mark.compiled
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_the_clients_own_ways_bring_the_same(cluster, monkeypatch, delivery):
    topic = cluster.topic(partitions=2)
    values, _ = events(1200)
    for number, compression in enumerate((None, "gzip")):
        with KafkaProducer(bootstrap_servers=cluster.address, compression_type=compression) as producer:
            for i, value in enumerate(values[600 * number : 600 * (number + 1)]):
                producer.send(topic, value, key=b"%d" % (i % 7) if i % 2 else None, partition=number)
    known, plain = cluster.topic("known", partitions=3), cluster.topic("plain", partitions=3)
    ours, totals = serve(cluster, topic, known, len(values), delivery)
    monkeypatch.setattr(names, "KNOWN", False)
    theirs, others = serve(cluster, topic, plain, len(values), delivery)
    assert {(p, key) for p, key, _ in ours} == {(p, key) for p, key, _ in theirs}
    placed = {(p, msgspec.json.decode(value)["id"]) for p, _, value in ours}
    assert placed == {(p, msgspec.json.decode(value)["id"]) for p, _, value in theirs}
    assert placed == {(p, f"{topic}-{p}-{i}") for p in (0, 1) for i in range(600)}
    for name, total in totals.items():
        assert total.weight[0] == others[name].weight[0] == 600
        assert np.allclose(total.mean, others[name].mean, rtol=1e-12)
