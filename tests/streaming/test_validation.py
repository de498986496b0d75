"""The door of a clusterer: wrong clocks, absent features, counts that are right at once, bounds, parameters."""

import inspect
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river import compose, feature_extraction
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer
from streamclust.batch import StreamEstimator
from streamclust.checkpoint.files import encode
from streamclust.engine.settings import ALLOWED
from streamclust.streaming import RefusedEvents
from streamclust.streaming.clocks import MAX_VOTES

HOUR = 3600.0
EPOCH = 1.7e9


def bits(model):
    return encode(model.to_state())


def two_clusters(n, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 2)) + 12.0 * rng.integers(2, size=(n, 1))
    return [dict(zip("xy", row, strict=True)) for row in rows.tolist()]


def learn_all(model, events, times):
    for event, t in zip(events, times, strict=True):
        model.learn_one(event, t=t)
    model.settle()


def weight(model):
    return sum(cluster.weight for cluster in model.clusters)


# -------------------------------------------------------------------- time


def seconds(n):
    return (EPOCH + 10.0 * np.arange(n)).tolist()


@pytest.fixture(scope="module")
def undisturbed():
    model = StreamClusterer(half_life=HOUR)
    learn_all(model, two_clusters(1000), seconds(1000))
    return model


@pytest.mark.parametrize("where", [0, 1, 2, 500, 999])
def test_one_wrong_clock_does_not_erase_what_was_learnt(undisturbed, where):
    times = seconds(1000)
    times[where] *= 1000.0  # milliseconds
    model = StreamClusterer(half_life=HOUR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RefusedEvents)
        learn_all(model, two_clusters(1000), times)
    assert model.n_clusters == undisturbed.n_clusters == 2
    assert weight(model) == pytest.approx(weight(undisturbed), rel=0.01)
    assert model.n_seen + model.n_refused == 1000
    assert model.n_refused == (
        0 if where == 0 else 1
    )  # the first is learnt: nothing is known to be wrong yet


def test_a_refused_time_is_told_and_counted():
    model = StreamClusterer(half_life=HOUR)
    model.learn_one({"x": 1.0}, t=EPOCH)
    model.learn_one({"x": 1.0}, t=EPOCH + 1)
    with pytest.warns(RefusedEvents, match="max_time_step"):
        model.learn_one({"x": 1.0}, t=1000 * EPOCH)
    assert (model.n_seen, model.n_refused) == (2, 1)
    assert "Once 3 events agree" in model.last_refusal
    strict = StreamClusterer(half_life=HOUR, invalid="raise")
    with pytest.raises(ValueError, match="ahead of the latest"):
        strict.learn_many([{"x": 1.0}] * 2, time=[EPOCH, 1000 * EPOCH])
    assert strict.n_seen == 0


@pytest.mark.filterwarnings("ignore::streamclust.streaming.RefusedEvents")
def test_time_moves_when_enough_events_agree_and_such_pauses_pass_from_then_on():
    model = StreamClusterer(half_life=HOUR)
    events = two_clusters(100)
    night, day = 12 * HOUR, 100 * 10.0
    for number in range(3):
        model.learn_many(events, time=EPOCH + number * (night + day) + 10.0 * np.arange(100))
        assert model.n_refused == (0 if number == 0 else MAX_VOTES - 1)
    assert model.n_seen == 300 - (MAX_VOTES - 1)


@pytest.mark.filterwarnings("ignore::streamclust.streaming.RefusedEvents")
def test_a_source_whose_clock_is_always_wrong_never_moves_time():
    model = StreamClusterer(half_life=HOUR)
    events, times = two_clusters(2000), np.array(seconds(2000))
    wrong = np.arange(2000) % 5 == 3
    times[wrong] += 1e7
    model.learn_many(events, time=times)
    assert model.n_refused == wrong.sum()


def test_a_late_event_has_the_weight_it_would_have_had():
    model = StreamClusterer(half_life=HOUR)
    model.learn_many([{"x": 0.0}] * 10, time=EPOCH + np.arange(10.0))
    before = weight(model)
    model.learn_one({"x": 0.0}, t=EPOCH + 9.0 - 3 * HOUR)
    assert weight(model) == pytest.approx(before + 2.0**-3)
    assert model.n_refused == 0


def test_the_step_can_be_set():
    model = StreamClusterer(half_life=HOUR, max_time_step=1e9)
    model.learn_many([{"x": 0.0}] * 3, time=[0.0, 1.0, 1e9])
    assert model.n_seen == 3


def test_a_new_shard_may_be_behind_and_catch_up_but_not_run_ahead():
    model = StreamClusterer(half_life=HOUR)
    model.learn_many([{"x": 0.0}] * 5, time=[EPOCH] * 5, shard="a")
    model.learn_many([{"x": 0.0}] * 3, time=[EPOCH - 1e6, EPOCH - 9e5, EPOCH], shard="b")
    assert model.n_seen == 8
    with pytest.warns(RefusedEvents, match="ahead"):
        model.learn_one({"x": 0.0}, t=1000 * EPOCH, shard="c")


@st.composite
def moments(draw):
    """Times that go on by small steps, with some far ahead and some far behind among them."""
    kinds = st.sampled_from([1.0, 2.0, 30.0, -3.0, -200.0, 1e4, 1e6])
    steps = np.array(draw(st.lists(kinds, min_size=1, max_size=120)))
    far = np.abs(steps) >= 100.0
    return np.cumsum(np.where(far, 0.0, steps)) + np.where(far, steps, 0.0)


@given(moments(), st.lists(st.integers(1, 40), min_size=1, max_size=10), st.integers(0, 119))
@settings(deadline=None)
@pytest.mark.filterwarnings("ignore::streamclust.streaming.RefusedEvents")
def test_clocks_do_not_depend_on_batching_or_restarts(times, sizes, cut):
    events = two_clusters(len(times))
    one, many = StreamClusterer(half_life=10.0), StreamClusterer(half_life=10.0)
    for event, t in zip(events, times.tolist(), strict=True):
        one.learn_one(event, t=t)
    done, k = 0, 0
    reasons = {}
    while done < len(times):
        end = min(len(times), done + sizes[k % len(sizes)])
        found = many.check(events[done:end], time=times[done:end]).refused
        reasons |= {done + i: why for i, why in found.items()}
        many.learn_many(events[done:end], time=times[done:end])
        if done <= cut < end:
            many = StreamClusterer.from_state(many.to_state())
        done, k = end, k + 1
    assert bits(one) == bits(many)
    assert len(reasons) == one.n_refused == len(times) - one.n_seen
    assert all(why.of_time for why in reasons.values())


# -------------------------------------------------------------------- absent features


def documents(n, topics=3, words=20, length=12, seed=0):
    """Documents of disjoint topics, and the topic of each."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(topics, size=n)
    return [" ".join(f"t{k}w{j}" for j in rng.integers(words, size=length)) for k in topic], topic


class Ones(compose.FuncTransformer):
    """Whether a word is there, however often."""

    def __init__(self):
        super().__init__(lambda x: dict.fromkeys(x, 1))


@pytest.mark.parametrize("family", ["multinomial", "poisson", "bernoulli"])
def test_river_finds_the_topics_of_documents(family):
    texts, topic = documents(600)
    bag = feature_extraction.BagOfWords()
    steps = bag | Ones() if family == "bernoulli" else bag
    model = StreamClusterer(family=family)
    pipeline = steps | model
    for text in texts:
        pipeline.learn_one(text)
    found = [pipeline.predict_one(text) for text in texts]
    assert (model.n_seen, model.n_refused, model.n_clusters) == (600, 0, 3)
    assert adjusted_rand_score(topic, found) == 1.0


def bags(n, vocabulary, seed=0):
    rng = np.random.default_rng(seed)
    draws = [rng.integers(1 + i * vocabulary // n, size=6) for i in range(n)]  # new words to the end
    counted = [np.unique(draw, return_counts=True) for draw in draws]
    return [{f"w{j}": int(n) for j, n in zip(*each, strict=True)} for each in counted]


@pytest.mark.parametrize("family", ["multinomial", "gaussian", "diagonal"])
def test_an_absent_feature_is_zero(family):
    sparse = bags(300, vocabulary=40)
    names = sorted({name for bag in sparse for name in bag})
    dense = [{name: float(bag.get(name, 0)) for name in names} for bag in sparse]
    few, all_of_them = (StreamClusterer(family=family, missing="zero") for _ in range(2))
    few.learn_many(sparse)
    all_of_them.learn_many(dense)
    one, other = (model.tree.total for model in (few, all_of_them))
    order = [few.feature_names.index(name) for name in all_of_them.feature_names]
    np.testing.assert_allclose(one.mean[0, order], other.mean[0], rtol=1e-12, atol=1e-12)
    assert one.n_features == len(names)
    asked = {"w0": 1.0, "w3": 2.0}
    assert few.score_one(asked) == pytest.approx(
        few.score_one({name: asked.get(name, 0.0) for name in names})
    )


@given(
    st.integers(0, 1000),
    st.lists(st.integers(1, 80), min_size=1, max_size=8),
    st.sampled_from(["multinomial", "spherical"]),
    st.booleans(),
)
@settings(deadline=None, max_examples=15)
def test_features_that_join_do_not_depend_on_batching_or_restarts(seed, sizes, family, frames):
    events = bags(230, vocabulary=60, seed=seed)
    one, many = (StreamClusterer(family=family, missing="zero", warmup=40) for _ in range(2))
    for event in events:
        one.learn_one(event)
    done, k = 0, 0
    while done < len(events):
        part = events[done : done + sizes[k % len(sizes)]]
        many.learn_many(pd.DataFrame(part) if frames else part)
        many.clusters  # noqa: B018  # reading changes nothing
        if k % 3 == 1:
            many = StreamClusterer.from_state(many.to_state())
        done, k = done + len(part), k + 1
    assert bits(one) == bits(many)


def test_a_growing_vocabulary_is_widened_a_few_times_in_all(monkeypatch):
    from streamclust.tree import SummaryTree

    widened = []
    widen = SummaryTree.widen
    monkeypatch.setattr(
        SummaryTree, "widen", lambda tree, values: widened.append(len(values)) or widen(tree, values)
    )
    model = StreamClusterer(family="multinomial")
    for event in bags(2000, vocabulary=500):
        model.learn_one(event)
    assert len(model.feature_names) > 400
    assert len(widened) < 40


def test_counts_may_be_imputed_and_stay_counts():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.poisson(3.0, size=(400, 3)).astype(float), columns=list("abc"))
    table.loc[5::3, "b"] = np.nan
    model = StreamClusterer(family="poisson", missing="impute")
    model.learn_many(table)
    assert (model.n_seen, model.n_refused) == (400, 0)


# -------------------------------------------------------------------- counts at once

numbers = st.integers(-9000, 9000).map(lambda n: n / 1000)
good = st.fixed_dictionaries({"a": numbers, "b": numbers})
odd = st.sampled_from(
    [{"a": 1e200, "b": 0.0}, {"a": "x"}, {}, {"a": 1.0}, {"a": None, "b": None}, {"c": 1.0}]
)


weights = st.sampled_from([1.0, 1.0, 2.0, 0.0, -1.0, np.nan, 1e200])


@given(st.lists(good | odd, max_size=60), st.lists(weights, min_size=1, max_size=9))
@settings(deadline=None, max_examples=40)
@pytest.mark.filterwarnings("ignore::streamclust.streaming.RefusedEvents")
@pytest.mark.filterwarnings("ignore::streamclust.streaming.InvalidValues")
def test_what_was_learnt_and_refused_is_known_at_once(events, weights):
    model = StreamClusterer()
    told = []
    for i, event in enumerate(events):
        model.learn_one(event, w=weights[i % len(weights)])
        told.append((model.n_seen, model.n_refused))
    again = StreamClusterer()
    for i, event in enumerate(events):
        again.learn_one(event, w=weights[i % len(weights)])
        again.to_state()  # nothing waits
        assert (again.n_seen, again.n_refused) == told[i]


@given(
    st.lists(good | st.just({"a": 1.0}), max_size=60),
    st.lists(st.sampled_from([1.0, 1.0, 1.0, 2.0]), min_size=1),
)
@settings(deadline=None, max_examples=20)
def test_events_wait_in_the_order_in_which_they_came(events, weights):
    """Whole events of weight 1 are buffered in another form than all others."""
    buffered, single = StreamClusterer(), StreamClusterer()
    for i, event in enumerate(events):
        for model in (buffered, single):
            model.learn_one(event, w=weights[i % len(weights)])
        single.to_state()  # nothing waits
    ours, theirs = buffered.to_state().arrays, single.to_state().arrays
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        np.testing.assert_array_equal(values, theirs[name], err_msg=name)


@pytest.mark.parametrize("family", ["gaussian", "poisson", "bernoulli"])
def test_refusals_are_told_before_anything_is_asked(family):
    model = StreamClusterer(family=family)
    for _ in range(150):
        model.learn_one({"a": 1.0, "b": 0.0})
    bad = {"a": 1e200} if family == "gaussian" else {"a": 0.5, "b": 0.0}
    with pytest.warns(RefusedEvents):
        model.learn_one(bad)
    for _ in range(19):
        model.learn_one(bad)
    assert (model.n_seen, model.n_refused) == (150, 20)


# -------------------------------------------------------------------- bounds


def test_an_event_of_unknown_names_alone_has_no_cluster():
    model = StreamClusterer()
    model.learn_many(two_clusters(300))
    model.settle()
    assert model.predict_one({"colour": 1.0}) is None
    assert model.predict_one({"x": 0.0, "colour": 1.0}) is not None
    events = [{"x": 0.0, "y": 0.0}, {"colour": 1.0}]
    assert model.predict_many(events).tolist() == [model.predict_one(events[0]), None]
    assert model.assign_many(events).cluster.tolist() == model.predict_many(events).tolist()
    shares = {cluster.id: cluster.share for cluster in model.clusters}
    assert model.predict_proba_one({"colour": 1.0}) == pytest.approx(shares, abs=0.02)
    assert model.score_one({"colour": 1.0}) == pytest.approx(0.0)


def test_names_without_end_are_refused():
    model = StreamClusterer(max_features=10)
    for i in range(9):
        model.learn_one({"x": 1.0, f"name {i}": 1.0})
    with pytest.warns(RefusedEvents, match="max_features allows 10"):
        model.learn_many([{"x": 1.0, f"name {i}": 1.0} for i in range(9, 30)])
    assert len(model.feature_names) == 10
    assert (model.n_seen, model.n_refused) == (9, 21)
    model.learn_one({"x": 2.0})
    assert model.n_seen == 10
    growing = StreamClusterer(invalid="raise")
    growing.learn_one({"x": 1.0})
    with pytest.raises(ValueError, match="max_features allows 256"):
        growing.learn_one(dict.fromkeys(map(str, range(256)), 1.0))
    with pytest.raises(ValueError, match="max_features allows 1024"):
        StreamClusterer(family="bernoulli", invalid="raise").learn_many(np.zeros((2, 1025)))


def test_the_first_array_names_its_columns_though_some_rows_are_refused():
    table = np.array([[np.nan, np.nan], [np.inf, np.nan], [np.nan, 1.0], [1.0, 2.0], [np.nan, 3.0]])
    model = StreamClusterer()
    assert list(model.check(table).refused) == [0, 1]
    with pytest.warns(RefusedEvents, match="no numeric feature"):
        model.learn_many(table)
    assert (model.feature_names, model.n_seen, model.n_refused) == ((0, 1), 3, 2)


def test_an_event_that_is_refused_leaves_no_name_behind():
    model = StreamClusterer(family="poisson")
    model.learn_one({"a": 1})
    with pytest.warns(RefusedEvents):
        model.learn_one({"a": 1, "b": 0.5})
    assert model.feature_names == ("a",)


# -------------------------------------------------------------------- parameters

WRONG = [
    ("family", "gausian", "did you mean 'gaussian'"),
    ("family", None, "family must be"),
    ("refit", "chunky_em", "did you mean 'chunky-em'"),
    ("mixture", "infinit", "did you mean 'infinite'"),
    ("max_leaves", 0, "whole number"),
    ("max_leaves", 2.5, "whole number"),
    ("refit_every", -5, "whole number"),
    ("warmup", "100", "whole number"),
    ("half_life", -1, "use None to never forget"),
    ("half_life", np.nan, "positive"),
    ("half_life", True, "positive"),
    ("max_time_step", 0, "positive"),
    ("birth_penalty", 0.0, "positive"),
    ("missing", "zeros", "did you mean 'zero'"),
    ("invalid", "rais", "did you mean 'raise'"),
    ("max_features", 0, "whole number"),
    ("background", "no", "True or False"),
    ("on_event", 3, "must be a function"),
    ("seed", -1, "whole number"),
]


@pytest.mark.parametrize(("name", "value", "sentence"), WRONG)
def test_a_parameter_that_means_nothing_is_refused_at_once(name, value, sentence):
    with pytest.raises(ValueError, match=sentence):
        StreamClusterer(**{name: value})
    if name in inspect.signature(StreamEstimator).parameters:
        with pytest.raises(ValueError, match=sentence):
            StreamEstimator(**{name: value}).fit(np.zeros((3, 2)))


def test_every_parameter_is_declared():
    for kind in (StreamClusterer, StreamEstimator):
        assert set(inspect.signature(kind).parameters) <= set(ALLOWED)
