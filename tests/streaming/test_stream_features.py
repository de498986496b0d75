"""StreamFeatures: River's contract, batching, ids, forgetting, merging, saving, bad input."""

import copy
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river import checks, compose, preprocessing
from river.checks import _yield_datasets, common

from streamclust import StreamClusterer, StreamFeatures
from streamclust.checkpoint import CheckpointError, State, decode, encode
from streamclust.refit.bp_means.fit import fit_features

pytestmark = pytest.mark.compiled

A = np.array(
    [[5.0, 5, 0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 5, 5, 5, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 5, -5, 5, 0]]
)


def events(n, seed=0, parts=A, noise=0.5):
    rng = np.random.default_rng(seed)
    Z = rng.random((n, len(parts))) < 0.5
    return Z @ parts + noise * rng.normal(size=(n, parts.shape[1])), Z


def named(row):
    return {f"c{i}": v for i, v in enumerate(row.tolist())}


def small(**options):
    return StreamFeatures(**{"warmup": 64, "reservoir": 200, "refit_every": 512, "restarts": 2} | options)


def same_state(one, two):
    return encode(one.to_state()) == encode(two.to_state())


def test_river_s_own_checks():
    for check in checks.yield_checks(StreamFeatures()):
        if check.__name__ in ("check_learn_one", "check_pickling"):
            continue
        check(StreamFeatures())


@pytest.mark.parametrize(
    "check",
    [
        common.check_learn_one,
        common.check_pickling,
        common.check_emerging_features,
        common.check_disappearing_features,
        common.check_radically_disappearing_features,
        common.check_shuffle_features_no_impact,
        common.check_predict_one_pure,
        common.check_predict_one_before_any_learn,
        common.check_no_state_aliasing_with_input,
        common.check_clone_is_independent,
        common.check_transform_one,
        common.check_seeding_is_idempotent,
        common.check_bounded_memory_growth,
        common.check_learn_many_matches_learn_one,
        common.check_transform_many_matches_transform_one,
    ],
)
def test_river_s_checks_with_data(check):
    for dataset in _yield_datasets(small()):
        check(small(), dataset)


def test_planted_features_are_found_and_told_in_every_way():
    x, Z = events(640)
    model = small()
    model.learn_many(x)
    assert 3 <= model.n_features <= 4
    sets = model.predict_many(x)
    table = model.transform_many(x)
    ids = sorted(model.features)
    for i in range(0, 640, 40):
        event = dict(enumerate(x[i]))
        assert model.predict_one(event) == sets[i]
        assert model.transform_one(event) == dict(zip(ids, table[i].tolist(), strict=True))
        rebuilt = model.inverse_transform_one(sets[i])
        assert rebuilt == model.inverse_transform_one(model.transform_one(event))
        assert np.abs(np.array(list(rebuilt.values())) - Z[i] @ A).max() < 1.5
    assert sum(model.weights.values()) > 0
    assert model.n_seen == 640


def test_batching_is_invisible():
    x, _ = events(700)
    one, many = small(), small()
    for row in x:
        one.learn_one(dict(enumerate(row)))
    for start, stop in ((0, 1), (1, 130), (130, 131), (131, 640), (640, 700)):
        many.learn_many(x[start:stop])
    assert same_state(one, many)


def test_frames_of_every_kind_are_the_same():
    x, _ = events(130)
    columns = {f"c{i}": x[:, i] for i in range(x.shape[1])}
    models = []
    for frame in (pd.DataFrame(columns, index=range(5, 135)), pl.DataFrame(columns), pa.table(columns)):
        model = small()
        model.learn_many(frame)
        out = model.transform_many(frame)
        assert type(out) is type(frame)
        models.append(model)
    assert list(models[0].transform_many(pd.DataFrame(columns, index=range(5, 135))).index) == list(
        range(5, 135)
    )
    assert same_state(models[0], models[1])
    assert same_state(models[0], models[2])


def test_predict_learns_nothing():
    x, _ = events(200)
    model = small()
    assert model.predict_one({"a": 1.0}) == set()
    assert model.transform_one({"a": 1.0}) == {}
    model.learn_many(x)
    before = copy.deepcopy(model)
    model.predict_many(x)
    model.transform_one({0: 1.0, "new": 3.0})
    model.predict_one({0: None})
    assert same_state(model, before)


def test_after_a_refit_it_is_as_good_as_the_batch_in_any_order():
    x, _ = events(1024)
    batch = fit_features(x)
    for order in range(6):
        model = StreamFeatures(warmup=64, reservoir=1024, refit_every=256, seed=order)
        model.learn_many(x[np.random.default_rng(order).permutation(1024)])
        rebuilt = model.transform_many(x) @ np.array([list(a.values()) for a in model.features.values()])
        objective = ((x - rebuilt) ** 2).sum() + batch.penalty * model.n_features
        assert objective <= batch.objective * 1.02


def test_features_stay_few_over_a_long_stream_and_keep_their_ids():
    x, _ = events(8192)
    model = small()
    model.learn_many(x[:1024])
    ids = sorted(model.features)
    for start in range(1024, 8192, 1024):
        model.learn_many(x[start : start + 1024])
        assert model.n_features <= 5
        assert sorted(model.features) == ids
    # The running means are those of all events, not of the reservoir alone.
    rebuilt = model.transform_many(x) @ np.array([list(a.values()) for a in model.features.values()])
    assert np.mean((x - rebuilt) ** 2) < 0.5**2 * 1.01


def test_new_features_get_new_ids_and_old_ones_are_forgotten():
    before, after = A, np.roll(A, 5, axis=1) * 1.5
    model = small(half_life=300)
    model.learn_many(events(1024, parts=before)[0])
    old = set(model.features)
    model.learn_many(events(4096, seed=1, parts=after)[0])
    new = set(model.features)
    assert new - old
    assert min(new - old) > max(old)
    assert 3 <= len(new) <= 5
    x, _ = events(300, seed=2, parts=after)
    rebuilt = model.transform_many(x) @ np.array([list(a.values()) for a in model.features.values()])
    assert np.mean((x - rebuilt) ** 2) < 0.5


def test_merging_is_learning_both():
    x, _ = events(2048)
    one, two = small(seed=1), small(seed=2)
    one.learn_many(x[:1000])
    two.learn_many(pd.DataFrame(x[1000:, ::-1], columns=range(9, -1, -1)))
    ids = set(one.features)
    one.merge(two)
    assert one.n_seen == 2048
    assert 3 <= one.n_features <= 4
    assert ids & set(one.features)
    rebuilt = one.transform_many(x) @ np.array([list(a.values()) for a in one.features.values()])
    assert np.mean((x - rebuilt) ** 2) < 0.3
    empty = small()
    empty.merge(one)
    assert empty.n_seen == 2048
    assert empty.n_features >= 3
    with pytest.raises(ValueError, match="different half_life"):
        one.merge(small(half_life=5))
    with pytest.raises(ValueError, match="only another StreamFeatures"):
        one.merge(one)


def test_saved_it_continues_bit_for_bit(tmp_path):
    x, _ = events(700)
    x[::7, 2] = np.nan
    model = small(half_life=1000)
    model.learn_many([named(row) for row in x[:300]])
    model.save(tmp_path / "features.checkpoint", {"next": 300})
    again = StreamFeatures.load(tmp_path / "features.checkpoint")
    for m in (model, again):
        m.learn_many([named(row) for row in x[300:]])
    assert same_state(model, again)
    assert again.events == model.events
    assert len(again.lineage.history) == len(model.lineage.history) > 0


@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(1, 899), max_size=5), half_life=st.sampled_from([None, 200.0]))
def test_restarts_and_batches_are_invisible(cuts, half_life):
    x, _ = events(900)
    whole, parts = small(half_life=half_life), small(half_life=half_life)
    whole.learn_many(x)
    for piece in np.split(x, sorted(cuts)):
        parts = StreamFeatures.from_state(decode(encode(parts.to_state())))
        for run in parts.runs(parts.check(piece)):
            parts.learn(run)
    assert same_state(whole, parts)


def test_what_is_no_checkpoint_of_features_is_refused():
    x, _ = events(300)
    model = small()
    model.learn_many(x)
    arrays, values = model.to_state()
    with pytest.raises(CheckpointError, match="holds no features: it was written by something else"):
        StreamFeatures.from_state(StreamClusterer().to_state())
    with pytest.raises(CheckpointError, match="holds no clusterer"):
        StreamClusterer.from_state(model.to_state())
    for name in ("A", "pending", "numbers"):
        with pytest.raises(CheckpointError, match="no features that can be loaded"):
            StreamFeatures.from_state(State({k: v for k, v in arrays.items() if k != name}, values))
    for name in ("generator", "lineage", "schema", "parameters", "n_refits"):
        with pytest.raises(CheckpointError, match="no features that can be loaded"):
            StreamFeatures.from_state(State(arrays, {k: v for k, v in values.items() if k != name}))
    for wrong in (
        {"ids": arrays["ids"][1:]},
        {"A": arrays["A"][0]},
        {"G": np.full_like(arrays["G"], np.nan)},
    ):
        with pytest.raises(CheckpointError, match="do not fit each other"):
            StreamFeatures.from_state(State(arrays | wrong, values))


# ---------------------------------------------------------------- lifecycle


def test_births_and_deaths_are_logged_once_each():
    heard = []
    model = small(half_life=300, on_event=heard.append)
    present = set()
    for parts, n, seed in ((A, 1024, 0), (np.roll(A, 5, axis=1) * 1.5, 4096, 1)):
        for piece in np.array_split(events(n, seed=seed, parts=parts)[0], 16):
            logged = len(model.events)
            model.learn_many(piece)
            for change in model.events[logged:]:
                assert change.kind in ("born", "died", "returned")
                present = (present | set(change.children)) - set(change.parents)
            assert present == set(model.features)
    assert heard == model.events
    born = [i for change in heard for i in change.children]
    assert len(born) == len(set(born)) == max(born) + 1
    assert any(change.kind == "died" for change in heard)
    assert set(model.features) == set(model.lineage.born_at) - set(model.lineage.retired)
    assert [step.at for step in model.lineage.history][-1] <= model.n_seen


def test_features_of_a_merged_stream_are_born_here():
    x, _ = events(1024)
    empty, other = small(), small()
    other.learn_many(x)
    empty.merge(other)
    assert {i for change in empty.events for i in change.children} >= set(empty.features)


def moving(seed=0):
    """Events and their Z: a feature ends at 3,000 and back at 7,000; another is new from 9,000; one drifts."""
    rng = np.random.default_rng(seed)
    at = np.arange(11_000)
    Z = rng.random((len(at), 4)) < 0.5
    Z[(at >= 3000) & (at < 7000), 2] = False
    Z[at < 9000, 3] = False
    parts = np.concatenate([A, [[0.0, 4, 0, -4, 0, 4, 0, 0, 0, 4]]])
    drift = np.outer(at / len(at), np.roll(A[0], 1)) * 0.4
    x = Z @ parts + Z[:, :1] * drift + 0.5 * rng.normal(size=(len(at), 10))
    return x, Z


def rest(model, x):
    """Residual variance."""
    means = np.array([list(a.values()) for a in model.features.values()])
    return float(np.mean((x - model.transform_many(x) @ means) ** 2))


@pytest.mark.parametrize("half_life", [None, 5000.0])
def test_slow_drift_is_followed(half_life):
    model, rng = small(half_life=half_life), np.random.default_rng(0)
    away = 3.0 * rng.normal(size=A.shape)
    for i in range(200):
        model.learn_many(events(100, seed=i, parts=A + away * i / 200)[0])
    x, _ = events(1000, seed=300, parts=A + away)
    assert rest(model, x) < 0.5**2 * 1.1
    assert len(model.events) == model.n_features == 3


def test_a_feature_that_is_gone_has_died_and_returns_under_its_id():
    x, _ = moving()
    model = small()
    model.learn_many(x[:3000])
    present = set(model.features)
    assert len(present) == 3
    model.learn_many(x[3000:7000])
    (lost,) = present - set(model.features)
    died = model.events[-1]
    assert (died.kind, list(died.parents)) == ("died", [lost])
    assert 5000 < died.at < 6500
    weight = dict(died.parents)[lost]
    model.learn_many(x[7000:9000])
    returned = model.events[-1]
    assert (returned.kind, list(returned.children)) == ("returned", [lost])
    assert returned.at < 8000
    assert abs(returned.away - 4000) < 1000
    assert set(model.features) == present
    assert model.weights[lost] > weight
    again = StreamFeatures.from_state(decode(encode(model.to_state())))
    assert set(again.features) == present


def test_a_feature_that_comes_and_goes_is_given_three_times_its_longest_absence():
    rng = np.random.default_rng(0)
    Z = rng.random((26_000, 3)) < 0.5
    Z[:, 2] &= np.arange(len(Z)) // 1900 % 2 == 0
    Z[20_000:, 2] = False
    model = small()
    model.learn_many(Z @ A + 0.5 * rng.normal(size=(len(Z), 10)))
    died = [change.at for change in model.events if change.kind == "died"]
    assert len(died) == 1
    assert 19_000 + 3 * 1900 - 128 <= died[0] < 26_000


def test_a_new_feature_is_found_soon():
    x, _ = moving()
    model = small()
    model.learn_many(x[7000:9000])
    model.learn_many(x[9000:])
    born = [change for change in model.events if change.kind == "born" and change.at > 2000]
    assert len(born) == 1
    assert born[0].at <= 2600


@pytest.mark.parametrize("half_life", [None, 2000.0])
def test_weights_are_those_of_the_events_that_have_each_feature(half_life):
    x, Z = moving()
    model = small(half_life=half_life)
    for start in range(0, 11_000, 500):
        model.learn_many(x[start : start + 500])
        n = (start + 500) // 64 * 64  # what waits for its block has no weight yet
        w = np.ones(n) if half_life is None else 0.5 ** (np.arange(n)[::-1] / half_life)
        has = model.transform_many(x)
        truth = np.append(w @ Z[:n], 0.0)
        for column, weight in zip(has.T, model.weights.values(), strict=True):
            same = [np.mean(column == z) for z in Z.T]
            assert abs(weight - truth[int(np.argmax(same))]) < 0.05 * w.sum() + 10


@pytest.mark.parametrize("noise", ["normal", "t"])
def test_nothing_happens_to_features_of_a_stream_that_stays(noise):
    rng = np.random.default_rng(5)
    draw = {"normal": rng.normal, "t": lambda size: rng.standard_t(4, size=size)}[noise]
    model = small()
    model.learn_many(2 * (rng.random((20_000, 3)) < 0.5) @ A + draw(size=(20_000, 10)))
    assert [change.kind for change in model.events] == ["born"] * 3
    assert model._stream.n_refits < 60


def test_restarts_and_batches_are_invisible_where_features_come_and_go():
    x, _ = moving()
    whole, parts = small(), small()
    whole.learn_many(x)
    for piece in np.split(x, [1000, 3333, 6001, 8005, 9600]):
        parts.learn_many(piece)
        parts = StreamFeatures.from_state(decode(encode(parts.to_state())))
    assert same_state(whole, parts)
    assert {change.kind for change in whole.events} == {"born", "died", "returned"}


def test_a_stream_that_misses_a_feature_merges():
    x, _ = moving()
    one, two = small(), small(seed=1)
    one.learn_many(pd.DataFrame(x[:6500, ::-1], columns=range(9, -1, -1)))
    assert one.events[-1].kind == "died"
    two.learn_many(pd.DataFrame(x[7000:9000]))
    two.merge(one)
    one.merge(two)
    for model in (one, two):
        assert rest(model, x[7000:9000]) < 0.3
        again = StreamFeatures.from_state(decode(encode(model.to_state())))
        assert same_state(model, again)


# ---------------------------------------------------------------- novelty


def naive_novelty(x, means, variance):
    """-log of the Gaussian density about the nearest sum of features, by trying all."""
    best = np.inf
    for number in range(2 ** len(means)):
        has = np.array([number >> i & 1 for i in range(len(means))], dtype=float)
        best = min(best, np.nansum((x - has @ means) ** 2))
    known = np.isfinite(x).sum()
    return 0.5 * (known * np.log(2 * np.pi * variance) + best / variance)


def test_novelty_is_minus_the_log_density_of_what_features_leave():
    x, _ = events(1024)
    model = small()
    assert model.score_one({"a": 1.0}) == 0.0
    model.learn_many(x)
    means = np.array([list(a.values()) for a in model.features.values()])
    variance = model._stream.published.noise
    assert variance == pytest.approx(0.25, rel=0.1)
    odd = x[:5].copy()
    odd[1, 3], odd[2, :4], odd[3] = np.nan, np.nan, np.nan
    odd[4] += 9.0
    expected = [naive_novelty(row, means, variance) for row in odd]
    told = model.score_many(odd)
    np.testing.assert_allclose(told, expected, rtol=1e-9)
    np.testing.assert_array_equal(model.novelty_many(odd), told)
    assert told[4] > told[0] + 100
    assert told[3] == 0.0
    assert model.score_one({0: odd[0, 0], "unheard of": 5.0}) == pytest.approx(
        model.score_one({0: odd[0, 0]})
    )
    assert type(model.score_many(pd.DataFrame(odd))) is pd.Series


# ---------------------------------------------------------------- missing and bad input


def test_missing_values_are_imputed_and_counted():
    x, Z = events(1024)
    holes = np.random.default_rng(1).random(x.shape) < 0.05
    model = small()
    model.learn_many(np.where(holes, np.nan, x))
    assert model.n_missing == holes.sum()
    assert model.n_features <= 5
    told = model.transform_many(np.where(holes, np.nan, x))
    same = (told[:, :, None] == Z[:, None, :]).mean(axis=0)
    assert np.maximum(same, 1 - same).max(axis=0).min() > 0.9
    assert all(np.isfinite(list(a.values())).all() for a in model.features.values())
    assert model.predict_one({}) == model.predict_one({"unheard of": 1.0})


def test_a_column_that_comes_late():
    x, _ = events(640)
    model = small()
    model.learn_many([named(row[:-1]) for row in x[:200]])
    model.learn_many([named(row) for row in x[200:]])
    assert len(next(iter(model.features.values()))) == 10
    assert all(np.isfinite(list(a.values())).all() for a in model.features.values())


def test_what_is_no_number_is_refused_and_nothing_is_learnt():
    model = small()
    x, _ = events(100)
    model.learn_many(x)
    before = copy.deepcopy(model)
    with pytest.raises(TypeError, match="must be a number"):
        model.learn_one({0: "Oslo"})
    with pytest.raises(ValueError, match="finite"):
        model.learn_one({0: np.inf})
    with pytest.raises(ValueError, match="10 features"):
        model.learn_many(np.ones((2, 3)))
    with pytest.raises(ValueError, match="there is no feature 99"):
        model.inverse_transform_one({99})
    assert same_state(model, before)
    strict = small(missing="error")
    strict.learn_one({"a": 1.0, "b": 2.0})
    with pytest.raises(ValueError, match="is missing"):
        strict.learn_one({"a": 1.0})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalty": 0}, "penalty"),
        ({"half_life": -1}, "half_life must be positive"),
        ({"half_life": "long"}, "half_life must be positive"),
        ({"warmup": 0}, "warmup"),
        ({"reservoir": 0}, "reservoir"),
        ({"max_features": 1.5}, "max_features"),
        ({"missing": "drop"}, "missing"),
    ],
)
def test_bad_parameters_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        StreamFeatures(**options)


@pytest.mark.parametrize("row", [[0.0, 0.0], [7.0, 7.0], [1e8, 1e8 + 1]])
def test_a_stream_of_one_event_over_and_over(row):
    model = small()
    model.learn_many(np.tile(row, (200, 1)))
    told = model.inverse_transform_one(model.predict_one(dict(enumerate(row))))
    if model.n_features:
        np.testing.assert_allclose(list(told.values()), row, rtol=1e-12)
    else:
        assert row == [0.0, 0.0]


def test_growth_is_capped_with_a_warning():
    x = np.random.default_rng(0).normal(size=(64, 6))
    model = small(penalty=1e-6, max_features=2, restarts=1)
    with pytest.warns(RuntimeWarning, match="max_features=2"):
        model.learn_many(x)
    assert model.n_features == 2


def test_in_a_pipeline_and_lazily_imported():
    pipeline = compose.Pipeline(preprocessing.StandardScaler(), small())
    x, _ = events(70)
    for row in x:
        pipeline.learn_one(named(row))
        pipeline.transform_one(named(row))
    code = "import sys, streamclust; assert 'river' not in sys.modules; streamclust.StreamFeatures"
    subprocess.run([sys.executable, "-c", code], check=True)
    import streamclust

    assert "StreamFeatures" in dir(streamclust)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = streamclust.Nothing
