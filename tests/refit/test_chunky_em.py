"""Chunky EM: against ordinary EM and scikit-learn, on trees and on points, warm and cold; and bad input."""

import threading
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from streamclust.moments import Moments
from streamclust.refit import refit_bkm
from streamclust.refit.chunky_em.boxes import Boxes, fitted, improve, share
from streamclust.refit.chunky_em.covariance import FORMS, Space, count_free
from streamclust.refit.chunky_em.fit import (
    MAX_BOXED_POINTS,
    chunky_em_steps,
    fit_mixture,
    point_em_steps,
    refit_mixture,
)
from streamclust.refit.chunky_em.greedy import insert
from streamclust.refit.chunky_em.mixture import Mixture
from streamclust.tree import SummaryTree
from tests.naive import chunky_em as naive
from tests.streams import clustered

KINDS = tuple(FORMS)
SKLEARN = {"full": "full", "diagonal": "diag", "spherical": "spherical"}


@pytest.fixture
def blobs():
    return clustered(600, 3, k=4, seed=2, spread=15.0)


def tree_of(points, kind="full", leaves=128, weight=None, **settings):
    tree = SummaryTree(points.shape[1], FORMS[kind].scatter, max_leaves=leaves, **settings)
    tree.insert(points, weight)
    return tree


def space_of(points, kind="full", floor=1e-2):
    return Space(FORMS[kind], Moments.of_points(points, kind=FORMS[kind].scatter), floor)


def singles(space, points):
    return Boxes.of_rows(space, Moments.rows_of_points(points))


# ---------------------------------------------------------------- EM


@pytest.mark.parametrize("kind", KINDS)
def test_single_points_make_it_ordinary_em(kind):
    points, labels = clustered(80, 2, k=3, seed=1, spread=2.0)
    clusters = Moments.rows_of_points(points).to_groups(labels, kind=FORMS[kind].scatter)
    space = space_of(points, kind)
    boxes = singles(space, points)
    fit = fitted(space, boxes, space.entering(clusters))
    mixture = [
        (w / 80, m, naive.constrained(np.cov(points[labels == k].T, bias=True), kind))
        for k, (w, m) in enumerate(zip(clusters.weight, clusters.mean, strict=True))
    ]
    alone, ones = [p[None] for p in points], [np.ones(1)] * 80
    for _ in range(3):
        fit = fitted(space, boxes, improve(space, boxes, fit.shared))
        q = naive.shared_responsibilities(alone, ones, mixture)
        mixture = naive.m_step(alone, ones, q, kind)
    found = space.leaving(fit.components)
    for k, (w, m, c) in enumerate(mixture):
        assert found.weight[k] == pytest.approx(w)
        np.testing.assert_allclose(found.mean[k], m)
        expected = {"full": c, "diagonal": np.diag(c), "spherical": c[0, 0]}[kind]
        np.testing.assert_allclose(found.covariance[k], expected)
    likelihood = sum(
        np.log(sum(w * np.exp(naive.log_density(x, m, c)) for w, m, c in mixture)) for x in points
    )
    assert fit.free_energy == pytest.approx(likelihood)  # F of single points is the log-likelihood


@pytest.mark.parametrize("kind", KINDS)
def test_two_steps_are_scikit_learns(kind):
    points, labels = clustered(500, 3, k=4, seed=3, spread=1.5)
    clusters = Moments.rows_of_points(points).to_groups(labels, kind=FORMS[kind].scatter)
    covariance = clusters.covariance
    precisions = np.linalg.inv(covariance) if kind == "full" else 1 / covariance
    peer = GaussianMixture(
        4, covariance_type=SKLEARN[kind], max_iter=2, reg_covar=0.0, tol=1e300,
        weights_init=clusters.weight / 500, means_init=clusters.mean, precisions_init=precisions,
    ).fit(points)  # fmt: skip
    space = space_of(points, kind)
    boxes = singles(space, points)
    fit = fitted(space, boxes, space.entering(clusters))
    fit = fitted(space, boxes, improve(space, boxes, fit.shared))
    found = space.leaving(improve(space, boxes, fit.shared))
    np.testing.assert_allclose(found.weight, peer.weights_)
    np.testing.assert_allclose(found.mean, peer.means_)
    np.testing.assert_allclose(found.covariance, peer.covariances_)
    ours = Mixture(kind, *found, np.zeros(0, dtype=np.int64), 500.0, 0.0)
    np.testing.assert_allclose(ours.log_density(points), peer.score_samples(points))
    np.testing.assert_allclose(ours.probability(points), peer.predict_proba(points), atol=1e-12)
    np.testing.assert_array_equal(ours.assign(points), peer.predict(points))


def test_optimal_shared_responsibilities_diverge_less_than_moores_at_every_level():
    """Figure 4.3: a 20-component mixture in 10 dimensions, level by level of the tree."""
    n = 500
    points, _ = clustered(n, 10, k=20, seed=4, spread=2.0)
    rng = np.random.default_rng(0)
    seeds = points[rng.choice(n, 20, replace=False)]
    nearest = ((points[:, None] - seeds) ** 2).sum(axis=2).argmin(axis=1)
    clusters = Moments.rows_of_points(points).to_groups(nearest, 20, kind="full")
    space = space_of(points)
    components = space.entering(clusters)
    every = share(space, singles(space, points), components)
    tree = SummaryTree(10, max_leaves=None, leaf_size=2)
    tree.insert(points)

    def divergence(q, boxes):
        """Σ KL(q_b || p(s|x)): F falls short of the log-likelihood by so much (3.12)."""
        joint = boxes.lifted @ space.natural(components).T
        safe = np.log(np.maximum(q, 1e-300))
        return every.free_energy - float((boxes.weight[:, None] * q * (joint - safe)).sum())

    for level in range(9):
        cut = tree.cut(level=level)
        boxes = Boxes.of_rows(space, tree.moments(cut), cut)
        best = share(space, boxes, components).mass / boxes.weight[:, None]
        moore = share(space, singles(space, tree.moments(cut).mean), components).mass
        assert 0 <= divergence(best, boxes) < divergence(moore, boxes)


def test_the_floor_is_the_best_covariance_that_is_wide_enough():
    points = np.array([[0.0, 0.0], [1.0, 1e-9], [2.0, 0.0], [3.0, 1.0], [4.0, 0.0]])
    space = space_of(points, floor=0.3)
    boxes = singles(space, points)
    fit = fitted(space, boxes, space.entering(Moments.of_points(points[:2])))
    values = np.linalg.eigvalsh(fit.components.covariance)
    assert values.min() == pytest.approx(0.09)
    rng = np.random.default_rng(0)
    moved = fitted(space, boxes, improve(space, boxes, fit.shared))
    for _ in range(50):
        root = rng.normal(size=(2, 2)) * 0.3
        other = moved.components._replace(covariance=moved.components.covariance + root @ root.T)
        assert fitted(space, boxes, other).free_energy <= moved.free_energy + 1e-9


# ---------------------------------------------------------------- greedy insertion


@pytest.mark.parametrize("kind", KINDS)
def test_insertion_raises_free_energy_where_there_is_a_cluster_to_find(kind):
    points, labels = clustered(300, 2, k=2, seed=5, spread=10.0)
    space = space_of(points, kind)
    boxes = singles(space, points)
    one = fitted(space, boxes, space.maximise((boxes.weight @ boxes.lifted)[None]))
    two = insert(space, one, 6.0, np.random.default_rng(0))
    assert two.n_components == 2
    fit = fitted(space, boxes, two)
    assert fit.free_energy > one.free_energy
    assert adjusted_rand_score(labels, fit.shared.mass.argmax(axis=1)) > 0.9


def test_nothing_is_inserted_that_owns_too_little():
    points, _ = clustered(50, 2, k=1, seed=6)
    space = space_of(points)
    boxes = singles(space, points)
    one = fitted(space, boxes, space.maximise((boxes.weight @ boxes.lifted)[None]))
    assert insert(space, one, 51.0, np.random.default_rng(0)) is None
    same = Boxes.of_rows(space, Moments.rows_of_points(np.repeat(points[:1], 9, axis=0)))
    assert insert(space, fitted(space, same, one.components), 0.0, np.random.default_rng(0)) is None


def test_free_parameters_are_counted_as_scikit_learn_counts_them():
    points, _ = clustered(100, 4, k=3)
    for kind in KINDS:
        peer = GaussianMixture(3, covariance_type=SKLEARN[kind], random_state=0).fit(points)
        assert count_free(FORMS[kind], 3, 4) == peer._n_parameters()


# ---------------------------------------------------------------- refits


@pytest.mark.parametrize("kind", KINDS)
def test_a_tree_becomes_a_mixture(blobs, kind):
    x, z = blobs
    tree = tree_of(x, kind)
    mixture = refit_mixture(tree, covariance=kind)
    assert mixture.n_clusters == 4
    assert adjusted_rand_score(z, mixture.assign(x)) > 0.99
    np.testing.assert_array_equal(mixture.labels, mixture.assign(tree.leaves()))
    np.testing.assert_array_equal(mixture.probability(x).argmax(axis=1), mixture.assign(x))
    np.testing.assert_allclose(mixture.clusters.total().weight, 600)
    np.testing.assert_allclose(mixture.clusters.total().mean, tree.total.mean)
    expected = tree.total.scatter
    np.testing.assert_allclose(mixture.clusters.total().scatter, expected, atol=1e-8 * np.abs(expected).max())
    assert mixture.free_energy <= mixture.log_density(x).sum() + 1e-6
    assert mixture.notes == ()


def test_what_steps_tell(blobs):
    x, _ = blobs
    steps = list(chunky_em_steps(tree_of(x)))
    assert [s.result is not None for s in steps] == [False] * (len(steps) - 1) + [True]
    assert {s.move for s in steps} >= {"iterate", "insert", "remove", "publish"}
    assert steps[-1].n_clusters == steps[-1].result.n_clusters == 4
    for a, b in pairwise(steps):  # F rises while the components stay
        if b.move in ("iterate", "refine"):
            assert b.n_clusters == a.n_clusters
            assert b.n_rows >= a.n_rows
            assert b.objective >= a.objective - 1e-9 * abs(a.objective)


@pytest.mark.compiled
def test_points_become_a_mixture_through_a_tree_and_a_final_pass():
    x, z = clustered(2 * MAX_BOXED_POINTS, 2, k=5, seed=3, spread=15.0)
    steps = list(point_em_steps(x))
    mixture = steps[-1].result
    assert mixture.n_clusters == 5
    assert adjusted_rand_score(z, mixture.labels) > 0.99
    np.testing.assert_array_equal(mixture.labels, mixture.assign(x))
    assert mixture.free_energy == pytest.approx(mixture.log_density(x).sum())
    passes = [s.objective for s in steps if s.stage == "points"]
    assert len(passes) >= 3
    assert np.all(np.diff(passes) >= -1e-9 * abs(passes[0]))
    boxes = [s for s in steps if s.stage == "boxes"][-1]
    assert boxes.n_rows < len(x)
    assert boxes.objective <= passes[0] + 1e-6


@pytest.mark.compiled
@pytest.mark.parametrize("kind", KINDS)
def test_as_good_as_scikit_learn_told_everything(kind):
    x, z = clustered(6000, 3, k=6, seed=8, spread=3.0)
    train, test = x[:5000], x[5000:]
    truth = Moments.rows_of_points(train).to_groups(z[:5000], kind=FORMS[kind].scatter)
    precisions = np.linalg.inv(truth.covariance) if kind == "full" else 1 / truth.covariance
    peer = GaussianMixture(
        6, covariance_type=SKLEARN[kind], means_init=truth.mean, weights_init=truth.weight / 5000,
        precisions_init=precisions,
    ).fit(train)  # fmt: skip
    mixture = fit_mixture(train, covariance=kind)
    assert mixture.n_clusters == 6
    assert mixture.log_density(test).mean() > peer.score(test) - 0.005


@pytest.mark.compiled
def test_warm_starts_stay_and_follow(blobs):
    x, z = blobs
    tree = tree_of(x)
    cold = refit_mixture(tree)
    warm = list(chunky_em_steps(tree, cold))
    assert warm[-1].n_clusters == 4
    np.testing.assert_allclose(warm[-1].result.means, cold.means, atol=0.05)
    drift = np.array([1.0, -1.0, 0.5])
    followed = refit_mixture(tree_of(x + drift), cold)
    np.testing.assert_allclose(followed.means, cold.means + drift, atol=0.05)
    partition = refit_bkm("gaussian", tree)
    from_partition = refit_mixture(tree, partition)
    assert adjusted_rand_score(z, from_partition.assign(x)) > 0.99
    told = refit_mixture(tree, Moments.rows_of_points(x).to_groups(z, kind="full"), n_components=4)
    np.testing.assert_allclose(told.means, cold.means, atol=0.05)


def test_warm_starts_grow_and_shrink(blobs):
    x, z = blobs
    tree = tree_of(x)
    too_many = Moments.rows_of_points(x).to_groups(np.arange(600) % 3 + 3 * z, kind="full")
    assert refit_mixture(tree, too_many).n_clusters == 4
    assert refit_mixture(tree, Moments.of_points(x)).n_clusters == 4
    assert refit_mixture(tree, too_many, n_components=2).n_clusters == 2
    assert refit_mixture(tree, Moments.of_points(x), n_components=3).n_clusters == 3


def test_a_refit_in_a_thread_is_the_same_and_leaves_the_tree_alone(blobs):
    x, _ = blobs
    tree = tree_of(x)
    here = refit_mixture(tree)
    before = tree.to_arrays()
    found = []
    thread = threading.Thread(target=lambda: found.append(refit_mixture(SummaryTree.from_arrays(before))))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(found[0].means, here.means)
    for name, array in tree.to_arrays().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.compiled
def test_decayed_trees_and_weights():
    x, z = clustered(2000, 2, k=3, seed=9, spread=20.0)
    tree = tree_of(x, half_life=400.0)
    mixture = refit_mixture(tree)
    assert mixture.n_clusters == 3
    np.testing.assert_allclose(mixture.clusters.weight.sum(), tree.total.weight[0])
    keep = z < 2
    weighted = fit_mixture(x, keep.astype(float))
    alone = fit_mixture(x[keep])
    np.testing.assert_allclose(weighted.means, alone.means)
    np.testing.assert_array_equal(weighted.labels[keep], alone.labels)
    assert weighted.free_energy == pytest.approx(alone.free_energy)
    assert weighted.total == keep.sum()


# ---------------------------------------------------------------- the mixture


@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_the_mixtures_moments(blobs, kind):
    mixture = fit_mixture(blobs[0], covariance=kind)
    points, labels = mixture.sample(20_000, rng=1)
    again, _ = mixture.sample(20_000, rng=1)
    np.testing.assert_array_equal(points, again)
    drawn = Moments.rows_of_points(points).to_groups(labels, kind=FORMS[kind].scatter)
    np.testing.assert_allclose(drawn.weight / 20_000, mixture.weights, atol=0.02)
    np.testing.assert_allclose(drawn.mean, mixture.means, atol=0.1)
    np.testing.assert_allclose(drawn.covariance, mixture.covariances, atol=0.15)


def test_mixtures_can_be_looked_at(blobs):
    mixture = fit_mixture(blobs[0])
    as_dict = mixture.to_dict()
    assert as_dict["n_clusters"] == len(as_dict["clusters"]) == 4
    np.testing.assert_allclose(sum(c["weight"] for c in as_dict["clusters"]), 600)
    np.testing.assert_array_equal(as_dict["clusters"][2]["covariance"], mixture.covariances[2])
    assert repr(mixture) in mixture._repr_html_()
    assert mixture._repr_html_().count("<tr>") == 5
    np.testing.assert_array_equal(mixture.log_predictive(blobs[0]), mixture.log_density(blobs[0]))
    assert mixture.assign(np.zeros((0, 3))).shape == mixture.log_density(np.zeros((0, 3))).shape == (0,)
    assert mixture.probability(np.zeros((0, 3))).shape == (0, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_mixtures_draw_themselves(blobs, kind):
    matplotlib.use("Agg")
    mixture = fit_mixture(blobs[0], covariance=kind)
    ax = mixture.plot()
    assert len(ax.collections[0].get_offsets()) == 4
    pyplot.close(ax.figure)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("kind", KINDS)
def test_impossible_settings_are_named(blobs, kind):
    x, _ = blobs
    tree = tree_of(x, kind)
    for name, value in (("n_components", 0), ("n_components", 2.5), ("floor", 0.0), ("floor", np.nan)):
        with pytest.raises(ValueError, match=name):
            refit_mixture(tree, **{name: value})
        with pytest.raises(ValueError, match=name):
            fit_mixture(x, **{name: value})
    with pytest.raises(ValueError, match="covariance must be one of full, diagonal, spherical"):
        fit_mixture(x, covariance="tied")
    with pytest.raises(
        ValueError, match="start must be a Mixture, a Partition, clusters as Moments, or None, got str"
    ):
        refit_mixture(tree, "k-means++", covariance=kind)
    with pytest.raises(ValueError, match="start must be clusters of 3 features"):
        refit_mixture(tree, Moments.empty(2, 5), covariance=kind)
    with pytest.raises(ValueError, match="start must be clusters of 3 features with some weight"):
        refit_mixture(tree, Moments.empty(2, 3), covariance=kind)


def test_a_tree_without_the_scatter_needed_is_refused(blobs):
    x, _ = blobs
    with pytest.raises(ValueError, match="a diagonal scatter does not hold what a full one needs"):
        refit_mixture(tree_of(x, "diagonal"))
    none = SummaryTree(3, "none")
    none.insert(x)
    with pytest.raises(ValueError, match="a none scatter does not hold"):
        refit_mixture(none, covariance="spherical")
    with pytest.raises(ValueError, match="the tree has no data"):
        refit_mixture(SummaryTree(3))


def test_impossible_points_are_named():
    with pytest.raises(ValueError, match="nothing to fit"):
        fit_mixture(np.zeros((0, 2)))
    with pytest.raises(ValueError, match="nothing to fit"):
        fit_mixture(np.ones((3, 2)), np.zeros(3))
    with pytest.raises(ValueError, match="nan"):
        fit_mixture([[1.0, np.nan], [0.0, 1.0]])
    with pytest.raises(ValueError, match="inf"):
        fit_mixture([[1.0, np.inf], [0.0, 1.0]])
    with pytest.raises(ValueError, match="text"):
        fit_mixture([["a", "b"]])
    with pytest.raises(ValueError, match="table"):
        fit_mixture([1.0, 2.0])


def finite(mixture, points):
    for part in (mixture.weights, mixture.means, mixture.covariances, mixture.free_energy):
        assert np.all(np.isfinite(part))
    assert np.all(np.isfinite(mixture.log_density(points)))
    np.testing.assert_allclose(mixture.probability(points).sum(axis=1), 1.0)
    covariances = mixture.covariances
    assert np.all((np.linalg.eigvalsh(covariances) if covariances.ndim == 3 else covariances) > 0)
    return mixture


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("leaves", [pytest.param(None, marks=pytest.mark.compiled), 16])
def test_hard_data_give_finite_mixtures(kind, leaves):
    rng = np.random.default_rng(0)

    def fit(points, n_components=None):
        points = np.asarray(points, dtype=float)
        if leaves is None:
            found = fit_mixture(points, covariance=kind, n_components=n_components)
        else:
            found = refit_mixture(tree_of(points, kind, leaves), covariance=kind, n_components=n_components)
        return finite(found, points)

    one = fit([[1.0, 2.0]])
    assert one.n_clusters == 1
    np.testing.assert_array_equal(one.means, [[1.0, 2.0]])
    equal = fit(np.full((50, 3), 7.0))
    assert equal.n_clusters == 1
    assert "single points" in equal.notes[0]
    few = fit(rng.normal(size=(4, 30)))
    assert few.n_clusters == 1  # n < D
    assert fit(rng.normal(size=(400, 2))).n_clusters == 1
    thrice = fit(np.repeat([[0.0, 0.0], [5.0, 5.0], [9.0, 0.0]], 40, axis=0))
    assert thrice.n_clusters == 3
    assert "3 of 3 components are single points" in thrice.notes[-1]
    asked = fit(np.repeat([[0.0, 0.0], [5.0, 5.0], [9.0, 0.0]], 40, axis=0), n_components=10)
    assert asked.n_clusters == 3
    assert "10 components were asked for, but the data have room for 3" in asked.notes[0]
    x, z = clustered(400, 2, k=2, seed=1, spread=10.0)
    constant = np.column_stack([x, np.full(400, 3.0), np.zeros(400)])
    assert kind == "spherical" or adjusted_rand_score(z, fit(constant).assign(constant)) > 0.9
    twice = np.column_stack([x, x[:, 0]])
    assert kind != "full" or adjusted_rand_score(z, fit(twice).assign(twice)) > 0.9
    for scale, offset in ((1.0, 1e8), (1e-8, 0.0), (1e-8, 1.0), (1e100, 0.0)):
        moved = x * scale + offset
        assert adjusted_rand_score(z, fit(moved).assign(moved)) > 0.9
    spike = np.concatenate([rng.normal(size=(300, 2)), np.full((100, 2), 0.5)])
    collapsed = fit(spike, n_components=2)
    assert collapsed.n_clusters == 2
    if leaves is None:
        assert collapsed.log_density(np.array([[0.5, 0.5]]))[0] > 1.0
        assert any("single points" in note for note in collapsed.notes)


@pytest.mark.parametrize("covariance", ["full", "spherical"])
def test_events_that_stand_for_many_are_no_more_evidence_than_they_are(covariance):
    """A present of few events that weighs as much as the whole stream once had a component for each leaf."""
    points = np.random.default_rng(3).uniform(size=(900, 3))
    tree = SummaryTree(3, {"full": "full", "spherical": "scalar"}[covariance], None, leaf_size=16)
    tree.insert(points)
    many = tree.reweighted(np.full(len(tree.leaves()), 1000.0), worth=len(points))
    dependent = tree.reweighted(np.full(len(tree.leaves()), 1000.0))
    dependent.n_independent = float(len(points))
    found = [refit_mixture(tree, covariance=covariance).n_clusters for tree in (tree, many, dependent)]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("kind", KINDS)
def test_components_that_go_on_learning_stay_as_wide_as_they_must_be(blobs, kind):
    points, _ = blobs
    points = points * [1e-3, 1.0, 1e4]  # each unit has a least variance of its own
    mixture = refit_mixture(tree_of(points, kind), covariance=kind)
    narrow = FORMS[kind].at_least(mixture.covariances * 1e-30, mixture.least)
    rows = Moments.rows_of_points(np.repeat(points[:2], 5, axis=0))
    stuck = rows.to_groups(np.arange(10) // 5, 2, kind=FORMS[kind].scatter)
    learnt = finite(mixture.having(stuck), points)
    np.testing.assert_allclose(learnt.covariances, narrow[:1].repeat(2, axis=0))
    np.testing.assert_allclose(learnt.weights, 0.5)
    assert learnt.total == 10.0
    wide = mixture.having(mixture.clusters)
    np.testing.assert_allclose(wide.covariances, mixture.covariances)


def test_full_covariances_are_widened_where_they_are_narrow_in_some_direction():
    turn = np.linalg.qr(np.random.default_rng(4).normal(size=(3, 3)))[0]
    wide, flat = (turn @ np.diag(variances) @ turn.T for variances in ([1.0, 2.0, 3.0], [0.0, 2.0, 3.0]))
    found = FORMS["full"].at_least(np.stack([wide, flat]), 0.01 * np.eye(3)[None])
    np.testing.assert_array_equal(found[0], wide)
    np.testing.assert_allclose(np.linalg.eigvalsh(found[1]), [0.01, 2.01, 3.01])


@pytest.mark.parametrize("kind", KINDS)
def test_a_component_whose_events_have_decayed_says_nothing_and_harms_nothing(blobs, kind):
    points, _ = blobs
    mixture = refit_mixture(tree_of(points, kind), covariance=kind)
    gone = Moments.stack([mixture.clusters, Moments.empty(1, 3, FORMS[kind].scatter)])
    found = mixture.having(gone)
    np.testing.assert_allclose(found.log_density(points), mixture.log_density(points))
    np.testing.assert_allclose(found.probability(points)[:, -1], 0.0)
