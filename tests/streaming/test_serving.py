"""What a service asks of a clusterer: who will be refused, all about an assignment, parts that move."""

import hashlib

import numpy as np
import pytest

from streamclust import StreamClusterer
from streamclust.checkpoint.files import encode
from streamclust.streaming import InvalidValues
from tests.conftest import INTERPRETED
from tests.streams import clustered

N = 300 if INTERPRETED else 2000


def bits(model):
    return hashlib.sha256(encode(model.to_state())).hexdigest()


def events(rows, names="ab"):
    return [dict(zip(names, row, strict=True)) for row in rows.tolist()]


@pytest.fixture
def rows():
    return clustered(N, 2, k=3, seed=4)[0]


def test_refusals_name_those_that_would_be_refused_and_change_nothing(rows):
    model = StreamClusterer()
    model.learn_many(events(rows[:100]))
    before = bits(model)
    batch = [{"a": 1.0, "b": 2.0}, {"a": "x"}, {"a": 1e200, "b": 0.0}, {}, {"c": 1.0}, {"c": "y"}]
    reasons = model.check(batch).refused
    assert list(reasons) == [1, 3, 5]  # of the third one value is left
    assert "must be a number" in reasons[1]
    assert bits(model) == before
    assert model.feature_names == ("a", "b")
    with pytest.warns(InvalidValues):
        model.learn_many([event for i, event in enumerate(batch) if i not in reasons])
    assert (model.n_refused, model.n_seen, model.n_invalid) == (0, 103, {"a": 1})


def test_refusals_of_weights_times_and_families():
    assert list(StreamClusterer().check([{"a": 1.0}] * 3, weight=[1.0, -1.0, 2.0]).refused) == [1]
    assert list(StreamClusterer().check([{"a": 1.0}] * 3, time=[0.0, 1.0, np.inf]).refused) == [2]
    assert list(StreamClusterer("poisson").check([{"a": 1.0}, {"a": -1.0}]).refused) == [1]
    assert list(StreamClusterer(missing="error").check([{"a": 1.0}, {"b": 1.0}]).refused) == [1]
    assert StreamClusterer().check(np.ones((3, 2))).refused == {}


def test_an_assignment_says_what_three_questions_do(rows):
    model = StreamClusterer(warmup=50)
    assert model.assign_many(rows) is None
    model.learn_many(events(rows))
    holed = np.where(np.arange(len(rows))[:, None] % 7 == [0, 3], np.nan, rows)
    for batch in (rows, holed):
        found = model.assign_many(batch)
        assert np.array_equal(found.cluster, model.predict_many(batch))
        table = model.predict_proba_many(batch)
        column = {name: k for k, name in enumerate(model.model.names.tolist())}
        own = [table[i, column[name]] for i, name in enumerate(found.cluster.tolist())]
        assert np.allclose(found.probability, own)
        assert np.allclose(found.novelty, model.score_many(batch))


def test_the_model_stays_until_something_is_due(rows):
    model = StreamClusterer(warmup=50)
    for run in model.runs(model.check(rows)):
        version = model.model and model.model.version
        model.learn(run[:-1])
        assert (model.model and model.model.version) == version
        model.learn(run[-1:])


def test_parts_move_with_what_was_learnt(rows):
    here, there = StreamClusterer(seed=1), StreamClusterer(seed=1)
    here.learn_many(events(rows), shard=("t", 0))
    here.learn_many(events(rows[:50] + 1.0), shard=("t", 1))
    there.shards.adopt(("t", 0), here.shards.release(("t", 0)))
    assert (here.shards.names, there.shards.names) == ((("t", 1),), (("t", 0),))
    there.learn_many(events(rows[:10]), shard=("t", 0))
    total = there.shards.tree(("t", 0)).total
    assert total.weight[0] == N + 10
    assert np.allclose(total.mean[0], np.concatenate([rows, rows[:10]]).mean(axis=0))
    assert there.feature_names == ("a", "b")
    there.shards.adopt(("t", 0), there.shards.release(("t", 0)))
    with pytest.raises(ValueError, match="is here already"):
        there.shards.adopt(("t", 0), here.shards.release(("t", 1)))


def test_parts_of_other_features(rows):
    narrow, wide, turned = StreamClusterer(), StreamClusterer(), StreamClusterer()
    narrow.learn_many(events(rows), shard=0)
    three = np.column_stack([rows, rows[:, 0] * 2])
    wide.learn_many(events(three, "abc"), shard=1)
    narrow.shards.adopt(1, wide.shards.release(1))
    assert narrow.feature_names == ("a", "b", "c")
    mean = narrow.tree.total.mean[0]
    assert np.allclose(mean, three.mean(axis=0))
    wide = StreamClusterer()
    wide.learn_many(events(three, "abc"), shard=1)
    wide.shards.adopt(0, narrow.shards.release(0))
    assert wide.tree.total.weight[0] == 2 * N
    turned.learn_many([{"b": 1.0}, {"a": 2.0, "b": 1.0}], shard=2)
    narrow.shards.adopt(2, turned.shards.release(2))  # where "b" came first: its columns are put in order
    assert narrow.feature_names == ("a", "b", "c")
    assert narrow.shards.tree(2).total.weight[0] == 2.0
    assert narrow.shards.tree(2).total.mean[0, :2].tolist() == [2.0, 1.0]


def test_clusters_are_shown_as_published_where_all_shards_have_gone_elsewhere():
    model = StreamClusterer()
    model.learn_many(np.random.default_rng(0).normal(size=(100, 2)), shard="a")
    published = model.model.active.clusters.weight.tolist()
    model.shards.release("a")
    assert model.shards.names == ()
    assert [cluster.weight for cluster in model.clusters] == published
