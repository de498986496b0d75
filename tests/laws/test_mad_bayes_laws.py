"""Laws of DP-means and BP-means: objectives fall, rows are served best, brute force finds nothing better."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamclust.moments import Moments
from streamclust.refit.bp_means.allocation import Allocation, BPProblem, nearest_features
from streamclust.refit.bp_means.fit import bp_means_steps, fit_features, without_redundant
from streamclust.refit.bp_means.k_features import fit_k_features, k_features_steps
from streamclust.refit.dp_means.fit import dp_means_steps, fit_rows, fit_tree
from streamclust.refit.dp_means.labelling import DPLabelling, DPProblem
from streamclust.refit.dp_means.means_partition import nearest_means
from streamclust.refit.dp_means.online import lead
from streamclust.refit.penalties import penalty_for_clusters
from streamclust.tree import SummaryTree
from tests.naive import mad_bayes as naive


@st.composite
def rows(draw, most=60):
    """Clusters or sums of features; ties, constant columns, weights; far from the origin, at any scale."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d, k = draw(st.integers(1, most)), draw(st.integers(1, 5)), draw(st.integers(1, 4))
    parts = 4.0 * rng.normal(size=(k, d))
    points = (rng.random((n, k)) < 0.5) @ parts + draw(st.sampled_from([0.0, 0.1, 1.0])) * rng.normal(
        size=(n, d)
    )
    shape = draw(st.sampled_from(["plain", "rounded", "constant", "far", "small", "equal"]))
    if shape == "rounded":
        points = np.round(points)
    elif shape == "constant":
        points[:, 0] = 3.0
    elif shape == "far":
        points = points + 1e6
    elif shape == "small":
        points = points * 1e-8
    elif shape == "equal":
        points[:] = points[0]
    weight = rng.exponential(size=n) + 0.01 if draw(st.booleans()) else np.ones(n)
    scale = float(np.var(points, axis=0).sum())
    scale = scale if scale > 1e-16 * float((points**2).max()) else 1.0
    return points, weight, scale * draw(st.sampled_from([0.01, 0.5, 3.0, 1e4]))


def rows_whose_feature_is_replaced_twice():
    """One feature, ten rows: the first feature is replaced, and then the first one again."""
    points = [0.54, -1.82, 0.28, -1.25, -0.73, -0.54, -0.32, 0.41, 1.04, -0.13]
    return np.array(points)[:, None], np.ones(10), 0.0068


def falls(steps, slack):
    """Whether the objective never rises within a run."""
    return all(b.objective <= a.objective + slack for a, b in pairwise(steps) if a.stage == b.stage)


@pytest.mark.parametrize("splits", [False, True])
@pytest.mark.parametrize("collapsed", [False, True])
@given(data=rows())
def test_dp_means_objective_falls(collapsed, splits, data):
    points, weight, penalty = data
    moments = Moments.rows_of_points(points, weight)
    steps = list(dp_means_steps(moments, penalty, collapsed=collapsed, splits=splits))
    found = steps[-1].result
    slack = 1e-9 * (abs(steps[-1].objective) + penalty + float(weight @ (points**2).sum(axis=1)) * 1e-6)
    assert falls(steps, slack)
    # The objective reported is that of the labels.
    slow = naive.dp_objective(points, weight, found.labels.tolist(), penalty)
    np.testing.assert_allclose(found.objective, slow, rtol=1e-6, atol=slack)
    # No event is farther than λ from every mean, nor would a union be cheaper.
    if not collapsed:
        assert np.all(
            np.minimum(weight, 1.0) * nearest_means(points, found.means)[1] <= penalty * (1 + 1e-6) + slack
        )


@st.composite
def planted(draw):
    """Round clusters: few or many, apart or overlapping, even or not, in any order, weighted or not; and a λ²."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    k, d, n = draw(st.integers(3, 20)), draw(st.integers(2, 10)), draw(st.sampled_from([100, 200, 400]))
    owner = rng.choice(k, size=n, p=rng.dirichlet(np.full(k, draw(st.sampled_from([0.5, 5.0, 1e6])))))
    centres = draw(st.sampled_from([2.0, 4.0, 8.0, 15.0])) * rng.normal(size=(k, d))
    points = centres[owner] + rng.normal(size=(n, d))
    order = draw(st.sampled_from(["random", "sorted", "turns", "from outside", "from inside"]))
    by = {"random": rng.random(n), "sorted": owner, "turns": np.argsort(np.argsort(owner)) % (n // k)}
    by["from inside"] = ((points - points.mean(axis=0)) ** 2).sum(axis=1)
    by["from outside"] = -by["from inside"]
    points = points[np.argsort(by[order], kind="stable")]
    weight = {
        "none": np.ones(n),
        "counts": rng.integers(1, 6, size=n).astype(float),
        "shares": rng.exponential(size=n) + 0.01,
    }[draw(st.sampled_from(["none", "counts", "shares"]))]
    rows_ = Moments.rows_of_points(points, weight)
    return points, weight, penalty_for_clusters(rows_, k) * draw(st.sampled_from([1.0, 1.0, 0.4, 2.5]))


@pytest.mark.compiled
@pytest.mark.parametrize("collapsed", [False, True])
@pytest.mark.parametrize("splits", [False, True])
@given(data=planted())
def test_dp_means_is_never_above_the_published_algorithm(collapsed, splits, data):
    points, weight, penalty = data
    literal = naive.dp_objective(points, weight, naive.dp_means(points, weight, penalty), penalty)
    moments = Moments.rows_of_points(points, weight)
    ours = fit_rows(moments, penalty, collapsed=collapsed, splits=splits)
    assert ours.objective <= literal * (1 + 1e-9)
    assert naive.dp_objective(points, weight, ours.labels.tolist(), penalty) <= literal * (1 + 1e-9)


@pytest.mark.compiled
@given(data=planted(), n_leaves=st.integers(20, 100))
def test_dp_means_of_leaves_is_never_above_the_published_algorithm_on_them(data, n_leaves):
    """A leaf is a point of the leaf's weight; what lies within it is the same for both."""
    points, weight, penalty = data
    tree = SummaryTree(points.shape[1], scatter="scalar", max_leaves=n_leaves)
    tree.insert(points, weight)
    leaves = tree.leaves()
    leaves = leaves[np.flatnonzero(leaves.weight > 0)]
    labels = naive.dp_means(leaves.mean, leaves.weight, penalty)
    literal = naive.dp_objective(leaves.mean, leaves.weight, labels, penalty, float(leaves.scatter.sum()))
    assert fit_tree(tree, penalty).objective <= literal * (1 + 1e-9)


@pytest.mark.parametrize("collapsed", [False, True])
@given(data=rows())
def test_dp_means_steps_report_what_their_labels_cost(collapsed, data):
    points, weight, penalty = data
    state = DPLabelling(DPProblem(Moments.rows_of_points(points, weight), penalty, 1000), points[:1])
    for _ in range(6):
        moved = state.step()
        slow = naive.dp_objective(points, weight, state.labels.tolist(), penalty)
        np.testing.assert_allclose(state.objective, slow, rtol=1e-6, atol=1e-6 * penalty)
        if collapsed and state.collapsed_step():
            after = naive.dp_objective(points, weight, state.labels.tolist(), penalty)
            assert after <= slow * (1 + 1e-9) + 1e-9 * penalty
        if not moved:
            break


@given(data=rows())
def test_leaves_count_the_scatter_within_them(data):
    points, weight, penalty = data
    leaf = np.arange(len(points)) % 4
    leaves = Moments.rows_of_points(points, weight).to_groups(leaf, kind="full")
    leaves = leaves[np.flatnonzero(leaves.weight > 0)]
    found = fit_rows(leaves, penalty)
    slow = naive.dp_objective(points, weight, found.labels[leaf].tolist(), penalty)
    np.testing.assert_allclose(found.objective, slow, rtol=1e-6, atol=1e-6 * penalty)


@pytest.mark.compiled
@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_dp_means_finds_the_best_of_all_partitions(seed):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(7, 2)) + 3.0 * rng.integers(0, 3, size=(7, 1))
    weight = np.ones(7)
    penalty = float(rng.uniform(0.5, 15.0))
    best = naive.best_partition(points, weight, penalty)
    moments = Moments.rows_of_points(points)
    for collapsed in (False, True):
        found = fit_rows(moments, penalty, collapsed=collapsed, splits=True, restarts=60)
        assert found.objective == pytest.approx(best, rel=1e-9)


@given(data=rows())
def test_a_single_pass_is_its_slow_twin_and_keeps_groups_within_the_radius(data):
    points, _, penalty = data
    groups = lead(points, penalty)
    assert groups.tolist() == naive.leaders(points, penalty)
    first = np.unique(groups, return_index=True)[1]
    gaps = ((points - points[first][groups]) ** 2).sum(axis=1)
    assert np.all(gaps <= penalty)
    apart = ((points[first][:, None] - points[first]) ** 2).sum(axis=2)
    assert np.all(apart[~np.eye(len(first), dtype=bool)] > penalty)


# ---------------------------------------------------------------- features


@pytest.mark.filterwarnings("ignore:features were stopped")
@pytest.mark.parametrize("algorithm", ["bp", "collapsed", "k-features", "stepwise", "plus-plus"])
@settings(max_examples=15)
@given(data=rows(most=40), seed=st.integers(0, 99))
@example(data=rows_whose_feature_is_replaced_twice(), seed=0)
def test_feature_objectives_fall(algorithm, data, seed):
    points, weight, penalty = data
    penalty = penalty * len(points) * 0.3
    common = {"penalty": penalty, "weight": weight, "restarts": 2, "max_features": 5, "rng": seed}
    if algorithm == "k-features":
        steps = list(k_features_steps(points, 2, **common))
    elif algorithm == "stepwise":
        steps = list(k_features_steps(points, None, **common))
    else:
        init = "plus-plus" if algorithm == "plus-plus" else "greedy"
        steps = list(bp_means_steps(points, collapsed=algorithm == "collapsed", init=init, **common))
    found = steps[-1].result
    size = float(weight @ (points**2).sum(axis=1))
    assert falls(steps, 1e-9 * found.objective + 1e-12 * size)
    slow = naive.remainder(points, found.Z.astype(float), weight) + penalty * found.n_features
    np.testing.assert_allclose(found.objective, slow, rtol=1e-6, atol=1e-10 * size)
    if algorithm not in ("k-features", "stepwise"):
        nothing = float(weight @ (points**2).sum(axis=1))
        assert found.objective <= nothing * (1 + 1e-12)
        z = found.Z.astype(float)
        assert np.linalg.matrix_rank(z) == found.n_features  # no feature is made of others


@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_rows_take_the_nearest_combination(seed, k):
    rng = np.random.default_rng(seed)
    A, usual = rng.normal(size=(k, 4)) * 10 ** rng.uniform(-2, 2, size=(k, 1)), rng.random(k) < 0.5
    points = rng.normal(size=(5, 4)) + (rng.random((5, k)) < 0.5) @ A
    Z = nearest_features(points, A, usual)
    reached = ((points - Z @ A) ** 2).sum(axis=1)
    best = [naive.nearest_combination(x, A) for x in points]
    if k <= 10:
        np.testing.assert_allclose(reached, best, rtol=1e-6, atol=1e-9 * float((A**2).max()))
    else:  # searched, not enumerated: no single flip is better
        for f in range(k):
            flipped = Z.copy()
            flipped[:, f] ^= True
            assert np.all(((points - flipped @ A) ** 2).sum(axis=1) >= reached * (1 - 1e-9) - 1e-9)


@pytest.mark.compiled
@settings(max_examples=3)
@given(st.integers(0, 2**32 - 1))
def test_k_features_finds_the_best_of_all_allocations(seed):
    rng = np.random.default_rng(seed)
    X = (rng.random((6, 2)) < 0.5) @ rng.normal(size=(2, 3)) * 3.0 + 0.5 * rng.normal(size=(6, 3))
    best = naive.best_allocation(X, 2)
    found = fit_k_features(X, 2, penalty=1.0, restarts=60)
    assert found.objective - 2.0 == pytest.approx(best, rel=1e-7, abs=1e-9)
    one = naive.best_allocation(X, 1)
    nothing = float((X**2).sum())
    penalty = max(best / 0.9, 1e-3)  # three features, even if they left nothing, would be no cheaper than two
    least = min(nothing, one + penalty, best + 2 * penalty)
    for collapsed in (False, True):
        found = fit_features(X, penalty, collapsed=collapsed, restarts=200)
        assert found.objective == pytest.approx(least, rel=1e-7)


@given(data=rows(most=30), k=st.integers(1, 4), seed=st.integers(0, 99))
def test_collapsed_pass_prices_rows_exactly(data, k, seed):
    """The cost that a pass reports for its dearest row is what the row adds to the remainder of the others."""
    points, weight, penalty = data
    rng = np.random.default_rng(seed)
    Z = rng.random((len(points), k)) < 0.5
    state = Allocation(BPProblem(points, weight, penalty), Z, np.zeros((k, points.shape[1])))
    state.fit()
    state = without_redundant(state)
    before = state.remainder
    moved, row, cost = state.collapsed_step()
    assert state.remainder <= before * (1 + 1e-9)
    if not moved and row >= 0 and state.n_features:
        z = state.Z.astype(float)
        others = np.arange(len(points)) != row
        without = naive.remainder(points[others], z[others], weight[others])
        size = float(weight @ (points**2).sum(axis=1))
        np.testing.assert_allclose(
            cost, naive.remainder(points, z, weight) - without, rtol=1e-5, atol=1e-8 * size + 1e-30
        )


def test_dependent_features_end():
    """c3 = c1 + c2 is no two equal columns, and still a feature too many."""
    rng = np.random.default_rng(0)
    z = np.zeros((30, 2), dtype=bool)
    z[:15, 0], z[15:, 1] = True, True
    Z = np.column_stack([z, z.any(axis=1)])
    state = Allocation(BPProblem(rng.normal(size=(30, 4)), np.ones(30), 1.0), Z, np.zeros((3, 4)))
    state.fit()
    less = without_redundant(state)
    assert less.n_features == 2
    assert less.remainder == pytest.approx(state.remainder)
