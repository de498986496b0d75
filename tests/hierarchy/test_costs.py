"""Compiled costs are the families' own formulas."""

import numpy as np
import pytest

from streamclust._kernels.hierarchy import costs as kernels
from streamclust.families import FAMILIES, BernoulliProduct, FlatGaussian, Gaussian
from streamclust.hierarchy.agglomerate import agglomerate, method_named
from streamclust.hierarchy.problem import MergeProblem, check_rows
from streamclust.moments import Moments
from tests.hierarchy.scenes import METHODS, energy_of, rows_of

every = pytest.mark.parametrize("name", FAMILIES)
methods = pytest.mark.parametrize("method", METHODS)


def made(method, name, d=3, n=9, weighted=False, seed=0):
    family, rows = rows_of(name, n, d, np.random.default_rng(seed), weighted)
    return MergeProblem.of(method_named(method, family, None, 2.0, 1.5), family, rows), family, rows


@every
@methods
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_costs_are_differences_of_the_families_energies(method, name, weighted, d):
    problem, family, rows = made(method, name, d, weighted=weighted)
    energy = energy_of(method, family, rows, alpha=1.5)
    n = len(rows)
    others = np.arange(n)
    for i in range(n):
        expected = [energy((i, j)) - energy((i,)) - energy((j,)) if i != j else np.inf for j in others]
        np.testing.assert_allclose(problem.costs(i, others), expected, rtol=1e-9, atol=1e-8)


@every
@methods
def test_tables_are_used_for_whole_counts_alone_and_change_nothing(method, name):
    problem, _, _ = made(method, name)
    assert (problem.table.shape[1] > 0) == (method != "rbhc")
    bare = MergeProblem(*problem.arguments[:-1], np.empty((3, 0)))
    np.testing.assert_allclose(
        problem.costs(0, np.arange(1, 9)), bare.costs(0, np.arange(1, 9)), rtol=1e-10, atol=1e-9
    )
    assert made(method, name, weighted=True)[0].table.shape[1] == 0


@every
@methods
def test_a_merge_leaves_the_union_in_the_slot(method, name):
    problem, family, rows = made(method, name, weighted=True)
    cost = problem.costs(2, np.array([5]))[0]
    apart = problem.energy[2] + problem.energy[5]
    kernels.price(*problem.arguments, 2, 5, np.array([0]), 0, np.empty(1))
    together = rows[[0, 1, 3, 4, 6, 7, 8]]
    both = MergeProblem.of(
        method_named(method, family, None, 2.0, 1.5),
        family,
        Moments.stack([rows[[2, 5]].to_groups(None, kind=family.scatter), together.to(family.scatter)]),
    )
    np.testing.assert_allclose(problem.rows[2, 1:], both.rows[0, 1:], rtol=1e-10, atol=1e-10)
    if method == "bhc":
        assert problem.energy[2] == pytest.approx(-np.logaddexp(-(cost + apart), -apart))
    elif not problem.is_ward:
        assert problem.energy[2] == pytest.approx(cost + apart)
        others = np.array([0, 1, 3, 4])
        np.testing.assert_allclose(
            problem.costs(2, others), both.costs(0, np.arange(1, 5)), rtol=1e-8, atol=1e-8
        )


@pytest.mark.parametrize("method", METHODS)
def test_costs_are_the_same_from_both_sides(method):
    problem, _, _ = made(method, "gaussian", weighted=True)
    matrix = np.array([problem.costs(i, np.arange(9)) for i in range(9)])
    np.testing.assert_array_equal(matrix, matrix.T)


def test_determinants_beyond_the_range_of_numbers():
    family, rows = rows_of("gaussian", 9, 40, np.random.default_rng(0), False)
    for scale in (1e-12, 1e12):
        moved = Gaussian(family.xi0, family.m0 * scale, family.eta0, family.B0 * scale**2)
        shrunk = Moments.rows_of_points(rows.mean * scale)
        problem = MergeProblem.of(method_named("abc", moved, None, 2.0, 1.0), moved, shrunk)
        energy = energy_of("abc", moved, shrunk)
        expected = [energy((0, j)) - energy((0,)) - energy((j,)) for j in range(1, 9)]
        np.testing.assert_allclose(problem.costs(0, np.arange(1, 9)), expected, rtol=1e-6)


def test_costs_do_not_depend_on_where_the_data_lie():
    """At 1e8 from the origin the data have eight digits left; the costs keep them."""
    rng = np.random.default_rng(1)
    x = np.round(rng.normal(size=(8, 3)) * 2**10) / 2**10
    near, far = [
        MergeProblem.of(method_named(m, f, None, 2.0, 1.0), f, Moments.rows_of_points(y)).costs(
            0, np.arange(1, 8)
        )
        for y in (x, x + 2.0**27)
        for f in [Gaussian.informed(y, rule="nearest")]
        for m in ["abc"]
    ]
    np.testing.assert_allclose(near, far, rtol=1e-5)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (Moments.empty(0, 2), "no rows to merge"),
        (Moments.rows_of_points([[1.0], [2.0]], [1.0, 0.0]), "positive weight, got 0.0 in row 1"),
        (Moments.rows_of_points([[1.0], [np.nan]]), "NaN or infinity in row 1"),
        (Moments.rows_of_points([[np.inf], [1.0]]), "NaN or infinity in row 0"),
        (Moments.rows_of_points(np.zeros((3, 0))), "at least one feature"),
    ],
)
def test_rows_that_no_tree_can_have_are_named(rows, message):
    with pytest.raises(ValueError, match=message):
        check_rows(rows)


@pytest.mark.parametrize(("name", "value"), [("poisson", -1.0), ("multinomial", -3.0), ("bernoulli", 2.0)])
def test_means_that_no_counts_have(name, value):
    family = FAMILIES[name]()
    with pytest.raises(ValueError, match="means of counts"):
        MergeProblem.of(
            method_named("abc", family, None, 1.0, 1.0), family, Moments.rows_of_points([[value], [0.0]])
        )


def test_flat_priors_are_refused():
    flat = FlatGaussian.informed(np.random.default_rng(0).normal(size=(9, 2)))
    with pytest.raises(ValueError, match="flat prior"):
        MergeProblem.of(method_named("abc", flat, None, 1.0, 1.0), flat, Moments.rows_of_points([[0.0, 1.0]]))


def test_unlike_prior_counts_of_ones_and_zeros_are_refused():
    rows = Moments.rows_of_points(np.eye(3))
    with pytest.raises(ValueError, match="without zeros0"):
        agglomerate(BernoulliProduct(0.1, zeros0=0.2), rows, "abc")
