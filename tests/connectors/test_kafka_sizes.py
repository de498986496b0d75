"""Messages larger than the broker takes: dead letters go without what makes them so, and the stream goes on."""

import hashlib
import time
from collections import Counter

import pytest

from streamclust import StreamClusterer
from streamclust_connectors.kafka import KafkaSink
from streamclust_connectors.kafka.sink import DEFAULT_MAX_BYTES
from streamclust_connectors.service import Policy, Service
from tests.connectors.cluster import PATIENCE, events, until

pytestmark = [pytest.mark.compiled, pytest.mark.usefixtures("client")]

ERRORS = "__streamclust.errors."


def serve(cluster, topic, n, delivery, topics=(), **options):
    """The service, in this process, until it has learnt all messages, and then until it has stopped."""
    source = cluster.source(topic)
    member = f"{cluster.name}-0" if delivery == "exactly-once" else None
    sink = KafkaSink(source, dict(topics), member, **options)
    policy = Policy(poll=0.2, checkpoint_every=0.2, snapshot_every=0.1, backoff=0.01)
    service = Service(source, sink, StreamClusterer(warmup=50), policy=policy)
    poll, deadline = source.poll, time.monotonic() + PATIENCE

    def polled(seconds):
        told = service.stats.snapshots or not sink.wants("snapshots")
        if service.stats.positions == {(topic, 0): n} and told:
            service.stop()
        assert time.monotonic() < deadline, service.stats
        return poll(seconds)

    source.poll = polled
    service.run()
    return service


def large(size):
    return b'{"x0": "' + b"a" * size + b'"}'


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize(
    ("limit", "size", "largest"),
    [(None, 2_000_000, DEFAULT_MAX_BYTES), (30_000, 50_000, 100_000)],
    ids=["by default", "by refusal"],
)
def test_a_dead_letter_too_large_goes_without_its_value(cluster, delivery, limit, size, largest):
    """A broker's usual limit is known; that it is lower, a refusal tells."""
    topic = cluster.topic(**{"max.message.bytes": 10_000_000})
    more = {} if limit is None else {"max.message.bytes": limit}
    dlq, out = cluster.topic("in.dlq", **more), cluster.topic("assignments", **more)
    good, bad = events(400)[0], [large(10), large(size), b"oops"]
    cluster.write(topic, [*good[:200], *bad], key=b"k", headers=[("h", b"1")])
    cluster.write(topic, [b"oops"], key=b"k" * size, headers=[("h", b"1")])
    cluster.write(topic, good[200:])
    service = serve(cluster, topic, 404, delivery, {"assignments": out}, max_message_bytes=largest)
    assert service.clusterer.n_seen == 400
    assert service.stats.dropped == 0

    letters = {dict(letter.headers)[ERRORS + "offset"]: letter for letter in cluster.read(dlq)}
    assert sorted(letters) == [b"200", b"201", b"202", b"203"]
    for offset, value in ((b"200", bad[0]), (b"202", bad[2])):
        assert (letters[offset].value, letters[offset].key) == (value, b"k")
        assert ERRORS + "left_out" not in dict(letters[offset].headers)
    without = letters[b"201"]
    told = dict(without.headers)
    assert (without.value, without.key, told["h"]) == (b"", b"k", b"1")
    assert told[ERRORS + "left_out"] == b"value"
    assert told[ERRORS + "value_bytes"] == str(len(bad[1])).encode()
    assert told[ERRORS + "value_sha256"] == hashlib.sha256(bad[1]).hexdigest().encode()
    assert b"must be a number" in told[ERRORS + "message"]
    told = dict(letters[b"203"].headers)
    assert (letters[b"203"].value, letters[b"203"].key) == (b"", None)
    assert (told[ERRORS + "left_out"], told.get("h")) == (b"value, key, headers", None)

    found = Counter(one["id"] for one in cluster.values(out))
    assert set(found) == {f"{topic}-0-{i}" for i in [*range(200), *range(204, 404)]}
    assert delivery == "at-least-once" or set(found.values()) == {1}


def test_what_cannot_be_made_smaller_is_dropped_and_counted(cluster):
    topic, out = cluster.topic(), cluster.topic("snapshots")
    cluster.write(topic, events(300, d=6)[0])
    service = serve(cluster, topic, 300, "at-least-once", {"snapshots": out}, max_message_bytes=2000)
    assert service.clusterer.n_seen == 300
    assert service.stats.dropped == service.stats.snapshots > 0
    assert cluster.read(out) == []


def test_a_snapshot_too_large_goes_without_details(cluster):
    topic, out = cluster.topic(), cluster.topic("snapshots")
    cluster.write(topic, events(300, d=6)[0])
    whole = serve(cluster, topic, 300, "at-least-once", {"snapshots": out})
    size = max(len(record.value) for record in cluster.read(out))
    cluster.name += "-again"
    service = serve(cluster, topic, 300, "at-least-once", {"snapshots": out}, max_message_bytes=size - 1)
    assert (whole.stats.dropped, service.stats.dropped) == (0, 0)
    found = until("both", lambda: {one["dendrogram"]["scatter"] is None for one in cluster.values(out)})
    assert found == {True, False}
