"""Examples of clusters and border cases, against slow twins and what was planted."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from streamclust import StreamClusterer
from streamclust.checkpoint import decode, encode
from streamclust.engine.representatives import count_distance, quadratic_distance
from streamclust.families import FAMILIES
from tests.naive.representatives import half_distance, least_in_common
from tests.streams import two_kinds

CENTRES = np.array([[0.0, 0.0, 0.0], [8.0, 8.0, 8.0], [60.0, 0.0, 30.0]])


def planted(n=6000, seed=0, missing=0.0):
    rng = np.random.default_rng(seed)
    rows = CENTRES[rng.integers(3, size=n)] + rng.normal(size=(n, 3)) * [1.0, 2.0, 1.0]
    rows[rng.random(rows.shape) < missing] = np.nan
    return rows


def learnt(rows, **parameters):
    model = StreamClusterer(**parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.learn_many(rows)
    return model


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.floats(0.0, 1.0))
def test_distances_are_those_of_the_values_that_are_there(seed, d, missing):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(d, 2 * d))
    covariance, mean = factor @ factor.T, rng.normal(size=d)
    rows = mean + 3.0 * rng.normal(size=(9, d))
    rows[rng.random(rows.shape) < missing] = np.nan
    root = np.linalg.inv(np.linalg.cholesky(covariance)) / np.sqrt(2)
    slow = [half_distance(x, mean, covariance) for x in rows]
    np.testing.assert_allclose(quadratic_distance(rows, mean, root), slow, rtol=1e-6, atol=1e-9)


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 1.0))
def test_counts_in_common_are_those_of_the_slow_twin(seed, missing):
    rng = np.random.default_rng(seed)
    mean = rng.gamma(0.5, size=6)
    rows = rng.poisson(mean, size=(9, 6)).astype(float)
    rows[rng.random(rows.shape) < missing] = np.nan
    found = count_distance(rows, mean)
    np.testing.assert_allclose(found, [least_in_common(x, mean) for x in rows], atol=1e-12)
    assert ((found >= -1e-12) & (found < 1)).all()


@pytest.mark.compiled
def test_examples_are_the_clusters_own_events_nearest_to_its_centre():
    rows = planted()
    model = learnt(rows)
    for cluster in model.clusters:
        found = model.examples(cluster.id, k=7)
        assert len({example.number for example in found}) == 7
        for example in found:
            values = np.array(list(example.values.values()))
            np.testing.assert_array_equal(values, rows[example.number])
            assert example.cluster == cluster.id == model.predict_one(example.values)
            assert example.probability == pytest.approx(model.predict_proba_one(example.values)[cluster.id])
        mean = np.array(list(cluster.mean.values()))
        own = rows[model.predict_many(rows) == cluster.id]
        scores = [half_distance(x, mean, cluster.covariance) for x in own]
        far = np.quantile(scores, 0.02)
        assert all(half_distance(rows[e.number], mean, cluster.covariance) < far for e in found)
        assert model.examples(cluster.id, k=3) == found[:3]


@pytest.mark.compiled
def test_an_event_of_few_values_is_not_typical():
    few = np.full((300, 3), np.nan)
    few[:, 0] = [0.0, 8.0, 60.0] * 100  # just what the clusters have on average
    rows = np.concatenate([planted(missing=0.02), few])[np.random.default_rng(1).permutation(6300)]
    model = learnt(rows)
    ids = [model.predict_one(dict(enumerate(centre.tolist()))) for centre in CENTRES]
    for cluster in ids:
        assert all(len(example.values) == 3 for example in model.examples(cluster, k=20))
    assert model.representatives().neighbour(ids[0]) == ids[1]
    assert model.representatives().neighbour(ids[1]) == ids[0]


@pytest.mark.compiled
def test_an_event_without_the_values_that_tell_clusters_apart_is_no_border_case():
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(6000, 2)) + np.stack([5.0 * rng.integers(2, size=6000), np.zeros(6000)], axis=1)
    rows[rng.choice(6000, 400, replace=False), 0] = np.nan
    model = learnt(rows, n_clusters=2)
    one, other = (cluster.id for cluster in model.clusters)
    found = model.border(one, other, k=20)
    assert sum(len(example.values) == 1 for example in found) <= 5  # as rare as they are elsewhere


@pytest.mark.compiled
def test_border_cases_lie_in_the_middle():
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(4000, 2)) + 3.0 * rng.integers(2, size=(4000, 1))
    model = learnt(rows, n_clusters=2)
    one, other = (cluster.id for cluster in model.clusters)
    found = model.border(one, other, k=4)
    assert found == model.border(other, one, k=4)
    chances = [model.predict_proba_one(example.values)[one] for example in found]
    everywhere = model.predict_proba_many(rows)
    closest = np.sort(np.abs(np.log(everywhere[:, 0] / everywhere[:, 1])))[:4]
    np.testing.assert_allclose(
        np.abs(np.log(np.divide(chances, np.subtract(1, chances)))), closest, rtol=1e-6
    )


@pytest.mark.compiled
def test_same_bits_however_batched_threaded_or_restarted():
    rows = planted(missing=0.05)
    whole = learnt(rows)
    parts = StreamClusterer(background=False)
    rng = np.random.default_rng(3)
    for i, part in enumerate(np.split(rows, np.sort(rng.integers(6000, size=20)))):
        if i == 9:
            parts = StreamClusterer.from_state(decode(encode(parts.to_state())))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for row in part:
                parts.learn_one({i: value for i, value in enumerate(row.tolist()) if value == value})
    ids = [cluster.id for cluster in whole.clusters]
    assert ids == [cluster.id for cluster in parts.clusters]
    for cluster in ids:
        assert whole.examples(cluster) == parts.examples(cluster)
    assert whole.border(ids[0], ids[1]) == parts.border(ids[0], ids[1])


@pytest.mark.compiled
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_examples_of_its_own(family):
    rows = two_kinds(family)
    model = learnt(rows, family=family, n_clusters=2)
    for cluster in model.clusters:
        found = model.examples(cluster.id)
        assert len(found) == len({tuple(sorted(example.values.items())) for example in found})
        assert all(model.predict_one(example.values) == cluster.id for example in found)
        told = found[0].values
        there = [name for name, mean in cluster.mean.items() if mean > 0.5]
        assert all(told[name] > 0 for name in there)


@pytest.mark.compiled
def test_of_texts_the_words_that_are_there_are_shown():
    rng = np.random.default_rng(5)
    kind = rng.integers(2, size=2000)
    rates = np.full((2, 40), 0.01)
    rates[0, :10] = rates[1, 10:20] = 0.8
    model = StreamClusterer(family="multinomial")
    documents = csr_array(rng.poisson(rates[kind]).astype(float))
    model.learn_many(documents)
    for cluster in model.clusters:
        for example in model.examples(cluster.id):
            assert example.values
            assert all(value > 0 for value in example.values.values())


@pytest.mark.compiled
def test_of_wide_events_the_events_themselves_are_shown():
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(3000, 100)) + 10.0 * rng.integers(2, size=(3000, 1)) * (np.arange(100) < 50)
    model = learnt(rows)
    assert model.sketch is not None
    for cluster in model.clusters:
        for example in model.examples(cluster.id):
            values = np.array(list(example.values.values()))
            np.testing.assert_array_equal(values, rows[example.number].astype(np.float32))


@pytest.mark.compiled
@pytest.mark.parametrize("wide", [False, True])
def test_every_example_was_announced(wide):
    rng = np.random.default_rng(7)
    width = 80 if wide else 2
    rows = rng.normal(size=(9000, width)) + 9.0 * rng.integers(2, size=(9000, 1))
    model, announced = StreamClusterer(), set()
    start = 0
    while start < len(rows):
        part = rows[start : start + int(rng.integers(1, 700))]
        checked = model.check(part, shard=int(rng.integers(2)))
        assert model.n_seen == start
        announced |= {start + place for place in model.sampled(checked).tolist()}
        model.learn(checked)
        start += len(part)
    shown = {e.number for c in model.clusters for e in model.examples(c.id, k=5000)}
    assert shown <= announced
    assert len(announced) < 8000


def test_before_the_first_event_there_are_no_clusters():
    model = StreamClusterer()
    with pytest.raises(KeyError, match="there is no cluster 0 now"):
        model.examples(0)
    model.learn_many([{"x": 1.0}, {"x": 2.0}])
    with pytest.raises(KeyError, match="there is no cluster 7 now; the clusters are"):
        model.border(0, 7)
    with pytest.raises(ValueError, match="two different clusters"):
        model.border(0, 0)
    assert model.representatives().neighbour(0) is None
    assert len(model.examples(0)) == 2
