"""Streams with categories: text, and yes and no, beside numbers."""

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer
from streamclust.checkpoint import decode, encode
from streamclust.schema.encoding import OTHER, IdentifierColumns
from streamclust.streaming import InvalidValues

CENTRES = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])


def blobs(n, seed=0, **categories):
    """Events of three blobs with more fields, each made from the generator; and their clusters."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n)
    rows = CENTRES[truth] + rng.normal(size=(n, 2))
    more = {name: make(rng, truth) for name, make in categories.items()}
    fields = {"x": rows[:, 0].tolist(), "y": rows[:, 1].tolist(), **more}
    return [dict(zip(fields, values, strict=True)) for values in zip(*fields.values(), strict=True)], truth


def coin(rng, truth):
    return [bool(v) for v in rng.integers(2, size=len(truth))]


def telling(rng, truth):
    """A category of five values that depends on the cluster."""
    share = rng.dirichlet(np.full(5, 0.3), size=3)
    return [f"v{rng.choice(5, p=share[k])}" for k in truth]


def learnt(events, **parameters):
    model = StreamClusterer(**parameters)
    for event in events:
        model.learn_one(event)
    return model


def agreement(model, events, truth):
    return adjusted_rand_score(truth, model.predict_many(events).astype(str))


@pytest.mark.parametrize("n_coins", [1, 3, 10])
def test_independent_coins_change_nothing(n_coins):
    for seed in range(3):
        events, truth = blobs(1500, seed, **{f"coin{i}": coin for i in range(n_coins)})
        model = learnt(events, seed=seed)
        model.settle()
        assert model.n_clusters == 3
        assert agreement(model, events, truth) > 0.99
        assert len(model.feature_names) == 2 + 2 * n_coins


def test_categories_alone_are_clusters():
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=3000)
    share = rng.dirichlet(np.full(6, 0.2), size=(3, 5))
    events = [{f"c{j}": f"v{rng.choice(6, p=share[k, j])}" for j in range(5)} for k in truth]
    model = learnt(events)
    model.settle()
    assert (model.n_clusters, model.n_refused) == (3, 0)
    assert agreement(model, events, truth) > 0.95


odd = st.sampled_from(
    [
        {},
        {"c": None},
        {"c": ["a"]},
        {"x": "ERR", "c": "v1"},
        {"new": "text", "x": 1.0},
        {"x": 1.0, "flag": True},
    ]
)


@given(
    extra=st.lists(st.tuples(st.integers(0, 200), odd), max_size=20),
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    seed=st.integers(0, 3),
)
@settings(deadline=None, max_examples=15)
def test_batches_checks_and_restarts_give_the_same_bits(extra, sizes, seed):
    events, _ = blobs(200, seed, c=telling, flag=coin)
    for place, event in extra:
        events.insert(place, event)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        one, many, runs = learnt(events), StreamClusterer(), StreamClusterer()
        done, k = 0, 0
        while done < len(events):
            end = done + sizes[k % len(sizes)]
            many.learn_many(events[done:end])
            for run in runs.runs(runs.check(events[done:end])):
                runs.assign_many(run)
                runs.learn(run)
            runs = StreamClusterer.from_state(decode(encode(runs.to_state())))
            done, k = end, k + 1
    assert encode(many.to_state()) == encode(one.to_state())
    state = runs.to_state()
    for name in ("n_refused", "last_refusal"):  # counted by who has checked
        state.values[name] = one.to_state().values[name]
    assert encode(state) == encode(one.to_state())


KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.Table.from_pylist}


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_is_learnt_as_its_events(kind):
    events, _ = blobs(600, c=telling, flag=coin)
    for event in events[::7]:
        event["c"] = None
    frame, model = KINDS[kind](events), StreamClusterer()
    model.learn_many(frame)
    assert encode(model.to_state()) == encode(learnt(events).to_state())
    assert np.asarray(model.predict_many(frame)).tolist() == model.predict_many(events).tolist()


def test_pandas_categories_are_text():
    events, _ = blobs(400, c=telling)
    frame = pd.DataFrame(events).astype({"c": "category"})
    model = StreamClusterer()
    model.learn_many(frame)
    assert set(model.categories) == {"c"}
    assert (model.n_clusters, model.n_refused) == (3, 0)


def test_predictions_by_what_an_event_has():
    events, truth = blobs(2000, c=lambda rng, truth: [f"v{k}" for k in truth])
    model = learnt(events)
    model.settle()
    named = dict(zip(truth.tolist(), model.predict_many(events).tolist(), strict=True))
    for k in range(3):
        assert model.predict_one({"c": f"v{k}"}) == named[k]
        assert max(model.predict_proba_one({"c": f"v{k}"}).values()) > 0.95
    assert model.predict_one({"c": "unheard of"}) is None
    assert model.predict_one({"x": 9.0, "y": 0.0, "c": "unheard of"}) == named[1]
    odd = {"x": 9.0, "y": 0.0, "c": "v0"}
    assert model.score_one(odd) > model.score_one({**odd, "c": "v1"}) + 2.0
    assert model.tail_one({"x": 90.0, "c": "v1"}) < 0.01
    found = model.assign_many(events[:50])
    assert found.cluster.tolist() == [model.predict_one(event) for event in events[:50]]


def test_missing_numbers_do_not_hide_clusters():
    rng = np.random.default_rng(3)
    events, truth = blobs(3000, c=telling)
    for event in events:
        for name in rng.choice(["x", "y", "c"], size=rng.binomial(2, 0.3), replace=False).tolist():
            event[name] = None
    model = learnt(events)
    model.settle()
    assert model.n_clusters == 3
    assert agreement(model, events, truth) > 0.6


def test_new_values_and_new_clusters_come_at_any_time():
    events, _ = blobs(3000, c=telling)
    model = learnt(events)
    model.settle()
    rng = np.random.default_rng(1)
    later = [{"x": x, "y": 0.0, "c": "new"} for x in rng.normal(60.0, 1.0, size=800).tolist()]
    for event in later:
        model.learn_one(event)
    assert model.n_clusters == 4
    assert "new" in model.categories["c"]
    assert len(set(model.predict_many(later).tolist())) == 1


def test_ids_are_left_out_and_rare_values_count_as_one_and_both_are_told_once():
    rng = np.random.default_rng(0)
    events, _ = blobs(600)
    for i, event in enumerate(events):
        event["user"], event["city"] = f"user{i}", f"city{min(int(rng.exponential(8)), 40)}"
    model = StreamClusterer(max_categories=10)
    with pytest.warns(IdentifierColumns) as told:
        model.learn_many(events)
    assert sorted(str(w.message).split(":")[0] for w in told) == ["'city'", "'user'"]
    assert set(model.categories) == {"city"}
    assert (len(model.categories["city"]), model.categories["city"][-1]) == (10, OTHER)
    model.learn_many(events)  # nothing more is told


def test_one_text_in_the_first_event_makes_no_category_of_a_number():
    events, truth = blobs(800)
    events[0]["x"] = "ERR"
    model = learnt(events)
    assert (model.categories, model.n_clusters) == ({}, 3)
    assert agreement(model, events, truth) > 0.99


def test_a_stream_that_begins_with_numbers_stays_one():
    events, _ = blobs(300)
    model = learnt(events)
    with pytest.warns(InvalidValues, match="'c' must be a number"):
        model.learn_one({"x": 1.0, "y": 2.0, "c": "text"})
    assert (model.categories, model.n_invalid, model.n_refused) == ({}, {"c": 1}, 0)


def test_what_is_a_category_can_be_said():
    events, truth = blobs(500, code=lambda rng, truth: [int(k) for k in truth], flag=coin)
    model = learnt([{"x": e["x"], "code": e["code"]} for e in events], categorical=["code"])
    assert model.categories == {"code": tuple(dict.fromkeys(truth.tolist()))}
    assert StreamClusterer.from_state(model.to_state()).categories == model.categories
    with pytest.warns(InvalidValues):
        assert learnt([{"x": 1.0, "c": "a"}] * 5, categorical=False).categories == {}
    assert learnt([{"x": e["x"], "y": e["y"]} for e in events], family="mixed").n_clusters == 3
    with pytest.raises(ValueError, match="categorical must be"):
        StreamClusterer(categorical="c")


def test_copies_pickles_merges_and_shards_keep_categories():
    events, truth = blobs(1500, c=telling, flag=coin)
    model = learnt(events)
    for twin in (pickle.loads(pickle.dumps(model)), model.clone()):
        twin.learn_many(events)
        assert set(twin.categories) == {"c", "flag"}
    both = StreamClusterer()
    both.merge(model)
    both.merge(learnt(events))
    assert (both.n_seen, both.n_clusters, both.categories) == (3000, 3, model.categories)
    parts = StreamClusterer()
    parts.learn_many(events[:700], shard="a")
    parts.learn_many(events[700:], shard="b")
    other = StreamClusterer()
    for shard in ("a", "b"):
        other.shards.adopt(shard, parts.shards.export(shard))
    other.learn_many(events[:5])
    other.settle()
    assert (other.n_clusters, other.categories) == (3, parts.categories)
    assert agreement(other, events, truth) > 0.99


def test_clusters_are_told_by_their_categories():
    events, _ = blobs(1500, channel=lambda rng, truth: ["web" if k == 0 else "shop" for k in truth])
    model = learnt(events)
    model.settle()
    own = model.predict_one({"x": 0.0, "y": 0.0, "channel": "web"})
    words = next(line.words for line in model.describe() if line.id == own)
    share = np.mean([event["channel"] == "web" for event in events])
    assert f"channel=web 100% ({share:.0%} overall)" in words
    assert set(model.snapshot().to_dict()) >= {"children", "height"}
    assert {feature.name for feature in model.profiles().describe(own)[:2]} == {"channel=web", "channel=shop"}


def test_half_life_and_levels_with_categories():
    events, _ = blobs(2000, c=telling)
    model = learnt(events, half_life=500)
    assert model.n_clusters == 3
    assert [level.n_clusters for level in model.levels][-1] == 1
    assert model.predict_one(events[0], level=1) is not None
