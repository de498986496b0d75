"""Skewed numbers are compared by their logarithm where the evidence says so, and reported in their own units."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer
from streamclust.batch import BayesianKMeans, StreamEstimator
from streamclust.checkpoint import decode, encode
from streamclust.moments import Moments
from streamclust.sketch import Transform, TransformChange

MEDIANS = np.array([[2.0, 10.0], [40.0, 300.0], [500.0, 40.0]])


def requests(n, seed, spread=0.5):
    """Latencies and amounts of three kinds of requests, and the kind of each."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(3, size=n, p=[0.6, 0.3, 0.1])
    return MEDIANS[kind] * np.exp(spread * rng.normal(size=(n, 2))), kind


def learnt(rows, size=250, **parameters):
    model = StreamClusterer(**parameters)
    for start in range(0, len(rows), size):
        model.learn_many(rows[start : start + size])
    return model


def agreement(model, rows, truth):
    return adjusted_rand_score(truth, np.asarray(model.predict_many(rows)).astype(int))


@pytest.mark.compiled
@pytest.mark.parametrize("seed", range(3))
def test_raw_latencies_are_told_apart(seed):
    rows, kind = requests(3000, seed)
    model = learnt(rows)
    model.settle()
    assert set(model.knees) == {0, 1}
    assert model.n_failed_refits == 0
    assert agreement(model, rows, kind) > 0.97
    batch = BayesianKMeans().fit(rows)
    assert batch.n_clusters_ == 3
    assert adjusted_rand_score(kind, batch.labels_) > 0.97
    estimator = StreamEstimator().fit(rows)
    assert adjusted_rand_score(kind, estimator.labels_) > 0.97


@pytest.mark.compiled
def test_one_lognormal_is_one_cluster():
    rows = np.random.default_rng(5).lognormal(3.0, 1.5, size=(2000, 2))
    assert BayesianKMeans().fit(rows).n_clusters_ == 1
    model = learnt(rows)
    model.settle()
    assert model.n_clusters == 1


@pytest.mark.compiled
@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer, load_digits])
def test_tables_without_long_tails_stay_as_they_are(load):
    rows = load().data
    assert BayesianKMeans(search="auto").fit(rows).transform_.is_none
    model = learnt(np.random.default_rng(0).permutation(rows))
    model.settle()
    assert model.knees == {}


@pytest.mark.compiled
def test_clusters_far_apart_or_with_bounds_are_no_tails():
    rng = np.random.default_rng(1)
    far = np.array([1.0, 100.0, 1e4])[rng.integers(3, size=1500)][:, None] + 0.2 * rng.normal(size=(1500, 2))
    assert BayesianKMeans().fit(far).transform_.is_none
    assert BayesianKMeans().fit(rng.random((1500, 2))).transform_.is_none


@pytest.mark.compiled
@settings(max_examples=5, deadline=None)
@given(power=st.floats(-6.0, 6.0), seed=st.integers(0, 100))
def test_the_unit_of_a_skewed_feature_changes_nothing(power, seed):
    rows, _ = requests(700, seed)
    unit = np.array([10.0**power, 1.0])
    one, other = BayesianKMeans().fit(rows), BayesianKMeans().fit(rows * unit)
    assert len(one.transform_.columns) == 2
    np.testing.assert_allclose(other.transform_.knee, one.transform_.knee * unit)
    assert adjusted_rand_score(one.labels_, other.labels_) == 1.0
    density = len(rows) * np.log(unit[0])
    assert other.free_energy_ == pytest.approx(one.free_energy_ + density, abs=0.1)
    here, there = learnt(rows), learnt(rows * unit)
    ours, theirs = (
        np.asarray(m.predict_many(x)).astype(int) for m, x in ((here, rows), (there, rows * unit))
    )
    assert adjusted_rand_score(ours, theirs) == 1.0


@pytest.mark.compiled
@pytest.mark.parametrize("first", [100, 128, 300, 2050])
def test_batches_and_restarts_leave_the_same_bits(first):
    rows, _ = requests(2500, 3)
    whole = learnt(rows, size=2500)
    parts = learnt(rows[:first], size=7)
    parts = StreamClusterer.from_state(decode(encode(parts.to_state())))
    for start in range(first, len(rows), 331):
        parts.learn_many(rows[start : start + 331])
    one, other = whole.to_state(), parts.to_state()
    assert whole.knees == parts.knees
    assert set(one.arrays) == set(other.arrays)
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name], err_msg=name)


@pytest.mark.compiled
def test_single_events_leave_the_same_bits_as_tables():
    rows, _ = requests(700, 4)
    one, other = StreamClusterer(), StreamClusterer()
    other.learn_many([{"latency": a, "amount": b} for a, b in rows.tolist()])
    for a, b in rows.tolist():
        one.learn_one({"latency": a, "amount": b})
    ours, theirs = one.to_state(), other.to_state()
    for name, array in ours.arrays.items():
        np.testing.assert_array_equal(array, theirs.arrays[name], err_msg=name)
    assert set(one.knees) == {"latency", "amount"}


def by_names(rows):
    return [{"latency": a, "amount": b} for a, b in rows.tolist()]


@pytest.mark.compiled
def test_reports_are_in_the_features_own_units():
    rows, kind = requests(3000, 0)
    model = StreamClusterer()
    model.learn_many(by_names(rows))
    model.settle()
    heaviest = model.clusters[0]
    own = rows[kind == 0]
    assert heaviest.mean["latency"] == pytest.approx(np.median(own[:, 0]), rel=0.1)
    low, high = np.quantile(own[:, 0], [0.16, 0.84])
    place = model.feature_names.index("latency")
    assert np.sqrt(heaviest.covariance[place, place]) == pytest.approx((high - low) / 2, rel=0.15)
    told = {feature.name: feature for feature in model.describe(heaviest.id)}
    assert told["latency"].mean == pytest.approx(2.0, rel=0.1)
    assert np.quantile(rows[:, 0], 0.1) < told["latency"].overall_mean < np.quantile(rows[:, 0], 0.9)
    assert model.view().clusters.mean.max() > 100.0
    assert model.snapshot().leaves.mean.max() > 100.0
    came = {tuple(row) for row in rows.round(9).tolist()}
    example = model.examples(heaviest.id, k=1)[0].values
    assert (round(example["latency"], 9), round(example["amount"], 9)) in came
    assert np.isin(model.latest(5).round(9), rows.round(9)).all()
    assert "latency" in heaviest.words() or "amount" in heaviest.words()


@pytest.mark.compiled
def test_novelty_is_a_density_of_the_feature_itself():
    values = requests(2000, 2)[0][:, :1]
    model = learnt(values)
    grid = np.exp(np.linspace(np.log(1e-3), np.log(1e6), 20_001))
    density = np.exp(-np.asarray(model.score_many(grid[:, None])))
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=0.01)
    tails = np.asarray(model.tail_many(values))
    assert tails.mean() == pytest.approx(0.5, abs=0.02)
    batch = BayesianKMeans(shape="ellipse").fit(values)
    below = np.exp(batch.score_samples(np.linspace(1e-6, 1e-3, 5)[:, None])).max() * 1e-3
    assert np.trapezoid(np.exp(batch.score_samples(grid[:, None])), grid) + below == pytest.approx(
        1.0, abs=0.01
    )


@pytest.mark.compiled
def test_what_is_asked_for_is_done():
    rows, _ = requests(800, 6)
    assert learnt(rows, transforms="none").knees == {}
    asked = learnt(rows, transforms={0: "log", 1: "none"})
    assert set(asked.knees) == {0}
    known = learnt(rows[:10], transforms={1: 25.0})
    assert known.knees == {1: 25.0}
    batch = BayesianKMeans(transforms={1: 25.0}).fit(rows)
    assert batch.transform_.knee.tolist() == [0.0, 25.0]
    signed = rows * np.random.default_rng(0).choice([-1.0, 1.0], size=rows.shape)
    assert learnt(signed).knees == {}
    assert set(learnt(signed, transforms={0: "log"}).knees) == {0}
    assert learnt(rows, birth_penalty=100.0).knees == {}
    assert learnt(np.round(rows), family="poisson").knees == {}
    assert learnt(rows, missing="zero").knees == {}


@pytest.mark.parametrize("wrong", ["log", {0: "sqrt"}, {0: -1.0}, {0: True}, 3])
def test_transforms_there_are_not_are_refused(wrong):
    with pytest.raises(ValueError, match="transform"):
        StreamClusterer(transforms=wrong)
    with pytest.raises(ValueError, match="transform"):
        BayesianKMeans(transforms=wrong).fit(np.eye(3))


@pytest.mark.compiled
def test_categories_and_gaps_stand_beside_skewed_numbers():
    rows, kind = requests(2500, 7)
    rng = np.random.default_rng(7)
    events = []
    for (a, b), k in zip(rows.tolist(), kind.tolist(), strict=True):
        event = {"latency": a, "amount": b, "channel": "web" if rng.random() < (0.9, 0.5, 0.1)[k] else "shop"}
        if rng.random() < 0.1:
            del event["latency"]
        events.append(event)
    model = StreamClusterer()
    model.learn_many(events)
    model.settle()
    assert set(model.knees) == {"latency", "amount"}
    assert model.n_failed_refits == 0
    assert adjusted_rand_score(kind, np.asarray(model.predict_many(events)).astype(int)) > 0.85
    assert model.clusters[0].words()


@pytest.mark.compiled
def test_features_may_appear_just_before_a_decision():
    rows, kind = requests(1000, 10)
    events = by_names(rows)
    for i, event in enumerate(events):
        event["channel"] = "web" if kind[i] else "shop"
        if i >= 120:
            event["size"] = 5.0 + float(kind[i]) + 0.1 * (i % 7)
        if i in (121, 127, 511):
            event["channel"] = f"new{i}"
    model = StreamClusterer()
    model.learn_many(events)
    model.settle()
    assert model.n_failed_refits == 0, model.last_refit_error
    assert set(model.knees) == {"latency", "amount"}
    assert adjusted_rand_score(kind, np.asarray(model.predict_many(events)).astype(int)) > 0.9


# -------------------------------------------------------------------- shards, followers, merges


@pytest.mark.compiled
def test_a_shard_learnt_without_the_transform_is_carried_over():
    rows, kind = requests(3000, 8)
    one, other = learnt(rows[:2500]), StreamClusterer()
    other.learn_many(rows[2500:2600], shard="late")
    assert one.knees
    assert not other.knees
    one.shards.adopt("late", other.shards.export("late"))
    assert agreement(one, rows, kind) > 0.9
    held = one.shards.tree("late").total.mean[0]
    np.testing.assert_allclose(held, one.model.transform.of(rows[2500:2600]).mean(axis=0))


@pytest.mark.compiled
def test_followers_and_merged_streams_have_one_transform():
    rows, kind = requests(4000, 9)
    leader, member = learnt(rows[:3000]), StreamClusterer()
    member.sharing.follow(None)
    member.learn_many(rows[3000:], shard=1)
    member.sharing.follow(leader.sharing.merged_state())
    assert member.knees == leader.knees
    assert agreement(member, rows, kind) > 0.95
    leader.shards.replace(1, member.shards.export(1))
    leader.sharing.catch_up()
    assert agreement(leader, rows, kind) > 0.95
    one, two, plain = learnt(rows[:2000]), learnt(rows[2000:]), StreamClusterer()
    assert one.knees != two.knees
    expected = one.knees
    one.merge(two)
    assert one.knees == expected
    assert one.n_failed_refits == 0
    assert agreement(one, rows, kind) > 0.95
    plain.merge(two)
    assert plain.knees == two.knees
    assert agreement(plain, rows, kind) > 0.95


# -------------------------------------------------------------------- the map itself


@given(
    knee=st.floats(1e-3, 1e3), mean=st.floats(-4.0, 4.0), std=st.floats(0.01, 1.0), shift=st.floats(-5.0, 5.0)
)
def test_moments_are_told_by_medians_and_deviations(knee, mean, std, shift):
    transform = Transform(np.array([knee, 0.0]))
    rows = Moments(np.ones(1), np.array([[mean, shift]]), np.diag([std**2, 4.0])[None], "full")
    found = transform.expand_moments(rows)
    np.testing.assert_allclose(found.mean, [[knee * np.sinh(mean), shift]], rtol=1e-9, atol=1e-12)
    half = knee * (np.sinh(mean + std) - np.sinh(mean - std)) / 2
    np.testing.assert_allclose(np.sqrt(np.diagonal(found.covariance[0])), [half, 2.0], rtol=1e-9)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=8), st.floats(1e-2, 1e4))
def test_there_and_back(values, knee):
    rows = np.array(values)[:, None]
    transform = Transform(np.array([knee]))
    np.testing.assert_allclose(transform.of(rows), np.arcsinh(rows / knee), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(transform.back(transform.of(rows)), rows, rtol=1e-9, atol=1e-9)
    change = TransformChange(transform, Transform(np.array([3.0 * knee])), 1)
    np.testing.assert_allclose(
        change.points(transform.of(rows)), np.arcsinh(rows / (3 * knee)), rtol=1e-8, atol=1e-12
    )
