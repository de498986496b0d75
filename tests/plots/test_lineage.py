import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot
from matplotlib.figure import Figure

from streamclust.lineage import Lineage
from streamclust.plots import plot_lineage
from streamclust.plots.drawing import colour
from streamclust.plots.river import MAX_BANDS, OTHERS, river


def shares(bands, cluster, at, before=False):
    """A cluster's share after event `at`, or before what happened there."""
    column = np.flatnonzero(bands.at == at)[0 if before else -1]
    return bands.share[bands.ids.tolist().index(cluster), column]


@pytest.fixture
def story():
    """0 is born and splits into 0, 1; 2 is born, 1 merges into 0, 2 dies."""
    lineage = Lineage()
    lineage.born(1, 0, 1.0)
    lineage.history.add(1000, {0: 10.0})
    one = np.array([[60.0, 40.0]])
    lineage.follow(2000, 1, (0,), one.sum(axis=1), one[0], one)
    lineage.history.add(2000, {0: 6.0, 1: 4.0})
    lineage.born(3000, 2, 10.0)
    lineage.history.add(3000, {0: 3.0, 1: 2.0, 2: 5.0})
    both = np.array([[30.0, 0.0], [20.0, 0.0], [0.0, 50.0]])
    lineage.follow(4000, 3, (0, 1, 2), both.sum(axis=1), both.sum(axis=0), both)
    lineage.history.add(4000, {0: 5.0, 2: 5.0})
    lineage.retire(5000, 4, 2, 1.0)
    lineage.history.add(5000, {0: 8.0})
    return lineage


def test_the_river_has_each_cluster_s_share_before_and_after_every_change(story):
    bands = river(story)
    assert bands.at.tolist() == [1, 1000, 2000, 2000, 3000, 3000, 4000, 4000, 5000, 5000]
    np.testing.assert_allclose(bands.share.sum(axis=0), 1.0)
    assert shares(bands, 0, 2000, before=True) == 1.0
    assert [shares(bands, i, 2000) for i in (0, 1, 2)] == pytest.approx([0.6, 0.4, 0.0])
    assert [shares(bands, i, 3000) for i in (0, 1, 2)] == pytest.approx([0.3, 0.2, 0.5])
    assert shares(bands, 1, 4000, before=True) > 0
    assert shares(bands, 1, 4000) == 0
    assert [shares(bands, i, 5000) for i in (0, 1, 2)] == [1.0, 0.0, 0.0]


def test_a_cluster_that_returns_has_one_band_with_a_gap(story):
    story.history.add(5500, {0: 8.0})
    story.resume(6000, 5, 2, 1.0)
    story.history.add(6000, {0: 4.0, 2: 4.0})
    bands = river(story)
    assert bands.ids.tolist() == [0, 1, 2]
    assert [shares(bands, 2, at) for at in (4000, 5000, 6000)] == [0.5, 0.0, 0.5]
    drawn = {c.get_label(): c for c in plot_lineage(story, ax=Figure().add_subplot()).collections}
    assert [x for x, _ in drawn["returned"].get_offsets().tolist()] == [6000]
    assert len(drawn["2"].get_paths()) == 2


def test_kin_lie_beside_each_other(story):
    assert river(story).ids.tolist() == [0, 1, 2]
    lineage = Lineage()
    for _ in range(3):
        lineage.born(1, 0, 1.0)
    shared = np.array([[60.0, 40.0, 0.0, 0.0], [0.0, 0.0, 50.0, 0.0], [0.0, 0.0, 0.0, 50.0]])
    lineage.follow(10, 1, (0, 1, 2), shared.sum(axis=1), shared.sum(axis=0), shared)
    lineage.history.add(10, dict.fromkeys(range(4), 1.0))
    assert river(lineage).ids.tolist() == [0, 3, 1, 2]


def test_bands_and_marks_are_what_the_river_says(story):
    ax = plot_lineage(story, ax=Figure().add_subplot())
    bands = river(story)
    drawn = {c.get_label(): c for c in ax.collections}
    for k, cluster in enumerate(bands.ids.tolist()):
        corners = np.concatenate([path.vertices for path in drawn[str(cluster)].get_paths()])
        np.testing.assert_allclose(drawn[str(cluster)].get_facecolor()[0, :3], colour(cluster))
        alive = bands.share[k] > 0
        for at, low, high in zip(bands.at[alive], bands.below[k, alive], bands.above[k, alive], strict=True):
            assert [at, low] in corners.tolist()
            assert [at, high] in corners.tolist()
    marks = {kind: drawn[kind].get_offsets().tolist() for kind in ("born", "split", "merged", "died")}
    assert [x for x, _ in marks["born"]] == [1, 3000]
    assert marks["split"] == [[2000, pytest.approx(0.8)]]
    assert [x for x, _ in marks["merged"]] == [4000]
    assert [x for x, _ in marks["died"]] == [5000]
    assert {text.get_text() for text in ax.texts} <= {"0", "1", "2"}
    (split, _merge) = ax.lines
    np.testing.assert_allclose(split.get_xydata(), [[2000, 0.8], [2000, 0.3]])


def test_a_smooth_share_is_that_of_the_events_around(story):
    lineage = Lineage()
    lineage.born(1, 0, 1.0)
    lineage.born(1, 0, 1.0)
    rng = np.random.default_rng(0)
    for at in range(1000, 401_000, 1000):
        one = float(rng.binomial(100, 0.3))
        lineage.history.add(at, {0: 100.0 - one, 1: one})
    noise = np.std([step.shares[1] for step in lineage.history])
    assert np.std(river(lineage).share[1]) < noise / 3
    assert abs(river(lineage).share[1].mean() - 0.3) < 0.01


def test_clusters_beyond_what_can_be_shown_are_one_band():
    lineage = Lineage()
    ids = [lineage.born(1, 0, 1.0) for _ in range(MAX_BANDS + 40)]
    lineage.history.add(100, {i: float(1 + i) for i in ids})
    bands = river(lineage)
    assert bands.ids[-1] == OTHERS
    assert set(bands.ids[:-1].tolist()) == set(ids[-MAX_BANDS:])
    np.testing.assert_allclose(shares(bands, OTHERS, 100), sum(range(1, 41)) / sum(range(1, MAX_BANDS + 41)))
    labels = [c.get_label() for c in plot_lineage(lineage, ax=Figure().add_subplot()).collections]
    assert "others" in labels


def test_without_a_history_there_is_nothing_to_draw():
    lineage = Lineage()
    lineage.born(1, 0, 1.0)
    with pytest.raises(ValueError, match="history is empty"):
        lineage.plot()


def test_a_log_that_begins_late_is_drawn_from_what_is_there():
    lineage = Lineage()
    lineage.history.add(100, {3: 1.0, 7: 3.0})
    lineage.history.add(200, {3: 1.0, 7: 1.0})
    bands = river(lineage)
    assert bands.ids.tolist() == [3, 7]
    np.testing.assert_allclose(bands.share.sum(axis=0), 1.0)


def test_given_axes_pyplot_is_left_alone(story):
    before = pyplot.get_fignums()
    ax = Figure().add_subplot()
    assert story.plot(ax=ax, alpha=0.5) is ax
    assert ax.collections[0].get_alpha() == 0.5
    assert pyplot.get_fignums() == before


@given(st.data())
def test_every_column_is_whole_whatever_happened(data):
    """Random refits, deaths and notes: shares are shares, and only the living have any."""
    lineage, at, living = Lineage(), 1, []
    for _ in range(data.draw(st.integers(1, 12))):
        at += data.draw(st.integers(1, 5000))
        old = tuple(living)
        table = data.draw(
            st.lists(
                st.lists(st.integers(0, 9), min_size=len(old), max_size=len(old)), min_size=1, max_size=5
            )
        )
        shared = np.array(table, dtype=float).reshape(len(table), len(old)).T
        extra = np.ones(shared.shape[1])
        living = list(lineage.follow(at, at, old, shared.sum(axis=1), shared.sum(axis=0) + extra, shared))
        lineage.history.add(at, {i: float(data.draw(st.integers(1, 50))) for i in living})
    bands = river(lineage)
    assert (bands.share >= 0).all()
    np.testing.assert_allclose(bands.share.sum(axis=0), 1.0)
    assert (np.diff(bands.at) >= 0).all()
    assert set(bands.ids[bands.share[:, -1] > 0].tolist()) == set(living)
