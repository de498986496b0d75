"""Levels of a stream: which is on show, its ids and lifecycle events, other levels, and changes at any time."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer
from streamclust.batch import StreamEstimator
from streamclust.engine import Engine, EngineSettings

pytestmark = pytest.mark.compiled
CENTRES = np.random.default_rng(8).normal(size=(5, 3)) * 14


def heavy_tails(n, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(5, size=n)
    noise = rng.normal(size=(n, 3)) / np.sqrt(rng.chisquare(3, size=(n, 1)))
    return CENTRES[labels] + noise, labels


def learnt(n=20_000, chunk=1_000, **options):
    model = StreamClusterer(**options)
    x, _ = heavy_tails(n)
    for first in range(0, n, chunk):
        model.learn_many(x[first : first + chunk])
    return model


@pytest.fixture(scope="module")
def tails():
    return learnt(detail="auto")


def test_clusters_with_heavy_tails_are_shown_as_one_each(tails):
    x, labels = heavy_tails(4_000, seed=1)
    assert tails.n_clusters == len(tails.clusters) == 5 < len(tails.clusters_at("fine"))
    assert adjusted_rand_score(labels, tails.predict_many(x)) > 0.97
    assert sum(cluster.share for cluster in tails.clusters) == pytest.approx(1.0)
    assert set(tails.predict_many(x)) == {cluster.id for cluster in tails.clusters}
    likeliest = tails.model.names[tails.predict_proba_many(x).argmax(axis=1)]
    assert np.mean(likeliest == tails.predict_many(x)) > 0.99


def test_ids_of_the_level_on_show_rest(tails):
    """Tails come and go as clusters of the finest level; nobody sees it."""
    assert [change.kind for change in tails.events].count("born") == 5
    assert len(tails.events) == 5
    assert all(change.level is not None for change in tails.events)
    finest = learnt(detail="fine")
    assert len(finest.events) > 5
    assert all(change.level is None for change in finest.events)


def test_levels_are_nested_and_one_is_shown(tails):
    levels = tails.levels
    assert [level.n_clusters for level in levels] == list(range(len(levels), 0, -1))
    assert [level.n_clusters for level in levels if level.shown] == [5]
    x, _ = heavy_tails(2_000, seed=2)
    for finer, coarser in [("fine", 5), ("fine", None), (5, 3), (3, 1)]:
        parents = tails.parents(finer, coarser)
        ids = tails.predict_many(x, level=finer), tails.predict_many(x, level=coarser)
        assert [parents[i] for i in ids[0].tolist()] == ids[1].tolist()
    assert {c.id for c in tails.clusters_at(3)} == set(tails.parents("fine", 3).values())
    event = dict(enumerate(x[0].tolist()))
    assert tails.predict_one(event, level=3) == tails.predict_many(x[:1], level=3)[0]
    with pytest.raises(ValueError, match="not coarser"):
        tails.parents(2, 3)


def test_another_level_is_shown_at_once():
    model = learnt(6_000)
    n_seen, seen = model.n_seen, []
    model.on_event = seen.append
    model.n_clusters = 3
    assert model.n_clusters == len(model.clusters) == 3
    assert {change.kind for change in seen} == {"merged"}
    assert {change.level for change in seen} == {3}
    model.n_clusters = (4, 5)
    assert model.n_clusters in (4, 5)
    model.detail = "fine"
    assert model.n_clusters == len(model.clusters_at("fine"))
    model.detail = "auto"
    assert model.n_clusters == 5
    assert model.n_seen == n_seen
    model.learn_many(heavy_tails(6_000, seed=5)[0])
    assert model.n_clusters == 5


def test_a_number_asked_for_holds_from_the_start():
    model = learnt(8_000, n_clusters=3)
    assert model.n_clusters == 3
    assert model.clone()._wanted == 3
    assert len(model.parents("fine", None).values()) > 3


def test_batching_leaves_no_trace():
    one, other = learnt(7_000, chunk=7_000), learnt(7_000, chunk=333)
    assert [str(change) for change in one.events] == [str(change) for change in other.events]
    x, _ = heavy_tails(500, seed=3)
    assert_array_equal(one.predict_many(x), other.predict_many(x))


@pytest.mark.parametrize("options", [{}, {"n_clusters": (2, 4)}, {"detail": "coarse"}, {"detail": 300.0}])
def test_a_restart_leaves_no_trace(options, tmp_path):
    x, _ = heavy_tails(12_000)
    whole, part = StreamClusterer(**options), StreamClusterer(**options)
    whole.learn_many(x)
    part.learn_many(x[:5_000])
    part.save(tmp_path / "half.checkpoint")
    part = StreamClusterer.load(tmp_path / "half.checkpoint")
    part.learn_many(x[5_000:])
    assert [str(change) for change in part.events] == [str(change) for change in whole.events]
    assert part.n_clusters == whole.n_clusters
    assert_array_equal(part.predict_many(x[:500]), whole.predict_many(x[:500]))
    assert part._wanted == whole._wanted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clusters": 0}, "at least 1"),
        ({"n_clusters": -3}, "at least 1"),
        ({"n_clusters": 2.5}, "whole number"),
        ({"n_clusters": float("nan")}, "whole number"),
        ({"n_clusters": True}, "whole number"),
        ({"n_clusters": (0, 4)}, "at least 1"),
        ({"n_clusters": (4,)}, "pair"),
        ({"n_clusters": (9, 2)}, r"use \(2, 9\)"),
        ({"detail": "medium"}, "detail must be"),
        ({"detail": 0}, "positive number of events"),
        ({"detail": -5}, "positive number of events"),
        ({"detail": float("nan")}, "positive number of events"),
        ({"detail": float("inf")}, "positive number of events"),
        ({"detail": True}, "positive number of events"),
    ],
)
@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_requests_that_make_no_sense_are_refused_and_change_nothing(family, options, message):
    with pytest.raises(ValueError, match=message):
        StreamClusterer(family=family, **options)
    with pytest.raises(ValueError, match=message):
        StreamEstimator(family=family, **options).fit(np.eye(4))
    model = StreamClusterer(family=family, n_clusters=2)
    with pytest.raises(ValueError, match=message):
        model.__setattr__(*next(iter(options.items())))
    assert (model.detail, model._wanted) == ("auto", 2)


REQUESTS = [{"detail": detail} for detail in ("auto", "fine", "coarse", 1e-300, 20.0, 1e300)]
REQUESTS += [{"n_clusters": number} for number in (1, 9, (2, 4), (10, 20))]


@pytest.mark.parametrize("options", REQUESTS, ids=str)
@pytest.mark.parametrize("family", ["gaussian", "poisson", "bernoulli"])
@pytest.mark.parametrize("n", [1, 300])
def test_one_event_and_equal_events_are_one_cluster_however_it_is_asked(family, options, n):
    model = StreamClusterer(family=family, **options)
    model.learn_many(np.ones((n, 3)))
    model.settle()
    assert model.n_clusters == len(model.clusters) == len(model.levels) == 1
    assert len(set(model.predict_many(np.ones((4, 3))))) == 1


@pytest.mark.parametrize("asked", [50, (20, 50)])
def test_all_there_are_are_shown_if_more_are_asked_for(asked):
    model = learnt(4_000, n_clusters=asked)
    assert model.n_clusters == len(model.clusters_at("fine")) < 20


def test_a_model_that_has_learnt_little_has_one_level():
    model = StreamClusterer(n_clusters=10)
    assert (model.levels, model.clusters_at(3), model.predict_one({"x": 1.0}, level=2)) == ((), [], None)
    model.learn_one({"x": 1.0})
    assert model.n_clusters == 1
    assert [level.n_clusters for level in model.levels] == [1]
    with pytest.raises(ValueError, match='level must be "fine" or from 1 to 1, got 2'):
        model.clusters_at(2)
    model.learn_many(np.ones((500, 1)))
    assert model.n_clusters == 1


def test_counts_have_levels():
    rng = np.random.default_rng(0)
    rates = np.array([[30.0, 1, 1], [24, 6, 1], [1, 1, 30], [1, 6, 24]])
    kind = rng.integers(4, size=6_000)
    model = StreamClusterer(family="poisson", n_clusters=2)
    model.learn_many(rng.poisson(rates[kind]).astype(float))
    assert model.n_clusters == 2
    assert adjusted_rand_score(kind // 2, model.predict_many(counts(rates[kind]))) > 0.9
    shown = []
    for detail in (1e-3, 20.0, 200.0, 6_000.0, "fine"):
        model.detail = detail
        shown.append(model.n_clusters)
    assert shown == sorted(shown)
    assert (shown[0], shown[-2], shown[-1]) == (1, 4, 4)
    model.detail = "coarse"
    assert model.n_clusters == 2


def counts(rates):
    return np.random.default_rng(1).poisson(rates).astype(float)


def test_retired_clusters_leave_the_level_and_return_to_it():
    """The level on show tells the same story as the finest, where that has as many clusters."""

    def shifts(detail):
        rng = np.random.default_rng(0)
        model = StreamClusterer(detail=detail)
        day, night = np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]]), np.array([[40.0, 40.0]])
        for places in (day, night, day):
            model.learn_many(places[rng.integers(len(places), size=45_000)] + rng.normal(size=(45_000, 2)))
        return [str(change) for change in model.events]

    story = shifts("auto")
    assert {change.split()[0] for change in story} == {"born", "died", "returned"}
    assert story == shifts("fine")


@pytest.mark.parametrize("place", [(60.0, 0.0, 0.0), (-40.0, -40.0, -40.0)])
def test_a_newborn_cluster_is_shown_at_once_however_light(place):
    """A dozen events of 20,000, far from clusters that are each shown as one though refits find several in it."""
    model, seen = learnt(detail="auto"), []
    assert model.n_clusters == 5 < len(model.clusters_at("fine"))
    model.on_event = lambda change: seen.append((change.kind, change.at))
    newborn = np.array(place) + np.random.default_rng(3).normal(size=(600, 3))
    before = set(model.predict_many(newborn[:1]))
    for first in range(0, 600, 30):
        model.learn_many(np.concatenate([newborn[first : first + 30], heavy_tails(30, seed=first)[0]]))
        if first:
            assert model.n_clusters == 6
            assert not before & set(model.predict_many(newborn))
    assert [kind for kind, _ in seen] == ["born"]
    assert seen[0][1] <= 20_030


def test_clusters_that_have_moved_since_the_refit_are_grouped_as_they_are_now():
    """Of places 0, 10 and 30 two clusters are shown; the middle one goes from the left to the right one."""
    rng, engine = np.random.default_rng(0), Engine(2, EngineSettings(n_clusters=2))
    places = np.array([[0.0, 0.0], [10.0, 0.0], [30.0, 0.0]])
    engine.learn(places[rng.integers(3, size=3_000)] + rng.normal(size=(3_000, 2)))
    stream, published = engine.stream, engine.model
    left, middle, right = published.shown.predict(places).tolist()
    assert left == middle != right
    stream.show_as_of_now()
    assert engine.model is published
    running = published.result.clusters[np.arange(3)]
    running.mean[running.mean[:, 0].round() == 10.0, 0] += 14.0
    stream.model = published.learnt(running, moved=True)
    stream.show_as_of_now()
    assert engine.model.version == published.version + 1
    left, middle, right = engine.shown.predict(np.add(places, [[0, 0], [14, 0], [0, 0]])).tolist()
    assert left != middle == right


def drifting(seed, **options):
    """Nine clusters that each go their own way."""
    rng, n = np.random.default_rng(seed), 40_000
    centres, way, kind = rng.normal(size=(9, 2)) * 25, rng.normal(size=(9, 2)) * 6, rng.integers(9, size=n)
    model = StreamClusterer(**options)
    model.learn_many(centres[kind] + way[kind] * np.linspace(0, 1, n)[:, None] + rng.normal(size=(n, 2)))
    return model


def test_ids_of_a_level_asked_for_change_no_more_often_than_the_default_ones_under_drift():
    seeds = range(4)
    told = [drifting(seed, n_clusters=5) for seed in seeds]
    assert [model.n_clusters for model in told] == [5] * len(told)
    changes = [sum(change.kind != "born" for change in model.events) for model in told]
    by_default = [sum(change.kind != "born" for change in drifting(seed).events) for seed in seeds]
    assert sum(changes) <= sum(by_default)


def test_the_level_on_show_has_the_same_ids_however_it_is_asked_for():
    model = drifting(0, n_clusters=5)
    x = np.random.default_rng(1).normal(size=(500, 2)) * 25
    assert_array_equal(model.predict_many(x, level=5), model.predict_many(x))
    assert model.parents(5, None) == {name: name for name in model.predict_many(x, level=5).tolist()}


def test_the_path_goes_with_the_checkpoint():
    engine = Engine(3, EngineSettings(detail="auto"))
    engine.learn(heavy_tails(6_000)[0])
    again = type(engine.model).from_state(engine.model.to_state())
    assert again.kept_path is not None
    for name in ("owner", "children", "zeta"):
        assert_array_equal(getattr(again.path, name), getattr(engine.model.path, name))


def test_the_estimator_shows_levels():
    x, labels = heavy_tails(8_000)
    model = StreamEstimator(detail="auto").fit(x)
    assert model.n_clusters_ == 5
    assert adjusted_rand_score(labels, model.labels_) > 0.97
    assert [level.n_clusters for level in model.levels_ if level.shown] == [5]
    assert StreamEstimator(n_clusters=3).fit(x).n_clusters_ == 3
    model.set_params(n_clusters=2).partial_fit(x[:100])
    assert model.n_clusters_ == 2
