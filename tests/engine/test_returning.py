"""Clusters that leave and come back keep their ids."""

import numpy as np
import pytest

from streamclust import StreamClusterer
from streamclust.checkpoint.files import encode

CENTRES = np.array([[0, 0], [12, 0], [0, 12], [12, 12], [24, 6]], dtype=float)
DAY, NIGHT = (0, 1, 2), (3, 4)


def events(rng, n, clusters=range(5)):
    centres = CENTRES[list(clusters)]
    return centres[rng.integers(len(centres), size=n)] + rng.normal(size=(n, 2))


def shifts(model, half, cycles, seed=0, learn=None):
    """Days and nights of so many events each."""
    rng, learn = np.random.default_rng(seed), learn or model.learn_many
    for _ in range(cycles):
        learn(events(rng, half, DAY))
        learn(events(rng, half, NIGHT))
    return model


def kinds(model):
    return [change.kind for change in model.events]


def shown(model):
    return set(model.model.names.tolist())


def ids_of(model):
    return {cluster for change in model.events for cluster in change.children}


@pytest.mark.compiled
@pytest.mark.parametrize(("half", "cycles"), [(2000, 10), (10_000, 10), (45_000, 5)])
def test_shifts_that_alternate_have_the_same_ids_for_ever(half, cycles):
    model = shifts(StreamClusterer(), half, cycles)
    assert len(ids_of(model)) == 5
    assert kinds(model).count("born") == 5
    returned = [change for change in model.events if change.kind == "returned"]
    assert len(returned) == kinds(model).count("died") == (5 if half > 2000 else 0)  # the first time alone
    assert len({cluster for change in returned for cluster in change.children}) == len(returned)
    assert all(abs(change.away - half) <= 256 for change in returned)


@pytest.mark.compiled
@pytest.mark.parametrize("settings", [{"refit": "dp-means", "birth_penalty": 30.0}, {"family": "diagonal"}])
def test_they_have_with_other_models(settings):
    model = shifts(StreamClusterer(**settings), 45_000, 2)
    assert len(ids_of(model)) == 5
    assert "returned" in kinds(model)


@pytest.mark.compiled
def test_a_cluster_that_was_away_while_the_others_moved_returns():
    """Refits of the time since see nothing of it."""
    rng, model = np.random.default_rng(0), StreamClusterer()
    model.learn_many(events(rng, 20_000))
    before = model.predict_one({0: 24.0, 1: 6.0})
    moving = events(rng, 20_000, range(4))
    moving[:, 1] -= np.linspace(0.0, 8.0, 20_000)
    model.learn_many(moving)
    assert before not in shown(model)
    back = events(rng, 20_000)
    back[back[:, 0] < 18, 1] -= 8.0
    model.learn_many(back)
    assert model.predict_one({0: 24.0, 1: 6.0}) == before
    assert len(ids_of(model)) == model.n_clusters == 5
    (returned,) = [change for change in model.events if change.kind == "returned"]
    assert list(returned.children) == [before]
    assert returned.away == pytest.approx(20_000, abs=2048)


@pytest.mark.compiled
def test_retired_clusters_survive_a_restart_bit_for_bit(tmp_path):
    model = shifts(StreamClusterer(), 45_000, 1)
    assert len(model.model.hidden) == 3
    model.save(tmp_path / "state")
    again = StreamClusterer.load(tmp_path / "state")
    for each in (model, again):
        shifts(each, 20_000, 1, seed=1)
    assert again.events == model.events
    assert encode(again.to_state()) == encode(model.to_state())
    assert kinds(model).count("returned") == 5  # by day, and at night


@pytest.mark.compiled
def test_clusters_of_a_shard_return_under_their_ids():
    """Two shards that learn in turns."""
    model = StreamClusterer()

    def learn(rows):
        for i, part in enumerate(np.array_split(rows, 20)):
            model.learn_many(part, shard=i % 2)

    shifts(model, 45_000, 2, learn=learn)
    assert len(ids_of(model)) == 5
    assert "returned" in kinds(model)


@pytest.mark.compiled
def test_what_has_lost_its_weight_is_forgotten():
    rng, model = np.random.default_rng(0), StreamClusterer(half_life=8000)
    model.learn_many(events(rng, 20_000, DAY))
    gone = shown(model)
    model.learn_many(events(rng, 48_000, NIGHT))
    assert model.model.hidden == gone
    model.learn_many(events(rng, 100_000, NIGHT))
    assert not gone & set(model.model.ids)
    model.learn_many(events(rng, 20_000, DAY))
    assert "returned" not in kinds(model)
    assert not gone & shown(model)


@pytest.mark.compiled
def test_a_new_cluster_nearest_to_a_retired_one_is_born():
    """Outside of it: nothing has come back."""
    rng, model = np.random.default_rng(0), StreamClusterer()
    model.learn_many(events(rng, 20_000))
    model.learn_many(events(rng, 60_000, range(4)))
    (gone,) = model.model.hidden
    rows = events(rng, 20_000)
    rows[rows[:, 0] > 18] += [0.0, 12.0]
    model.learn_many(rows)
    assert "returned" not in kinds(model)
    assert kinds(model)[-1] == "born"
    assert gone not in shown(model)
    assert model.n_clusters == 5
