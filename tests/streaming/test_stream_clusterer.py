import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river import checks, datasets, evaluate, metrics, preprocessing
from river.checks import common
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer
from streamclust.checkpoint.files import encode
from streamclust.streaming import InvalidValues, RefusedEvents
from streamclust_connectors.synthetic import Drift, topics
from tests.streams import clustered

pytestmark = pytest.mark.compiled  # the engine's own tests and laws run interpreted

LESS = 3000
NAMES = ("a", "b", "c")


def events(rows, names=NAMES):
    return [dict(zip(names, row, strict=False)) for row in rows.tolist()]


def same(a, b):
    """Whether two models know the same, whatever they refused."""
    states = []
    for model in (a, b):
        state = model.to_state()
        state.values["n_refused"], state.values["last_refusal"] = 0, ""
        del state.values["n_invalid"]
        states.append(encode(state))
    return states[0] == states[1]


@pytest.fixture
def rows():
    return clustered(LESS, 3, k=4, seed=1)[0]


# ---------------------------------------------------------------- River


@pytest.mark.parametrize(
    "check", list(checks.yield_checks(StreamClusterer())), ids=lambda check: check.__name__
)
def test_river_s_checks(check):
    check(StreamClusterer())


DATA = [
    common.check_bounded_memory_growth,
    common.check_disappearing_features,
    common.check_emerging_features,
    common.check_learn_many_matches_learn_one,
    common.check_learn_one,
    common.check_no_state_aliasing_with_input,
    common.check_pickling,
    common.check_predict_one_pure,
    common.check_radically_disappearing_features,
    common.check_seeding_is_idempotent,
    common.check_shuffle_features_no_impact,
]


@pytest.mark.parametrize("check", DATA, ids=lambda check: check.__name__)
def test_river_s_checks_with_data(check):
    check(StreamClusterer(warmup=30), list(datasets.Phishing().take(100)))


def test_before_the_first_event_it_knows_that_it_knows_nothing():
    model = StreamClusterer()
    assert model.predict_one({"x": 1.0}) is None
    assert model.predict_proba_one({"x": 1.0}) == {}
    assert model.score_one({"x": 1.0}) == 0.0
    assert model.tail_one({"x": 1.0}) == 1.0
    assert (model.n_clusters, model.n_seen, model.clusters, model.centers, model.events) == (0, 0, [], {}, [])
    assert model.predict_many(pd.DataFrame({"x": [1.0]})).isna().all()


def test_a_scaler_before_it_and_progressive_validation():
    model = preprocessing.StandardScaler() | StreamClusterer(warmup=50)
    rows, labels = clustered(1500, 2, k=3, seed=4)
    data = list(zip(events(rows), labels.tolist(), strict=True))
    metric = evaluate.progressive_val_score(data, model, metrics.AdjustedRand())
    assert metric.get() > 0.75


def test_the_first_events_are_one_cluster():
    model = StreamClusterer()
    model.learn_one({"x": 1.0})
    assert model.predict_one({"x": 1e6}) == 0
    assert [c.kind for c in model.events] == ["born"]


# ---------------------------------------------------------------- frames


@pytest.mark.parametrize(
    "make", [pd.DataFrame, pl.DataFrame, lambda d: pa.table(d)], ids=["pandas", "polars", "pyarrow"]
)
def test_frames_of_every_kind_teach_the_same(rows, make):
    loop = StreamClusterer()
    for event in events(rows):
        loop.learn_one(event)
    model = StreamClusterer()
    frame = make({name: rows[:, j] for j, name in enumerate(NAMES)})
    model.learn_many(frame)
    assert same(model, loop)
    ids = model.predict_many(frame)
    listed = ids.to_pylist() if isinstance(ids, pa.ChunkedArray) else ids.to_list()
    assert listed == [model.predict_one(event) for event in events(rows)]
    assert len(model.predict_proba_many(frame)) == len(model.score_many(frame)) == len(rows)


def test_the_index_of_a_frame_is_kept(rows):
    model = StreamClusterer()
    frame = pd.DataFrame(rows, columns=list(NAMES), index=np.arange(len(rows)) * 3)
    model.learn_many(frame)
    assert model.predict_many(frame).index.equals(frame.index)
    assert model.predict_proba_many(frame).index.equals(frame.index)


def test_probabilities_add_up_and_agree_with_predictions(rows):
    model = StreamClusterer()
    model.learn_many(rows)
    table = model.predict_proba_many(rows)
    np.testing.assert_allclose(table.sum(axis=1), 1.0)
    ids = model.model.names[table.argmax(axis=1)]
    assert (ids == model.predict_many(rows)).mean() > 0.99
    one = model.predict_proba_one(dict(enumerate(rows[0])))
    np.testing.assert_allclose(list(one.values()), table[0])


# ---------------------------------------------------------------- what it finds


@pytest.mark.parametrize("refit", ["bkm", "chunky-em", "dp-means"])
@pytest.mark.parametrize("d", [2, 8])
def test_it_learns_how_many_clusters_there_are(refit, d):
    rows, labels = clustered(20_000, d, k=6, seed=5, spread=9.0)
    model = StreamClusterer(refit=refit)
    for part in np.array_split(rows, 13):
        model.learn_many(part)
    assert model.n_clusters == 6
    assert adjusted_rand_score(labels, model.predict_many(rows)) > 0.98
    assert sum(c.share for c in model.clusters) == pytest.approx(1.0)


@pytest.mark.parametrize("family", ["diagonal", "spherical", "poisson", "multinomial"])
def test_every_family_has_streams(family):
    if family in ("poisson", "multinomial"):
        rows, labels = topics(n=8000, d=6, k=4, length=60, seed=3)
    else:
        rows, labels = clustered(8000, 3, k=4, seed=5, spread=9.0)
    model = StreamClusterer(family=family)
    model.learn_many(rows)
    assert adjusted_rand_score(labels, model.predict_many(rows)) > 0.9


def test_binary_events():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=2000)
    rows = (rng.random((2000, 12)) < np.where(np.arange(12) // 4 == labels[:, None], 0.9, 0.1)).astype(float)
    model = StreamClusterer(family="bernoulli")
    model.learn_many(rows)
    assert adjusted_rand_score(labels, model.predict_many(rows)) > 0.9


def test_drift_is_followed_without_being_told_to_forget():
    drift = Drift(2, n_events=120_000, seed=1, splits=0)
    model = StreamClusterer()
    scores = []
    for batch, labels in drift.batches(5000):
        if model.n_seen:
            scores.append(adjusted_rand_score(labels, model.predict_many(batch)))
        model.learn_many(batch)
    assert np.mean(scores) > 0.95
    assert model.shards.tree(0).total.weight[0] == 120_000  # the summary has forgotten nothing


def test_a_stationary_stream_has_no_lifecycle_after_a_while():
    rows, _ = clustered(300_000, 8, k=6, seed=3)
    model = StreamClusterer(half_life=8000.0, refit_every=2000)
    tenth, versions = None, set()
    for part in np.array_split(rows, 150):
        model.learn_many(part)
        versions.add(model.model.version)
        if tenth is None and len(versions) >= 10:
            tenth = model.n_seen
    assert len(versions) >= 50
    assert [change for change in model.events if change.at > tenth] == []


BASE = [(0, 0), (30, 0), (0, 30)]
APART = [[*BASE[:2], (-step, 30), (step, 30)] for step in (*np.linspace(0.5, 4.0, 20), *[4.0] * 20)]
TOGETHER = [[*BASE[:2], (-step, 30), (step, 30)] for step in (*np.linspace(4.0, 0.0, 20), *[0.0] * 20)]


class Scene:
    """A clusterer that forgets, and the clusters that are played to it."""

    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.model = StreamClusterer(half_life=8000.0, refit_every=4000)

    def play(self, *scenes, n=4000):
        """What happened to the clusters while the stream had these centres, one after the other."""
        before = len(self.model.events)
        for centres in scenes:
            of = np.array(centres, dtype=float)[self.rng.integers(len(centres), size=n)]
            self.model.learn_many(of + self.rng.normal(size=(n, 2)))
        return [(c.kind, len(c.parents), len(c.children)) for c in self.model.events[before:]]

    def owner(self, centre):
        return self.model.predict_one({0: float(centre[0]), 1: float(centre[1])})


def test_births_deaths_and_splits_are_each_reported_once():
    scene = Scene()
    scene.play(*[BASE] * 25)
    first = {centre: scene.owner(centre) for centre in BASE}
    assert len(set(first.values())) == 3
    assert scene.play(*[[*BASE, (30, 30)]] * 25) == [("born", 0, 1)]
    assert scene.play(*[BASE] * 25) == [("died", 1, 0)]
    assert scene.play(*APART) == [("split", 1, 2)]
    assert first[(0, 30)] in (scene.owner((-4, 30)), scene.owner((4, 30)))
    assert {centre: scene.owner(centre) for centre in BASE[:2]} == {c: first[c] for c in BASE[:2]}
    scene.play(*TOGETHER)
    assert scene.model.n_clusters == 3
    assert {centre: scene.owner(centre) for centre in BASE[:2]} == {c: first[c] for c in BASE[:2]}


def test_a_merge_is_reported_once():
    scene = Scene()
    scene.play(*[APART[-1]] * 25)
    assert scene.model.n_clusters == 4
    assert scene.play(*TOGETHER) == [("merged", 2, 1)]


def test_listeners_hear_what_the_log_holds(rows):
    heard = []
    model = StreamClusterer(on_event=heard.append)
    model.learn_many(rows)
    assert heard == model.events != []


def test_novelties_have_small_tails():
    rows, _ = clustered(20_000, 4, k=5, seed=6)
    model = StreamClusterer()
    model.learn_many(rows[:19_000])
    tails = np.array([model.tail_one(dict(enumerate(row))) for row in rows[19_000:19_300].tolist()])
    assert 0.3 < tails.mean() < 0.7
    assert model.tail_one(dict.fromkeys(range(4), 200.0)) < 0.001


def test_merged_streams_know_both_halves(rows):
    left, right, whole = StreamClusterer(seed=1), StreamClusterer(seed=1), StreamClusterer(seed=1)
    left.learn_many(rows[::2])
    right.learn_many(rows[1::2])
    whole.learn_many(rows)
    ids = set(left.model.ids)
    left.merge(right)
    assert left.n_seen == len(rows)
    totals = [model.shards.tree(0).total for model in (left, whole)]
    for name in ("weight", "mean", "scatter"):
        np.testing.assert_allclose(getattr(totals[0], name), getattr(totals[1], name), rtol=1e-9, atol=1e-9)
    assert left.n_clusters == 4
    assert ids & set(left.model.ids)
    of_others = StreamClusterer(seed=1)
    of_others.learn_one({"other": 1.0})
    with pytest.raises(ValueError, match="same features"):
        left.merge(of_others)
    with pytest.raises(ValueError, match=r"same settings.*seed.*\(1, 2\)"):
        left.merge(other_seed(rows))


def other_seed(rows):
    model = StreamClusterer(seed=2)
    model.learn_many(rows[:100])
    return model


@pytest.mark.parametrize(
    "parameters", [{}, {"half_life": 500.0}, {"family": "poisson"}, {"max_directions": 2}]
)
def test_an_empty_stream_and_a_full_one_can_be_merged_either_way(rows, parameters):
    x = np.abs(rows[:1200]).round() if parameters.get("family") else rows[:1200]
    full, kept, empty = (StreamClusterer(**parameters) for _ in range(3))
    for model in (full, kept):
        model.learn_many(x)
    ids = [cluster.id for cluster in full.clusters]
    full.merge(empty)
    assert [cluster.id for cluster in full.clusters] == ids
    assert same(full, kept)
    empty.merge(full)
    assert (empty.n_seen, empty.feature_names) == (full.n_seen, full.feature_names)
    np.testing.assert_allclose(empty.tree.total.mean, full.tree.total.mean, rtol=1e-9)
    for model in (empty, full):
        model.learn_many(x)
    assert empty.n_seen == full.n_seen == 2 * len(x)
    assert abs(empty.n_clusters - full.n_clusters) <= 1
    nothing = StreamClusterer(**parameters)
    nothing.merge(StreamClusterer(**parameters))
    assert (nothing.n_seen, nothing.feature_names) == (0, ())


@pytest.mark.parametrize("family", ["gaussian", "diagonal", "poisson"])
@pytest.mark.parametrize("late", ["ours", "theirs"])
def test_streams_merge_before_a_refit_has_seen_a_new_feature(family, late):
    old = [{"x": float(i % 7)} for i in range(500)]
    new = [event | {"z": float(i % 5)} for i, event in enumerate(old)]
    model, other = StreamClusterer(family), StreamClusterer(family)
    (model if late == "ours" else other).learn_many([*old, *new[:3]])
    (other if late == "ours" else model).learn_many(new)
    model.merge(other)
    assert model.n_failed_refits == 0, model.last_refit_error
    assert model.tree.total.weight[0] == model.n_seen == 1003
    assert all(np.isfinite(list(cluster.mean.values())).all() for cluster in model.clusters)


# ---------------------------------------------------------------- time, weights, missing values


def test_weights_count_as_repetitions():
    rows = np.arange(12.0).reshape(6, 2)
    weighted, repeated = StreamClusterer(), StreamClusterer()
    weighted.learn_many(rows, weight=[1, 2, 3, 1, 0, 2])
    for row, n in zip(rows, [1, 2, 3, 1, 0, 2], strict=True):
        repeated.learn_many(np.repeat(row[None], n, axis=0))
    totals = [model.shards.tree(0).total for model in (weighted, repeated)]
    assert totals[0].weight == pytest.approx(totals[1].weight)
    np.testing.assert_allclose(totals[0].mean, totals[1].mean)
    np.testing.assert_allclose(totals[0].scatter, totals[1].scatter)


def test_event_times_forget(rows):
    one, many = StreamClusterer(half_life=10.0), StreamClusterer(half_life=10.0)
    times = np.linspace(0.0, 100.0, len(rows))
    many.learn_many(rows, time=times)
    for row, t in zip(rows.tolist(), times.tolist(), strict=True):
        one.learn_one(dict(enumerate(row)), t=t)
    assert same(one, many)
    ages = 100.0 - times
    assert many.shards.tree(0).total.weight[0] == pytest.approx((2 ** (-ages / 10)).sum(), rel=1e-9)


def test_missing_values_are_filled_and_new_features_join(rows):
    frame = pd.DataFrame(rows.copy(), columns=list(NAMES))
    frame.loc[frame.index % 7 == 3, "b"] = np.nan
    frame.loc[: LESS // 3, "c"] = np.nan
    many, one = StreamClusterer(), StreamClusterer()
    many.learn_many(frame)
    for event in frame.to_dict("records"):
        one.learn_one({name: value for name, value in event.items() if value == value})
    assert same(many, one)
    assert many.feature_names == NAMES
    assert many.n_seen == len(rows)
    means = many.shards.tree(0).total.mean[0]
    assert np.isfinite(means).all()
    assert abs(means[1] - rows[:, 1].mean()) < 0.2 * rows[:, 1].std()


def test_a_missing_feature_is_integrated_out_in_predictions():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1000, 2)) + np.where(rng.random(1000) < 0.5, 0.0, 12.0)[:, None]
    model = StreamClusterer()
    model.learn_many(pd.DataFrame(rows, columns=["x", "y"]))
    low, high = model.predict_one({"x": 0.0, "y": 0.0}), model.predict_one({"x": 12.0, "y": 12.0})
    assert low != high
    assert (model.predict_one({"x": 0.1}), model.predict_one({"y": 12.2})) == (low, high)
    assert model.predict_one({"x": 0.1, "unheard of": 5.0}) == low
    assert model.predict_proba_one({"x": 6.0})[low] == pytest.approx(0.5, abs=0.45)
    assert np.isfinite(model.score_one({"x": 0.0}))
    assert model.predict_one({}) is None


def test_missing_values_can_be_forbidden():
    model = StreamClusterer(missing="error", invalid="raise")
    model.learn_one({"x": 1.0, "y": 2.0})
    for event in ({"x": 1.0}, {"x": 1.0, "y": None}, {"x": 1.0, "y": 2.0, "z": 3.0}):
        with pytest.raises(ValueError, match='missing="error"'):
            model.learn_one(event)
    assert model.n_seen == 1


# ---------------------------------------------------------------- bad input

INVALID = {"text": "one", "infinity": np.inf, "too large": 1e200, "a list": [1.0], "complex": 1j, "empty": ""}
BAD = {
    "text": {"a": "one", "b": "", "c": "three"},
    "infinity": {"a": np.inf, "b": None, "c": -np.inf},
    "too large": {"a": 1e200, "b": 10**400, "c": np.nan},
    "a list": {"a": [1.0]},
    "complex": {"a": 1j, "b": 2j},
    "nothing": {},
    "all missing": {"a": None, "b": np.nan, "c": None},
}


def feed(model, mixed, many):
    if many:
        model.learn_many(mixed)
    else:
        for event in mixed:
            model.learn_one(event)
    model.to_state()  # nothing waits any longer


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("many", [False, True], ids=["learn_one", "learn_many"])
def test_what_can_be_learnt_is_and_the_rest_is_refused_and_counted(rows, bad, many):
    good = events(rows[:300])
    mixed = [*good[:40], bad, *good[40:200], bad, bad, *good[200:]]
    spoilt, clean = StreamClusterer(), StreamClusterer()
    clean.learn_many(good)
    with pytest.warns(RefusedEvents) as told:
        feed(spoilt, mixed, many)
    assert len(told) == 1
    assert spoilt.n_refused == 3
    assert spoilt.last_refusal
    assert same(spoilt, clean)


def feed_one_by_one(model, found):
    for event in found:
        model.learn_one(event)


@pytest.mark.parametrize("bad", INVALID.values(), ids=INVALID.keys())
@pytest.mark.parametrize("many", [False, True], ids=["learn_one", "learn_many"])
def test_one_bad_value_is_a_missing_value(rows, bad, many):
    good = events(rows[:300])
    gaps = {1, 7, 150}
    spoilt, clean = (
        [x | {0: value} if i in gaps else x for i, x in enumerate(good)] for value in (bad, None)
    )
    model, twin = StreamClusterer(), StreamClusterer()
    with pytest.warns(InvalidValues) as told:
        feed(model, spoilt, many)
    feed(twin, clean, many)
    assert len(told) == 1
    assert (model.n_invalid, model.n_refused, twin.n_invalid) == ({0: 3}, 0, {})
    assert same(model, twin)
    found = model.predict_many(spoilt)
    assert found.tolist() == twin.predict_many(clean).tolist() == [model.predict_one(x) for x in spoilt]
    assert StreamClusterer.from_state(model.to_state()).n_invalid == model.n_invalid


def test_events_that_wait_with_gaps_are_copied_and_pickled():
    model, gaps = StreamClusterer(), [{"a": float(i), "b": "ERR" if i % 3 == 1 else 1.0} for i in range(30)]
    with pytest.warns(InvalidValues):
        feed_one_by_one(model, gaps)
    twin = pickle.loads(pickle.dumps(model))
    assert (twin.n_seen, twin.n_invalid) == (30, {"b": 10})
    assert same(twin, model)


def test_predicting_takes_what_learning_takes(rows):
    model = StreamClusterer()
    model.learn_many(rows[:300])
    odd = [*BAD.values(), 7, None]
    events = [{0: 0.0, 1: 0.0, 2: 0.0}, *odd]
    assert [model.predict_one(x) for x in odd] == [None] * len(odd)
    assert model.predict_many(events).tolist() == [model.predict_one(events[0])] + [None] * len(odd)
    assert model.assign_many(events).cluster.tolist() == model.predict_many(events).tolist()
    assert model.predict_proba_many(events).shape == (len(events), model.n_clusters)
    assert np.isfinite(model.score_many(events)).all()
    assert np.isfinite(model.tail_many(events)).all()
    strict = StreamClusterer(invalid="raise")
    strict.learn_many(rows[:300])
    for ask in (strict.predict_one, strict.predict_proba_one, strict.score_one):
        with pytest.raises(TypeError, match="must be a number"):
            ask({0: "text", 1: 1.0, 2: 1.0})


@given(
    gaps=st.lists(st.sets(st.integers(0, 2), max_size=2), min_size=1, max_size=30),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
)
@settings(deadline=None, max_examples=30)
def test_the_first_events_may_have_gaps(gaps, sizes):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(len(gaps) + 40, 3)) + 9.0 * rng.integers(2, size=(len(gaps) + 40, 1))
    for row, absent in zip(rows, gaps, strict=False):
        row[list(absent)] = np.nan
    table, parts = StreamClusterer(warmup=10), StreamClusterer(warmup=10)
    table.learn_many(rows)
    done, k = 0, 0
    while done < len(rows):
        end = done + sizes[k % len(sizes)]
        parts.learn_many(rows[done:end])
        parts = StreamClusterer.from_state(parts.to_state())
        assert set(parts.predict_many(rows[done : done + 1]).tolist()) <= set(range(9)) | {None}
        done, k = end, k + 1
    assert same(table, parts)
    assert (table.n_seen, table.n_refused) == (len(rows), 0)


def test_a_feature_that_no_event_has_does_not_hold_the_others_up():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(600, 3)) + 9.0 * rng.integers(3, size=(600, 1))
    rows[:, 1] = np.nan
    model = StreamClusterer()
    model.learn_many(rows)
    assert (model.n_seen, model.n_clusters) == (600, 3)


@pytest.mark.parametrize("bad", [BAD["text"], BAD["infinity"], BAD["too large"], BAD["nothing"]])
def test_refusals_can_be_errors(rows, bad):
    model = StreamClusterer(invalid="raise")
    model.learn_many(rows[:100])
    before = encode(model.to_state())
    with pytest.raises((ValueError, TypeError)):
        model.learn_one(dict(zip((0, 1, 2), bad.values(), strict=False)))
    assert encode(model.to_state()) == before


def test_counts_that_are_none_are_refused_one_by_one():
    rng = np.random.default_rng(0)
    rows = rng.poisson(4.0, size=(500, 3)).astype(float)
    spoilt = rows.copy()
    spoilt[[7, 90]] = -1.0
    dirty, clean = StreamClusterer(family="poisson"), StreamClusterer(family="poisson")
    with pytest.warns(RefusedEvents, match="negative"):
        dirty.learn_many(spoilt)
    clean.learn_many(np.delete(rows, [7, 90], axis=0))
    assert dirty.n_refused == 2
    assert same(dirty, clean)


def test_an_event_that_is_refused_brings_no_feature():
    rows = np.random.default_rng(0).poisson(4.0, size=(300, 2)).astype(float)
    model = StreamClusterer(family="poisson")
    model.learn_many(rows)
    with pytest.warns(RefusedEvents, match="negative"):
        model.learn_one({0: 1.0, 1: 2.0, 2: -3.0})
    assert (len(model.feature_names), model.tree.n_features) == (2, 2)


def test_what_is_no_table_is_an_error_and_changes_nothing(rows):
    model = StreamClusterer()
    model.learn_many(rows)
    before = encode(model.to_state())
    for wrong in (rows[:, :2], rows[0], "rows", {"a": 1.0}, 3.0):
        with pytest.raises((ValueError, TypeError)):
            model.learn_many(wrong)
    assert encode(model.to_state()) == before
    model.learn_many(rows[:0])
    model.learn_many([])
    model.learn_many(pd.DataFrame())
    assert encode(model.to_state()) == before


@pytest.mark.parametrize("shape", ["equal", "constant feature", "n < D", "far", "tiny", "duplicates", "one"])
def test_awkward_streams(shape):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(600, 3)) + 9.0 * rng.integers(2, size=(600, 1))
    if shape == "equal":
        rows[:] = rows[0]
    elif shape == "constant feature":
        rows[:, 1] = 4.0
    elif shape == "n < D":
        rows = rng.normal(size=(120, 150))
    elif shape == "far":
        rows += 1e8
    elif shape == "tiny":
        rows *= 1e-8
    elif shape == "duplicates":
        rows = np.repeat(rows[:60], 10, axis=0)
    elif shape == "one":
        rows = rows[:1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = StreamClusterer()
        model.learn_many(rows)
        ids = model.predict_many(rows)
    assert np.isfinite(model.score_many(rows)).all()
    assert np.isfinite(model.predict_proba_many(rows)).all()
    if shape in ("equal", "one"):
        assert set(ids) == {0}
    if shape in ("far", "tiny", "constant feature"):
        assert model.n_clusters == 2


def test_parameters_that_mean_nothing_are_refused():
    with pytest.raises(ValueError, match="invalid"):
        StreamClusterer(invalid="ignore")
    with pytest.raises(ValueError, match="refit"):
        StreamClusterer(refit="guess")
    with pytest.raises(ValueError, match="missing"):
        StreamClusterer(missing="guess")
    with pytest.raises(ValueError, match="fits Gaussians"):
        StreamClusterer(refit="chunky-em", family="poisson")
    with pytest.raises(ValueError, match='refit="dp-means" fits Gaussians'):
        StreamClusterer(refit="dp-means", family="bernoulli")


def test_pickles_and_copies_continue_alike(rows):
    model = StreamClusterer()
    model.learn_many(rows[: LESS // 2])
    again = pickle.loads(pickle.dumps(model))
    for each in (model, again):
        each.learn_many(rows[LESS // 2 :])
    assert same(model, again)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_cluster_is_made_of_what_a_drifting_stream_has_left_behind(seed):
    model = StreamClusterer()
    batches = list(Drift(2, n_events=300_000, splits=1, seed=seed).batches(5000))
    for rows, _ in batches:
        model.learn_many(rows)
    assert model.n_clusters == len(np.unique(batches[-1][1]))
    assert set(model.predict_many(model.latest(4096))) == set(model.centers)


def test_what_is_said_of_an_event_does_not_depend_on_those_beside_it(rows):
    model = StreamClusterer()
    model.learn_many(rows)
    beside = rows[:20].copy()
    beside[1::2, 0] = np.nan
    np.testing.assert_array_equal(model.score_many(beside)[::2], model.score_many(rows[:20])[::2])
    np.testing.assert_array_equal(
        model.predict_proba_many(beside)[::2], model.predict_proba_many(rows[:20])[::2]
    )
