"""Events are checked once and learnt once; the schedule's runs; summaries that were built elsewhere."""

import sys
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamclust import StreamClusterer
from streamclust.checkpoint import decode, encode, shard_in
from streamclust.streaming import RefusedEvents
from streamclust.summaries import checked_rows, empty_tree, merge_all, tree_from_bytes, tree_to_bytes

ODD = [{}, {"a": "x"}, {"a": 1e200, "q": 1.0}, {"a": None}, {"a": 1.0, "new": np.inf}]


def bits(model):
    return encode(model.to_state())


def rows_of(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)) + 9.0 * rng.integers(3, size=(n, 1))


def named(rows):
    return [dict(zip("ab", row, strict=True)) for row in rows.tolist()]


def learnt_by_runs(model, events, sizes, **aside):
    """Learn events in batches, each checked once and learnt run by run."""
    done, k = 0, 0
    refused = {}
    while done < len(events):
        end = min(len(events), done + sizes[k % len(sizes)])
        checked = model.check(events[done:end], **{name: values[done:end] for name, values in aside.items()})
        refused |= {done + i: why for i, why in checked.refused.items()}
        for run in model.runs(checked):
            version = model.model.version if model.model else None
            assert model.assign_many(run) is None or len(model.assign_many(run).cluster) == len(run)
            assert version == (model.model.version if model.model else None)
            model.learn(run)
        done, k = end, k + 1
    return refused


good = st.fixed_dictionaries({"a": st.integers(-50, 50).map(float), "b": st.integers(-50, 50).map(float)})
event = (
    good
    | st.sampled_from(ODD)
    | st.just({"a": 1.0})
    | st.fixed_dictionaries({"c": st.integers(-9, 9).map(float)})
)
weight = st.sampled_from([1.0, 1.0, 1.0, 2.0, 0.0, -1.0])
step = st.sampled_from([1.0, 1.0, 2.0, 30.0, -200.0, 1e4])


@given(
    st.lists(st.tuples(event, weight, step), max_size=80),
    st.lists(st.integers(1, 40), min_size=1, max_size=5),
    st.sampled_from([{}, {"missing": "zero"}, {"half_life": 10.0}, {"missing": "error"}]),
)
@settings(deadline=None, max_examples=60)
@pytest.mark.filterwarnings("ignore::streamclust.streaming.RefusedEvents")
@pytest.mark.filterwarnings("ignore::streamclust.streaming.InvalidValues")
def test_checking_and_learning_by_runs_is_learning_event_by_event(stream, sizes, parameters):
    events, weights = [e for e, _, _ in stream], np.array([w for _, w, _ in stream])
    steps = np.array([s for _, _, s in stream])
    far = np.abs(steps) >= 100.0
    times = np.cumsum(np.where(far, 0.0, steps)) + np.where(far, steps, 0.0)
    one, many, table = (StreamClusterer(warmup=10, **parameters) for _ in range(3))
    timed = "half_life" in parameters
    for x, w, t in zip(events, weights.tolist(), times.tolist(), strict=True):
        one.learn_one(x, w, t if timed else None)
    aside = {"weight": weights} | ({"time": times} if timed else {})
    refused = learnt_by_runs(many, events, sizes, **aside)
    done = 0
    while done < len(events):
        part = slice(done, done + sizes[done % len(sizes)])
        table.learn_many(events[part], **{name: values[part] for name, values in aside.items()})
        done = part.stop
    assert bits(table) == bits(one)
    assert len(refused) == one.n_refused
    assert many.feature_names == one.feature_names
    assert encode(many.to_state()._replace(values=counts(many))) == encode(
        one.to_state()._replace(values=counts(one))
    )


def counts(model):
    """The state without the count of refused events, which `learn` leaves to who has checked them."""
    values = model.to_state().values
    return {name: value for name, value in values.items() if name not in ("n_refused", "last_refusal")}


def test_checking_changes_nothing():
    model = StreamClusterer(half_life=100.0)
    events = named(rows_of(300))
    model.learn_many(events[:200], time=np.arange(200.0))
    before = bits(model)
    checked = model.check([*events[200:], {"new": 1.0}, {"a": 1.0}], time=[*range(200, 300), 1e9, 300.0])
    assert sorted(checked.refused) == [100]
    assert checked.refused[100].of_time
    assert len(checked) == 102
    assert bits(model) == before
    assert "new" not in checked.columns  # a refused event brings no feature along


def test_times_are_checked_but_not_kept_where_nothing_is_forgotten():
    model = StreamClusterer()
    checked = model.check([{"a": 1.0}, {"a": 2.0}], time=[0.0, np.nan])
    assert (len(checked), checked.time, sorted(checked.refused)) == (1, None, [1])
    model.learn(checked)
    assert model.n_seen == 1


@pytest.mark.filterwarnings("ignore::streamclust.streaming.RefusedEvents")
def test_a_refused_event_of_a_table_leaves_no_name_behind():
    model = StreamClusterer(family="poisson")
    model.learn_many([{"a": 1}, {"a": 2, "b": 0.5}, {"a": 3}, {"c": 1, "a": 2}])
    assert (model.feature_names, model.n_seen, model.n_refused) == (("a", "c"), 3, 1)


def test_an_event_of_no_weight_brings_no_feature():
    one, many = StreamClusterer(), StreamClusterer()
    events, weights = [{"a": 1.0}, {"a": 2.0, "z": 1.0}, {"a": 3.0, "b": 4.0}], [1.0, 0.0, 1.0]
    for x, w in zip(events, weights, strict=True):
        one.learn_one(x, w)
    many.learn_many(events, weight=weights)
    assert one.feature_names == many.feature_names == ("a", "b")
    assert bits(one) == bits(many)


def test_features_join_with_the_run_that_brings_them():
    model = StreamClusterer(missing="zero", warmup=20)
    events = [{"a": float(i % 5)} for i in range(30)] + [{"a": 1.0, "late": 2.0}, {"late": 3.0}]
    known = []
    for run in model.runs(model.check(events)):
        found = model.assign_many(run)
        if len(run) + model.n_seen == 32:
            assert found.cluster[-1] is None  # it has only a feature that nobody knew when it came
        model.learn(run)
        known.append(model.feature_names)
    assert known[0] == ("a",)
    assert known[-1] == ("a", "late")


def test_events_checked_before_others_brought_features_must_be_checked_again():
    model = StreamClusterer()
    model.learn_one({"a": 1.0})
    early, other, same = (model.check([{"a": 1.0, name: 2.0}]) for name in ("b", "c", "b"))
    plain = model.check([{"a": 5.0}])
    model.learn(early)
    with pytest.raises(ValueError, match="check them again"):
        model.learn(other)
    model.learn(same)
    model.learn(plain)  # which lacks b now
    assert (model.n_seen, model.feature_names) == (4, ("a", "b"))


def test_a_raising_clusterer_learns_all_or_nothing():
    model = StreamClusterer(half_life=100.0, invalid="raise")
    model.learn_many([{"a": 1.0}] * 5, time=np.arange(5.0))
    before = bits(model)
    checked = model.check([{"a": 1.0}] * 3, time=[5.0, 1e9, 6.0])
    with pytest.raises(ValueError, match="ahead of the latest"):
        model.learn(checked)
    assert bits(model) == before


def test_a_clock_that_is_turned_back_is_no_refusal():
    times = np.append(1e6 + np.arange(3.0), np.arange(100.0))
    models = StreamClusterer(half_life=100.0), StreamClusterer(half_life=100.0, invalid="raise")
    for model in models:
        model.learn_many([{"a": float(i % 5)} for i in range(len(times))], time=times)
    plain, raising = (model.to_state() for model in models)
    assert models[1].n_seen == len(times)
    assert encode(plain._replace(values={})) == encode(raising._replace(values={}))


def test_columns_of_text_are_named_when_events_are_learnt():
    model = StreamClusterer(categorical=False)
    checked = model.check(pd.DataFrame({"x": [1.0, 2.0], "city": ["Oslo", "Rome"]}))
    assert checked.left_out == ("city",)
    with pytest.warns(UserWarning, match="city"):
        model.learn(checked)
    assert model.feature_names == ("x",)


def test_mistimed_events_are_counted_when_learnt():
    model = StreamClusterer(half_life=100.0)
    model.learn_many([{"a": 1.0}] * 5, time=np.arange(5.0))
    checked = model.check([{"a": 1.0}, {"a": 2.0}], time=[5.0, 1e9])
    with pytest.warns(RefusedEvents, match="max_time_step"):
        model.learn(checked)
    assert (model.n_seen, model.n_refused) == (6, 1)


# -------------------------------------------------------------------- how often


@contextmanager
def calls(*names):
    """Counts calls of functions of the library, by name, without replacing any."""
    found = Counter()

    def watch(frame, kind, _):
        code = frame.f_code
        if kind == "call" and code.co_qualname in names and "streamclust" in code.co_filename:
            found[code.co_qualname] += 1

    sys.setprofile(watch)
    try:
        yield found
    finally:
        sys.setprofile(None)


def test_a_batch_is_read_and_checked_once():
    events = named(rows_of(1200))
    model = StreamClusterer(background=False)
    model.learn_many(events[:700])
    read, checked = "Schema.table", "Validator.check_within"
    with calls(read, checked, "Validator.check_values", "check_points") as found:
        batch = model.check(np.array([list(event.values()) for event in events[700:]]), shard=0)
        for run in model.runs(batch):
            model.assign_many(run)
            model.learn(run)
    assert found == {read: 1, checked: 1}


# -------------------------------------------------------------------- summaries


def test_a_tree_is_learnt_as_its_events_are():
    rows = rows_of(6000, seed=3)
    trees = [empty_tree(2, shard=part) for part in range(3)]
    for tree, part in zip(trees, np.split(rows, 3), strict=True):
        tree.insert_checked(*checked_rows("gaussian", 2, part))
    whole = tree_from_bytes(tree_to_bytes(merge_all(trees)))
    model = StreamClusterer()
    model.shards.learn_tree(whole, ["a", "b"], shard="apart")
    model.shards.learn_tree(trees[0], ["a", "b"], shard="apart")
    assert (model.n_seen, model.n_clusters, model.shards.names) == (8000, 3, ("apart",))
    expected = np.concatenate([rows, rows[:2000]])
    np.testing.assert_allclose(model.tree.total.mean[0], expected.mean(axis=0))
    assert model.shards.n_seen == {"apart": 8000}
    assert len(model.latest(4096)) == 4096
    model.learn_many(named(rows))  # the stream goes on
    assert model.n_seen == 14_000
    with pytest.raises(ValueError, match="2 features, got 1 names"):
        model.shards.learn_tree(whole, ["a"])
    with pytest.raises(ValueError, match="in the same order"):
        model.shards.learn_tree(whole, ["b", "a"], shard="apart")


def test_the_tree_is_of_all_shards_and_a_copy():
    model = StreamClusterer()
    rows = rows_of(500)
    model.learn_many(rows[:300], shard="a")
    model.learn_many(rows[300:], shard="b")
    np.testing.assert_allclose(model.tree.total.mean[0], rows.mean(axis=0))
    np.testing.assert_allclose(model.shards.tree("b").total.mean[0], rows[300:].mean(axis=0))
    before = bits(model)
    model.tree.insert(rows)
    model.shards.tree("a").insert(rows)
    assert bits(model) == before
    with pytest.raises(KeyError, match="no shard 'c'"):
        model.shards.tree("c")
    assert model.shards.names == ("a", "b")


@pytest.mark.parametrize("half_life", [None, 50.0])
def test_a_shard_of_a_saved_clusterer_is_what_it_would_release(half_life):
    model = StreamClusterer(half_life=half_life)
    for shard, rows in ((("t", 0), rows_of(200)), (("t", 1), rows_of(100, seed=1))):
        model.learn_many(named(rows), time=None if half_life is None else np.arange(len(rows)), shard=shard)
    saved = decode(encode(model.to_state()))
    found = shard_in(saved, ("t", 1))
    assert shard_in(saved, ("t", 2)) is None
    released = decode(encode(model.shards.release(("t", 1))))
    assert found.values | {"library": None} == released.values | {"library": None}
    assert encode(found._replace(values={})) == encode(released._replace(values={}))


def test_complete_events_that_were_checked_before_a_feature_appeared_have_it_filled_in():
    model, apart = StreamClusterer(), StreamClusterer()
    rows = np.random.default_rng(0).normal(size=(60, 2))
    for each in (model, apart):
        each.learn_many([{"a": a, "b": b} for a, b in rows[:30].tolist()])
    checked = model.check([{"a": a, "b": b} for a, b in rows[30:].tolist()])
    for each in (model, apart):
        each.learn_one({"a": 0.0, "b": 0.0, "c": 5.0})
    model.learn(checked)
    apart.learn_many([{"a": a, "b": b} for a, b in rows[30:].tolist()])
    assert np.isfinite(model.tree.total.mean).all()
    assert encode(model.to_state()) == encode(apart.to_state())
