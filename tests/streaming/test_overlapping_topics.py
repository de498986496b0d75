"""Wide events whose clusters overlap in few directions: more directions, and one covariance for all clusters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer
from streamclust._kernels.engine.assign import assign_points
from streamclust.checkpoint import CheckpointError, decode, encode
from streamclust.engine.event_evidence import event_evidence
from streamclust.engine.rare_clusters import by_itself
from streamclust.engine.results import reach
from streamclust.engine.sketch_form import agreement, suitable_sketch
from streamclust.families import DiagonalGaussian, TiedGaussian, scoring
from streamclust.families.tied import TiedLearner
from streamclust.moments import Moments
from streamclust.refit.bkm.fit import fit_points
from streamclust.refit.bkm.problem import Problem

pytestmark = pytest.mark.compiled

D, USED, K = 120, 40, 30


def overlapping(n, seed=0, spread=1.5):
    """Topics that overlap in 16 of the 40 directions they lie apart in, and which each event is of."""
    rng, fixed = np.random.default_rng(seed), np.random.default_rng(99)
    basis = np.linalg.qr(fixed.normal(size=(D, USED)))[0]
    centres = fixed.normal(size=(K, USED))
    of = rng.integers(K, size=n)
    x = (centres[of] + spread * rng.normal(size=(n, USED))) @ basis.T
    return 10.0 * fixed.normal(size=D) + x + 0.05 * rng.normal(size=(n, D)), of


ROWS, OF = overlapping(4000)


def stream(rows=ROWS, batch=1000, **options):
    model = StreamClusterer(scale="unit", **options)
    for start in range(0, len(rows), batch):
        model.learn_many(rows[start : start + batch])
    return model


def state(model):
    return encode(model.to_state())


@pytest.fixture(scope="module")
def learnt():
    model = stream()
    model.settle()
    return model


@pytest.fixture(scope="module")
def few():
    model = stream(max_directions=16)
    model.settle()
    return model


def score(model, rows=ROWS, of=OF):
    return adjusted_rand_score(of, model.predict_many(rows).astype(int))


def test_clusters_that_overlap_in_few_directions_are_told_apart_in_many(learnt, few):
    assert learnt.sketch.independent
    assert abs(learnt.sketch.n_directions - USED) <= 2
    assert not few.sketch.independent
    assert few.sketch.n_directions == 16
    assert abs(learnt.n_clusters - K) <= 3
    assert score(learnt) > max(score(few) + 0.1, 0.8)


def test_the_finest_level_is_shown_unless_another_is_asked_for(learnt):
    assert learnt.detail == "auto"
    assert learnt.n_clusters == learnt.levels[0].n_clusters
    fewer = stream(n_clusters=4)
    assert fewer.n_clusters == 4


def test_clusters_that_lie_apart_keep_few_directions():
    rows, _ = overlapping(1024, spread=0.2)
    sketch = suitable_sketch(rows, None, unit=True)
    assert not sketch.independent
    assert sketch.n_directions == 16
    assert not suitable_sketch(ROWS[:1024], None, unit=False).independent
    assert suitable_sketch(ROWS[:1024], None, unit=True).independent


def test_the_directions_asked_for_are_taken():
    assert stream(ROWS[:1100], max_directions=24).sketch.n_directions == 24


def test_bits_do_not_depend_on_batches(learnt):
    other = stream(batch=377)
    other.settle()
    assert state(other) == state(learnt)


def test_a_checkpoint_goes_on_with_the_same_bits():
    whole, part = stream(), stream(ROWS[:2500])
    again = StreamClusterer.from_state(decode(state(part)))
    assert again.sketch.independent
    again.learn_many(ROWS[2500:3000])
    again.learn_many(ROWS[3000:])
    assert state(again) == state(whole)


def nested(values):
    """All dictionaries in a dictionary, itself first."""
    yield values
    for value in values.values():
        if isinstance(value, dict):
            yield from nested(value)


def test_a_damaged_flag_is_refused(learnt):
    saved = decode(state(learnt))
    sketch = next(part["sketch"] for part in nested(saved.values) if "sketch" in part)
    assert sketch["independent"] is True
    sketch["independent"] = "yes"
    with pytest.raises(CheckpointError, match="independent"):
        StreamClusterer.from_state(saved)


def test_all_answers_are_there(learnt):
    assert np.isfinite(learnt.novelty_many(ROWS[:50])).all()
    far = ROWS[:1].copy()
    far[0, ::2] *= -1.0
    assert learnt.novelty_many(far)[0] > np.max(learnt.novelty_many(ROWS[:200]))
    probability = learnt.predict_proba_many(ROWS[:50])
    assert probability.shape[0] == 50
    for cluster in learnt.clusters:
        assert np.isfinite(list(cluster.mean.values())).all()
    assert learnt.snapshot().n_leaves >= learnt.n_clusters
    assert len(learnt.levels) >= 1


def test_streams_of_one_sketch_can_be_merged(learnt):
    other = StreamClusterer(scale="unit")
    other.sharing.use_sketch(learnt.sketch)
    other.learn_many(overlapping(1500, seed=1)[0])
    before = other.n_seen
    other.merge(learnt)
    assert other.n_seen == before + learnt.n_seen
    assert score(other) > 0.8
    empty = StreamClusterer(scale="unit")
    empty.merge(learnt)
    assert empty.sketch.independent


def test_a_sketch_of_other_covariances_is_refused(learnt, few):
    with pytest.raises(ValueError, match="covariances"):
        few.sharing.use_sketch(learnt.sketch)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=40))
def test_agreement_is_the_adjusted_rand_index(pairs):
    one, other = np.array(pairs).T
    assert agreement(one, other) == pytest.approx(adjusted_rand_score(one, other))


# ---------------------------------------------------------------- evidence of an event


def found(points):
    return by_itself(fit_points("diagonal", points))


def test_events_of_independent_coordinates_count_for_one():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(4000, 12)) + 9.0 * rng.integers(3, size=4000)[:, None]
    assert event_evidence(found(points), points, np.ones(4000)) > 0.9


def test_coordinates_that_repeat_each_other_count_once():
    rng = np.random.default_rng(0)
    points = np.repeat(rng.normal(size=(4000, 3)), 4, axis=1)
    whole = Moments.of_points(points, kind="diagonal")
    one = fit_points("diagonal", points, mixture="finite")
    model = by_itself(type(one)(one.family, one.mixture, np.zeros(0, dtype=np.int64), whole, 0.0, 4000.0))
    assert event_evidence(model, points, np.ones(4000)) == pytest.approx(0.25, rel=0.1)


def test_nearly_all_events_are_within_reach_whatever_they_count():
    rng = np.random.default_rng(0)
    independent = rng.normal(size=(100_000, 3))
    distance = (np.repeat(independent, 4, axis=1) ** 2).sum(axis=1) / 2
    assert 0.5e-4 < np.mean(distance > reach(12, 0.25)) * (reach(12) > 0) < 1e-2
    assert reach(12, 1.0) == reach(12)
    assert np.mean(distance > reach(12, 0.25)) < np.mean(distance > reach(12)) / 2


# ---------------------------------------------------------------- one covariance for all


def test_clusters_share_one_covariance():
    rng = np.random.default_rng(0)
    wide = np.where(np.arange(600) < 300, 1.0, 2.0)[:, None]
    points = wide * rng.normal(size=(600, 3)) + np.repeat([[0.0], [40.0]], 300, axis=0)
    clusters = Moments.rows_of_points(points).to_groups(np.repeat([0, 1], 300), kind="diagonal")
    learner = TiedLearner.of(TiedGaussian, points)
    prior = learner.improved(learner.start(clusters), clusters, rounds=10)
    covariance = prior.parameters(prior.posterior(clusters)).covariance
    np.testing.assert_allclose(covariance[0], covariance[1], rtol=2e-3)
    within = points.reshape(2, 300, 3).var(axis=1).mean(axis=0)
    np.testing.assert_allclose(covariance[0], within, rtol=0.02)
    lowest = learner.loss(prior, clusters)
    for factor in (0.98, 1.02):
        other = learner.family(prior.xi0, 0.0, factor * learner.shape(prior))
        assert learner.loss(other, clusters) > lowest
    for factor in (0.5, 2.0):
        assert learner.loss(learner.family(factor * prior.xi0, 0.0, learner.shape(prior)), clusters) > lowest


@pytest.mark.parametrize("kind", ["none", "diagonal"])
@pytest.mark.parametrize("n", [900, 1100])
def test_costs_by_products_are_labelling_costs(kind, n):
    """Few rows are priced without products."""
    rng = np.random.default_rng(0)
    points = 5.0 + rng.normal(size=(n, 6))
    scatter = np.zeros((n, 0)) if kind == "none" else rng.random((n, 6))
    rows = Moments(rng.uniform(0.5, 2.0, size=n), points, scatter, kind)
    family, mixture = scoring("finite", DiagonalGaussian.informed(points), points)
    clusters = rows.to_groups(rng.integers(4, size=n), kind="diagonal")
    expected = mixture.labelling_cost(family, clusters, rows, family.posterior(clusters))
    np.testing.assert_allclose(Problem(family, mixture, rows).costs(clusters), expected.T, rtol=1e-9)


def test_zeros_of_a_root_are_skipped_exactly():
    """Diagonal roots cost their diagonals alone; what they give does not change."""
    rng = np.random.default_rng(0)
    points, centre = rng.normal(size=(300, 11)), rng.normal(size=(5, 11))
    root = np.tril(rng.normal(size=(5, 11, 11))) * (rng.random((5, 1, 1)) < 0.5)
    root += np.eye(11) * rng.uniform(0.5, 2.0, size=(5, 11, 1))
    offset, (cost, nearest) = rng.random(5), np.empty((2, 300))
    label = np.empty(300, dtype=np.int64)
    assign_points(points, centre, root, offset, np.zeros((0, 11)), label, cost, nearest)
    squares = (np.einsum("kij,nkj->nki", root, points[:, None] - centre) ** 2).sum(axis=2)
    np.testing.assert_array_equal(label, (squares + offset).argmin(axis=1))
    np.testing.assert_allclose(cost, (squares + offset).min(axis=1), rtol=1e-12)
    np.testing.assert_allclose(nearest, squares.min(axis=1), rtol=1e-12)
