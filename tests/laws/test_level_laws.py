"""Laws of levels: nested, fewer and fewer clusters, and the same whatever the order and the units."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from streamclust.families import FAMILIES, Finite
from streamclust.levels import chosen_level, default_level, levels_of, path_of_counts, path_of_gaussians
from streamclust.levels.path import distances_from, evidence_needed
from streamclust.moments import Moments
from streamclust.shapes.joins import by_first
from tests.naive import levels as naive

pytestmark = pytest.mark.compiled
seeds = st.integers(0, 2**32 - 1)


def gaussians(seed, d, k):
    """Components of any weight and covariance; some are joined already."""
    rng = np.random.default_rng(seed)
    weight = rng.uniform(5, 500, size=k)
    factor = rng.normal(size=(k, d, d)) * 0.5 + np.eye(d)
    covariance = factor @ factor.transpose(0, 2, 1)
    mean = rng.normal(size=(k, d)) * rng.uniform(1, 15)
    owner = by_first(rng.integers(max(1, k - 2), size=k)) if rng.random() < 0.3 else np.arange(k)
    return Moments(weight, mean, covariance * weight[:, None, None], "full"), owner


def counts(seed, d, k):
    rng = np.random.default_rng(seed)
    rows = rng.poisson(rng.gamma(1.0, 5.0, size=(k, d))[np.repeat(np.arange(k), 20)]).astype(float)
    return Moments.rows_of_points(rows).to_groups(np.repeat(np.arange(k), 20)), np.arange(k), rows


def any_path(seed, d, k):
    if seed % 4 == 0:
        clusters, owner, rows = counts(seed, d, k)
        return path_of_counts(
            FAMILIES["poisson"].informed(rows), Finite(1.0), clusters, owner, float(len(rows))
        )
    return path_of_gaussians(*gaussians(seed, d, k))


def sets(labels):
    return {frozenset(np.flatnonzero(labels == c)) for c in set(labels)}


@given(seed=seeds, d=st.integers(1, 4), k=st.integers(1, 9))
def test_levels_are_nested_and_end_at_one_cluster(seed, d, k):
    path = any_path(seed, d, k)
    assert_array_equal(path.labels(path.n_finest), by_first(path.owner))
    assert set(path.labels(1)) == {0}
    for number in range(path.n_finest, 0, -1):
        labels = path.labels(number)
        assert len(set(labels)) == number
        assert all(len(set(labels[path.owner == c])) == 1 for c in path.owner)
        if number > 1:
            coarser = sets(path.labels(number - 1))
            assert all(any(cluster <= other for other in coarser) for cluster in sets(labels))


@given(seed=seeds, d=st.integers(1, 4), k=st.integers(1, 9))
def test_evidence_per_event_falls_along_the_path(seed, d, k):
    path = any_path(seed, d, k)
    assert np.all(np.diff(path.zeta) <= 0)
    assert np.all((path.zeta > 0) & (path.zeta <= 1))
    assert path.at(1.0) == path.n_finest
    numbers = [path.at(zeta) for zeta in np.geomspace(1, 1e-12, 50)]
    assert all(finer >= coarser for finer, coarser in pairwise(numbers))
    assert np.all(path.persistence >= 0)
    assert path.persistence[0] == np.inf
    assert_allclose(path.persistence[1:].sum(), -np.log(path.zeta[-1]) if k > 1 and len(path.zeta) else 0.0)


@given(seed=seeds, d=st.integers(1, 4), k=st.integers(1, 9))
def test_order_of_components_does_not_matter(seed, d, k):
    components, owner = gaussians(seed, d, k)
    order = np.random.default_rng(seed).permutation(k)
    here, there = (
        path_of_gaussians(components, owner),
        path_of_gaussians(components[order], by_first(owner[order])),
    )
    assert_allclose(there.zeta, here.zeta, rtol=1e-6)
    for number in range(1, here.n_finest + 1):
        assert sets(there.labels(number)) == sets(here.labels(number)[order])


@given(seed=seeds, d=st.integers(1, 4), k=st.integers(2, 9))
def test_units_and_origin_of_features_do_not_matter(seed, d, k):
    components, owner = gaussians(seed, d, k)
    rng = np.random.default_rng(seed)
    scale, shift = 2.0 ** rng.integers(-20, 20, size=d), rng.integers(-64, 64, size=d).astype(float)
    moved = Moments(
        components.weight,
        (components.mean + shift) * scale,
        components.scatter * np.outer(scale, scale),
        "full",
    )
    here, there = path_of_gaussians(components, owner), path_of_gaussians(moved, owner)
    assert_allclose(there.zeta, here.zeta, rtol=1e-6)
    for number in range(1, here.n_finest + 1):
        assert_array_equal(there.labels(number), here.labels(number))


@given(seed=seeds, d=st.integers(1, 3), k=st.integers(2, 5))
@settings(max_examples=15)
def test_the_path_is_that_of_comparing_every_pair_anew(seed, d, k):
    components, owner = gaussians(seed, d, k)
    components = components.scale(400.0 / components.weight.sum())
    owner = np.arange(k) if seed % 2 else owner
    path = path_of_gaussians(components, owner)
    expected = naive.merges(components.weight, components.mean, ridged(components), owner)
    least = 1.0
    for t, (clusters, lost, weight) in enumerate(expected):
        assert sets(path.labels(path.n_finest - t)) == set(clusters)
        least = min(least, naive.zeta(lost, d, weight))
        assert_allclose(path.zeta[t], least, rtol=1e-4)


def ridged(components):
    """Covariances with the ridge that the path adds, in units of the deviations within components."""
    within = np.average(components.covariance, axis=0, weights=components.weight)
    return components.covariance + 1e-6 * np.diag(np.diag(within))


@given(seed=seeds, d=st.integers(1, 3), k=st.integers(2, 6), far=st.floats(1e5, 1e9))
def test_a_far_group_leaves_the_levels_of_the_others(seed, d, k, far):
    """A dozen events, however far: the level of one cluster more has the others as they were."""
    components, _ = gaussians(seed, d, k)
    group = components[[0]].scale(12.0 / components.weight[0]).shift(np.full(d, far))
    alone = path_of_gaussians(components, np.arange(k))
    both = path_of_gaussians(Moments.stack([components, group]), np.arange(k + 1))
    for number in range(1, k + 1):
        assert_array_equal(both.labels(number + 1)[:k], alone.labels(number))


@given(d=st.integers(1, 3), copies=st.integers(2, 9), gap=st.floats(0.1, 20.0), n=st.floats(20, 1e5))
def test_clusters_elsewhere_change_nothing_that_a_pair_needs(d, copies, gap, n):
    """Of a pair that is there several times, far apart, each merges at the same ζ."""
    mean = np.zeros((2, d))
    mean[1, 0] = gap
    pair = Moments(np.full(2, n), mean, np.full((2, d, d), n * np.eye(d)), "full")
    many = Moments.stack([pair.shift(np.full(d, 1e6 * copy)) for copy in range(copies)])
    one = path_of_gaussians(pair, np.arange(2))
    found = path_of_gaussians(many, np.arange(2 * copies))
    assert_allclose(found.zeta[:copies], np.repeat(one.zeta, copies), rtol=1e-3)


@given(seed=seeds, d=st.integers(1, 3), k=st.integers(2, 9), number=st.integers(1, 9))
def test_levels_on_show_stay_where_nothing_has_changed(seed, d, k, number):
    components, owner = gaussians(seed, d, k)
    path = path_of_gaussians(components, owner)
    number = min(number, path.n_finest)
    again = path_of_gaussians(components, owner, together=path.clusters(number))
    assert_array_equal(again.clusters(number), path.clusters(number))


@given(seed=seeds, d=st.integers(1, 3), k=st.integers(2, 9))
def test_what_is_on_show_decides_between_merges_of_nearly_the_same_loss(seed, d, k):
    """A grouping on show gives way only to merges that lose less than half as much."""
    components, owner = gaussians(seed, d, k)
    plain = path_of_gaussians(components, owner)
    together = np.random.default_rng(seed).integers(-1, 3, size=plain.n_finest)
    found = path_of_gaussians(components, owner, together=together)
    assert np.all(found.zeta <= 1)
    assert np.all(np.diff(found.zeta) <= 0)
    if plain.n_finest > 1:
        first, second = found.children[0]
        if together[first] < 0 or together[first] != together[second]:
            assert_array_equal(found.children[0], plain.children[0])


@given(lost=st.floats(0, 1e6), d=st.integers(1, 30), n=st.floats(1, 1e6))
def test_evidence_needed_solves_its_equation(lost, d, n):
    assert_allclose(evidence_needed(np.array([lost]), d, np.array([n])), naive.zeta(lost, d, n), rtol=1e-6)


@given(
    seed=seeds, k=st.integers(1, 9), least=st.integers(1, 12), more=st.integers(0, 5), n=st.floats(0.1, 1e5)
)
def test_a_choice_is_among_the_levels_and_within_what_was_asked(seed, k, least, more, n):
    path = any_path(seed, 2, k)
    finest = path.n_finest
    assert chosen_level(path, "fine") == finest
    assert chosen_level(path, n_clusters=least) == min(least, finest)
    inside = chosen_level(path, n_clusters=(least, least + more))
    assert min(least, finest) <= inside <= min(least + more, finest)
    auto, coarse = default_level(path), chosen_level(path, "coarse")
    assert 1 <= coarse <= auto <= finest
    assert (auto == 1) == (finest == 1)
    assert 1 <= chosen_level(path, n) <= chosen_level(path, 2 * n) <= finest
    shown = [level.n_clusters for level in levels_of(path, auto) if level.shown]
    assert shown == [auto]


@given(seed=seeds, d=st.integers(1, 5), bend=st.sampled_from([0.0, -1e-12]))
def test_distances_are_those_of_solving(seed, d, bend):
    """Also where rounding made a covariance indefinite, in the last feature."""
    rng = np.random.default_rng(seed)
    mean, weight = rng.normal(size=(4, d)), rng.uniform(1, 50, size=4)
    half = rng.normal(size=(4, d, d))
    scatter = half @ half.transpose(0, 2, 1) + np.eye(d)
    if bend and d > 1:
        scatter[:, :, -1], scatter[:, -1, :] = scatter[:, :, 0], scatter[:, 0, :]
        scatter[:, -1, -1] = scatter[:, 0, 0] * (1 + bend)
    others = np.array([0, 3, 1])
    expected = [
        (mean[o] - mean[2])
        @ np.linalg.solve((scatter[2] + scatter[o]) / (weight[2] + weight[o]), mean[o] - mean[2])
        for o in others
    ]
    assert_allclose(distances_from(2, others, mean, scatter, weight), expected, rtol=1e-3 if bend else 1e-7)
