"""The view against its slow twin, which has the events themselves."""

import msgspec
import numpy as np
import pytest
from numpy.testing import assert_allclose

from streamclust import StreamClusterer
from streamclust.families import FAMILIES
from streamclust.moments import Moments
from streamclust_connectors.http.view import (
    CORNERS,
    DEVIATIONS,
    Scene,
    principal_axes,
    projected_covariance,
    scene,
    total_covariance,
    view,
)
from tests.naive import view as naive

GROUPS, CLUSTERS = 30, 3


def events(d, n=600, seed=3, offset=0.0):
    """Points of three elongated clusters, their weights, and the group that each is in."""
    rng = np.random.default_rng(seed)
    cluster = rng.integers(CLUSTERS, size=n)
    centres = 9.0 * rng.normal(size=(CLUSTERS, d))
    shapes = rng.normal(size=(CLUSTERS, d, d))
    points = centres[cluster] + np.einsum("nij,nj->ni", shapes[cluster], rng.normal(size=(n, d)))
    leaf = cluster * (GROUPS // CLUSTERS) + rng.integers(GROUPS // CLUSTERS, size=n)
    return points + offset, rng.uniform(0.5, 2.0, size=n), leaf, cluster


def staged(d, kind="full", **options):
    """A scene of these events, and the events."""
    points, weight, leaf, cluster = events(d, **options)
    rows = Moments.rows_of_points(points, weight)
    ids = 10 + np.arange(CLUSTERS)
    owners = ids[np.arange(GROUPS) // (GROUPS // CLUSTERS)]
    names = tuple(f"f{i}" for i in range(d))
    groups = rows.to_groups(leaf, GROUPS, kind), rows.to_groups(cluster, CLUSTERS, kind)
    return Scene(names, groups[1], ids, groups[0], owners), points, weight, cluster


@pytest.mark.parametrize("d", [2, 3, 7])
@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_principal_axes_are_those_of_the_events(d, offset):
    seen, *_ = staged(d, offset=offset)
    points, weight, *_ = events(d)  # of the same events at the origin, where the twin loses no digits
    axes, explained = principal_axes(seen.leaves)
    directions, shares = naive.principal_axes(points, weight)
    assert_allclose(np.abs(np.sum(axes * directions[:, :2], axis=0)), 1.0, rtol=1e-6)
    assert_allclose(explained, shares[:2], rtol=1e-5)
    assert np.all(axes[np.abs(axes).argmax(axis=0), [0, 1]] > 0)  # never the opposite of the moment before


def test_the_total_covariance_is_that_of_the_events():
    seen, points, weight, _ = staged(4)
    assert_allclose(total_covariance(seen.leaves), naive.covariance(points, weight), rtol=1e-9, atol=1e-9)


def test_coarser_scatter_counts_as_far_as_it_is_kept():
    full, *_ = staged(4)
    between = total_covariance(full.leaves.to("none"))
    within = total_covariance(full.leaves) - between
    assert_allclose(
        total_covariance(full.leaves.to("diagonal")), between + np.diag(np.diag(within)), rtol=1e-9, atol=1e-9
    )
    mean_variance = np.trace(within) / 4 * np.eye(4)
    assert_allclose(total_covariance(full.leaves.to("scalar")), between + mean_variance, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["full", "diagonal", "scalar"])
def test_projections_are_those_of_full_matrices(kind):
    seen, *_ = staged(5, kind)
    kept = seen.clusters.covariance
    full = kept if kind == "full" else [np.diag(np.broadcast_to(c, 5)) for c in kept]
    axes = np.random.default_rng(1).normal(size=(5, 2))
    assert_allclose(projected_covariance(seen.clusters, axes), [axes.T @ c @ axes for c in full], rtol=1e-9)


def test_ellipses_reach_two_deviations_of_the_projected_events():
    seen, points, weight, cluster = staged(6)
    axes, _ = principal_axes(seen.leaves)
    found = view(seen)
    assert [c.id for c in found.clusters] == [10, 11, 12]
    for k, drawn in enumerate(found.clusters):
        mine, w = points[cluster == k] @ axes, weight[cluster == k]
        mean = w @ mine / w.sum()
        assert_allclose([drawn.x, drawn.y], mean, rtol=1e-9)
        assert drawn.share == pytest.approx(w.sum() / weight.sum())
        corners = np.column_stack([drawn.ellipse.x, drawn.ellipse.y])
        assert len(corners) == CORNERS
        assert_allclose(corners[0], corners[-1], rtol=1e-9)
        spread = naive.covariance(mine, w)
        assert_allclose([naive.mahalanobis(c, mean, spread) for c in corners], DEVIATIONS, rtol=1e-6)


def test_chosen_features_are_shown_as_they_are():
    seen, *_ = staged(4)
    found = view(seen, "f3", "f1")
    assert found.labels == ("f3", "f1")
    assert found.explained is None
    assert_allclose(found.leaves.x, seen.leaves.mean[:, 3])
    assert_allclose(found.leaves.y, seen.leaves.mean[:, 1])
    assert_allclose(found.leaves.weight, seen.leaves.weight)
    assert found.leaves.cluster == seen.owners.tolist()
    sides = [2 * DEVIATIONS * np.sqrt(seen.clusters.covariance[:, i, i]) for i in (3, 1)]
    reach = [(np.ptp(c.ellipse.x), np.ptp(c.ellipse.y)) for c in found.clusters]
    assert_allclose(reach, np.transpose(sides), rtol=2e-3)  # the widest place may lie between two corners


def test_features_that_cannot_be_shown_are_named():
    seen, *_ = staged(2)
    with pytest.raises(ValueError, match="name both"):
        view(seen, "f0")
    with pytest.raises(ValueError, match="'f9'; the features are f0, f1"):
        view(seen, "f0", "f9")
    with pytest.raises(ValueError, match="not yet known"):
        view(scene(StreamClusterer()), "x", "y")


def test_the_same_feature_twice_is_a_diagonal():
    seen, *_ = staged(3)
    found = view(seen, "f2", "f2")
    assert found.leaves.x == found.leaves.y


def test_one_feature_lies_on_a_line():
    seen, *_ = staged(1)
    found = view(seen)
    assert found.labels == ("f0", "")
    assert_allclose(found.leaves.x, seen.leaves.mean[:, 0])
    assert set(found.leaves.y) == {0.0}
    for drawn, mean, variance in zip(
        found.clusters, seen.clusters.mean, seen.clusters.covariance, strict=True
    ):
        reach = DEVIATIONS * np.sqrt(variance[0, 0])
        assert_allclose([min(drawn.ellipse.x), max(drawn.ellipse.x)], [mean[0] - reach, mean[0] + reach])
        assert_allclose(drawn.ellipse.y, 0.0, atol=1e-9)


def test_before_the_first_event_there_is_nothing_to_see():
    found = view(scene(StreamClusterer()))
    assert (found.clusters, found.leaves.x, found.leaves.cluster) == ([], [], [])


def test_a_single_place_has_no_axes_but_is_shown():
    clusterer = StreamClusterer()
    clusterer.learn_many(np.full((50, 3), 7.0))
    found = view(scene(clusterer))
    assert found.explained == (0.0, 0.0)
    (only,) = found.clusters
    assert only.share == 1.0
    assert np.isfinite([*only.ellipse.x, *only.ellipse.y]).all()


def test_clusters_that_hold_nothing_now_are_nowhere():
    seen, *_ = staged(2)
    weight = seen.clusters.weight * [1.0, 0.0, 1.0]
    clusters = Moments(weight, seen.clusters.mean, seen.clusters.scatter, "full")
    assert [c.id for c in view(seen._replace(clusters=clusters)).clusters] == [10, 12]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("d", [1, 4])
def test_every_family_can_be_seen(family, d):
    rng = np.random.default_rng(5)
    counts = rng.poisson(3.0 + 20.0 * rng.integers(2, size=(300, 1)), size=(300, d)) + 1.0
    rows = (counts > 12) * 1.0 if family == "bernoulli" else counts
    clusterer = StreamClusterer(family, max_leaves=32)
    clusterer.learn_many(rows)
    seen = scene(clusterer)
    found = view(seen)
    assert sum(found.leaves.weight) == pytest.approx(300)
    assert sum(c.share for c in found.clusters) == pytest.approx(1.0)
    assert {c.id for c in found.clusters} == {c.id for c in clusterer.clusters}
    assert found.leaves.cluster == clusterer.predict_many(seen.leaves.mean).tolist()
    spread = FAMILIES[family].scatter != "none"
    assert all((c.ellipse is not None) == spread for c in found.clusters)
    numbers = msgspec.json.decode(msgspec.json.encode(found))  # what is not finite would be null
    assert None not in [*numbers["leaves"]["x"], *numbers["leaves"]["y"]]
    assert all(None not in c["ellipse"]["x"] for c in numbers["clusters"] if spread)
