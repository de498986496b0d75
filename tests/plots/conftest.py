"""Pictures are drawn without a screen, and each test leaves none behind."""

import matplotlib
import pytest

matplotlib.use("Agg")

from matplotlib import pyplot


@pytest.fixture(autouse=True)
def no_figures_left():
    yield
    pyplot.close("all")


@pytest.fixture
def ax():
    """Axes that pyplot knows nothing of; it must not learn of them."""
    from matplotlib.figure import Figure

    before = pyplot.get_fignums()
    yield Figure().add_subplot()
    assert pyplot.get_fignums() == before
