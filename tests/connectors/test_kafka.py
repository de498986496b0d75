"""The service on a real broker: end to end, dead letters, lag, what was lost, exactly-once outputs."""

import numpy as np
import pytest

from streamclust.checkpoint import Checkpoints
from tests.connectors.cluster import events, until

pytestmark = [pytest.mark.compiled, pytest.mark.usefixtures("client")]


def state_of(directory, place=0):
    return Checkpoints(directory / str(place)).latest()


def test_end_to_end(cluster, tmp_path):
    topic = cluster.topic(partitions=2)
    good, _ = events(3000)
    cluster.write(topic, good[:2000], 0, key=b"k", headers=[("h", b"1")])
    cluster.write(
        topic, [*good[2000:], b'{"x0": 1', None, b"\xff\x00", b'{"x0": "a", "x1": "b"}'], 1, key=b"k"
    )
    out = {channel: cluster.topic(channel) for channel in ("assignments", "lifecycle", "snapshots")}
    service = cluster.serve(topic, tmp_path / "state", topics=out, policy={"snapshot_every": 0.5})
    service.until_learnt(3000)
    service.until("no lag", lambda stats: len(stats["lag"]) == 2 and not any(stats["lag"].values()))
    taken = service.stats()["snapshots"]
    service.until("a snapshot of all", lambda stats: stats["snapshots"] > taken)
    stats = service.stop()
    assert (stats["events"], stats["dead_letters"], stats["tombstones"]) == (3000, 3, 1)

    found = cluster.values(out["assignments"])
    assert sorted(one["id"] for one in found) == sorted(
        [f"{topic}-0-{i}" for i in range(2000)] + [f"{topic}-1-{i}" for i in range(1000)]
    )
    assert {record.key for record in cluster.read(out["assignments"])} == {b"k"}
    last = [one for one in found if one["version"] == max(f["version"] or 0 for f in found)]
    assert all(0 <= one["probability"] <= 1 and np.isfinite(one["novelty"]) for one in last)
    assert {one["kind"] for one in cluster.values(out["lifecycle"])} >= {"born"}
    snapshot = cluster.values(out["snapshots"])[-1]
    assert sum(snapshot["dendrogram"]["weight"]) == pytest.approx(3000)

    letters = {letter.offset: letter for letter in cluster.read(f"{topic}.dlq")}
    assert [letter.value for letter in letters.values()] == [
        b'{"x0": 1',
        b"\xff\x00",
        b'{"x0": "a", "x1": "b"}',
    ]
    headers = dict(letters[0].headers)
    assert headers["__streamclust.errors.topic"].decode() == topic
    assert headers["__streamclust.errors.offset"] == b"1000"
    assert headers["__streamclust.errors.stage"] == b"decode"
    assert b"must be a number" in dict(letters[2].headers)["__streamclust.errors.message"]

    places = {
        number: offset for _, number, offset, *_ in state_of(tmp_path / "state").values["positions"]["next"]
    }
    assert places == {0: 2000, 1: 1004}
    committed = until("the group's offsets", lambda: cluster.admin.list_group_offsets([cluster.name]))
    assert committed
