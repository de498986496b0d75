import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

from streamclust.plots import plot_features

FEATURES = np.array([[0.0, 1.0, -2.0, 0.5], [3.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, -1.0]])


def test_features_are_images_on_one_scale_with_zero_in_the_middle():
    figure = plot_features(FEATURES, [1.0, 0.5, 0.25], (2, 2), ["base", "ear", "eye"], figure=Figure())
    panels = figure.axes[:3]
    for ax, feature, title in zip(panels, FEATURES, ("base\n100%", "ear\n50%", "eye\n25%"), strict=True):
        np.testing.assert_array_equal(ax.images[0].get_array(), feature.reshape(2, 2))
        assert ax.images[0].get_clim() == (-3.0, 3.0)
        assert ax.get_title().startswith(title)


def test_features_without_a_shape_are_bars():
    figure = plot_features(FEATURES, figure=Figure())
    for ax, feature in zip(figure.axes, FEATURES, strict=True):
        np.testing.assert_array_equal([bar.get_height() for bar in ax.patches], feature)


def test_panels_that_are_left_over_are_empty():
    figure = plot_features(np.ones((7, 4)), shape=(2, 2), figure=Figure())
    assert [ax.axison for ax in figure.axes[:12]] == [True] * 7 + [False] * 5


def test_a_given_figure_is_all_that_is_drawn_on():
    before = pyplot.get_fignums()
    figure = Figure()
    assert plot_features(FEATURES, figure=figure) is figure
    assert pyplot.get_fignums() == before


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(ValueError, match="no features were found"):
        plot_features(np.zeros((0, 4)))
    with pytest.raises(ValueError, match="no images of shape"):
        plot_features(FEATURES, shape=(3, 3))
    with pytest.raises(ValueError, match="3 features need as many names, got 1"):
        plot_features(FEATURES, names=["one"])
    with pytest.raises(ValueError, match="3 features need as many shares, got 2"):
        plot_features(FEATURES, share=[0.1, 0.2])
    assert pyplot.get_fignums() == []
