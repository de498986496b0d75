"""Laws of every hierarchy, whatever the family, the method, the search and the data."""

import json

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.cluster import hierarchy as scipy_hierarchy
from scipy.spatial.distance import pdist

from streamclust.families import FAMILIES
from streamclust.hierarchy import Dendrogram, agglomerate
from streamclust.moments import Moments
from tests.hierarchy.scenes import CONTINUOUS, METHODS, energy_of, points_of, rows_of
from tests.naive import hierarchy as naive

every_method = pytest.mark.parametrize("method", METHODS)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def tables(draw, name, fewest=2, most=40):
    """Points of the family: clusters, duplicates, all equal, constant columns; far away, on any scale."""
    rng = np.random.default_rng(draw(seeds))
    n, d = draw(st.integers(fewest, most)), draw(st.integers(1, 4))
    x = points_of(name, n, d, rng)
    shape = draw(st.sampled_from(["clusters", "duplicates", "all equal", "constant column"]))
    if shape == "duplicates":
        x = x[rng.integers(n, size=n)]
    elif shape == "all equal":
        x[:] = x[0]
    elif shape == "constant column":
        x[:, 0] = x[0, 0]
    if name in CONTINUOUS:
        x = x * draw(st.sampled_from([1.0, 1e-8, 1e6])) + draw(st.sampled_from([0.0, 1e8]))
    return x


@every_method
@given(data=st.data())
def test_scipy_accepts_every_linkage(method, data):
    name = data.draw(st.sampled_from(sorted(FAMILIES)))
    x = data.draw(tables(name))
    search = data.draw(st.sampled_from(["auto", "lazy", "conga"]))
    tree = agglomerate(name, Moments.rows_of_points(x), method, search)
    linkage = tree.to_linkage()
    n = len(x)
    assert scipy_hierarchy.is_valid_linkage(linkage)
    assert scipy_hierarchy.is_monotonic(linkage)
    assert linkage[-1, 3] == n
    drawn = scipy_hierarchy.dendrogram(linkage, no_plot=True)
    assert sorted(drawn["leaves"]) == list(range(n))
    assert scipy_hierarchy.cophenet(linkage).shape == (n * (n - 1) // 2,)
    k = data.draw(st.integers(1, n))
    if (
        k == 1 or k == n or tree.height[n - k] > tree.height[n - k - 1]
    ):  # SciPy cannot cut between equal heights
        level = np.inf if k == 1 else (linkage[n - k, 2] + (linkage[n - k - 1, 2] if k < n else -1.0)) / 2
        theirs = scipy_hierarchy.fcluster(linkage, level, criterion="distance")
        pairs = {*zip(theirs.tolist(), tree.cut(k=k).tolist(), strict=True)}
        assert len(pairs) == k == len(np.unique(theirs))


@every_method
@pytest.mark.parametrize("search", ["lazy", "conga"])
@given(seed=seeds, name=st.sampled_from(sorted(FAMILIES)), weighted=st.booleans())
def test_greedy_searches_merge_the_cheapest_pair(method, search, name, weighted, seed):
    rng = np.random.default_rng(seed)
    family, rows = rows_of(name, int(rng.integers(2, 9)), int(rng.integers(1, 4)), rng, weighted)
    tree = agglomerate(family, rows, method, search, phi0=2.0)
    energy = energy_of(method, family, rows)
    more, costs = naive.regrets(tree.children, energy, method == "bhc")
    slack = 1e-9 * (1 + max(abs(energy((i,))) for i in range(len(rows))))
    assert_allclose(more, 0.0, atol=slack)
    assert_allclose(tree.cost, costs, rtol=1e-8, atol=slack)


@pytest.mark.parametrize("name", ["spherical", "poisson"])
@given(seed=seeds)
def test_the_chain_is_greedy_where_costs_are_reducible(name, seed):
    rng = np.random.default_rng(seed)
    family, rows = rows_of(name, int(rng.integers(2, 40)), 2, rng, weighted=True)
    chain, greedy = agglomerate(family, rows, search="chain"), agglomerate(family, rows, search="lazy")
    assert_allclose(chain.cost, greedy.cost, rtol=1e-7, atol=1e-9)
    for k in range(1, len(rows) + 1):
        assert_array_equal(chain.cut(k=k), greedy.cut(k=k))


@given(data=st.data())
def test_spherical_rbhc_is_ward(data):
    x = data.draw(tables("spherical", most=200))
    spread = np.ptp(x, axis=0).max()
    assume(spread == 0 or spread > 1e-7 * np.abs(x).max())  # below, every distance is a rounding error
    tree = agglomerate("spherical", Moments.rows_of_points(x))
    centred = x - x.mean(axis=0)  # SciPy's distances lose digits far from the origin
    ward = scipy_hierarchy.linkage(pdist(centred), "ward")
    scale = max(float(ward[-1, 2]), 1e-300)
    # Squared distances of points at 1e8 are known no better than the points are.
    slack = 1e-9 if np.abs(x).max() < 1e7 else 1e-6
    assert_allclose(2 * np.sqrt(tree.cost) / scale, ward[:, 2] / scale, rtol=0, atol=slack)


@given(data=st.data())
def test_the_root_has_everything_and_cuts_are_nested(data):
    name = data.draw(st.sampled_from(sorted(FAMILIES)))
    x = data.draw(tables(name))
    kind = FAMILIES[name].scatter
    rows = Moments.rows_of_points(x).to_groups(np.arange(len(x)), kind=kind)
    tree = agglomerate(name, rows)
    root, total = tree.moments[len(tree.moments) - 1], rows.total()
    assert_allclose(root.weight, total.weight)
    assert_allclose(root.mean, total.mean, rtol=1e-12, atol=1e-12 * np.abs(x).max())
    assert_allclose(tree.weight[len(x) :], tree.count[len(x) :])
    for k in range(1, len(x)):
        coarse, fine = tree.cut(k=k), tree.cut(k=k + 1)
        assert len({*zip(coarse.tolist(), fine.tolist(), strict=True)}) == k + 1


@every_method
@given(data=st.data())
def test_stored_trees_come_back_bit_for_bit(method, data):
    x = data.draw(tables("gaussian", fewest=1))
    tree = agglomerate("gaussian", Moments.rows_of_points(x), method)
    again = Dendrogram.from_dict(json.loads(json.dumps(tree.to_dict())))
    for name, array in tree.to_arrays().items():
        assert_array_equal(array, again.to_arrays()[name])
        assert array.dtype == again.to_arrays()[name].dtype
    assert (again.stop, again.method, again.leaves.kind) == (tree.stop, tree.method, tree.leaves.kind)


@given(seed=seeds, n=st.integers(3, 14), classes=st.integers(1, 2))
def test_purity_is_its_definition(seed, n, classes):
    rng = np.random.default_rng(seed)
    tree = agglomerate("spherical", Moments.rows_of_points(rng.normal(size=(n, 2))))
    labels = rng.integers(classes, size=n)
    assert_allclose(tree.purity(labels), naive.purity(tree.children, labels))


@given(seed=seeds)
def test_purity_of_weighted_leaves_is_that_of_their_points(seed):
    """Leaves of w equal points have the purity of the tree in which these merge first."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    weight = rng.integers(1, 5, size=n)
    weight[0] = 3
    places, labels = rng.normal(size=(n, 2)), rng.integers(2, size=n)
    tree = agglomerate("spherical", Moments.rows_of_points(places, weight.astype(float)))
    points = agglomerate("spherical", Moments.rows_of_points(np.repeat(places, weight, axis=0)))
    every = np.repeat(labels, weight)
    assert_allclose(tree.purity(labels), naive.purity(points.children, every))
    mass = np.zeros((n, 2))
    mass[np.arange(n), labels] = weight
    assert_allclose(tree.purity(mass), tree.purity(labels))
