"""Wide events: a sketch at the door of a clusterer, and everything told in the events' own features."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer
from streamclust.batch import StreamEstimator
from streamclust.checkpoint import CheckpointError, decode, encode, model_from_state, model_state, shard_in
from streamclust.engine.projection import FIRST_EVENTS
from streamclust.streaming import InvalidValues, LeftSketch, RefusedEvents
from streamclust.summaries import empty_tree

pytestmark = pytest.mark.compiled

D = 80


def topics(n, k=4, d=D, seed=0, noise=0.5):
    """Round topics about random directions, and which each event is of."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(k, d))
    of = rng.integers(k, size=n)
    return centres[of] + noise * rng.normal(size=(n, d)), of


ROWS, OF = topics(3000)


def state(model):
    return encode(model.to_state())


@pytest.fixture(scope="module")
def learnt():
    model = StreamClusterer()
    model.learn_many(ROWS)
    model.settle()
    return model


def test_the_first_refit_reads_all_events_that_waited():
    """Nobody sees a model of fewer of them."""
    told = []
    model = StreamClusterer(on_event=told.append)
    model.learn_many(ROWS[:FIRST_EVENTS])
    assert model.n_clusters == 4
    assert {change.at for change in told} == {1, FIRST_EVENTS}
    early = StreamClusterer()
    early.learn_many(ROWS[:300])
    early.settle()
    assert early.n_clusters == 4


def test_topics_are_found_and_told_in_the_features(learnt):
    assert learnt.n_clusters == 4
    assert adjusted_rand_score(OF, learnt.predict_many(ROWS).astype(int)) == 1.0
    assert learnt.sketch.n_features == D
    for cluster in learnt.clusters:
        own = ROWS[learnt.predict_many(ROWS) == cluster.id]
        np.testing.assert_allclose(list(cluster.mean.values()), own.mean(axis=0), atol=0.1)
        np.testing.assert_allclose(cluster.covariance, own.var(axis=0), rtol=0.4)
        assert cluster.components.mean.shape == (1, D)
        profile = {each.name: each for each in learnt.describe(cluster.id)}
        assert profile[5].mean == pytest.approx(cluster.mean[5])
        assert profile[5].overall_std == pytest.approx(ROWS[:, 5].std(), rel=0.2)
    view = learnt.view()
    assert view.clusters.mean.shape == (4, D)
    assert view.leaves.mean.shape[1] == view.components.mean.shape[1] == D
    assert learnt.snapshot().moments.mean.shape[1] == D
    assert learnt.latest(7).shape == (7, D)
    assert set(learnt.centers) == {cluster.id for cluster in learnt.clusters}


def test_float32_arrays_mappings_and_frames_are_the_same_events(learnt):
    import pandas

    single, named = StreamClusterer(), StreamClusterer()
    single.learn_many(ROWS.astype(np.float32)[:1500])
    named.learn_many(pandas.DataFrame(ROWS[:1500].astype(np.float32)))
    one = StreamClusterer()
    for row in ROWS[:1500].astype(np.float32).tolist():
        one.learn_one(dict(enumerate(row)))
    assert state(single) == state(one)
    assert named.n_clusters == single.n_clusters == 4
    event = dict(enumerate(ROWS[0].tolist()))
    assert learnt.predict_one(event) == learnt.predict_many(ROWS[:1])[0]
    assert learnt.score_one(event) == pytest.approx(learnt.score_many(ROWS[:1])[0])
    assert learnt.predict_proba_one(event)[learnt.predict_one(event)] > 0.99
    assert (
        learnt.assign_many(learnt.check(ROWS[:3])).cluster.tolist() == learnt.predict_many(ROWS[:3]).tolist()
    )


def test_what_the_directions_leave_out_is_novel(learnt):
    apart = ROWS[0] + 5.0 * np.random.default_rng(5).normal(size=D)
    inside = learnt.sketch.expand(learnt.sketch.project(apart[None]))[0]  # the same coordinates, no residual
    scores = learnt.score_many(np.array([apart, inside, ROWS[0]]))
    assert scores[0] > scores[1] + 100
    assert learnt.tail_one(dict(enumerate(apart.tolist()))) < 0.01
    assert learnt.tail_one(dict(enumerate(ROWS[0].tolist()))) > 0.01


@settings(max_examples=5, deadline=None)
@given(st.lists(st.integers(1, 2600), max_size=5), st.sampled_from([700, FIRST_EVENTS, 2600]), st.booleans())
def test_batching_and_restarts_are_invisible(cuts, n, unit):
    options = {"scale": "unit" if unit else "deviation", "max_leaves": 48}
    whole, parts = StreamClusterer(**options), StreamClusterer(background=False, **options)
    whole.learn_many(ROWS[:n], shard="a")
    for piece in np.split(ROWS[:n], sorted(c for c in cuts if c < n)):
        parts.learn_many(piece, shard="a")
        parts = StreamClusterer.from_state(decode(state(parts)))
    one, other = whole.to_state(), parts.to_state()
    other.values["parameters"]["background"] = other.values["settings"]["background"] = True
    assert encode(one) == encode(other)
    assert whole.shards.n_seen == parts.shards.n_seen == {"a": n}


def test_events_wait_as_one_cluster_until_the_sketch_is_learnt():
    model = StreamClusterer()
    assert model.predict_one({"x": 1.0}) is None
    model.learn_many(ROWS[:500])
    event = dict(enumerate(ROWS[0].tolist()))
    assert (model.n_seen, model.n_clusters, model.sketch) == (500, 1, None)
    assert (model.predict_one(event), model.predict_proba_one(event), model.tail_one(event)) == (
        0,
        {0: 1.0},
        1.0,
    )
    assert model.predict_many(ROWS[:2]).tolist() == model.assign_many(ROWS[:2]).cluster.tolist() == [0, 0]
    assert model.predict_proba_many(ROWS[:2]).tolist() == [[1.0], [1.0]]
    np.testing.assert_allclose(list(model.clusters[0].mean.values()), ROWS[:500].mean(axis=0))
    assert model.latest(3).shape == (3, D)
    runs = [len(run) for run in model.runs(model.check(ROWS[500:1100])) if model.learn(run) is None]
    assert runs[0] == FIRST_EVENTS - 500
    assert model.n_clusters == 4


def test_few_events_settle():
    model = StreamClusterer()
    model.learn_many(ROWS[:40])
    model.settle()
    assert model.sketch.n_features == D
    assert model.n_seen == 40
    equal = StreamClusterer()
    equal.learn_many(np.full((1200, D), 3.0))
    assert equal.n_clusters == 1
    np.testing.assert_allclose(list(equal.clusters[0].mean.values()), 3.0)


def test_narrow_events_are_left_as_they_are_unless_asked():
    plain, asked = StreamClusterer(), StreamClusterer(max_directions=8)
    plain.learn_many(ROWS[:50, :64])
    asked.learn_many(ROWS[:600, :64])
    asked.settle()
    assert plain.sketch is None
    assert plain.model.n_features == 64
    assert asked.sketch.n_directions <= 8
    assert asked.n_clusters == 4
    counts = StreamClusterer(family="poisson")
    counts.learn_many(np.random.default_rng(0).poisson(2.0, (50, 100)))
    assert counts.sketch is None


def test_merging_shares_one_sketch():
    one, two, other = StreamClusterer(), StreamClusterer(), StreamClusterer()
    one.learn_many(ROWS[:1500])
    two.sharing.use_sketch(one.sketch)
    two.learn_many(ROWS[1500:])
    other.learn_many(ROWS[1500:])
    with pytest.raises(ValueError, match="one sketch"):
        other.merge(one)
    one.merge(two)
    assert (one.n_seen, one.n_clusters) == (3000, 4)
    np.testing.assert_allclose(one.tree.total.mean, one.sketch.project(ROWS).mean(axis=0)[None], atol=1e-9)
    waiting = StreamClusterer()
    waiting.learn_many(ROWS[:100])
    waiting.merge(one)
    assert waiting.sketch.is_same(one.sketch)
    assert waiting.n_seen == 3100
    waiting.sharing.use_sketch(other.sketch)  # what was learnt is carried over
    assert waiting.sketch.is_same(other.sketch)
    assert waiting.n_clusters == 4
    np.testing.assert_allclose(
        waiting.tree.total.mean[0], other.sketch.project(np.r_[ROWS[:100], ROWS]).mean(axis=0), atol=0.05
    )
    waiting.merge(other)
    assert (waiting.n_seen, waiting.n_clusters) == (4600, 4)
    plain = StreamClusterer()
    plain.learn_many(ROWS[:50, :3])
    with pytest.raises(ValueError, match="without a sketch"):
        plain.sharing.use_sketch(other.sketch)


def test_shards_move_with_their_sketch(learnt):
    first = StreamClusterer()
    first.learn_many(ROWS[500:1800], shard="a")
    first.learn_many(ROWS[1800:2300], shard="b")
    second = StreamClusterer()
    second.learn_many(ROWS[2000:2100], shard="c")
    assert second.shards.names == ("c",)
    second.shards.adopt("b", first.shards.release("b"))
    assert second.sketch.is_same(first.sketch)
    assert second.shards.n_seen == {"b": 500, "c": 100}
    narrow = StreamClusterer()
    narrow.learn_many(ROWS[:50, :3], shard="n")
    with pytest.raises(ValueError, match="sketch"):
        learnt.shards.adopt("n", narrow.shards.release("n"))


def test_trees_built_elsewhere_are_of_the_sketch(learnt):
    sketch = learnt.sketch
    tree = empty_tree(sketch.n_directions)
    tree.insert(sketch.project(ROWS))
    model = StreamClusterer()
    model.shards.learn_tree(tree, range(D), sketch=sketch)
    assert (model.n_seen, model.n_clusters, len(model.clusters[0].mean)) == (3000, 4, D)
    with pytest.raises(ValueError, match="names"):
        model.shards.learn_tree(tree, range(3), sketch=sketch)
    with pytest.raises(ValueError, match="gives"):
        model.shards.learn_tree(empty_tree(3), range(D), sketch=sketch)


def test_models_carry_their_sketch(learnt):
    again = model_from_state(decode(encode(model_state(learnt.model))))
    assert again.n_features == D
    np.testing.assert_array_equal(again.predict(ROWS[:9]), learnt.predict_many(ROWS[:9]))
    state = learnt.to_state()
    state.arrays["sketch.scale"] = state.arrays["sketch.scale"][1:]
    with pytest.raises(CheckpointError, match="not a sketch"):
        StreamClusterer.from_state(state)


def test_angles_alone_count_on_the_sphere():
    length = np.random.default_rng(1).uniform(0.01, 100.0, (len(ROWS), 1))
    model = StreamClusterer(scale="unit")
    model.learn_many(ROWS * length)
    assert adjusted_rand_score(OF, model.predict_many(ROWS).astype(int)) == 1.0
    narrow = StreamClusterer(scale="unit")
    narrow.learn_many((ROWS * length)[:, :3])
    assert narrow.sketch.n_directions == 3
    event = dict(enumerate(ROWS[0, :3].tolist()))
    assert narrow.predict_one(event) == narrow.predict_one(
        {name: 5.0 * value for name, value in event.items()}
    )


def test_bad_vectors_are_refused_and_counted():
    model = StreamClusterer(scale="unit")
    good = ROWS[0].tolist()
    bad = [
        [0.0] * D,
        [*good[:-1], float("nan")],
        [str(v) for v in good],
        [*good, *range(5000)],
        [*good[:-1], float("inf")],
    ]
    model.learn_many(ROWS[:1100])
    with pytest.warns(RefusedEvents), pytest.warns(InvalidValues):
        model.learn_many([dict(enumerate(vector)) for vector in bad])
    assert model.n_refused == 3  # a missing value is taken as the mean's
    assert (model.n_seen, model.n_invalid) == (1102, {D - 1: 1})
    assert model.check([{0: 0.0}]).refused[0].startswith("an event of zeros has no angle")
    with pytest.raises(ValueError, match="80 features"):
        model.learn_many(ROWS[:2, :70])
    half = StreamClusterer()
    half.learn_many(ROWS[:1100].astype(np.float16))
    assert half.n_clusters == 4
    with pytest.raises(ValueError, match="max_features allows 4096"):
        StreamClusterer(invalid="raise").learn_many(np.zeros((2, 4097)))


def test_the_estimator_tells_outliers():
    model = StreamEstimator(scale="unit", outliers=0.02)
    assert set(model.partial_fit(ROWS[:600].astype(np.float32)).labels_) == {0}
    model.partial_fit(ROWS[600:2500])
    odd = np.random.default_rng(3).normal(size=(5, D))
    assert model.predict(odd).tolist() == [-1] * 5
    labels = model.predict(ROWS[2500:])
    assert (labels == -1).mean() < 0.06
    assert adjusted_rand_score(OF[2500:][labels >= 0], labels[labels >= 0]) == 1.0
    assert model.n_clusters_ == 4
    assert model.means_.shape == (4, D)
    assert StreamEstimator().fit(ROWS[:300]).n_clusters_ == 4
    with pytest.raises(ValueError, match="outliers"):
        StreamEstimator(outliers=-1.0).fit(ROWS)


def moving(n=3000, seed=7):
    """Four topics as before, and from then on four others beside them, in directions that no event had."""
    rng = np.random.default_rng(seed)
    of = np.r_[OF, rng.integers(8, size=n)]
    centres = np.concatenate([np.random.default_rng(99).normal(size=(4, D)), 1.5 * rng.normal(size=(4, D))])
    return np.concatenate([ROWS, centres[of[len(OF) :]] + 0.5 * rng.normal(size=(n, D))]), of


def test_a_stream_that_leaves_its_directions_is_told_and_seen_in_others():
    rows, of = moving(8000)
    model = StreamClusterer(max_directions=8)
    model.learn_many(rows[:3000])
    before, first = model.sketch, model.predict_many(rows[:3000]).astype(int)
    assert model.residual_growth == pytest.approx(1.0, abs=0.1)
    with pytest.warns(LeftSketch, match="times as much") as told:
        model.learn_many(rows[3000:])
    assert len(told) == 1
    model.settle()
    assert model.n_seen == len(rows)
    assert model.sketch.n_directions <= 8
    assert not model.sketch.is_same(before)
    assert model.residual_growth == pytest.approx(1.0, abs=0.15)
    assert model.n_clusters == 8
    assert adjusted_rand_score(of[6000:], model.predict_many(rows[6000:]).astype(int)) > 0.99
    assert (model.predict_many(rows[:3000]).astype(int) == first).mean() > 0.99  # ids stay
    assert not any(change.kind == "died" and set(change.parents) & set(first) for change in model.events)
    for cluster in model.clusters:
        own = rows[6000:][model.predict_many(rows[6000:]) == cluster.id]
        np.testing.assert_allclose(list(cluster.mean.values()), own.mean(axis=0), atol=0.25)
    assert StreamClusterer().residual_growth == 1.0


@settings(max_examples=3, deadline=None)
@given(st.lists(st.integers(3000, 5800), min_size=1, max_size=3), st.booleans())
@pytest.mark.filterwarnings("ignore::streamclust.streaming.LeftSketch")
def test_batching_and_restarts_are_invisible_when_directions_are_learnt_anew(cuts, sparse):
    rows, _ = moving()
    options = {
        "max_leaves": 48,
        "missing": "zero" if sparse else None,
        "max_directions": 8,
        "background": False,
    }
    whole, parts = StreamClusterer(**options), StreamClusterer(**options)
    form = csr_array if sparse else np.asarray
    whole.learn_many(form(rows), shard="a")
    for piece in np.split(rows, sorted(set(cuts))):
        parts.learn_many(form(piece), shard="a")
        parts = StreamClusterer.from_state(decode(state(parts)))
    assert state(whole) == state(parts)
    assert whole.n_seen == len(rows)


def test_few_events_after_leaving_are_learnt_all_the_same():
    rows, _ = moving()
    model = StreamClusterer(max_directions=8)
    with pytest.warns(LeftSketch):
        model.learn_many(rows[:4000])
    model.settle()
    assert model.tree.total.weight[0] == model.n_seen == 4000


def test_shards_that_wait_for_their_sketch_are_saved_and_handed_on():
    whole = StreamClusterer()
    for shard, rows in (("a", ROWS[:300]), (("b", 1), ROWS[300:500])):
        whole.learn_many(rows, shard=shard)
    assert shard_in(whole.to_state(), "c") is None
    saved = decode(encode(shard_in(whole.to_state(), ("b", 1))))
    released = whole.shards.release(("b", 1))
    assert encode(released) == encode(saved)
    assert (whole.shards.names, whole.n_seen) == (("a",), 300)
    there = StreamClusterer()
    there.learn_many(ROWS[500:1000], shard="c")
    there.shards.adopt("moved", saved)
    assert there.sketch is None
    assert there.shards.n_seen == {"c": 500, "moved": 200}
    there.learn_many(ROWS[1000:1400], shard="c")
    assert there.sketch is not None
    assert there.shards.n_seen == {"c": 900, "moved": 200}
    there.shards.adopt("late", whole.shards.release("a"))  # through the sketch at once
    assert there.shards.n_seen == {"c": 900, "moved": 200, "late": 300}
    assert there.tree.total.weight[0] == 1400
    np.testing.assert_allclose(
        there.tree.total.mean[0], there.sketch.project(ROWS[:1400]).mean(axis=0), atol=1e-9
    )
    with pytest.raises(KeyError):
        whole.shards.release("a")


def test_shards_of_another_sketch_are_carried_over():
    here, there = StreamClusterer(), StreamClusterer()
    here.learn_many(ROWS[:1500], shard="a")
    there.learn_many(ROWS[1500:], shard="b")
    here.shards.adopt("b", there.shards.release("b"))
    assert here.shards.n_seen == {"a": 1500, "b": 1500}
    exact = here.sketch.project(ROWS[1500:])
    assert here.shards.tree("b").total.weight[0] == 1500
    np.testing.assert_allclose(here.shards.tree("b").total.mean[0], exact.mean(axis=0), atol=0.05)
    here.settle()
    assert here.n_clusters == 4
    assert adjusted_rand_score(OF, here.predict_many(ROWS).astype(int)) > 0.99
    angles = StreamClusterer(scale="unit")
    angles.learn_many(ROWS[:1500], shard="u")
    with pytest.raises(ValueError, match="unit"):
        here.shards.adopt("u", angles.shards.release("u"))


def test_processes_that_share_a_model_share_its_sketch():
    leader, one, two, late = (StreamClusterer() for _ in range(4))
    for member in (one, two, late):
        member.sharing.follow(None)
    one.learn_many(ROWS[:600], shard=1)
    two.learn_many(ROWS[600:1200], shard=2)
    assert (one.n_seen, one.n_clusters, one.assign_many(ROWS[:2])) == (600, 0, None)  # ids come with a model
    for name, member in ((1, one), (2, two)):
        leader.shards.replace(name, decode(encode(member.shards.export(name))))
        leader.shards.replace(name, decode(encode(member.shards.export(name))))  # the same again counts once
    leader.sharing.catch_up()
    assert (leader.n_seen, leader.n_clusters) == (1200, 4)
    published = decode(encode(leader.sharing.merged_state()))
    late.learn_many(ROWS[1200:2400], shard=3)  # has learnt a sketch of its own meanwhile
    for member in (one, two, late):
        member.sharing.follow(published)
        assert member.sketch.is_same(leader.sketch)
        assert (member.predict_many(ROWS[:50]) == leader.predict_many(ROWS[:50])).all()
    assert one.tree.total.weight[0] == 600
    one.learn_many(ROWS[2400:], shard=1)
    for name, member in ((1, one), (3, late)):
        leader.shards.replace(name, decode(encode(member.shards.export(name))))
    leader.sharing.catch_up()
    assert leader.n_seen == 3000
    assert leader.tree.total.weight[0] == 3000
    assert adjusted_rand_score(OF, leader.predict_many(ROWS).astype(int)) > 0.99
    narrow = StreamClusterer()
    narrow.learn_many(ROWS[:50, :3])
    with pytest.raises(ValueError, match="without a sketch"):
        narrow.sharing.follow(published)
    plain = StreamClusterer()
    plain.learn_many(ROWS[:50, :3])
    with pytest.raises(ValueError, match="reduces wide events by a sketch"):
        one.sharing.follow(plain.sharing.merged_state())


def exchanged(leader, members):
    """The members' summaries to the leader, and its model to the members, as they go through files."""
    for name, member in members.items():
        leader.shards.replace(name, decode(encode(member.shards.export(name))))
    leader.sharing.catch_up()
    published = None if leader.model is None else decode(encode(leader.sharing.merged_state()))
    for member in members.values():
        member.sharing.follow(published)


def test_the_leader_of_a_group_learns_directions_anew_for_all():
    rows, of = moving(8000)
    options = {"max_directions": 8}
    leader, members = StreamClusterer(**options), {name: StreamClusterer(**options) for name in "ab"}
    for member in members.values():
        member.sharing.follow(None)
    parts = dict(zip("ab", (rows[::2], rows[1::2]), strict=True))

    def learn(start, stop):
        for name, member in members.items():
            member.learn_many(parts[name][start:stop], shard=name)

    for start in range(0, 1500, 500):
        learn(start, start + 500)
        exchanged(leader, members)
    before, first = leader.sketch, leader.predict_many(rows[:3000]).astype(int)
    with pytest.warns(LeftSketch) as told:
        learn(1500, 4000)  # more of them than may wait
    assert len(told) == 2
    assert [member.n_seen for member in members.values()] == [4000, 4000]
    waiting = [len(member.latest(9999)) for member in members.values()]
    assert waiting == [FIRST_EVENTS, FIRST_EVENTS]
    assert (members["a"].predict_many(rows[:50]) == leader.predict_many(rows[:50])).all()  # by the old model
    for start in range(4000, 5500, 500):
        exchanged(leader, members)
        learn(start, start + 500)
    exchanged(leader, members)
    assert not leader.sketch.is_same(before)
    assert all(member.sketch.is_same(leader.sketch) for member in members.values())
    assert leader.residual_growth == pytest.approx(1.0, abs=0.15)
    assert leader.n_seen == leader.tree.total.weight[0] == len(rows)
    assert (leader.predict_many(rows[:3000]).astype(int) == first).mean() > 0.99  # ids stay
    found = {name: member.predict_many(rows[9000:]).astype(int) for name, member in members.items()}
    assert np.array_equal(found["a"], found["b"])
    assert adjusted_rand_score(of[9000:], found["a"]) > 0.99


def test_sparse_rows_are_the_same_events_as_mappings():
    rng = np.random.default_rng(0)
    of = rng.integers(3, size=1500)
    words = rng.integers(60, size=(1500, 12)) + 60 * of[:, None]
    words[:, :4] = rng.integers(180, 300, size=(1500, 4))  # common to all
    table = np.zeros((1500, 300))
    np.add.at(table, (np.arange(1500)[:, None], words), 1.0)
    options = {"missing": "zero", "scale": "unit", "max_directions": 16}
    sparse, dicts = StreamClusterer(**options), StreamClusterer(feature_order=range(300), **options)
    sparse.learn_many(csr_array(table[:700]))
    assert sparse.predict_many(csr_array(table[:2])).tolist() == [0, 0]
    assert sparse.assign_many(csr_array(table[:2])).cluster.tolist() == [0, 0]
    sparse.learn_many(csr_array(table[700:]))
    events = [{int(j): row[j] for j in np.flatnonzero(row)} for row in table]
    dicts.learn_many(events)
    assert adjusted_rand_score(of, sparse.predict_many(csr_array(table)).astype(int)) > 0.95
    assert adjusted_rand_score(of, dicts.predict_many(events).astype(int)) > 0.95
    for way in ("predict_many", "predict_proba_many", "score_many"):
        dense = getattr(sparse, way)(table[:50])
        np.testing.assert_allclose(getattr(sparse, way)(csr_array(table[:50])), dense, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(getattr(sparse, way)(events[:50]), dense, rtol=1e-6, atol=1e-9)
    assert sparse.predict_one(events[0]) == sparse.predict_many(table[:1])[0]
    assert sparse.predict_many([{"unheard": 1.0}, events[0]]).tolist() == [
        None,
        sparse.predict_one(events[0]),
    ]
    assert sparse.predict_one({"unheard": 1.0}) is None
    with pytest.raises(ValueError, match="300 features"):
        sparse.predict_many(csr_array(table[:, :9]))
    with pytest.raises(ValueError, match="finite"):
        sparse.predict_many(csr_array(np.where(table > 0, np.inf, 0.0)))
    again = StreamClusterer.from_state(decode(state(sparse)))
    assert state(again) == state(sparse)
    assert sparse.latest(3).shape == (3, 300)
    assert len(sparse.clusters[0].mean) == 300
    with pytest.warns(RefusedEvents, match="no angle"):
        sparse.learn_many(csr_array(np.r_[table[:1], np.zeros((1, 300))]))
    assert (sparse.n_seen, sparse.n_refused) == (1501, 1)
    with pytest.raises(ValueError, match="300 features"):
        sparse.learn_many(csr_array(table[:, :9]))
    with pytest.raises(ValueError, match=r"missing=.zero"):
        StreamClusterer().learn_many(csr_array(table))
    few = StreamClusterer(missing="zero", max_directions=400)
    few.learn_many(csr_array(table[:, :5]))
    few.settle()
    assert few.n_seen == 1500
    assert few.sketch is None


def long_tails(n, k=4, d=100, seed=0):
    """Events whose entries are mostly 0 and else log-normal, and the cluster of each, which has columns of its own."""
    rng = np.random.default_rng(seed)
    of = rng.integers(k, size=n)
    mine = rng.integers(2 * k, size=d) == of[:, None]
    value = np.exp(rng.normal(size=(n, d)) + mine) * 10.0 ** rng.integers(-3, 4, size=d)
    return np.where(rng.random((n, d)) < np.where(mine, 0.7, 0.15), value, 0.0), of


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_clusters_of_long_tails_and_zeros_are_found(kind):
    rows, of = long_tails(5000)
    events = csr_array(rows) if kind == "sparse" else rows
    whole, parts = StreamClusterer(missing="zero"), StreamClusterer(missing="zero")
    whole.learn_many(events)
    for first, last in ((0, 500), (500, 1300), (1300, 5000)):
        parts.learn_many(events[first:last])
        parts = StreamClusterer.from_state(decode(state(parts)))
    assert state(whole) == state(parts)
    whole.settle()
    assert adjusted_rand_score(of, whole.predict_many(events).astype(int)) > 0.9
    assert whole.n_clusters <= 6
    total = sum(cluster.weight for cluster in whole.clusters)
    mean = sum(np.array(list(c.mean.values())) * c.weight for c in whole.clusters) / total
    np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=0.6)  # as of the first 1,024


def test_clusters_of_one_hot_columns_are_found():
    rng = np.random.default_rng(0)
    of = rng.integers(3, size=4000)
    chances = rng.dirichlet(np.full(8, 0.5), size=(3, 12)).cumsum(axis=2)
    level = (rng.random((4000, 12, 1)) > chances[of]).sum(axis=2).clip(0, 7)
    rows = np.eye(8)[level].reshape(4000, 96)
    model = StreamClusterer()
    model.learn_many(rows)
    model.settle()
    assert adjusted_rand_score(of, model.predict_many(rows).astype(int)) > 0.9


@pytest.mark.parametrize("scale", ["deviation", "unit"])
@pytest.mark.parametrize("n", [1, 2, 5, 50])
def test_fewer_events_than_features_are_a_cluster(n, scale):
    model = StreamClusterer(scale=scale)
    rows = np.random.default_rng(n).normal(size=(n, 384))
    model.learn_many(rows)
    assert model.predict_many(rows).tolist() == [0] * n
    model.settle()
    assert (model.n_seen, model.n_refused, model.n_clusters) == (n, 0, 1)
    assert model.predict_many(rows).tolist() == [0] * n
    assert np.isfinite(model.score_many(rows)).all()
    np.testing.assert_allclose(list(model.clusters[0].mean.values()), model.sketch.centre, atol=1e-6)


@pytest.mark.parametrize("scale", ["deviation", "unit"])
def test_equal_events_are_one_cluster(scale):
    model = StreamClusterer(scale=scale)
    model.learn_many(np.full((3000, D), 0.3))
    model.settle()
    model.learn_many(np.full((10, D), 0.3))
    assert (model.n_seen, model.n_refused, model.n_clusters) == (3010, 0, 1)
    assert model.predict_many(ROWS[:3]).tolist() == [0, 0, 0]


@pytest.mark.parametrize("at", [5, 1200])
def test_bad_rows_are_refused_before_and_after_directions_are_learnt(at):
    rows = ROWS[:1300].copy()
    for bad, scale in ((0.0, "unit"), (np.nan, "deviation"), (np.inf, "deviation")):
        rows[at] = bad
        for kind in (np.float64, np.float32, np.float16):
            model = StreamClusterer(scale=scale)
            with pytest.warns(RefusedEvents):
                model.learn_many(rows.astype(kind))
            assert (model.n_seen, model.n_refused) == (1299, 1)
            assert model.n_clusters == 4
    rows[at] = ROWS[at]
    rows[at, 3] = np.nan  # one missing value is none of an event's fault
    model = StreamClusterer()
    model.learn_many(rows)
    assert (model.n_seen, model.n_refused) == (1300, 0)
    text = StreamClusterer()
    with pytest.warns(RefusedEvents):
        text.learn_many(rows.astype(str))
    assert (text.n_seen, text.n_refused) == (0, 1300)


@pytest.mark.parametrize("n", [500, 1500])
def test_vectors_of_changing_length(n):
    model = StreamClusterer()
    model.learn_many(ROWS[:n])
    for width in (D - 10, D + 10):
        with pytest.raises(ValueError, match="80 features"):
            model.learn_many(np.ones((5, width)))
    assert model.n_seen == n
    mappings = [dict(enumerate(row)) for row in np.pad(ROWS[n : n + 20], ((0, 0), (0, 10))).tolist()]
    model.learn_many(
        [{k: v for k, v in event.items() if k < 70} for event in mappings[:10]]
    )  # some are missing
    model.learn_many(mappings[10:])  # others are new
    model.learn_many([dict(enumerate(row)) for row in ROWS[n + 20 : 2600].tolist()])
    model.settle()
    assert (model.n_seen, model.n_refused, model.sketch.n_features) == (2600, 0, D + 10 * (n < FIRST_EVENTS))
    assert (
        adjusted_rand_score(OF, model.predict_many([dict(enumerate(r)) for r in ROWS.tolist()]).astype(int))
        == 1
    )
