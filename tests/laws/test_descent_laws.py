"""Invariant 4: the blacklisting descent labels every point as brute force does, whatever the bound."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamclust.families import FAMILIES
from streamclust.families.cost_form import Linear, Quadratic
from streamclust.moments import Moments
from streamclust.tree import SummaryTree
from streamclust.tree.descent import BOUNDS, own
from streamclust.tree.label import label, label_by_blas
from tests.naive import descent as naive
from tests.streams import SPLITS, streams

EPS = np.finfo(float).eps
KIND_OF_ROOT = {"full": "full", "diagonal": "diagonal", "spherical": "scalar"}


@st.composite
def points_of(draw, name):
    """Points that a cluster of the family can have produced, many of them equal."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d = draw(st.integers(1, 400)), draw(st.integers(1, 5))
    if name == "bernoulli":
        return (rng.random((n, d)) < rng.random((1, d))).astype(float)
    if name in ("multinomial", "poisson"):
        return rng.poisson(rng.exponential(5.0, size=(1, d)), size=(n, d)).astype(float)
    x = rng.normal(size=(n, d)) + 6.0 * rng.integers(-1, 2, size=(n, 1))
    if draw(st.booleans()):  # a tight cluster inside the broad ones, and one feature that says nothing of it
        tight = rng.random(n) < 0.3
        x[tight] = x[tight] * draw(st.sampled_from([1e-3, 1e-8])) + 0.5
        x[:, 0] = rng.normal(size=n) * draw(st.sampled_from([0.0, 1.0, 100.0]))
    return x + draw(st.sampled_from([0.0, -1e8]))


@st.composite
def forms(draw, rows):
    """Costs of up to six clusters, of any shape and size, centred on or off the rows."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    k, d = draw(st.integers(1, 6)), rows.shape[1]
    spread = rows.std(axis=0) + 1e-3 * np.abs(rows - rows[0]).max() + 1e-12
    offset = rng.normal(size=k) * draw(st.sampled_from([0.0, 1.0, 10.0]))
    if draw(st.integers(0, 4)) == 0:
        offset[rng.integers(k)] = np.inf
    if draw(st.booleans()):
        return Linear(rng.normal(size=(k, d)) / spread, offset), "full"
    centre = rows[rng.integers(len(rows), size=k)] + rng.normal(size=(k, d)) * spread
    centre[0] = rows[0]
    kind = draw(st.sampled_from(sorted(KIND_OF_ROOT)))
    root = np.zeros((k, d, d))
    if kind == "full":
        root = np.tril(rng.normal(size=(k, d, d)))
    diagonal = 1.0 if kind == "spherical" else np.exp(rng.normal(size=(k, d)))
    np.einsum("kii->ki", root)[:] = diagonal
    scale = 10.0 ** rng.uniform(-3, 3, size=(k, 1, 1)) if draw(st.booleans()) else 1.0
    size = spread.mean() if kind == "spherical" else spread
    root = root * scale / size
    if k > 1 and draw(st.booleans()):  # equal clusters: the first of them owns all
        centre[1], root[1], offset[1] = centre[0], root[0], offset[0]
    return Quadratic(centre, root, offset), KIND_OF_ROOT[kind]


def exact_tree(draw, rows, weights=None, **settings):
    tree = SummaryTree(
        rows.shape[1],
        max_leaves=None,
        split=draw(st.sampled_from(SPLITS)),
        leaf_size=draw(st.sampled_from([2, 5, 16])),
        **settings,
    )
    tree.insert(rows, weight=weights)
    return tree


def assert_moments(moments, points, weights, labels):
    """Nine digits of each cluster's own size, but for what rounding at the data's extent takes away."""
    extent = np.abs(points - points[0]).max()
    truth = naive.cluster_moments(points, weights, labels, len(moments))
    for row, (weight, mean, scatter) in zip(moments, truth, strict=True):
        assert abs(row.weight[0] - weight) <= 1e-9 * weight
        if weight == 0:
            continue
        size = np.sqrt(np.trace(scatter) / weight)
        blur = 32 * EPS * (extent + np.spacing(np.abs(points).max()))
        assert np.all(np.abs(row.mean[0] - mean) <= 1e-9 * size + blur + np.spacing(np.abs(row.mean[0])))
        expected = Moments(np.ones(1), np.zeros((1, len(mean))), scatter[None].astype(float)).to(row.kind)
        slack = weight * (1e-9 * size**2 + 2 * size * blur + blur**2)
        assert np.all(np.abs(row.scatter - expected.scatter) <= slack)


@pytest.mark.parametrize("name", FAMILIES)
@given(st.data())
def test_every_family_and_bound_labels_as_brute_force(name, data):
    points = data.draw(points_of(name))
    tree = exact_tree(data.draw, points, scatter=FAMILIES[name].scatter)
    family = FAMILIES[name].informed(tree)
    x, w = tree.sample()
    k = data.draw(st.integers(1, 5))
    start = np.random.default_rng(data.draw(st.integers(0, 99))).integers(k, size=len(x))
    if data.draw(st.booleans()):  # clusters as they are, not a random mixture of them
        start = np.minimum(np.argsort(np.argsort(x.sum(axis=1))) * k // len(x), k - 1)
    clusters = Moments.rows_of_points(x, w).to_groups(start, k, kind=family.scatter)
    posterior = family.posterior(clusters)
    mixing = np.log1p(clusters.weight)
    form = family.cost_form(posterior, mixing)
    expected = naive.labels(x, form)
    costs = family.labelling_cost(posterior, x) - mixing
    np.testing.assert_allclose(form.cost(x), costs, rtol=1e-9, atol=1e-9 * np.abs(costs).max())
    costs_of = naive.costs(x, form)
    slack = 1e-9 * (np.abs(costs_of).sum() + 1)
    if isinstance(
        form, Quadratic
    ):  # a mean far from the origin is rounded to an ulp, a scatter of few points thin
        extent = np.linalg.norm(form.root, axis=(1, 2)).max() * np.linalg.norm(np.ptp(x, axis=0))
        slack += 1e-13 * w.sum() * extent**2
        blur = np.linalg.norm(form.root, axis=(1, 2)).max() * x.shape[1] * np.spacing(np.abs(x).max())
        slack += w.sum() * blur * (2 * np.sqrt(np.max(costs_of - form.offset)) + blur)
    for bound in BOUNDS:
        ownership = own(tree, form, bound)
        np.testing.assert_array_equal(ownership.labels, expected, err_msg=bound)
        assert_moments(ownership.moments, x, w, expected)
        assert ownership.cost == pytest.approx(float(w @ costs_of.min(axis=1)), rel=1e-9, abs=slack)


@given(st.data())
def test_any_costs_any_stream(data):
    stream = data.draw(streams(longest=1500, timed=False))
    form, kind = data.draw(forms(stream.rows))
    tree = exact_tree(data.draw, stream.rows, stream.weights, scatter=kind)
    x, w = tree.sample()
    expected = naive.labels(x, form)
    np.testing.assert_array_equal(label(x, form), expected)
    for bound in BOUNDS:
        ownership = own(tree, form, bound)
        np.testing.assert_array_equal(ownership.labels, expected, err_msg=bound)
        assert_moments(ownership.moments, x, w, expected)


@given(st.data())
def test_prediction_through_the_tree_scores_every_cluster(data):
    stream = data.draw(streams(longest=1000, timed=False))
    form, kind = data.draw(forms(stream.rows))
    tree = SummaryTree(
        stream.rows.shape[1], scatter=kind, max_leaves=data.draw(st.sampled_from([None, 1, 30])), leaf_size=8
    )
    tree.insert(stream.rows)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    noise = rng.normal(size=stream.rows.shape) * stream.rows.std(axis=0)
    rows = np.concatenate([stream.rows, stream.rows + noise, stream.rows + 100 * noise])
    np.testing.assert_array_equal(own(tree, form).predict(rows), naive.labels(rows, form))


@given(st.data())
def test_bounded_trees_give_away_every_event_once(data):
    stream = data.draw(streams())
    form, kind = data.draw(forms(stream.rows))
    half_life = 50.0 if stream.times is not None else data.draw(st.sampled_from([None, 100.0]))
    tree = SummaryTree(
        stream.rows.shape[1],
        scatter=kind,
        max_leaves=data.draw(st.sampled_from([1, 7, 40])),
        half_life=half_life,
    )
    tree.insert(*stream.part(0, None))
    x, w = tree.sample()
    expected = naive.labels(x, form)
    sampled = own(tree, form, leaf="sample")
    np.testing.assert_array_equal(sampled.labels, expected)
    assert sampled.moments.weight.sum() == pytest.approx(w.sum(), rel=1e-9)
    whole = own(tree, form, leaf="whole")
    total = whole.moments.total()
    extent = np.abs(stream.rows - stream.rows[0]).max()
    assert total.weight[0] == pytest.approx(tree.total.weight[0], rel=1e-9)
    slack = 1e-9 * extent + 4 * np.spacing(np.abs(stream.rows).max())
    assert np.all(np.abs(total.mean - tree.total.mean) <= slack)
    assert np.all(
        np.abs(total.scatter - tree.total.scatter) <= total.weight[0] * slack * (extent + slack) * 4
    )
    leaves = tree.cut(level=64)
    above, costs = whole._above[leaves], form.cost(tree.moments(leaves))
    owner = np.where(above >= 0, whole.owner[above] if len(whole.owner) else -1, -1)
    # Moments that a split has shared out may not fit the leaf's box: only whole leaves are sure to.
    exact = np.isinf(tree._tree.cutoff[~tree._tree.child[leaves]])
    decided = exact & (owner >= 0) & (tree.moments(leaves).weight > 0)
    finite = np.where(np.isfinite(costs), costs, 0.0)
    slack = 1e-9 * np.abs(finite).sum(axis=1) + rounding(form, tree.moments(leaves), finite)
    chosen = costs[np.arange(len(leaves)), owner]
    assert np.all(chosen[decided] <= costs[decided].min(axis=1) + slack[decided])


def rounding(form, moments, costs):
    """How much costs of leaves may change where means are rounded, as they are far from the origin."""
    if isinstance(form, Linear):
        return 0.0
    step = np.spacing(np.abs(moments.mean).max()) * np.abs(form.root).sum(axis=2).max(axis=1)
    weight = moments.weight[:, None]
    return (2 * np.sqrt(np.abs(costs) * weight) * step + weight * step**2).max(axis=1)


@given(st.data())
def test_matrix_products_find_a_cheapest_cluster_too(data):
    stream = data.draw(streams(longest=500, timed=False))
    form, kind = data.draw(forms(stream.rows))
    tree = exact_tree(data.draw, stream.rows, scatter=kind)
    x, _ = tree.sample()
    costs = naive.costs(x, form)
    for labels in (
        label_by_blas(x, form),
        own(tree, form, assign="blas").labels,
        own(tree, form, assign="auto").labels,
    ):
        chosen, least = costs[np.arange(len(x)), labels], costs.min(axis=1)
        finite = np.isfinite(least)
        size = np.abs(np.where(np.isfinite(costs), costs, 0.0)).max()
        assert np.all(chosen[finite] <= least[finite] + 1e-9 * (size + 1))
    np.testing.assert_array_equal(own(tree, form, assign="points").labels, naive.labels(x, form))
