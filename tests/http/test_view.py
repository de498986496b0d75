"""The view against its slow twin, which has the events themselves."""

import msgspec
import numpy as np
import pytest
from numpy.testing import assert_allclose

from streamclust import StreamClusterer
from streamclust.engine.cluster_view import ClusterView
from streamclust.families import FAMILIES
from streamclust.moments import Moments
from streamclust.plots.projection import ELLIPSE_DEVIATIONS, OUTLINE_POINTS, principal_axes
from streamclust_connectors.http.view import view
from tests.naive import view as naive
from tests.streams import CLUSTERS, GROUPS, elongated


def staged(d, kind="full", **options):
    """A scene of these events, and the events."""
    points, weight, leaf, cluster = elongated(d, **options)
    rows = Moments.rows_of_points(points, weight)
    ids = 10 + np.arange(CLUSTERS)
    owners = ids[np.arange(GROUPS) // (GROUPS // CLUSTERS)]
    names = tuple(f"f{i}" for i in range(d))
    groups = rows.to_groups(leaf, GROUPS, kind), rows.to_groups(cluster, CLUSTERS, kind)
    return ClusterView(names, groups[1], ids, groups[0], owners, groups[1], ids), points, weight, cluster


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
        (ellipse,) = drawn.ellipses
        corners = np.column_stack([ellipse.x, ellipse.y])
        assert len(corners) == OUTLINE_POINTS
        assert_allclose(corners[0], corners[-1], rtol=1e-9)
        spread = naive.covariance(mine, w)
        assert_allclose([naive.mahalanobis(c, mean, spread) for c in corners], ELLIPSE_DEVIATIONS, rtol=1e-6)


def test_chosen_features_are_shown_as_they_are():
    seen, *_ = staged(4)
    found = view(seen, "f3", "f1")
    assert found.labels == ("f3", "f1")
    assert found.explained is None
    assert_allclose(found.leaves.x, seen.leaves.mean[:, 3])
    assert_allclose(found.leaves.y, seen.leaves.mean[:, 1])
    assert_allclose(found.leaves.weight, seen.leaves.weight)
    assert found.leaves.cluster == seen.owners.tolist()
    sides = [2 * ELLIPSE_DEVIATIONS * np.sqrt(seen.clusters.covariance[:, i, i]) for i in (3, 1)]
    reach = [(np.ptp(c.ellipses[0].x), np.ptp(c.ellipses[0].y)) for c in found.clusters]
    assert_allclose(reach, np.transpose(sides), rtol=2e-3)  # the widest place may lie between two corners


def test_features_that_cannot_be_shown_are_named():
    seen, *_ = staged(2)
    with pytest.raises(ValueError, match="'f9'; the features are f0, f1"):
        view(seen, "f0", "f9")
    with pytest.raises(ValueError, match="not yet known"):
        view(StreamClusterer().view(), "x", "y")


def test_one_feature_is_shown_along_its_axis():
    seen, *_ = staged(3)
    both, across, up = view(seen, "f1", "f1"), view(seen, "f1"), view(seen, y="f1")
    assert (across.labels, up.labels) == (("f1", ""), ("", "f1"))
    assert across.leaves.x == up.leaves.y == both.leaves.x
    assert {*across.leaves.y, *up.leaves.x} == {0.0}
    assert [one.x for one in across.clusters] == [one.x for one in both.clusters]


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
        reach = ELLIPSE_DEVIATIONS * np.sqrt(variance[0, 0])
        assert_allclose(
            [min(drawn.ellipses[0].x), max(drawn.ellipses[0].x)], [mean[0] - reach, mean[0] + reach]
        )
        assert_allclose(drawn.ellipses[0].y, 0.0, atol=1e-9)


def test_before_the_first_event_there_is_nothing_to_see():
    found = view(StreamClusterer().view())
    assert (found.clusters, found.leaves.x, found.leaves.cluster) == ([], [], [])


def test_a_single_place_has_no_axes_but_is_shown():
    clusterer = StreamClusterer()
    clusterer.learn_many(np.full((50, 3), 7.0))
    found = view(clusterer.view())
    assert found.explained == (0.0, 0.0)
    (only,) = found.clusters
    assert only.share == 1.0
    assert np.isfinite([*only.ellipses[0].x, *only.ellipses[0].y]).all()


def test_clusters_that_hold_nothing_now_are_nowhere():
    seen, *_ = staged(2)
    weight = seen.clusters.weight * [1.0, 0.0, 1.0]
    clusters = Moments(weight, seen.clusters.mean, seen.clusters.scatter, "full")
    assert [c.id for c in view(seen._replace(clusters=clusters, components=clusters)).clusters] == [10, 12]


def test_a_cluster_of_several_components_has_an_ellipse_for_each():
    seen, *_ = staged(2)
    joined = np.array([10, 12, 12])
    clusters = seen.clusters.to_groups(np.array([0, 1, 1]), 2)
    one, two = view(seen._replace(clusters=clusters, ids=np.array([10, 12]), component_ids=joined)).clusters
    assert (one.id, two.id, len(one.ellipses), len(two.ellipses)) == (10, 12, 1, 2)
    heavier = seen.components[1 + int(seen.components.weight[1:].argmax())]
    axes, _ = principal_axes(seen.leaves)
    assert_allclose([two.x, two.y], heavier.mean[0] @ axes)
    assert_allclose(np.mean(two.ellipses[0].x[:-1]), two.x)
    assert not one.outline
    ends = [(min(c.x), max(c.x), min(c.y), max(c.y)) for c in (*two.ellipses, *two.outline)]
    whole, around = np.array(ends[:2]), np.array(ends[2:])
    for side, of in enumerate((np.min, np.max, np.min, np.max)):
        assert_allclose(of(around[:, side]), of(whole[:, side]), atol=0.05)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("d", [1, 4])
def test_every_family_can_be_seen(family, d):
    rng = np.random.default_rng(5)
    counts = rng.poisson(3.0 + 20.0 * rng.integers(2, size=(300, 1)), size=(300, d)) + 1.0
    rows = (counts > 12) * 1.0 if family == "bernoulli" else counts
    clusterer = StreamClusterer(family, max_leaves=32)
    clusterer.learn_many(rows)
    seen = clusterer.view()
    found = view(seen)
    assert sum(found.leaves.weight) == pytest.approx(300)
    assert sum(c.share for c in found.clusters) == pytest.approx(1.0)
    assert {c.id for c in found.clusters} == {c.id for c in clusterer.clusters}
    assert found.leaves.cluster == clusterer.predict_many(seen.leaves.mean).tolist()
    spread = FAMILIES[family].scatter != "none"
    assert all(len(c.ellipses) == spread for c in found.clusters)
    numbers = msgspec.json.decode(msgspec.json.encode(found))  # what is not finite would be null
    assert None not in [*numbers["leaves"]["x"], *numbers["leaves"]["y"]]
    assert all(None not in curve["x"] for c in numbers["clusters"] for curve in c["ellipses"])


def test_a_view_put_together_is_that_of_the_level():
    rng, clusterer = np.random.default_rng(0), StreamClusterer()
    clusterer.learn_many(
        rng.normal(size=(2000, 2)) + np.repeat([[0.0], [12.0], [80.0]], 2000 // 3 + 1, axis=0)[:2000]
    )
    assert clusterer.n_clusters == 3
    grouped = clusterer.view("fine").grouped(clusterer.parents("fine", 2))
    direct = clusterer.view(2)
    order = np.argsort(direct.ids)
    np.testing.assert_array_equal(grouped.ids, direct.ids[order])
    np.testing.assert_array_equal(grouped.owners, direct.owners)
    np.testing.assert_array_equal(grouped.component_ids, direct.component_ids)
    np.testing.assert_allclose(grouped.clusters.mean, direct.clusters.mean[order])
    np.testing.assert_allclose(grouped.clusters.covariance, direct.clusters.covariance[order])
