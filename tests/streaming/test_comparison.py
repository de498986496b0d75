"""What became of clusters, against what was done to the stream."""

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamclust import StreamClusterer
from streamclust.families import FAMILIES
from streamclust.plots import plot_flows
from streamclust.streaming import ClusterComparison
from streamclust.streaming.comparison import growth
from streamclust.streaming.portraits import Portrait, nearest_clusters
from tests.streams import two_kinds

CENTRES = np.array([[0.0, 0.0], [40.0, 0.0], [0.0, 40.0]])


def planted(share, centres=CENTRES, n=4000, seed=0):
    rng = np.random.default_rng(seed)
    return centres[rng.choice(len(centres), size=n, p=share)] + rng.normal(size=(n, 2))


def at(model, centre):
    return model.predict_one(dict(enumerate(np.asarray(centre, dtype=float).tolist())))


@pytest.fixture(scope="module")
def states():
    """A stream before and after: a cluster grows, one moves, one goes, one comes."""
    model = StreamClusterer(half_life=2000)
    model.learn_many(planted([0.3, 0.4, 0.3]))
    before = deepcopy(model)
    ids = [at(model, centre) for centre in CENTRES]
    model.name(ids[0], "day")
    for step in np.linspace(0.0, 4.0, 12):
        moved = np.array([[0.0, 0.0], [40.0, step]])
        model.learn_many(planted([0.6, 0.4], moved, 1000, seed=int(10 * step)))
    centres = np.array([[0.0, 0.0], [40.0, 4.0], [90.0, 90.0]])
    model.learn_many(planted([0.6, 0.3, 0.1], centres, 12_000, seed=9))
    return before, model, ids


@pytest.mark.compiled
def test_what_became_of_each_is_told(states):
    before, model, ids = states
    found = model.compare(before)
    lines = {(line.before, line.now): line for line in found}
    grown, moved = lines[ids[0], ids[0]], lines[ids[1], ids[1]]
    assert "grown" in grown.kinds
    assert grown.name == "day"
    assert "moved" not in grown.kinds
    assert "moved" in moved.kinds
    assert moved.feature == 1
    assert moved.shift == pytest.approx(4.0, abs=0.5)
    assert lines[ids[2], None].kinds == ("gone",)
    fresh = at(model, [90.0, 90.0])
    assert lines[None, fresh].kinds == ("new",)
    assert len(found) == 4
    for line in found:
        shares = {c.id: c.share for c in before.clusters}, {c.id: c.share for c in model.clusters}
        assert line.share_before == pytest.approx(shares[0].get(line.before, 0.0))
        assert line.share_now == pytest.approx(shares[1].get(line.now, 0.0))


@pytest.mark.compiled
def test_flows_are_where_the_events_of_then_would_be(states):
    before, model, _ = states
    found = model.compare(before)
    np.testing.assert_allclose(found.flows.sum(axis=1), found.before.share)
    rows = before.latest(4096)
    then, now = before.predict_many(rows), model.predict_many(rows)
    for k, old in enumerate(found.before.ids.tolist()):
        for j, new in enumerate(found.now.ids.tolist()):
            part = (now[then == old] == new).mean()
            assert found.flows[k, j] == pytest.approx(found.before.share[k] * part, abs=1e-6)


@pytest.mark.compiled
def test_a_table_to_read_and_to_take_along(states):
    before, model, _ = states
    found = model.compare(before)
    assert isinstance(found, ClusterComparison)
    lines = str(found).splitlines()
    assert len(lines) == 5
    assert all(line.words() in text for line, text in zip(found, lines[1:], strict=True))
    assert [row["before"] for row in found.to_dicts()] == [line.before for line in found]
    assert len(found[:2]) == 2
    assert found._repr_html_().count("<tr>") == 5
    assert repr(found) == str(found)


@pytest.mark.compiled
def test_files_snapshots_and_copies_say_the_same(states, tmp_path):
    before, model, _ = states
    before.save(tmp_path / "before")
    told = str(model.compare(before))
    assert str(model.compare(str(tmp_path / "before"))) == told
    assert str(model.compare(tmp_path / "before")) == told
    by_snapshot = model.compare(before.snapshot())
    pairs = {(line.before, line.now) for line in by_snapshot}
    assert pairs == {(line.before, line.now) for line in model.compare(before)}
    other = StreamClusterer()
    assert str(other.compare(tmp_path / "before", model)) == told
    for wrong in ((7,), (before, 7)):
        with pytest.raises(TypeError, match="a clusterer, a snapshot or the path"):
            model.compare(*wrong)


@pytest.mark.compiled
def test_two_snapshots_say_what_the_clusterers_do(states):
    before, model, _ = states
    found = model.compare(before.snapshot(), model.snapshot())
    expected = {(line.before, line.now): line for line in model.compare(before)}
    assert {(line.before, line.now) for line in found} == expected.keys()
    for line in found:
        other = expected[line.before, line.now]
        assert line.kinds == other.kinds
        assert line.name == other.name
        assert line.shift == pytest.approx(other.shift, abs=0.2)
    (gone,) = (line for line in found if line.kinds == ("gone",))
    leaves = before.snapshot()
    (node,) = np.flatnonzero(leaves.ids == gone.before)
    nearest = at(model, leaves.moments[int(node)].mean[0])
    assert max(gone.events_now, key=gone.events_now.get) == nearest
    assert sum(gone.events_now.values()) == pytest.approx(1.0)


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 1e8]), st.integers(1, 3))
def test_the_nearest_cluster_is_that_of_the_nearest_leaf(seed, origin, n_known):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 1200))
    leaves, deviation = origin + 9.0 * rng.normal(size=(n, 3)), rng.choice([0.5, 3.0], size=(2, 3))
    names, ids = ("x", "y", "z"), np.array([4, 9])
    owners = rng.choice(ids, size=n)
    now = Portrait(
        names,
        ids,
        np.array([3.0, 1.0]),
        leaves[:1].repeat(2, axis=0),
        deviation,
        {},
        (),
        leaves,
        np.ones(n),
        owners,
    )
    points = origin + 9.0 * rng.normal(size=(int(rng.integers(0, 60)), 3))
    points[:, n_known:] = np.nan
    scale = np.sqrt((3 * deviation[0] ** 2 + deviation[1] ** 2) / 4)
    for point, found in zip(points, nearest_clusters(points, now), strict=True):
        gaps = [sum(((point[j] - leaf[j]) / scale[j]) ** 2 for j in range(n_known)) for leaf in leaves]
        assert found in owners[np.array(gaps) <= min(gaps) * (1 + 1e-6) + 1e-6]


@pytest.mark.compiled
def test_snapshots_of_categories_are_compared():
    rng, model = np.random.default_rng(3), StreamClusterer()

    def send(n, kinds):
        kind = rng.integers(kinds, size=n)
        model.learn_many(
            [{"amount": rng.normal(40.0 * k), "channel": ("web", "shop", "fax")[k]} for k in kind]
        )
        return model.snapshot()

    found = model.compare(send(2000, 2), send(6000, 3))
    assert [line.kinds for line in found if line.before is None] == [("new",)]
    assert {line.kinds for line in found if line.before is not None} == {("shrunk",)}


@pytest.mark.compiled
def test_nothing_has_become_of_a_stream_that_went_on_as_it_was():
    model = StreamClusterer()
    model.learn_many(planted([0.3, 0.4, 0.3]))
    assert {line.kinds for line in model.compare(model)} == {("same",)}
    before = deepcopy(model)
    model.learn_many(planted([0.3, 0.4, 0.3], seed=5))
    assert {line.kinds for line in model.compare(before)} == {("same",)}


@pytest.mark.compiled
def test_clusters_of_two_streams_are_matched_by_their_events():
    one, other = StreamClusterer(), StreamClusterer()
    one.learn_many(planted([0.3, 0.4, 0.3]))
    other.learn_many(planted([0.3, 0.4, 0.3], CENTRES[::-1], seed=3))
    found = one.compare(other)
    assert {line.kinds for line in found} <= {("same",), ("grown",), ("shrunk",)}
    for centre in CENTRES:
        assert any((line.before, line.now) == (at(other, centre), at(one, centre)) for line in found)


@pytest.mark.compiled
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_compared(family):
    rows = two_kinds(family)
    model = StreamClusterer(family=family)
    model.learn_many(rows)
    before = deepcopy(model)
    model.learn_many(rows)
    assert {line.kinds for line in model.compare(before)} == {("same",)}


def test_features_that_only_one_has_are_left_aside():
    before, model = StreamClusterer(), StreamClusterer()
    before.learn_many([{"x": float(i % 5), "y": 1.0} for i in range(50)])
    model.learn_many([{"z": 3.0, "x": float(i % 5)} for i in range(50)])
    (line,) = model.compare(before)
    assert (line.before, line.now, line.kinds) == (0, 0, ("same",))
    assert abs(line.shift) < 1e-9


def test_before_the_first_event_there_is_nothing_to_compare():
    model = StreamClusterer()
    model.learn_many([{"x": 1.0}, {"x": 2.0}])
    for pair in ((model, StreamClusterer()), (StreamClusterer(), model)):
        with pytest.raises(ValueError, match="nothing to compare"):
            pair[0].compare(pair[1])


def test_shares_of_few_events_do_not_grow():
    assert growth((0.5, 0.5), (1e6, 1e6)) == ()
    assert growth((0.5, 0.55), (1e9, 1e9)) == ()  # certain, and too little to be told
    assert growth((0.0, 0.5), (1000.0, 1000.0)) == ("grown",)


@pytest.mark.compiled
def test_flows_are_drawn(states):
    before, model, ids = states
    axes = model.compare(before).plot()
    axes.figure.canvas.draw()
    texts = " ".join(text.get_text() for text in axes.texts)
    assert all(str(i) in texts for i in ids)
    assert '"day"' in texts
    with pytest.raises(ValueError, match="a row for each cluster before"):
        plot_flows([[1.0]], [0.5, 0.5], [1.0], ([0, 1], [0]))
