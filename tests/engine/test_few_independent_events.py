"""Clusters of fewer than D + 1 independent events: they stay whole, are shown, and nothing is judged by them."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, homogeneity_score

from streamclust import StreamClusterer
from streamclust.engine import Engine, EngineSettings
from tests.engine.test_dependence import ar

pytestmark = pytest.mark.compiled

D = 16


def sources(seed, n, k, time):
    """Sources picked at random, each of which wanders within its cluster."""
    rng = np.random.default_rng(seed)
    centres = 4.0 * rng.normal(size=(k, D))
    source = rng.integers(k, size=n)
    rows = centres[source]
    for s in range(k):
        own = source == s
        rows[own] += ar(rng, int(own.sum()), D, time)
    return rows, source


def learn(rows, part=1000):
    """A clusterer after each part of a stream."""
    model = StreamClusterer(background=False)
    for first in range(0, len(rows), part):
        model.learn_many(rows[first : first + part])
        yield model


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("time", [100, 300])
def test_twenty_sources_that_wander_slowly_are_shown_as_twenty(seed, time):
    """Their covariances are not known: judged by those, half of the clusters would be shown with another."""
    rows, source = sources(seed, 30_000, 20, time)
    for model in learn(rows):
        assert model.n_clusters == 20 or model.n_seen <= 5000
    found = model.predict_many(rows[-5000:])
    assert adjusted_rand_score(source[-5000:], found) > 0.97


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("time", [100, 300])
def test_sources_that_wander_in_new_directions_are_no_change_and_not_gone(seed, time):
    engine = Engine(D, EngineSettings(background=False))
    for part in np.split(sources(seed, 30_000, 20, time)[0], 30):
        engine.learn(part)
        assert engine.counters.begin == 0
    assert engine.present.evidence * engine.n_seen < 20 * (D + 1)
    assert {change.kind for change in engine.lineage} <= {"born", "split"}


@pytest.mark.parametrize("seed", range(5))
def test_a_jump_in_one_feature_keeps_two_regimes_apart(seed):
    """A room's light is on or off, while its temperature, humidity and air change slowly."""
    rng = np.random.default_rng(seed)
    rows, on = ar(rng, 20_000, 4, 1000), np.arange(20_000) // 1000 % 2
    rows[:, 3] = 9.0 * on + 0.1 * rng.normal(size=20_000)
    *_, model = learn(rows)
    assert model.n_clusters in (2, 3)  # the way within a regime may still be in two parts
    assert homogeneity_score(on[-3000:], model.predict_many(rows[-3000:])) > 0.97
