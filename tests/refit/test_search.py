"""Searches under a learnt prior: K from one to a hundred, few events per dimension, data that are hardly data."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer
from streamclust.batch import BayesianKMeans
from streamclust.families import Finite, Gaussian, family
from streamclust.families.learnt import PriorLearner
from streamclust.moments import Moments
from streamclust.refit import bkm_steps, fit_points, point_steps, refit_bkm
from streamclust.refit.bkm import gaussian_merge_path
from streamclust.refit.bkm.labelling import Labelling
from streamclust.refit.bkm.local_moves import chosen_merges, near_pairs
from streamclust.refit.bkm.merge_path import agree, learn_prior, path_down, starts
from streamclust.refit.bkm.problem import Problem
from streamclust.refit.bkm.search import challenged, cold, search_points, warm
from streamclust.refit.bkm.tuning import TUNING
from streamclust.tree import SummaryTree
from tests.streams import clustered

GAUSSIANS = ["gaussian", "diagonal", "spherical"]


def learning(x, labels):
    """A labelling whose prior is learnt."""
    learner = PriorLearner.of(Gaussian, x)
    rows = Moments.rows_of_points(x)
    family = learner.start(rows.to_groups(labels, kind="full"))
    return Labelling(Problem(family, Finite(), rows, learner=learner), labels)


def ended(steps):
    """What a search returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def grid(k, d=2, n=40, seed=0):
    """k well separated clusters of n points."""
    rng = np.random.default_rng(seed)
    side = int(np.ceil(k ** (1 / d)))
    centres = np.stack(np.meshgrid(*[np.arange(side)] * d), axis=-1).reshape(-1, d)[:k] * 12.0
    labels = np.repeat(np.arange(k), n)
    return centres[labels] + rng.normal(size=(k * n, d)), labels


def test_learning_the_prior_never_raises_the_free_energy_of_a_labelling():
    x, labels = clustered(300, 3, k=4, seed=0)
    state = learning(x, labels)
    for _ in range(5):
        before = state.free_energy
        learn_prior(state)
        assert state.free_energy <= before
        state.step()


def paths_on_leaves(steps):
    """How many paths a search has gone down on the leaves, and what it found."""
    told = list(steps)
    return sum(each.stage == "leaves" for each in told), told[-1].result


@pytest.mark.parametrize("moved", [0.0, 40.0])
def test_a_search_from_nothing_ends_where_it_meets_the_given_clusters(moved):
    """Twenty clusters are more than a third of forty: without given ones, or with wrong ones, more starts follow."""
    x, labels = grid(20, n=200)
    order = np.random.default_rng(1).permutation(len(x))
    x, labels = x[order], labels[order]
    tree = SummaryTree(n_features=2, max_leaves=256)
    tree.insert(x)
    right = Moments.rows_of_points(x).to_groups(labels, kind="full")
    given = Moments(right.weight, right.mean + moved * (np.arange(20) % 2)[:, None], right.scatter, "full")
    n_paths, found = paths_on_leaves(bkm_steps("gaussian", tree, given, search="quick", challenge=5.0))
    assert found.n_clusters == 20
    alone, _ = paths_on_leaves(bkm_steps("gaussian", tree, search="quick"))
    assert alone > 1
    assert (n_paths == 1) == (moved == 0.0)


def test_labellings_agree_whatever_their_clusters_are_called():
    x, labels = grid(4)
    one, other = learning(x, labels), learning(x, labels[::-1].copy())
    assert agree(one, other)
    few, many = labels.copy(), labels.copy()
    few[:2], many[:30] = 3, 3
    assert agree(one, learning(x, few))
    assert not agree(one, learning(x, many))
    assert not agree(one, learning(x, np.minimum(labels, 2)))


def test_near_pairs_are_those_of_brute_force():
    x, labels = grid(30, n=5)
    state = learning(x, labels)
    a, b = near_pairs(state, neighbours=4)
    inverse = np.linalg.inv(state.problem.family.B0)
    n, mean = state.clusters.weight, state.clusters.mean
    expected = set()
    for i in range(30):
        ward = {}
        for j in range(30):
            gap = mean[i] - mean[j]
            ward[j] = n[i] * n[j] / (n[i] + n[j]) * gap @ inverse @ gap
        del ward[i]
        for j in sorted(ward, key=ward.__getitem__)[:4]:
            expected.add((min(i, j), max(i, j)))
    assert set(zip(a.tolist(), b.tolist(), strict=True)) == expected


def test_changes_of_some_merges_are_those_of_all():
    x, labels = grid(12, n=6)
    state = learning(x, labels)
    a, b = near_pairs(state)
    np.testing.assert_allclose(state.merge_changes_of(a, b), state.merge_changes()[a, b], rtol=1e-9)


@pytest.mark.parametrize("kish", [False, True])
@pytest.mark.parametrize("whole_leaves", [False, True])
def test_a_compiled_path_is_the_one_made_step_by_step(kish, whole_leaves, monkeypatch):
    rng = np.random.default_rng(0)
    x, _ = clustered(90, 2, k=4, seed=0)
    rows = Moments.rows_of_points(x, rng.exponential(size=90) + 0.5)
    rows = rows.to_groups(np.arange(90) // 3, 30, kind="full") if whole_leaves else rows
    labels = rng.integers(14, size=len(rows))
    learner = PriorLearner.of(Gaussian, x)
    start = learner.start(rows.to_groups(labels, kind="full"))
    problem = Problem(start, Finite(), rows, kish, learner=learner)
    rounds = replace(TUNING, path_prior_rounds=TUNING.prior_rounds)
    monkeypatch.setattr(gaussian_merge_path, "TUNING", rounds)
    fast = ended(path_down(Labelling(problem, labels), "", whole_leaves))
    monkeypatch.setattr(Problem, "compiled", False)
    slow = ended(path_down(Labelling(problem, labels), "", whole_leaves))
    np.testing.assert_array_equal(fast.labels, slow.labels)
    assert fast.free_energy == pytest.approx(slow.free_energy, rel=1e-9)


def test_a_path_from_many_clusters_tries_those_nearby():
    x, labels = grid(40, n=8)
    state = learning(x, np.arange(320) // 2)
    assert state.n_clusters > 2 * TUNING.offered_clusters
    found = ended(path_down(state, "", leaves=False))
    assert found.n_clusters == 40
    assert adjusted_rand_score(labels, found.labels) == 1.0


def test_what_is_found_from_nothing_must_be_better_by_a_margin():
    x, _ = grid(4)
    tree = SummaryTree(2, max_leaves=512)
    tree.insert(x)
    good = refit_bkm("gaussian", tree, search="quick")
    assert good.n_clusters == 4
    bad = Moments.rows_of_points(x).to_groups(None, kind="full")
    for start, margin, k in ((bad, 5.0, 4), (good, 5.0, 4), (good, -np.inf, 4)):
        found = refit_bkm("gaussian", tree, start, search="quick", challenge=margin)
        assert found.n_clusters == k
        assert found.free_energy <= good.free_energy + 5.0


@pytest.mark.parametrize(("each", "refined"), [(100, False), (1250, True)])
def test_what_two_searches_of_few_events_agree_on_is_not_refined(each, refined):
    x, _ = grid(4, n=each)
    tree = SummaryTree(2, max_leaves=512)
    tree.insert(x)
    good = refit_bkm("gaussian", tree, search="quick")
    steps = list(bkm_steps("gaussian", tree, good, search="quick", challenge=5.0))
    assert steps[-1].n_clusters == 4
    assert any(step.move == "learn" for step in steps) == refined


def test_chosen_merges_share_no_cluster():
    a, b = np.array([0, 0, 1, 2, 3]), np.array([1, 2, 2, 3, 4])
    assert chosen_merges(a, b, np.array([-5.0, -4.0, -3.0, -2.0, 1.0]), k=10) == [(0, 1), (2, 3)]
    assert chosen_merges(a, b, np.array([5.0, 4.0, 3.0, 2.0, 1.0]), k=12) == [(1, 2), (3, 4)]


def test_starts_grow_up_to_half_the_rows():
    assert starts(1000) == [40, 120, 360]
    assert starts(20) == [20]
    assert starts(0) == [1]


@pytest.mark.compiled
@pytest.mark.parametrize("name", GAUSSIANS)
@pytest.mark.parametrize("k", [1, 2, 7, 30])
def test_separated_clusters_are_counted(name, k):
    x, labels = grid(k)
    found = fit_points(name, x)
    assert found.n_clusters == k
    assert adjusted_rand_score(labels, found.labels) == 1.0


@pytest.mark.compiled
def test_a_hundred_clusters_are_counted_on_points_and_on_a_tree():
    x, labels = grid(100, n=60)
    assert fit_points("gaussian", x).n_clusters == 100
    tree = SummaryTree(2, max_leaves=512)
    tree.insert(np.random.default_rng(0).permutation(x))
    found = refit_bkm("gaussian", tree)
    assert found.n_clusters == 100
    assert adjusted_rand_score(labels, found.assign(x)) > 0.999
    again = refit_bkm("gaussian", tree, start=found)
    assert again.n_clusters == 100
    assert refit_bkm("gaussian", tree, start=found.clusters).n_clusters == 100


@pytest.mark.compiled
@pytest.mark.parametrize(("n", "d"), [(20, 20), (15, 40), (60, 64), (30, 10)])
def test_few_events_per_dimension_do_not_explode(n, d):
    rng = np.random.default_rng(0)
    assert fit_points("gaussian", rng.normal(size=(n, d))).n_clusters <= 2
    apart = rng.normal(size=(n, d)) + 12.0 * (np.arange(n) % 2)[:, None]
    found = fit_points("gaussian", apart)
    assert found.n_clusters <= 4
    assert adjusted_rand_score(np.arange(n) % 2, found.labels) > 0.5


@pytest.mark.compiled
@pytest.mark.parametrize("seed", [0, 1])
def test_covariances_of_their_own_are_told_apart_with_few_events_per_dimension(seed):
    d, k, n = 16, 6, 400
    rng = np.random.default_rng(seed)
    shapes, labels = rng.normal(size=(k, d, d)) / 4, rng.integers(k, size=n)
    centres = 0.3 * rng.normal(size=(k, d))
    x = centres[labels] + np.einsum("nij,nj->ni", shapes[labels], rng.normal(size=(n, d)))
    planted = learn_prior(learning(x, labels), rounds=20)
    found = fit_points("gaussian", x)
    assert found.free_energy <= planted.free_energy
    assert adjusted_rand_score(labels, found.labels) > 0.9


HARD = {
    "one event": np.array([[3.0, -2.0]]),
    "two events": np.array([[0.0, 1.0], [5.0, 1.0]]),
    "all equal": np.full((50, 3), 7.0),
    "all zero": np.zeros((40, 2)),
    "two values": np.repeat([[0.0, 0.0], [1.0, 5.0]], 30, axis=0),
    "constant column": np.column_stack([np.random.default_rng(0).normal(size=200), np.full(200, 4.0)]),
    "all but constant": np.column_stack([np.random.default_rng(1).normal(size=200), np.arange(200) == 7]),
    "mostly zeros": np.random.default_rng(2).normal(size=(400, 4))
    * (np.random.default_rng(3).random((400, 4)) < 0.01),
    "duplicates": np.repeat(np.random.default_rng(4).normal(size=(5, 2)), 1000, axis=0),
    "far away": np.random.default_rng(5).normal(size=(200, 3)) + 1e8,
    "units apart": np.random.default_rng(6).normal(size=(200, 3)) * [1e-8, 1.0, 1e8],
    "copied column": np.repeat(np.random.default_rng(7).normal(size=(200, 1)), 3, axis=1),
    "denormal": np.random.default_rng(9).normal(size=(200, 2)) * 1e-310,
    "denormal column": np.random.default_rng(10).normal(size=(200, 2)) * [1e-170, 1.0],
    "tiny": np.random.default_rng(11).normal(size=(200, 2)) * 1e-150,
    "rounded": np.round(np.random.default_rng(8).normal(size=(300, 3)) * 2),
}


LINES = ("constant column", "all but constant", "units apart", "copied column", "denormal column")


@pytest.mark.compiled
@pytest.mark.parametrize("name", GAUSSIANS)
@pytest.mark.parametrize("data", HARD)
def test_hard_data_give_a_sensible_partition(name, data):
    x = np.asarray(HARD[data], dtype=float)
    found = fit_points(name, x)
    most = {"two values": 2, "duplicates": 5, "mostly zeros": 12, "rounded": 4}.get(data, 3)
    if name != "gaussian" and data in LINES:
        most = len(x) // 4  # points along a line are many spheres, or many upright ellipsoids
    assert 1 <= found.n_clusters <= most
    assert np.isfinite(found.free_energy)
    assert np.isfinite(found.log_predictive(x)).all()
    assert found.clusters.weight.sum() == pytest.approx(len(x))
    tree = SummaryTree(x.shape[1], scatter=found.family.scatter, max_leaves=64)
    tree.insert(x)
    streamed = refit_bkm(name, tree)
    assert 1 <= streamed.n_clusters <= most
    assert np.isfinite(streamed.labelling_cost(x)).all()
    warm = refit_bkm(name, tree, start=streamed)
    assert np.isfinite(warm.free_energy)


def test_two_values_are_two_clusters():
    assert fit_points("gaussian", HARD["two values"]).n_clusters == 2


@pytest.mark.compiled
@pytest.mark.parametrize("prior", ["learnt", "bkm"])
@pytest.mark.parametrize("name", [*GAUSSIANS, "multinomial", "bernoulli", "poisson"])
def test_two_values_by_the_thousand_are_two_clusters_of_a_tree(name, prior):
    x = np.repeat([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]], 2000, axis=0)
    x = x if name == "bernoulli" else 3 * x
    tree = SummaryTree(3, scatter=family(name).scatter, max_leaves=64)
    tree.insert(np.random.default_rng(0).permutation(x))
    found = refit_bkm(name, tree, prior=prior)
    assert found.n_clusters == 2
    assert adjusted_rand_score(x[:, 0], found.assign(x)) == 1.0


@pytest.mark.compiled
@pytest.mark.parametrize("data", HARD)
def test_hard_data_stream(data):
    x = np.asarray(HARD[data], dtype=float)
    model = StreamClusterer()
    model.learn_many(x)
    model.settle()
    labels = np.asarray(model.predict_many(x))
    assert 1 <= len(model.clusters) <= {"duplicates": 5, "mostly zeros": 12}.get(data, 4)
    assert set(labels) <= {cluster.id for cluster in model.clusters}
    assert sum(cluster.weight for cluster in model.clusters) == pytest.approx(len(x))
    for cluster in model.clusters:
        assert np.isfinite(cluster.covariance).all()


@pytest.mark.compiled
def test_a_stream_of_denormal_spreads_settles():
    x = np.random.default_rng(0).normal(size=(500, 2)) * 1e-310
    model = StreamClusterer()
    model.learn_many(x)
    model.settle()
    assert set(model.predict_many(x)) == {0}


@pytest.mark.compiled
def test_a_partition_carries_its_prior_into_a_warm_refit():
    x, _ = clustered(4000, 3, k=5, seed=2)
    tree = SummaryTree(3, max_leaves=256)
    tree.insert(x)
    found = refit_bkm("gaussian", tree)
    again = refit_bkm("gaussian", tree, start=found)
    assert again.n_clusters == found.n_clusters == 5
    assert again.free_energy <= found.free_energy + 1e-6 * abs(found.free_energy)
    np.testing.assert_allclose(again.family.blur, found.family.blur)


FACTORS, OFFSETS = np.array([1e-8, 1.0, 1e8, 1000.0]), np.array([3e-8, -700.0, 5e9, 0.0])


@pytest.mark.compiled
@pytest.mark.parametrize("family", ["gaussian", "diagonal"])
def test_labels_are_the_same_in_any_units(family):
    x, _ = clustered(3000, 4, k=5, seed=0, spread=3.0)
    by_points, by_tree, by_stream = [], [], []
    for data in (x, x * FACTORS + OFFSETS):
        by_points.append(BayesianKMeans(family).fit(data).labels_)
        by_tree.append(BayesianKMeans(family, max_leaves=128).fit(data).labels_)
        model = StreamClusterer(family=family)
        model.learn_many(data)
        model.settle()
        by_stream.append(model.predict_many(data))
    for both in (by_points, by_tree, by_stream):
        assert adjusted_rand_score(*both) > 0.99  # rounding decides of a few events between clusters


@pytest.mark.compiled
def test_the_papers_priors_stay_by_name():
    x, _ = clustered(300, 2, k=3, seed=1)
    for rule in ("bkm", "agglomerative"):
        found = fit_points("gaussian", x, prior=rule)
        expected = Gaussian.informed(x, rule=rule)
        np.testing.assert_allclose(found.family.B0, expected.B0)
        assert found.family.xi0 == expected.xi0
    assert fit_points("gaussian", x).family.eta0 != 2.0
    assert fit_points("gaussian", x, search="top-down").family.eta0 == 2.0
    with pytest.raises(ValueError, match="prior must be one of learnt, bkm, agglomerative, nearest"):
        fit_points("gaussian", x, prior="none")


@pytest.mark.compiled
def test_free_energies_fall_along_each_path():
    x, _ = clustered(400, 2, k=4, seed=3)
    steps = list(point_steps("gaussian", x))
    assert steps[-1].result is not None
    assert steps[-1].objective == min(s.objective for s in steps)


@pytest.mark.parametrize("seed", [0, 4])
def test_clusters_that_overlap_are_not_lost_on_leaves_that_straddle_them(seed):
    rng = np.random.default_rng(5)
    labels = rng.integers(16, size=5000)
    x = 3.0 * np.stack(np.divmod(np.arange(16), 4), axis=1)[labels] + rng.normal(size=(5000, 2))
    tree = SummaryTree(n_features=2, max_leaves=512)
    tree.insert(x / x.std(axis=0))
    assert refit_bkm("gaussian", tree, rng=seed).n_clusters >= 6


class Unchanging:
    """A learner that leaves the prior as it is."""

    def __init__(self, prior):
        self.prior, self.kind = prior, type(prior)

    def start(self, clusters):
        return self.prior

    def carried(self, family):
        return self.prior

    def improved(self, family, clusters, rounds=2):
        return family

    def cost(self, family):
        return 0.0


@pytest.mark.parametrize("name", ["multinomial", "poisson", "bernoulli"])
@pytest.mark.parametrize("way", ["points", "cold", "warm", "challenged"])
def test_a_fixed_prior_is_searched_as_a_learnt_one_that_never_changes(name, way):
    rng = np.random.default_rng(0)
    rate = rng.gamma(1.0, 3.0, size=(5, 6))
    x = rng.poisson(rate[rng.integers(5, size=700)]).astype(float)
    x = np.minimum(x, 1.0) if name == "bernoulli" else x
    prior = family(name).informed(x)
    tree = SummaryTree(6, "none", max_leaves=200)
    tree.insert(x)
    leaves, sample = tree.leaves(), Moments.rows_of_points(*tree.sample())
    start = sample.to_groups(np.arange(len(sample)) % 3, kind="none")
    searches = {
        "points": lambda a, b, rng: search_points(b, rng, quick=False),
        "cold": lambda a, b, rng: cold(a, b, rng, quick=True),
        "warm": lambda a, b, rng: warm(b, start, rng),
        "challenged": lambda a, b, rng: challenged(a, b, start, rng, quick=True, margin=5.0),
    }
    fixed, learnt = (
        ended(
            searches[way](
                Problem(prior, Finite(1.0), leaves, learner=learner),
                Problem(prior, Finite(1.0), sample, learner=learner),
                np.random.default_rng(1),
            )
        )
        for learner in (None, Unchanging(prior))
    )
    assert fixed.n_clusters > 1
    np.testing.assert_array_equal(fixed.labels, learnt.labels)
    assert fixed.free_energy == learnt.free_energy
