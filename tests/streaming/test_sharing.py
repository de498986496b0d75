"""Several clusterers with one model: they follow what one of them makes of all their summaries."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from streamclust import StreamClusterer
from streamclust.checkpoint import MERGED, decode, encode
from streamclust.tree import SummaryTree
from tests.conftest import INTERPRETED
from tests.streams import clustered

N = 200 if INTERPRETED else 1500


def events(rows, names):
    return [dict(zip(names, row, strict=True)) for row in rows.tolist()]


@pytest.fixture(scope="module")
def stream():
    rows, labels = clustered(3 * N, 3, k=3, seed=4)
    return rows, labels


@given(st.permutations(range(3)), st.sampled_from(["full", "diagonal", "scalar", "none"]))
def test_reordering_a_tree_reorders_what_it_tells(columns, scatter):
    rows = np.random.default_rng(0).normal(size=(60, 3)) * [1.0, 5.0, 0.1] + 10.0
    tree, twin = (SummaryTree(3, scatter, max_leaves=8) for _ in range(2))
    tree.insert(rows)
    twin.insert(rows)
    twin.reorder(columns)
    new = np.array(columns)
    assert np.array_equal(twin.total.mean, tree.total.mean[:, new])
    for ours, theirs in ((twin.leaves(), tree.leaves()), (twin.total, tree.total)):
        spread = theirs.scatter
        if scatter == "full":
            spread = spread[:, new][:, :, new]
        elif scatter == "diagonal":
            spread = spread[:, new]
        np.testing.assert_allclose(ours.scatter, spread, rtol=1e-12)
    assert np.array_equal(twin.sample()[0], tree.sample()[0][:, new])
    assert np.array_equal(twin.shares(rows[:, new]), tree.shares(rows))
    more = np.random.default_rng(1).normal(size=(20, 3)) + 10.0
    tree.insert(more)
    twin.insert(more[:, new])
    np.testing.assert_allclose(twin.total.mean, tree.total.mean[:, new], rtol=1e-12)


def test_an_order_of_other_features_is_refused():
    with pytest.raises(ValueError, match="an order of 2 features"):
        SummaryTree(2).reorder([0, 2])


@pytest.mark.compiled
def test_members_assign_by_the_leaders_model_and_refit_nothing(stream):
    rows, _ = stream
    leader, members = StreamClusterer(), [StreamClusterer() for _ in range(3)]
    told = []
    leader.lineage.on_event = told.append
    for member in members:
        member.sharing.follow(None)
    for phase in range(2):
        for number, member in enumerate(members):
            part = rows[number::3][phase * N // 2 : (phase + 1) * N // 2]
            assert (member.assign_many(part) is None) == (phase == 0)
            member.learn_many(events(part, "abc"), shard=number)
            leader.shards.replace(number, decode(encode(member.shards.export(number))))
        leader.sharing.catch_up()
        state = decode(encode(leader.sharing.merged_state()))
        for member in members:
            member.sharing.follow(state)
            assert member.model.version == leader.model.version
            assert np.array_equal(member.predict_many(rows), leader.predict_many(rows))
    alone = StreamClusterer()
    alone.learn_many(events(rows, "abc"))
    alone.settle()
    assert leader.n_clusters == alone.n_clusters == 3
    assert leader.n_seen == sum(member.n_seen for member in members) == len(rows)
    total = leader.tree.total
    assert total.weight[0] == len(rows)
    np.testing.assert_allclose(total.mean[0], rows.mean(axis=0), rtol=1e-9)
    assert [change.kind for change in told].count("born") == 1  # the whole, which then was split
    assert members[0].events == []
    shown = StreamClusterer.from_state(state)  # what others show, and go on from
    assert shown.shards.names == (MERGED,)
    assert (shown.n_seen, shown.n_clusters) == (len(rows), 3)
    assert shown.events == leader.events
    assert len(shown.latest(300)) == 300
    assert shown.snapshot().cut(3).max() == 2


@pytest.mark.compiled
def test_a_new_leader_goes_on_with_ids_and_versions(stream):
    rows, _ = stream
    first = StreamClusterer()
    first.learn_many(events(rows, "abc"), shard=0)
    first.settle()
    second = StreamClusterer.from_state(first.sharing.merged_state())
    more = StreamClusterer()
    more.sharing.follow(first.sharing.merged_state())
    more.learn_many(events(rows, "abc"), shard=1)
    second.shards.replace(0, first.shards.export(0))
    second.shards.replace(1, more.shards.export(1))
    second.shards.release(MERGED)
    second.sharing.catch_up()
    assert second.n_seen == 2 * len(rows)
    assert second.model.version >= first.model.version
    assert np.array_equal(second.predict_many(rows), first.predict_many(rows))


@pytest.mark.compiled
@pytest.mark.parametrize("missing", ["impute", "zero"])
def test_members_with_different_features_agree_through_the_model(missing):
    rng = np.random.default_rng(0)
    leader, one, two = (StreamClusterer(missing=missing) for _ in range(3))
    one.sharing.follow(None)
    two.sharing.follow(None)
    some = rng.normal(size=(300, 2)) + 9.0 * (np.arange(300)[:, None] % 2)
    one.learn_many(events(some, "ab"), shard=1)
    two.learn_many(events(some[:, ::-1] * 2, "cb"), shard=2)
    leader.shards.replace(1, one.shards.export(1))
    leader.shards.replace(2, two.shards.export(2))
    leader.sharing.catch_up()
    one.learn_many([{"a": 1.0, "b": 1.0, "d": 5.0}] * 3, shard=1)  # not yet known to the leader
    for member in (one, two):
        member.sharing.follow(leader.sharing.merged_state())
    assert leader.feature_names == two.feature_names == ("a", "b", "c")
    assert one.feature_names == ("a", "b", "c", "d")
    event = {"a": 9.0, "b": 9.0, "c": 18.0}
    assert one.predict_one(event) == two.predict_one(event) == leader.predict_one(event)
    total = two.shards.tree(2).total
    np.testing.assert_allclose(total.mean[0, 1:], [2 * some[:, 0].mean(), 2 * some[:, 1].mean()])
    leader.shards.replace(1, one.shards.export(1))
    leader.sharing.catch_up()
    assert leader.feature_names == ("a", "b", "c", "d")
    late = StreamClusterer(missing=missing)
    late.sharing.follow(leader.sharing.merged_state())
    late.learn_many(
        [{"b": 9.0}], shard=3
    )  # the first of its partition lacks features: the model fills them in
    assert (late.n_seen, late.n_refused, late.feature_names) == (1, 0, ("a", "b", "c", "d"))


def test_where_features_may_not_differ_they_are_refused():
    leader, other = StreamClusterer(missing="error"), StreamClusterer(missing="error")
    leader.learn_many(events(np.eye(2), "ab"), shard=1)
    other.learn_many(events(np.eye(2), "ba"), shard=2)
    leader.shards.replace(2, other.shards.export(2))  # the same features: only their order differs
    other = StreamClusterer(missing="error")
    other.learn_many(events(np.eye(2), "cb"), shard=3)
    with pytest.raises(ValueError, match="both must have the same"):
        leader.shards.replace(3, other.shards.export(3))
    with pytest.raises(ValueError, match="both must have the same"):
        other.sharing.follow(leader.sharing.merged_state())


@pytest.mark.compiled
@pytest.mark.parametrize("kind", ["moving", "wandering"])
def test_a_leader_follows_streams_that_move(kind):
    """It has its shards from elsewhere, with watched events but no latest ones in a row; its looks must not fail."""
    rng, n = np.random.default_rng(0), 8000
    way = np.clip(np.arange(n) - 4000, 0, None) / 1000
    if kind == "wandering":
        way = np.zeros(n)
        for i, step in enumerate(0.2 * rng.normal(size=n - 1)):
            way[i + 1] = 0.98 * way[i] + step
    rows = (rng.normal(size=n) * (kind == "moving") + way + 12.0 * rng.integers(2, size=n))[:, None]
    leader, member = StreamClusterer(seed=3), StreamClusterer(seed=3)
    member.sharing.follow(None)
    for start in range(0, n, 500):
        member.learn_many(rows[start : start + 500], shard="a")
        leader.shards.replace("a", member.shards.export("a"))
        leader.sharing.catch_up()
        member.sharing.follow(leader.sharing.merged_state())
    assert leader.n_failed_refits == 0, leader.last_refit_error
    assert leader.n_clusters == 2
