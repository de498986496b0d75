"""Laws of Bayesian k-means: F falls, closed forms hold, fast equals slow, the same seed gives the same clusters."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamclust.families import FAMILIES, Finite, Infinite, scoring
from streamclust.families import family as family_named
from streamclust.moments import Moments
from streamclust.refit.bkm.boundary_moves import nudge
from streamclust.refit.bkm.fit import fit_points
from streamclust.refit.bkm.labelling import Labelling
from streamclust.refit.bkm.problem import Problem
from streamclust.refit.bkm.splits import SplitScan
from tests.naive import bkm as naive

MIXTURES = ("finite", "infinite", "uninformative")
PAIRS = [(f, m) for f in FAMILIES for m in MIXTURES if m != "uninformative" or f == "gaussian"]
COUNTS = ("multinomial", "poisson")


@st.composite
def data(draw, name, most=120):
    """Points that the family could have produced: clusters, duplicates, constant columns, weights."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d, k = draw(st.integers(1, most)), draw(st.integers(1, 4)), draw(st.integers(1, 6))
    owner = rng.integers(draw(st.integers(1, 4)), size=n)
    if name in COUNTS:
        points = rng.poisson(rng.exponential(5.0, size=(4, d))[owner]).astype(float)
    elif name == "bernoulli":
        points = (rng.random((n, d)) < rng.random((4, d))[owner]).astype(float)
    else:
        points = rng.normal(size=(n, d)) + 5.0 * rng.normal(size=(4, d))[owner]
        shape = draw(st.sampled_from(["plain", "rounded", "constant", "far"]))
        if shape == "rounded":
            points = np.round(points)
        elif shape == "constant":
            points[:, 0] = 3.0
        elif shape == "far":
            points = points + 1e6
    weight = rng.exponential(size=n) + 0.01 if draw(st.booleans()) else np.ones(n)
    weight[0] += 1.0
    return points, weight, rng.integers(k, size=n)


def problem_of(name, mixture, points, weight, kish=False):
    family, mixture = scoring(mixture, family_named(name).informed(points), points)
    return Problem(family, mixture, Moments.rows_of_points(points, weight), kish)


@pytest.mark.parametrize(("name", "mixture"), PAIRS)
@given(st.data())
def test_free_energy_falls_with_every_iteration(name, mixture, draw):
    points, weight, labels = draw.draw(data(name))
    state = Labelling(problem_of(name, mixture, points, weight), labels)
    values = [state.free_energy]
    while state.step():
        values.append(state.free_energy)
        # What the labelling remembers is what its labels say: nothing stale, no empty cluster.
        fresh = state.problem.group(state.labels, state.n_clusters)
        assert state.n_clusters == 1 or np.all(fresh.weight > 0)
        expected = state.problem.mixture.free_energy(state.problem.family, fresh)
        np.testing.assert_allclose(state.free_energy, expected, rtol=1e-9, atol=1e-7)
        assert len(values) < 500
    assert np.all(np.diff(values) < 0)


@pytest.mark.parametrize(("name", "mixture"), PAIRS)
@given(st.data())
def test_iterations_through_a_tree_are_those_without(name, mixture, draw):
    """Step by step, and many at once; rows of weight 0 and duplicates among them."""
    points, weight, labels = draw.draw(data(name))
    weight[1::7] = 0.0
    plain = problem_of(name, mixture, points, weight)
    with_tree = replace(plain, assign="tree")
    slow, fast = Labelling(plain, labels), Labelling(with_tree, labels)
    for _ in range(3):
        assert slow.step() == fast.step()
        np.testing.assert_array_equal(fast.labels, slow.labels)
        np.testing.assert_array_equal(fast.terms, slow.terms)
    slow.converge()
    fast.converge()
    # Ties within rounding may be settled otherwise on the way; points in general position have none.
    if len(np.unique(points, axis=0)) == len(points) and np.ptp(points, axis=0).all():
        np.testing.assert_array_equal(fast.labels, slow.labels)
    assert not fast.step()


@pytest.mark.parametrize("whole_leaves", [False, True])
@given(st.data())
def test_compiled_iterations_are_those_made_one_by_one(whole_leaves, draw):
    points, weight, labels = draw.draw(data("gaussian"))
    weight[1::7] = 0.0
    problem = problem_of("gaussian", "finite", points, weight)
    if whole_leaves:
        leaf = draw.draw(st.integers(1, 30))
        leaves = problem.rows.to_groups(np.arange(len(points)) % leaf, leaf, kind="full")
        problem = replace(problem, rows=leaves[np.flatnonzero(leaves.weight > 0)])
    labels = labels[: len(problem.rows)]
    slow, fast = Labelling(problem, labels), Labelling(problem, labels)
    made = 0
    while slow.step():
        made += 1
    some = fast.compiled_iterations(2)
    assert some == min(made, 2)
    fast.compiled_iterations()
    assert not fast.step()
    again = Labelling(problem, fast.labels, fast.n_clusters)
    np.testing.assert_allclose(fast.terms, again.terms, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(fast.priced(), again.priced(), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(fast.merge_changes(), again.merge_changes(), rtol=1e-7, atol=1e-6)
    # Ties within rounding may be settled otherwise on the way; rows in general position have none.
    if len(np.unique(points, axis=0)) == len(points) and np.ptp(points, axis=0).all():
        np.testing.assert_array_equal(
            fast.labels[problem.rows.weight > 0], slow.labels[problem.rows.weight > 0]
        )


@pytest.mark.parametrize("name", FAMILIES)
@given(st.data())
def test_free_energy_falls_on_whole_leaves(name, draw):
    points, weight, labels = draw.draw(data(name))
    single = problem_of(name, "finite", points, weight)
    leaf = draw.draw(st.integers(1, 20))
    leaves = single.rows.to_groups(np.arange(len(points)) % leaf, leaf, kind=single.family.scatter)
    leaves = leaves[np.flatnonzero(leaves.weight > 0)]
    state = Labelling(Problem(single.family, single.mixture, leaves), labels[: len(leaves)])
    values = [state.free_energy]
    while state.step():
        values.append(state.free_energy)
    assert np.all(np.diff(values) < 0)


@pytest.mark.parametrize("name", FAMILIES)
@given(st.data())
def test_leaves_cost_what_their_points_cost(name, draw):
    points, weight, labels = draw.draw(data(name))
    single = problem_of(name, "finite", points, weight)
    clusters = Labelling(single, labels).clusters
    owner = np.arange(len(points)) % 5
    leaves = Problem(
        single.family, single.mixture, single.rows.to_groups(owner, 5, kind=single.family.scatter)
    )
    summed = np.stack([np.bincount(owner, row, 5) for row in single.costs(clusters)])
    np.testing.assert_allclose(leaves.costs(clusters), summed, rtol=1e-6, atol=1e-6 * np.abs(summed).max())


@pytest.mark.parametrize(("name", "mixture"), PAIRS)
@given(st.data())
def test_closed_form_of_a_merge_is_the_difference_of_free_energies(name, mixture, draw):
    points, weight, labels = draw.draw(data(name))
    state = Labelling(problem_of(name, mixture, points, weight), labels)
    if state.n_clusters < 2 or not np.isfinite(state.free_energy):
        return
    change = state.merge_changes()
    a, b = sorted(draw.draw(st.permutations(range(state.n_clusters)))[:2])
    merged = state.copy()
    merged.merge(a, b)
    difference = merged.free_energy - state.free_energy
    np.testing.assert_allclose(change[a, b], difference, rtol=1e-7, atol=1e-9 * abs(state.free_energy) + 1e-7)
    # ... also after iterations that reuse what did not change
    merged.converge(2)
    again = Labelling(merged.problem, merged.labels, merged.n_clusters)
    np.testing.assert_allclose(
        merged.merge_changes(), again.merge_changes(), rtol=1e-7, atol=1e-9 * abs(state.free_energy) + 1e-7
    )


@pytest.mark.parametrize(("name", "mixture"), PAIRS)
@given(st.data())
def test_closed_form_of_a_split_is_the_difference_of_free_energies(name, mixture, draw):
    points, weight, labels = draw.draw(data(name))
    state = Labelling(problem_of(name, mixture, points, weight), labels)
    if not np.isfinite(state.free_energy):
        return
    scan = SplitScan(state, np.ones(state.n_clusters, dtype=bool))
    best = scan.best(np.random.default_rng(0), (2, 1))
    for c in np.flatnonzero(np.isfinite(best.change)):
        split = state.copy()
        leaving = scan.order[(best.side == 1) & (state.labels[scan.order] == c)]
        split.split({int(c): leaving})
        difference = split.free_energy - state.free_energy
        np.testing.assert_allclose(
            best.change[c], difference, rtol=1e-7, atol=1e-9 * abs(state.free_energy) + 1e-7
        )


@pytest.mark.parametrize("mixture", ["finite", "infinite"])
@given(st.data())
def test_compiled_halves_are_those_of_any_family(mixture, draw):
    """One ME iteration between halves from the same cut; a tie may be told differently."""
    points, weight, labels = draw.draw(data("gaussian"))
    state = Labelling(problem_of("gaussian", mixture, points - points[0], weight), labels)
    scan = SplitScan(state, np.ones(state.n_clusters, dtype=bool))
    assert scan.fast
    cuts = np.random.default_rng(draw.draw(st.integers(0, 9))).integers(2, size=(2, len(points)))
    moving = both = np.tile(np.diff(scan.edges) > 1, (2, 1))
    for steps in (0, 1):
        sides = [cuts.copy(), cuts.copy()]
        one, squares, moved = scan._iterate(sides[0], moving, steps)
        two, others, stirred = scan._iterate_any(sides[1], moving, steps)
        if steps and not np.array_equal(*sides):
            return
        stands = state.problem.mixture.viable(two) & (two.weight > 0)
        both = both & stands.reshape(2, -1, 2).all(axis=2)
        which = np.repeat(both.ravel(), 2)
        np.testing.assert_allclose(one.weight[which], two.weight[which], rtol=1e-9)
        np.testing.assert_allclose(one.mean[which], two.mean[which], rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(one.scatter[which], two.scatter[which], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(squares[which], others[which], rtol=1e-9)
        np.testing.assert_array_equal(moved[both], stirred[both])


@given(st.data())
def test_compiled_changes_of_merges_and_splits_are_those_of_any_family(draw):
    points, weight, labels = draw.draw(data("gaussian"))
    kish = draw.draw(st.booleans())
    state = Labelling(problem_of("gaussian", "finite", points - points[0], weight, kish), labels)
    slack = 1e-9 * abs(state.free_energy) + 1e-7
    a, b = np.triu_indices(state.n_clusters, 1)
    smaller = np.where(state.clusters.weight[a] <= state.clusters.weight[b], a, b)
    scale = state.scales[smaller]  # a merge is judged at that of its smaller cluster
    merges = state._merged_terms(a, b, scale), state._merged_terms_any(a, b, scale)
    np.testing.assert_allclose(*merges, rtol=1e-7, atol=slack)
    scan = SplitScan(state, np.ones(state.n_clusters, dtype=bool))
    side = np.random.default_rng(0).integers(2, size=len(points))
    halves, squares = scan._grouped(side, scan.candidates)
    which = (halves.weight > 0).reshape(1, -1, 2).all(axis=2)
    splits = scan._change(halves, squares, which), scan._change_any(halves, squares, which)
    np.testing.assert_allclose(*splits, rtol=1e-7, atol=slack)


@given(st.data())
def test_nudges_never_raise_the_free_energy(draw):
    points, weight, labels = draw.draw(data("gaussian"))
    state = Labelling(problem_of("gaussian", "finite", points, weight), labels).converge()
    nudged = nudge(state)
    assert nudged is state or nudged.free_energy < state.free_energy


@given(st.data())
def test_the_gain_after_a_merge_is_what_the_next_choice_saves(draw):
    points, weight, labels = draw.draw(data("gaussian"))
    state = Labelling(problem_of("gaussian", "finite", points, weight), labels).converge()
    if state.n_clusters < 2:
        return
    a, b = sorted(draw.draw(st.permutations(range(state.n_clusters)))[:2])
    merged = state.copy()
    merged.merge(a, b)
    cost = merged.problem.costs(merged.clusters)
    saved = (cost[merged.labels, np.arange(len(points))] - cost.min(axis=0)).sum()
    gain = state.gains_after_merges(np.array([a]), np.array([b]))[0]
    np.testing.assert_allclose(gain, saved, rtol=1e-6, atol=1e-6 * np.abs(cost).max())


@given(st.data())
def test_equal_weights_are_decided_at_their_own_scale(draw):
    points, _, labels = draw.draw(data("gaussian"))
    weight = np.ones(len(points))
    plain = Labelling(problem_of("gaussian", "finite", points, weight), labels)
    kish = Labelling(problem_of("gaussian", "finite", points, weight, kish=True), labels)
    np.testing.assert_allclose(kish.scales, 1.0)
    np.testing.assert_allclose(kish.merge_changes(), plain.merge_changes(), rtol=1e-9, atol=1e-7)


@given(st.data(), st.integers(2, 5))
def test_repeated_events_are_decided_as_if_they_came_once(draw, times):
    points, _, labels = draw.draw(data("gaussian"))
    once = Labelling(problem_of("gaussian", "finite", points, np.ones(len(points)), 1.0), labels)
    rows = Moments.rows_of_points(np.repeat(points, times, axis=0), np.full(times * len(points), 1 / times))
    again = Labelling(
        Problem(once.problem.family, once.problem.mixture, rows, 1 / times), np.repeat(labels, times)
    )
    np.testing.assert_allclose(again.scales, 1.0)
    np.testing.assert_allclose(again.merge_changes(), once.merge_changes(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("infinite", [False, True])
@given(st.data())
def test_iterations_are_those_of_the_slow_twin(infinite, draw):
    name = draw.draw(st.sampled_from(["gaussian", "multinomial"]))
    points, _, labels = draw.draw(data(name, most=25))
    weight = np.ones(len(points))
    mixture = Infinite(2.0) if infinite else Finite(2.0)
    family = family_named(name).informed(points)
    if name == "gaussian":
        slow = naive.NaiveGaussian(family.xi0, family.m0, family.eta0, family.B0)
    else:
        slow = naive.NaiveMultinomial(0.1)
    state = Labelling(Problem(family, mixture, Moments.rows_of_points(points)), labels)
    labels = state.labels.copy()
    for _ in range(4):
        before = naive.free_energy(slow, points, weight, labels, 2.0, infinite)
        np.testing.assert_allclose(state.free_energy, before, rtol=1e-6, atol=1e-6)
        chosen = naive.me_step(slow, points, weight, labels, 2.0, infinite)
        after = naive.free_energy(slow, points, weight, chosen, 2.0, infinite)
        moved = state.step()
        if after > before - 1e-6:  # nothing left to gain, or an infinite mixture that would pay for an end
            assert state.free_energy <= before + 1e-6
            break
        assert moved
        if not naive.same_partition(state.labels, chosen):  # only a tie may be told differently
            np.testing.assert_allclose(state.free_energy, after, rtol=1e-6, atol=1e-4)
            break
        labels = state.labels.copy()


@pytest.mark.parametrize(("name", "mixture"), PAIRS)
@settings(max_examples=8)
@given(st.data())
def test_the_same_seed_gives_the_same_clusters(name, mixture, draw):
    points, weight, _ = draw.draw(data(name, most=60))
    seed = draw.draw(st.integers(0, 99))
    one, two = (fit_points(name, points, weight, rng=seed, mixture=mixture) for _ in range(2))
    np.testing.assert_array_equal(one.labels, two.labels)
    assert one.free_energy == two.free_energy
    np.testing.assert_allclose(one.clusters.weight.sum(), weight.sum())
    assert np.all(np.diff(one.clusters.weight) <= 0)
    np.testing.assert_array_equal(np.unique(one.labels[weight > 0]), np.arange(one.n_clusters))


@given(st.data())
def test_top_down_never_ends_above_its_one_cluster(draw):
    points, weight, _ = draw.draw(data("gaussian", most=60))
    found = fit_points("gaussian", points, weight, search="top-down")
    rows = Moments.rows_of_points(points, weight)
    one = Labelling(Problem(found.family, found.mixture, rows), np.zeros(len(points), dtype=np.int64))
    assert found.free_energy <= one.free_energy


@pytest.mark.parametrize("name", ["gaussian", "diagonal", "spherical"])
@given(st.data())
def test_far_from_the_origin_the_clusters_are_the_same(name, draw):
    """Offsets that lose no digits of the points change no label."""
    points, weight, labels = draw.draw(data(name))
    points = np.round((points - points[0]) * 64) / 64
    here = problem_of(name, "finite", points, weight)
    moved = replace(here.family, m0=here.family.m0 + 2.0**20)
    there = Problem(moved, here.mixture, Moments.rows_of_points(points + 2.0**20, weight))
    one, two = (Labelling(problem, labels).converge(3) for problem in (here, there))
    np.testing.assert_allclose(one.free_energy, two.free_energy, rtol=1e-6, atol=1e-6)
