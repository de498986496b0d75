"""Every result draws itself: on the axes it is given, or on a figure of its own."""

import subprocess
import sys

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

from streamclust import StreamClusterer, plots
from streamclust.hierarchy import agglomerate
from streamclust.moments import Moments
from streamclust.plots.drawing import colour
from streamclust.refit import fit_points
from streamclust.refit.bp_means.fit import fit_features
from streamclust.refit.chunky_em.fit import fit_mixture
from streamclust.refit.dp_means.fit import fit_points as fit_means
from streamclust.streaming import StreamFeatures
from streamclust.tree import SummaryTree
from tests.streams import clustered

ROWS, LABELS = clustered(300, 2, k=3, spread=20.0)


def tree():
    made = SummaryTree(2, max_leaves=8)
    made.insert(ROWS)
    return made


def stream(family="gaussian"):
    model = StreamClusterer(family=family, background=False)
    model.learn_many([{"left": x, "right": y} for x, y in ROWS])
    return model


RESULTS = {
    "Partition": lambda: fit_points("gaussian", ROWS),
    "Mixture": lambda: fit_mixture(ROWS),
    "MeansPartition": lambda: fit_means(ROWS, 50.0),
    "Dendrogram": lambda: agglomerate("gaussian", Moments.rows_of_points(ROWS[:30])),
    "SummaryTree": tree,
    "StreamClusterer": stream,
    "Lineage": lambda: stream().lineage,
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_draws_itself(name, ax):
    result = RESULTS[name]()
    assert type(result).__name__ == name
    assert result.plot(ax=ax) is ax
    assert ax.collections


@pytest.mark.parametrize("name", RESULTS)
def test_without_axes_it_makes_a_figure_that_pyplot_shows(name):
    figure = RESULTS[name]().plot().figure
    assert [pyplot.figure(n) for n in pyplot.get_fignums()] == [figure]


def test_allocations_of_features_draw_themselves():
    allocation = fit_features(ROWS[:60], 400.0)
    figure = allocation.plot(figure=Figure())
    drawn = [[bar.get_height() for bar in ax.patches] for ax in figure.axes]
    np.testing.assert_allclose(drawn, allocation.A)
    features = StreamFeatures(penalty=400.0, warmup=60)
    features.learn_many(ROWS[:100])
    assert features.n_features > 0
    assert len(features.plot(figure=Figure()).axes) == features.n_features


def test_a_stream_s_clusters_are_drawn_with_their_ids_and_latest_events(ax):
    model = stream()
    model.plot(("right", "left"), ax=ax)
    ellipses, events = ax.collections[0], ax.collections[-1]
    means = np.array([[c.mean["right"], c.mean["left"]] for c in model.clusters])
    np.testing.assert_allclose(np.sort(ellipses.get_offsets(), axis=0), np.sort(means, axis=0))
    np.testing.assert_allclose(events.get_offsets(), ROWS[:, ::-1])
    expected = [colour(model.predict_one({"left": x, "right": y})) for x, y in ROWS]
    np.testing.assert_allclose(events.get_facecolors()[:, :3], expected)
    assert {int(text.get_text()) for text in ax.texts} == {c.id for c in model.clusters}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("right", "left")


def test_a_stream_says_what_it_cannot_draw():
    with pytest.raises(ValueError, match="learn at least one event"):
        StreamClusterer().plot()
    with pytest.raises(ValueError, match=r"two of \['left', 'right'\], got \('left', 'up'\)"):
        stream().plot(("left", "up"))
    with pytest.raises(ValueError, match="history is empty"):
        StreamClusterer().lineage.plot()


def test_every_picture_is_public():
    assert {name for name in plots.__all__ if name.startswith("plot_")} == {
        "plot_clusters", "plot_dendrogram", "plot_features", "plot_flows", "plot_lineage", "plot_path", "plot_tree",
    }  # fmt: skip


def test_matplotlib_is_asked_for_only_when_something_is_drawn():
    code = "import sys, streamclust.plots, streamclust.streaming; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
