import numpy as np
import pytest
from matplotlib.colors import to_rgb

from streamclust.moments import Moments
from streamclust.plots import plot_clusters
from streamclust.plots.drawing import colour, on
from streamclust.plots.palette import PALETTE
from streamclust.refit import fit_points
from tests.streams import clustered


@pytest.fixture
def three():
    rows, labels = clustered(300, 3, k=3)
    return rows, labels, Moments.rows_of_points(rows).to_groups(labels, kind="full")


@pytest.mark.parametrize("kind", ["full", "diagonal", "scalar"])
def test_a_cluster_is_an_ellipse_of_two_deviations_at_its_mean(three, kind, ax):
    clusters = three[2].to(kind)
    plot_clusters(clusters, features=(2, 0), ax=ax)
    ellipses = ax.collections[0]
    np.testing.assert_allclose(ellipses.get_offsets(), clusters.mean[:, [2, 0]])
    kept = clusters.covariance
    variance = {
        "full": lambda: kept[:, [2, 0], [2, 0]].sum(axis=1),
        "diagonal": lambda: kept[:, [2, 0]].sum(axis=1),
        "scalar": lambda: 2 * kept,
    }[kind]()
    axes = np.column_stack([ellipses.get_widths(), ellipses.get_heights()])
    np.testing.assert_allclose((axes**2).sum(axis=1) / 16, variance, rtol=1e-9)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("feature 2", "feature 0")


def test_an_ellipse_lies_as_its_cluster_does(ax):
    rng = np.random.default_rng(0)
    long = rng.normal(size=(4000, 2)) * [5.0, 0.5]
    turn = np.radians(30.0)
    rotated = long @ np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    plot_clusters(Moments.of_points(rotated), ax=ax)
    assert ax.collections[0].get_angles()[0] % 180 == pytest.approx(30.0, abs=1.0)


def test_colours_and_labels_are_those_of_the_ids(three, ax):
    rows, labels, clusters = three
    ids = np.array([4, 11, 30])
    plot_clusters(clusters, ax=ax, ids=ids, events=rows, labels=ids[labels], names=["a", "b", "c"])
    np.testing.assert_allclose(ax.collections[0].get_edgecolors()[:, :3], [colour(i) for i in ids])
    events = ax.collections[-1]
    np.testing.assert_allclose(events.get_offsets(), rows[:, :2])
    np.testing.assert_allclose(events.get_facecolors()[:, :3], [colour(i) for i in ids[labels]])
    assert [text.get_text() for text in ax.texts] == ["4", "11", "30"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("a", "b")


def test_events_without_labels_are_grey(three, ax):
    plot_clusters(three[2], ax=ax, events=three[0])
    red, green, blue, _ = ax.collections[-1].get_facecolors()[0]
    assert red == green == blue


@pytest.mark.parametrize("family", ["bernoulli", "multinomial", "poisson"])
def test_clusters_without_a_spread_are_rows_of_a_table(family, ax):
    rng = np.random.default_rng(1)
    chance = np.where(rng.integers(2, size=(200, 1)) == 0, [0.9, 0.9, 0.1, 0.1], [0.1, 0.1, 0.9, 0.9])
    found = fit_points(family, (rng.random((200, 4)) < chance).astype(float) + 0.0)
    found.plot(ax=ax, names=["tea", "milk", "nails", "saw"])
    heaviest = np.argsort(-found.clusters.weight, kind="stable")
    np.testing.assert_allclose(ax.images[0].get_array(), found.clusters.mean[heaviest])
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["tea", "milk", "nails", "saw"]
    assert [int(tick.get_text().split()[0]) for tick in ax.get_yticklabels()] == heaviest.tolist()


def test_what_cannot_be_drawn_is_said(three, ax):
    with pytest.raises(ValueError, match="no clusters"):
        plot_clusters(Moments.empty(0, 2), ax=ax)
    with pytest.raises(ValueError, match="3 clusters need as many ids, got 1"):
        plot_clusters(three[2], ax=ax, ids=[1])
    for wrong in ((0, 3), (0,), (0, 1, 2)):
        with pytest.raises(ValueError, match="two of the 3 features"):
            plot_clusters(three[2], features=wrong, ax=ax)
    with pytest.raises(ValueError, match="two of the 1 features"):
        plot_clusters(Moments.of_points([[1.0], [2.0]]), ax=ax)


def test_a_single_point_is_drawn_as_one(ax):
    plot_clusters(Moments.of_points([[1.0, 2.0]]), ax=ax)
    np.testing.assert_allclose(ax.collections[0].get_widths(), 0.0)
    np.testing.assert_allclose(ax.collections[0].get_offsets(), [[1.0, 2.0]])


def oklab(rgb):
    """Oklab's coordinates of sRGB colours [Ottosson 2020]."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    cones = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566]]
    cones += [[0.0883024619, 0.2817188376, 0.6299787005]]
    lab = [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099]]
    lab += [[0.0259040371, 0.7827717662, -0.8086757660]]
    return np.cbrt(linear @ np.transpose(cones)) @ np.transpose(lab)


@pytest.mark.parametrize(("k", "apart"), [(8, 0.15), (16, 0.1), (30, 0.07), (64, 0.045)])
def test_the_first_colours_are_far_apart_however_many(k, apart):
    lab = oklab(np.array([to_rgb(c) for c in PALETTE[:k]]))
    gaps = np.linalg.norm(lab[:, None] - lab, axis=-1)[np.triu_indices(k, 1)]
    assert gaps.min() > apart


def test_colours_stand_out_from_light_and_dark_grounds():
    def luminance(rgb):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark = luminance(to_rgb("#171b22"))
    for shade in PALETTE:
        own = luminance(to_rgb(shade))
        assert min(1.05 / (own + 0.05), (own + 0.05) / (dark + 0.05)) > 2.45, shade


def test_an_id_keeps_its_colour_and_neighbours_differ():
    shades = [colour(i) for i in range(len(PALETTE))]
    assert len(set(shades)) == len(shades)
    assert colour(len(shades) + 2) == shades[2]
    assert len({*colour(-1)}) == 1  # grey
    assert (on(to_rgb("black")), on(to_rgb("white"))) == ("white", "black")
