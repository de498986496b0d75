"""Streams that once ended a clusterer: forgetting, stuck sensors, weights of all sizes, repeated events."""

import numpy as np
import pytest

from streamclust import StreamClusterer
from streamclust.engine.newborn import newborn
from streamclust.families import family as family_named
from streamclust.families import scoring
from streamclust.families.resolution import n_independent_rows, step_variance
from streamclust.moments import Moments
from streamclust.refit.bkm.labelling import Labelling
from streamclust.refit.bkm.problem import Problem
from streamclust.refit.bkm.splits import SplitScan
from streamclust.refit.chunky_em.fit import refit_mixture
from streamclust.refit.summary import NEGLIGIBLE_SHARE, weighty_sample
from streamclust.tree import SummaryTree

CENTRES = np.array([[0, 0], [12, 0], [0, 12], [12, 12], [24, 6]], float)


def events(n, seed=0, centres=CENTRES):
    rng = np.random.default_rng(seed)
    return centres[rng.integers(len(centres), size=n)] + rng.normal(size=(n, centres.shape[1]))


def learnt(x, step=1000, weight=None, **parameters):
    """A clusterer that has learnt these events without a failure, and the most clusters it had on the way."""
    model, most = StreamClusterer(**parameters), 0
    for start in range(0, len(x), step):
        part = slice(start, start + step)
        model.learn_many(x[part], weight=None if weight is None else weight[part])
        most = max(most, model.n_clusters)
    assert model.n_seen == len(x)
    assert model.n_failed_refits == 0, model.last_refit_error
    assert np.isfinite(model.model.clusters.mean).all()
    assert model.predict_one(dict(enumerate(x[-1].tolist()))) in {cluster.id for cluster in model.clusters}
    return model, most


# ---------------------------------------------------------------- forgetting


@pytest.mark.parametrize("seed", [9, 10, 11])
@pytest.mark.parametrize("half_life", [30.0, 100.0, 150.0])
def test_a_stationary_stream_with_a_short_half_life_goes_on(half_life, seed):
    learnt(events(20_000, seed), half_life=half_life)


@pytest.mark.parametrize("refit", ["bkm", "dp-means", "chunky-em"])
@pytest.mark.parametrize("half_life", [50.0, 200.0])
def test_a_sensor_that_gets_stuck_is_nearly_all_there_is_and_may_recover(half_life, refit):
    stuck = np.concatenate([events(3000), np.full((40_000, 2), 5.0)])
    model, _ = learnt(stuck, half_life=half_life, refit=refit)
    first = model.clusters[0]
    assert first.share > 0.99
    assert model.predict_one({0: 5.0, 1: 5.0}) == first.id
    model.learn_many(events(20_000, seed=1))
    assert model.n_failed_refits == 0
    assert model.effective_events > 0.5 * model.n_seen  # what is forgotten tells of no dependence
    assert model.n_clusters > 1 or half_life < 100  # so few events show one cluster


@pytest.mark.parametrize("refit", ["bkm", "dp-means", "chunky-em"])
def test_clusters_that_vanish_one_after_the_other_are_forgotten(refit):
    x = np.concatenate([events(6000, seed, CENTRES[seed : seed + 1]) for seed in range(5)])
    model, _ = learnt(x, half_life=40.0, refit=refit)
    assert model.n_clusters <= 2


@pytest.mark.parametrize("refit", ["bkm", "dp-means", "chunky-em"])
def test_weights_over_twenty_powers_of_ten_are_learnt(refit):
    x = events(12_000)
    weight = 10.0 ** np.random.default_rng(1).uniform(-20, 0, size=len(x))
    learnt(x, weight=weight, half_life=300.0, refit=refit)


@pytest.mark.parametrize("mixture", ["finite", "infinite", "uninformative"])
def test_evidence_of_less_than_one_event_is_one_cluster(mixture):
    """One event again and again, and events that weigh next to nothing together."""
    model, most = learnt(np.full((3000, 2), 5.0), mixture=mixture)
    assert (model.n_clusters, most) == (1, 1)
    learnt(events(3000), weight=np.full(3000, 1e-9), mixture=mixture)


def test_a_constant_feature_with_a_half_life_far_below_the_window():
    learnt(np.full((30_000, 1), 3.0), half_life=50.0)


@pytest.mark.parametrize("refit", ["bkm", "dp-means"])
@pytest.mark.parametrize("trouble", ["constant", "copied", "few", "light"])
def test_uninformative_clusters_that_are_singular_have_finite_densities(trouble, refit):
    """The uninformative prior has no posterior for them; they are published where all events are like that."""
    x = events(2000)
    weight = np.full(len(x), 1e-6) if trouble == "light" else None
    if trouble == "constant":
        x[:, 0] = 1.0
    elif trouble == "copied":
        x[:, 1] = -x[:, 0]
    elif trouble == "few":
        x = x[:2]
    model, _ = learnt(x, weight=weight, mixture="uninformative", refit=refit)
    found = model.assign_many(x[:500])
    assert np.isfinite(found.novelty).all()
    assert np.isfinite(found.probability).all()
    far = x[:1] + np.array([[1e3, -1e3]])
    assert model.assign_many(far).novelty > found.novelty.max() + 5


def test_huge_outliers_leave_covariances_that_can_be_inverted():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 8))
    x[::150] *= 10.0 ** rng.uniform(0, 90, size=(20, 1))
    tree = SummaryTree(8)
    tree.insert(x)
    found = refit_mixture(tree)
    assert np.isfinite(found.covariances).all()


# ---------------------------------------------------------------- sums of weights


def test_halves_of_very_different_weights_have_the_squares_of_their_own_rows():
    points = events(250)
    light = np.arange(250) >= 200
    weight = np.where(light, 1e-9, 1.0)  # squared, nothing beside the squares of the others
    family, mixture = scoring("finite", family_named("gaussian").informed(points), points)
    rows = Moments.rows_of_points(points, weight)
    scan = SplitScan(
        Labelling(Problem(family, mixture, rows, 1.0), np.zeros(250, dtype=np.int64)), np.ones(1, bool)
    )
    for side in (light, ~light):
        cut = side.astype(np.int64)[None]
        halves, squares, _ = scan._iterate(cut, np.ones((1, 1), bool), 0)
        np.testing.assert_allclose(squares, np.bincount(cut[0], weight**2))
        np.testing.assert_allclose(halves.weight, np.bincount(cut[0], weight))


def test_what_weighs_nothing_beside_the_rest_is_left_out_of_refits():
    tree = SummaryTree(1)
    tree.insert([[0.0], [1.0], [2.0]], [1.0, 1.0, NEGLIGIBLE_SHARE])
    points, weight = weighty_sample(tree)
    assert sorted(points.ravel().tolist()) == [0.0, 1.0]
    assert weight.sum() == pytest.approx(2.0)


def test_a_lone_value_infinitely_far_from_the_others_has_no_step():
    values = np.concatenate([np.zeros(20), np.linspace(1.0, 2.0, 60), np.full(20, 3.0)])
    at_ends = (values == 0.0) | (values == 3.0)
    weight = np.where(at_ends, 1.0, 1e-20)  # what lies between weighs nothing
    assert np.isfinite(step_variance(values, weight, 1.0))


# ---------------------------------------------------------------- repeated events


@pytest.mark.parametrize("refit", ["bkm", "dp-means", "chunky-em"])
@pytest.mark.parametrize("times", [5, 12])
def test_events_that_come_several_times_in_a_row_make_few_clusters(refit, times):
    _, most = learnt(np.repeat(events(30_000 // times, seed=times), times, axis=0), refit=refit)
    assert most <= 8


@pytest.mark.parametrize("family", ["gaussian", "diagonal", "spherical"])
def test_a_catalogue_of_points_has_the_clusters_of_its_points(family):
    rng = np.random.default_rng(2)
    points = events(1000, seed=2)
    model, most = learnt(points[rng.integers(1000, size=40_000)], family=family)
    assert most <= 6
    assert model.n_clusters == 5


def test_a_stream_that_begins_to_repeat_itself_keeps_its_clusters():
    x = np.concatenate([events(20_000), np.repeat(events(4000, seed=1), 6, axis=0)])
    model, most = learnt(x)
    assert most <= 6
    assert model.n_clusters == 5


def test_one_event_that_is_repeated_is_no_birth():
    model, _ = learnt(events(5000))
    once = np.array([[100.0, 100.0]])
    assert len(newborn(model.model, np.repeat(once, 50, axis=0))) == 0
    assert len(newborn(model.model, once + np.random.default_rng(0).normal(size=(50, 2)))) == 1


def test_counts_that_are_all_equal_are_events_of_their_own():
    rng = np.random.default_rng(0)
    model = StreamClusterer(family="multinomial")
    model.learn_many(rng.multinomial(30, [0.9, 0.1, 0.0, 0.0], size=3000))
    assert len(newborn(model.model, np.tile([0.0, 0.0, 30.0, 0.0], (50, 1)))) == 1


def test_rounded_values_tie_and_yet_are_events_of_their_own():
    rng = np.random.default_rng(0)
    rounded = np.round(rng.normal(size=(5000, 2)), 1)
    assert len(np.unique(rounded, axis=0)) < 4000
    assert n_independent_rows(rounded) == 5000
    assert n_independent_rows(np.column_stack([rounded[:, 0], np.full(5000, 3.0)])) == 5000
    assert n_independent_rows(rng.normal(size=(100, 3))[rng.integers(100, size=5000)]) == 100
