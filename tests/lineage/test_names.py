"""Names of clusters: kept with ids, through splits, merges, absences and checkpoints."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamclust import StreamClusterer
from streamclust.checkpoint import CheckpointError, State, decode, encode
from streamclust.lineage import MAX_NAME_CHARACTERS, Change, Lineage, checked_name

TEXT = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=MAX_NAME_CHARACTERS)


def followed(lineage, shared, old, at=100, version=2):
    shared = np.array(shared, dtype=float)
    return lineage.follow(at, version, old, shared.sum(axis=1), shared.sum(axis=0), shared)


def test_after_a_split_the_part_that_keeps_the_id_keeps_the_name():
    lineage = Lineage()
    old = lineage.born(1, 1, 10.0)
    lineage.name(old, "night shift")
    ids = followed(lineage, [[7.0, 3.0]], [old])
    assert lineage.names == {old: "night shift"}
    change = list(lineage)[-1]
    assert (change.kind, change.parent_names, change.child_names) == ("split", lineage.names, lineage.names)
    assert repr(change) == f'split 0 "night shift" -> 0 "night shift", {ids[1]} at event 100'


@pytest.mark.parametrize(
    ("names", "after"),
    [
        ({0: "day", 1: "night"}, "day"),  # the id that stays keeps its own
        ({1: "night"}, "night"),
        ({1: "night", 2: "late"}, "night"),  # that of the heavier one
        ({}, None),
    ],
)
def test_after_a_merge_it_is_said_which_name_stays(names, after):
    lineage = Lineage()
    old = [lineage.born(1, 1, weight) for weight in (9.0, 3.0, 1.0)]
    for cluster, name in names.items():
        lineage.name(cluster, name)
    (kept,) = followed(lineage, [[9.0], [3.0], [1.0]], old)
    assert lineage.names == ({} if after is None else {kept: after})
    change = list(lineage)[-1]
    assert change.kind == "merged"
    assert change.parent_names == names
    assert change.child_names == lineage.names


def test_a_cluster_that_is_away_keeps_its_name():
    lineage = Lineage()
    cluster = lineage.born(1, 1, 10.0)
    lineage.name(cluster, "night shift")
    lineage.retire(50, 2, cluster, 10.0)
    lineage.name(cluster, "night")
    lineage.resume(90, 3, cluster, 10.0)
    assert [(c.kind, c.parent_names, c.child_names) for c in list(lineage)[1:]] == [
        ("died", {0: "night shift"}, {}),
        ("returned", {}, {0: "night"}),
    ]
    followed(lineage, np.zeros((1, 1)), [cluster])  # gone for good
    assert lineage.names == {}


@given(st.dictionaries(st.integers(0, 4), TEXT), st.integers(0, 2**32 - 1))
def test_names_are_of_clusters_that_are_there_and_undone_with_changes(names, seed):
    rng, lineage = np.random.default_rng(seed), Lineage()
    ids = tuple(lineage.born(1, 1, 10.0) for _ in range(5))
    for cluster, name in names.items():
        lineage.name(cluster, name)
    kept, mark = dict(lineage.names), lineage.mark()
    new = followed(lineage, rng.gamma(0.3, size=(5, int(rng.integers(1, 6)))), ids)
    assert set(lineage.names) <= set(new)
    assert set(lineage.names.values()) <= set(kept.values())
    for change in list(lineage)[5:]:
        assert change.parent_names == {i: kept[i] for i in change.parents if i in kept}
        assert change.child_names == {i: lineage.names[i] for i in change.children if i in lineage.names}
        assert Change.from_dict(change.to_dict()) == change
    assert Lineage.from_dict(lineage.to_dict()).names == lineage.names
    lineage.restore(mark)
    assert lineage.names == kept


@pytest.mark.parametrize("name", ["", "  ", "\n", "x" * (MAX_NAME_CHARACTERS + 1), "\x00"])
def test_what_cannot_be_a_name_is_refused(name):
    with pytest.raises(ValueError, match="printable characters"):
        checked_name(name)


def test_a_name_is_text_and_of_a_cluster():
    model = StreamClusterer()
    with pytest.raises(KeyError, match="there is no cluster 0 now"):
        model.name(0, "day")
    model.learn_many([{"x": 1.0}, {"x": 2.0}])
    with pytest.raises(TypeError, match="must be text"):
        model.name(0, 7)
    model.name(0, " day\n")
    assert model.names == {0: "day"}
    model.name(0, None)
    model.name(0, None)
    assert model.names == {}


def planted(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)) + 20.0 * rng.integers(3, size=(n, 1))


@pytest.mark.compiled
@pytest.mark.parametrize("detail", ["fine", "auto"])
def test_names_stay_through_refits_checkpoints_and_levels(detail):
    model = StreamClusterer(detail=detail)
    model.learn_many(planted())
    day = model.predict_one({0: 0.0, 1: 0.0})
    model.name(day, "day")
    bits = encode(model.to_state())
    model = StreamClusterer.from_state(decode(bits))
    model.learn_many(planted(30_000, seed=1))
    assert model.names == {day: "day"}
    (named,) = (c for c in model.clusters if c.name)
    assert (named.id, named.name, model.predict_one({0: 0.0, 1: 0.0})) == (day, "day", day)
    assert str(named).startswith(f'cluster {day} "day": ')
    assert [line.name for line in model.describe() if line.name] == ["day"]
    assert "day" in str(model)
    assert "<td>day</td>" in model.describe()._repr_html_()
    model.n_clusters = 1
    merge = model.events[-1]
    assert merge.kind == "merged"
    assert merge.parent_names == {day: "day"}
    assert model.names == merge.child_names == {next(iter(merge.children)): "day"}


@pytest.mark.compiled
def test_pictures_have_the_names():
    model = StreamClusterer()
    model.learn_many(planted())
    for cluster in model.clusters:
        model.name(cluster.id, f"shift ${cluster.id}$")
    for axes in (model.plot(), model.lineage.plot()):
        texts = [text.get_text() for text in axes.texts]
        axes.figure.canvas.draw()
        assert all(any(f"{c.id}\nshift" in text for text in texts) for c in model.clusters)


def test_a_checkpoint_of_bad_names_is_refused():
    model = StreamClusterer()
    model.learn_many([{"x": 1.0}, {"x": 2.0}])
    model.name(0, "day")
    arrays, values = model.to_state()
    text = encode(State(arrays, values)).replace(b'"day"', b'"\\n "')
    with pytest.raises((CheckpointError, ValueError)):
        StreamClusterer.from_state(decode(text))
