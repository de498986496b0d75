"""Laws of chunky EM: F rises, shared responsibilities are the best there are, fast equals slow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamclust.moments import Moments
from streamclust.refit.chunky_em.boxes import (
    Boxes,
    fitted,
    improve,
    iterate,
    refine,
    share,
)
from streamclust.refit.chunky_em.covariance import FORMS, Components, Space
from streamclust.refit.chunky_em.fit import fit_mixture, refit_mixture
from streamclust.refit.chunky_em.greedy import least_missed, partial_step, without
from streamclust.tree import SummaryTree
from tests.naive import chunky_em as naive

KINDS = tuple(FORMS)


@st.composite
def boxed(draw, most=120, plain=False):
    """Points with weights, in boxes (any partition: boxes need not be compact), and clusters to start from."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d, k = draw(st.integers(8, most)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    points = rng.normal(size=(n, d)) + 4.0 * rng.normal(size=(4, d))[rng.integers(4, size=n)]
    shapes = ["plain", "scaled"] if plain else ["plain", "scaled", "rounded", "constant", "far", "equal"]
    shape = draw(st.sampled_from(shapes))
    if shape == "scaled":
        points *= 10.0 ** rng.integers(-6, 6, size=d)
    elif shape == "rounded":
        points = np.round(points / 3)
    elif shape == "constant":
        points[:, 0] = 3.0
    elif shape == "far":
        points += 1e8
    elif shape == "equal":
        points[:] = points[0]
    weight = rng.exponential(size=n) + 0.01 if draw(st.booleans()) else np.ones(n)
    n_boxes = draw(st.integers(1, n))
    box = np.concatenate([np.arange(n_boxes), rng.integers(n_boxes, size=n - n_boxes)])
    owner = np.concatenate([np.arange(k), rng.integers(k, size=n - k)])
    return points, weight, box, owner


def prepared(kind, drawn):
    """Standard coordinates, boxes and components of what was drawn."""
    points, weight, box, owner = drawn
    form = FORMS[kind]
    rows = Moments.rows_of_points(points, weight)
    space = Space(form, rows.to_groups(None, kind=form.scatter), floor=1e-2)
    boxes = Boxes.of_rows(space, rows.to_groups(box, kind=form.scatter))
    return space, boxes, space.entering(rows.to_groups(owner, kind=form.scatter))


def as_naive(space, components, d):
    """The components as the twin writes them, in the data's own coordinates."""
    found = space.leaving(components)
    covariance = found.covariance
    if covariance.ndim == 1:
        covariance = covariance[:, None] * np.ones(d)
    if covariance.ndim == 2:
        covariance = covariance[:, :, None] * np.eye(d)
    return list(zip(found.weight, found.mean, covariance, strict=True))


def grouped(points, weight, box):
    labels = range(box.max() + 1)
    return [points[box == b] for b in labels], [weight[box == b] for b in labels]


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_free_energy_rises_with_every_step_on_any_partition(kind, draw):
    space, boxes, components = prepared(kind, draw.draw(boxed()))
    fit = fitted(space, boxes, components)
    values = [fit.free_energy]
    for step in iterate(space, fit, 1e-6):
        values.append(step.free_energy)
        assert np.all(np.isfinite(step.components.covariance))
        assert step.components.weight.sum() == pytest.approx(1.0)
    assert len(values) > 1
    scale = np.abs(values).max() + boxes.weight.sum()
    assert np.all(np.diff(values) >= -1e-10 * scale)


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_free_energy_rises_with_every_refinement(kind, draw):
    points, weight, box, owner = draw.draw(boxed(most=300))
    space, _, components = prepared(kind, (points, weight, box, owner))
    tree = SummaryTree(points.shape[1], FORMS[kind].scatter, max_leaves=None, leaf_size=2)
    tree.insert(points, weight)
    fit = fitted(space, Boxes.of_tree(space, tree, budget=2), components)
    # Far from the origin a mean is rounded, and a thin component sees it.
    resolution = np.finfo(float).eps * np.abs(points).max() / (np.ptp(points, axis=0).max() or 1.0)
    slack = (1e-9 + 100 * resolution) * (abs(fit.free_energy) + weight.sum())
    while True:
        finer, gain = refine(space, tree, fit)
        assert gain >= -slack
        assert finer.free_energy >= fit.free_energy - slack
        assert finer.free_energy <= fit.free_energy + gain + slack
        np.testing.assert_allclose(finer.boxes.weight.sum(), weight.sum())
        again = share(space, finer.boxes, components)  # what was carried over is what an E-step says
        np.testing.assert_allclose(again.free_energy, finer.free_energy, rtol=1e-9, atol=slack)
        np.testing.assert_allclose(again.mass, finer.shared.mass, atol=1e-9 * weight.max())
        if len(finer.boxes.weight) == len(fit.boxes.weight):
            break
        fit = finer
    assert len(fit.boxes.weight) == tree.n_leaves


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(st.data())
def test_steps_equal_their_slow_twins(kind, draw):
    points, weight, box, owner = draw.draw(boxed(most=40, plain=True))
    space, boxes, components = prepared(kind, (points, weight, box, owner))
    shared = share(space, boxes, components)
    slow_boxes, slow_weights = grouped(points, weight, box)
    mixture = as_naive(space, components, points.shape[1])
    q = naive.shared_responsibilities(slow_boxes, slow_weights, mixture)
    np.testing.assert_allclose(shared.mass / boxes.weight[:, None], q, atol=1e-7)
    expected = naive.free_energy(slow_boxes, slow_weights, mixture, q)
    np.testing.assert_allclose(shared.free_energy, expected, rtol=1e-7, atol=1e-6)
    moved = improve(space, boxes, shared)
    lowest = np.linalg.eigvalsh(moved.covariance).min() if kind == "full" else moved.covariance.min()
    if lowest > 2 * space.least:  # the twin knows no floor
        slow = naive.m_step(slow_boxes, slow_weights, q, kind)
        for ours, theirs in zip(as_naive(space, moved, points.shape[1]), slow, strict=True):
            spread = np.sqrt(np.diagonal(theirs[2]))
            np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)
            np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6, atol=1e-6 * spread.max())
            np.testing.assert_allclose(
                ours[2] / np.outer(spread, spread), theirs[2] / np.outer(spread, spread), atol=1e-6
            )


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(st.data())
def test_no_other_responsibilities_are_better(kind, draw):
    """(3.14) maximises F; Moore's centroid responsibilities (2.23) diverge more."""
    points, weight, box, owner = draw.draw(boxed(most=40, plain=True))
    space, boxes, components = prepared(kind, (points, weight, box, owner))
    slow_boxes, slow_weights = grouped(points, weight, box)
    mixture = as_naive(space, components, points.shape[1])
    best = share(space, boxes, components)
    rng = np.random.default_rng(draw.draw(st.integers(0, 99)))
    q = best.mass / boxes.weight[:, None]
    moore = naive.centroid_responsibilities(slow_boxes, slow_weights, mixture)
    near = q * np.exp(0.1 * rng.normal(size=q.shape))
    others = [moore, near / near.sum(axis=1, keepdims=True), rng.dirichlet(np.ones(q.shape[1]), size=len(q))]
    optimal = naive.divergence(slow_boxes, slow_weights, mixture, q)
    for other in others:
        energy = naive.free_energy(slow_boxes, slow_weights, mixture, other)
        assert energy <= best.free_energy + 1e-7 * abs(best.free_energy)
        assert naive.divergence(slow_boxes, slow_weights, mixture, other) >= optimal - 1e-7 * (1 + optimal)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(st.data())
def test_partial_steps_equal_their_slow_twins(kind, draw):
    points, weight, box, owner = draw.draw(boxed(most=30, plain=True))
    space, boxes, components = prepared(kind, (points, weight, box, owner))
    fit = fitted(space, boxes, components)
    owned = [np.flatnonzero(np.arange(len(boxes.weight)) % 2 == half) for half in (0, 1)]
    owned = [own for own in owned if len(own)]
    form = FORMS[kind]
    rows = Moments.rows_of_points(points, weight)
    new = space.entering(rows.to_groups(np.arange(len(points)) % 2, kind=form.scatter))
    count = len(owned)
    new = Components(np.array([0.3, 0.05])[:count], new.mean[:count], new.covariance[:count])
    sums, gain = partial_step(space, fit, new, owned, np.arange(count + 1))
    slow_boxes, slow_weights = grouped(points, weight, box)
    mixture = as_naive(space, components, points.shape[1])
    n = weight.sum()
    for i, candidate in enumerate(as_naive(space, new, points.shape[1])):
        slow, slow_gain = naive.partial_step(
            slow_boxes, slow_weights, mixture, candidate, set(owned[i]), kind
        )
        np.testing.assert_allclose(gain[i], slow_gain, rtol=1e-6, atol=1e-6 * n)
        np.testing.assert_allclose(sums[i, 0] / n, slow[0], rtol=1e-6, atol=1e-12)
        if slow[0] > 1e-6:
            mean = as_naive(space, space.maximise(sums[i : i + 1]), points.shape[1])[0][1]
            np.testing.assert_allclose(mean, slow[1], rtol=1e-5, atol=1e-5 * np.abs(points).max())


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_the_component_least_missed_costs_least(kind, draw):
    space, boxes, components = prepared(kind, draw.draw(boxed()))
    if components.n_components < 2:
        return
    fit = fitted(space, boxes, components)
    energies = [
        share(space, boxes, without(components, k)).free_energy for k in range(components.n_components)
    ]
    chosen = energies[least_missed(space, fit)]
    assert chosen >= max(energies) - 1e-9 * (abs(max(energies)) + boxes.weight.sum())


@pytest.mark.compiled
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(st.data())
def test_the_same_seed_gives_the_same_mixture(kind, draw):
    points, weight, _, _ = draw.draw(boxed())
    seed = draw.draw(st.integers(0, 99))
    tree = SummaryTree(points.shape[1], FORMS[kind].scatter, max_leaves=16)
    tree.insert(points, weight)
    for run in (
        lambda: fit_mixture(points, weight, seed=seed, covariance=kind),
        lambda: refit_mixture(tree, seed=seed, covariance=kind),
        lambda: fit_mixture(points, weight, seed=seed, covariance=kind, n_components=3),
    ):
        one, two = run(), run()
        for name in ("weights", "means", "covariances", "labels", "free_energy"):
            np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
        np.testing.assert_allclose(one.clusters.weight.sum(), weight.sum())
        assert np.all(np.diff(one.weights) <= 0)
        for part in (
            one.weights,
            one.means,
            one.covariances,
            one.log_density(points),
            one.probability(points),
        ):
            assert np.all(np.isfinite(part))
        assert np.all(one.weights > 0)


@pytest.mark.compiled
@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_a_mixture_follows_any_affine_map(seed, d):
    """With full covariances the coordinates do not matter."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(200, d)) + 9.0 * np.arange(2)[rng.integers(2, size=200), None]
    matrix = np.linalg.qr(rng.normal(size=(d, d)))[0] * 10.0 ** rng.uniform(-1.5, 1.5, size=d)
    offset = rng.normal(size=d) * 100
    here, there = fit_mixture(points), fit_mixture(points @ matrix.T + offset)
    assert here.n_clusters == there.n_clusters
    np.testing.assert_array_equal(here.labels, there.labels)
    np.testing.assert_allclose(here.means @ matrix.T + offset, there.means, rtol=1e-6, atol=1e-6)
    volume = np.linalg.slogdet(matrix)[1]
    np.testing.assert_allclose(here.free_energy, there.free_energy + 200 * volume, rtol=1e-6, atol=1e-4)
