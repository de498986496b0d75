"""A consumer group of wide events: one sketch for all members, learnt anew by the leader when the stream leaves it."""

from base64 import b64encode
from collections import Counter
from contextlib import ExitStack
from functools import partial

import msgspec
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer
from streamclust_connectors.decode import Decoder
from streamclust_connectors.decode.fields import Fields
from tests.connectors.cluster import until
from tests.connectors.members import Member, all_at, published

pytestmark = [
    pytest.mark.compiled,
    pytest.mark.filterwarnings("ignore::streamclust.streaming.LeftSketch"),
]

D = 80
FIRST, ALL = 800, 6000
"""Events of each partition: those of four topics, and with those of four more beside them."""


def stream(seed):
    """Vectors, and the topic of each."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(8, D)) * np.repeat([1.0, 1.5], 4)[:, None]
    of = np.r_[rng.integers(4, size=FIRST), rng.integers(8, size=ALL - FIRST)]
    return (centres[of] + 0.5 * rng.normal(size=(ALL, D))).astype(np.float32), of


@pytest.mark.usefixtures("client")
def test_members_see_wide_events_in_the_same_directions_and_in_others_when_the_stream_leaves_them(cluster):
    topic, out = cluster.topic(partitions=2), cluster.topic("assignments", 2)
    written = [stream(seed) for seed in range(2)]

    def write(start, stop):
        for number, (rows, _) in enumerate(written):
            values = [{"embedding": b64encode(row.tobytes()).decode()} for row in rows[start:stop]]
            cluster.write(topic, map(msgspec.json.encode, values), number)

    more = {
        "decoder": Decoder(Fields(vector="embedding")),
        "fresh": partial(StreamClusterer, max_directions=8),
    }
    with ExitStack() as every:
        both = []
        for name in ("first", "second"):
            both.append(Member(cluster, topic, name, assignments=out, **more))
            every.callback(both[-1].close)
        until("each to have one", lambda: [len(member.positions) for member in both] == [1, 1])
        write(0, FIRST)
        until("a model of all", lambda: all_at(both, FIRST, 2) and seen_by_all(both, 2 * FIRST))
        before = both[0].group.clusterer.sketch
        assert both[0].group.clusterer.n_clusters == 4
        until("both to follow it", lambda: all_use(both, before))
        write(FIRST, ALL)
        until("another model of all", lambda: all_at(both, ALL, 2) and seen_by_all(both, 2 * ALL))
        after = both[0].group.clusterer.sketch
        assert not after.is_same(before)
        until("both to follow that", lambda: all_use(both, after))
        shown = both[0].group.clusterer
    assert shown.tree.total.weight[0] == 2 * ALL
    rows, of = (np.concatenate(parts) for parts in zip(*written, strict=True))
    late = np.tile(np.arange(ALL) >= ALL - 1000, 2)
    assert adjusted_rand_score(of[late], shown.predict_many(rows[late]).astype(int)) > 0.98
    check_told(cluster, topic, out, rows)


def seen_by_all(members, n):
    """Whether every member has a model of so many events."""
    found = [member.group.clusterer for member in members]
    return all(one is not None and one.n_seen == n for one in found)


def all_use(members, sketch):
    """Whether every member takes its events through this sketch."""
    return all(sketch.is_same(member.service.clusterer.sketch) for member in members)


def check_told(cluster, topic, out, rows):
    """Each event is told once, by the model of the version that is told with it."""
    told = cluster.values(out)
    assert Counter(one["id"] for one in told) == {f"{topic}-{p}-{i}": 1 for p in range(2) for i in range(ALL)}
    models, versions = published(cluster, topic)
    assert versions == sorted(versions)
    by_name = {name: model.predict(rows) for name, model in models.items()}
    for one in told:
        number, offset = map(int, one["id"].split("-")[-2:])
        expected = (
            None
            if one["version"] is None
            else by_name[one["version"], one["revision"]][number * ALL + offset]
        )
        assert one["cluster"] == expected
