"""Axes, projections and ellipses against their slow twin, which has the events themselves."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from streamclust.moments import Moments
from streamclust.plots.projection import (
    ELLIPSE_DEVIATIONS,
    OUTLINE_POINTS,
    feature_axes,
    outline,
    principal_axes,
    projected_covariance,
    total_covariance,
    union_outline,
)
from tests.naive import view as naive
from tests.streams import CLUSTERS, GROUPS, elongated


def grouped(d, kind="full", **options):
    """Moments of the groups, and of the clusters."""
    points, weight, group, cluster = elongated(d, **options)
    rows = Moments.rows_of_points(points, weight)
    return rows.to_groups(group, GROUPS, kind), rows.to_groups(cluster, CLUSTERS, kind)


@pytest.mark.parametrize("d", [2, 3, 7])
@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_principal_axes_are_those_of_the_events(d, offset):
    leaves, _ = grouped(d, offset=offset)
    points, weight, *_ = elongated(d)  # of the same events at the origin, where the twin loses no digits
    axes, explained = principal_axes(leaves)
    directions, shares = naive.principal_axes(points, weight)
    assert_allclose(np.abs(np.sum(axes * directions[:, :2], axis=0)), 1.0, rtol=1e-6)
    assert_allclose(explained, shares[:2], rtol=1e-5)
    assert np.all(axes[np.abs(axes).argmax(axis=0), [0, 1]] > 0)  # never the opposite of the moment before


def test_the_total_covariance_is_that_of_the_events():
    leaves, _ = grouped(4)
    points, weight, *_ = elongated(4)
    assert_allclose(total_covariance(leaves), naive.covariance(points, weight), rtol=1e-9, atol=1e-9)


def test_coarser_scatter_counts_as_far_as_it_is_kept():
    leaves, _ = grouped(4)
    between = total_covariance(leaves.to("none"))
    within = total_covariance(leaves) - between
    diagonal, scalar = (total_covariance(leaves.to(kind)) for kind in ("diagonal", "scalar"))
    assert_allclose(diagonal, between + np.diag(np.diag(within)), rtol=1e-9, atol=1e-9)
    assert_allclose(scalar, between + np.trace(within) / 4 * np.eye(4), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["full", "diagonal", "scalar"])
def test_projections_are_those_of_full_matrices(kind):
    _, clusters = grouped(5, kind)
    kept = clusters.covariance
    full = kept if kind == "full" else [np.diag(np.broadcast_to(c, 5)) for c in kept]
    for axes in (np.random.default_rng(1).normal(size=(5, 2)), feature_axes(5, 3, -1), feature_axes(5, 2, 2)):
        assert_allclose(projected_covariance(clusters, axes), [axes.T @ c @ axes for c in full], rtol=1e-9)


def test_outlines_lie_two_deviations_from_the_mean():
    _, clusters = grouped(2)
    for mean, covariance in zip(clusters.mean, clusters.covariance, strict=True):
        corners = outline(mean, covariance)
        assert corners.shape == (OUTLINE_POINTS, 2)
        assert_allclose(corners[0], corners[-1], rtol=1e-9)
        assert_allclose(
            [naive.mahalanobis(c, mean, covariance) for c in corners], ELLIPSE_DEVIATIONS, rtol=1e-6
        )


def test_the_outline_of_several_ellipses_is_what_none_of_them_covers():
    rng = np.random.default_rng(6)
    means = rng.normal(size=(6, 2)) * 2
    spreads = np.stack([c @ c.T + 0.1 * np.eye(2) for c in rng.normal(size=(6, 2, 2))])
    lines = union_outline(means, spreads)
    for line in lines:
        closed = np.allclose(line[0], line[-1])
        for place in line if closed else line[1:-1]:
            far = [naive.mahalanobis(place, *pair) for pair in zip(means, spreads, strict=True)]
            assert min(far) == pytest.approx(ELLIPSE_DEVIATIONS, rel=1e-6)
    assert union_outline(means[:1], spreads[:1])[0].shape[1] == 2
    hidden = union_outline(np.zeros((2, 2)), np.stack([np.eye(2), 4 * np.eye(2)]))
    assert len(hidden) == 1  # the smaller one is covered whole
    flat = union_outline(np.array([[0.0, 0.0], [9.0, 9.0]]), np.zeros((2, 2, 2)))
    assert np.isfinite(np.concatenate(flat)).all()
