"""refit="dp-means": a stream clustered within a radius, with ids, births, drift, restarts like any other."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from streamclust import StreamClusterer
from streamclust.checkpoint.files import decode, encode
from streamclust.lineage import Change
from streamclust_connectors.synthetic import Drift
from tests.streams import clustered

pytestmark = pytest.mark.compiled


def learnt(rows, **options):
    model = StreamClusterer(refit="dp-means", **options)
    model.learn_many(rows)
    return model


def changes(model):
    return [change.kind for change in model.events]


@pytest.mark.parametrize("family", ["gaussian", "diagonal", "spherical"])
def test_clusters_keep_their_ids_from_refit_to_refit(family):
    rows, labels = clustered(30_000, 3, k=5, seed=8, spread=12.0)
    model = StreamClusterer(refit="dp-means", family=family, refit_every=3000)
    model.learn_many(rows[:10_000])
    before, refits = model.predict_many(rows), model.model.version
    model.learn_many(rows[10_000:])
    assert model.model.version > refits
    assert model.n_clusters == 5
    assert adjusted_rand_score(labels, before) > 0.99
    assert (model.predict_many(rows) == before).mean() > 0.999
    assert changes(model).count("born") + changes(model).count("split") >= 1
    assert "died" not in changes(model)


def test_a_cluster_that_appears_is_born_and_one_that_ends_dies():
    rng = np.random.default_rng(3)

    def around(n, *centres):
        return np.array(centres)[rng.integers(len(centres), size=n)] + rng.normal(size=(n, 2))

    model = learnt(around(8000, [0.0, 0.0], [20.0, 0.0]), refit_every=2000)
    old = {model.predict_one({0: x, 1: 0.0}) for x in (0.0, 20.0)}
    assert model.n_clusters == len(old) == 2
    model.learn_many(around(60_000, [0.0, 0.0], [0.0, 30.0]))
    new = model.predict_one({0: 0.0, 1: 30.0})
    assert new not in old
    assert model.predict_one({0: 0.0, 1: 0.0}) in old
    assert model.n_clusters == 2
    assert {"born", "died"} <= set(changes(model))
    assert all(isinstance(change, Change) for change in model.events)


def test_a_given_radius_decides_what_one_cluster_is():
    rng = np.random.default_rng(0)
    pairs = np.array([[0.0, 0.0], [6.0, 0.0], [60.0, 0.0], [66.0, 0.0]])
    rows = pairs[rng.integers(4, size=12_000)] + 0.5 * rng.normal(size=(12_000, 2))
    assert learnt(rows, birth_penalty=2.5**2).n_clusters == 4
    assert learnt(rows, birth_penalty=15.0**2).n_clusters == 2
    assert learnt(rows, birth_penalty=200.0**2).n_clusters == 1


def test_probabilities_and_novelty_are_those_of_gaussians():
    rows, _ = clustered(6000, 2, k=4, seed=6, spread=12.0)
    model = learnt(rows)
    table = model.predict_proba_many(rows)
    np.testing.assert_allclose(table.sum(axis=1), 1.0)
    assert (model.model.names[table.argmax(axis=1)] == model.predict_many(rows)).mean() > 0.99
    far = {0: 1000.0, 1: -1000.0}
    assert model.score_one(far) > model.score_many(rows).max()
    assert model.tail_one(far) < 0.001


def test_restarts_at_every_few_events_leave_the_same_bits():
    rows = np.concatenate([r for r, _ in Drift(2, n_events=9000, seed=2, distance=30.0).batches(9000)])
    whole = learnt(rows, refit_every=2000)
    restarted = StreamClusterer(refit="dp-means", refit_every=2000)
    for part in np.array_split(rows, 23):
        restarted = StreamClusterer.from_state(decode(encode(restarted.to_state())))
        restarted.learn_many(part)
    assert encode(whole.to_state()) == encode(restarted.to_state())
    assert whole.model.result.radius is not None


def test_merged_streams_have_the_clusters_of_both():
    rows, labels = clustered(12_000, 2, k=5, seed=9, spread=15.0)
    one, other = (learnt(part, drift="ignore") for part in (rows[labels < 3], rows[labels >= 2]))
    one.merge(other)
    assert one.n_clusters == 5
    assert adjusted_rand_score(labels, one.predict_many(rows)) > 0.98
