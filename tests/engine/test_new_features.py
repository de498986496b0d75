"""Features that appear late are used soon, if they tell clusters apart."""

import numpy as np
import pytest

from streamclust import StreamClusterer
from streamclust.checkpoint.files import decode, encode

CENTRES = np.array([[0, 0], [12, 0], [0, 12], [12, 12], [24, 6]], dtype=float)


def measured(rng, n, step=None, given=1.0):
    """Dict events of five clusters; with a step, a third feature splits each in two so far apart."""
    rows = CENTRES[rng.integers(5, size=n)] + rng.normal(size=(n, 2))
    third = rng.normal(size=n) + (step or 0.0) * rng.integers(2, size=n)
    has = (rng.random(n) < given) & (step is not None)
    return [
        {"x": x, "y": y} | ({"z": z} if known else {})
        for (x, y), z, known in zip(rows.tolist(), third.tolist(), has.tolist(), strict=True)
    ]


def counted(rng, n, more):
    """Counts of three clusters; with more, a word that half of the events have."""
    rate = 2 + 18 * np.eye(3)[rng.integers(3, size=n)]
    new = rng.poisson(15, size=n) * rng.integers(2, size=n)
    return [
        {"a": a, "b": b, "c": c} | ({"d": d} if more and d else {})
        for (a, b, c), d in zip(rng.poisson(rate).tolist(), new.tolist(), strict=True)
    ]


@pytest.mark.compiled
@pytest.mark.parametrize("seed", [0, 1])
def test_a_feature_that_splits_clusters_is_used_within_2000_events(seed):
    rng, model = np.random.default_rng(seed), StreamClusterer()
    model.learn_many(measured(rng, 20_000))
    assert model.n_clusters == 5
    model.learn_many(measured(rng, 2000, step=10.0))
    assert model.n_clusters == 10
    model.learn_many(measured(rng, 20_000, step=10.0))
    assert model.n_clusters == 10
    assert [change.kind for change in model.events][5:] == ["split"] * 5


@pytest.mark.compiled
@pytest.mark.parametrize(("step", "given"), [(0.0, 1.0), (10.0, 0.1)])
def test_one_that_tells_nothing_or_is_mostly_missing_changes_nothing(step, given):
    rng, model = np.random.default_rng(0), StreamClusterer()
    model.learn_many(measured(rng, 20_000))
    before = model.events
    model.learn_many(measured(rng, 3000, step=step, given=given))
    assert model.n_clusters == 5
    assert model.events == before


@pytest.mark.compiled
def test_a_word_that_splits_clusters_is_used():
    rng, model = np.random.default_rng(0), StreamClusterer(family="poisson")
    model.learn_many(counted(rng, 20_000, more=False))
    assert model.n_clusters == 3
    model.learn_many(counted(rng, 4000, more=True))
    assert model.n_clusters == 6


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::streamclust.engine.projection.LeftSketch")
def test_features_of_wide_events_split_clusters():
    rng, model = np.random.default_rng(0), StreamClusterer()
    centres = 3 * rng.normal(size=(5, 80))

    def wide(n, more):
        rows = centres[rng.integers(5, size=n)] + rng.normal(size=(n, 80))
        new = 8 * rng.integers(2, size=n)[:, None] + rng.normal(size=(n, 4))
        rows = np.hstack([rows, new]) if more else rows
        return [{f"{j:03}": value for j, value in enumerate(row)} for row in rows.tolist()]

    model.learn_many(wide(10_000, more=False))
    assert model.n_clusters == 5
    model.learn_many(wide(4000, more=True))
    assert model.n_clusters == 10


@pytest.mark.compiled
@pytest.mark.parametrize("settings", [{}, {"family": "poisson"}])
def test_features_are_noticed_at_their_first_event_however_batched(settings):
    """And a restart between that event and the search changes nothing."""
    rng = np.random.default_rng(0)
    if settings:
        events = counted(rng, 4090, more=False) + counted(rng, 3000, more=True)
    else:
        events = measured(rng, 4200) + measured(rng, 3000, step=10.0)
    whole, parts = StreamClusterer(**settings), StreamClusterer(**settings)
    whole.learn_many(events)
    for start in range(0, len(events), 709):
        parts.learn_many(events[start : start + 709])
        parts = StreamClusterer.from_state(decode(encode(parts.to_state())))
    assert encode(parts.to_state()) == encode(whole.to_state())
    ones = StreamClusterer(**settings)
    for event in events:
        ones.learn_one(event)
    assert encode(ones.to_state()) == encode(whole.to_state())
