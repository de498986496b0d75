"""Streams of which some clusters are replaced: counts, chunky EM, and clusters that were there all the time."""

import numpy as np
import pytest

from streamclust import StreamClusterer


def replaced(family, seed, before=8000, after=4500):
    """Six clusters, of which two are replaced by two others."""
    rng = np.random.default_rng(seed)
    first, second = rng.integers(6, size=before), rng.integers(6, size=after)
    second[second >= 4] += 2
    label = np.concatenate([first, second])
    if family == "gaussian":
        return 12.0 * np.eye(8)[label] + rng.normal(size=(len(label), 8))
    if family == "bernoulli":
        level = np.where(rng.random((8, 40)) < 0.5, 0.95, 0.05)
        return (rng.random((len(label), 40)) < level[label]).astype(float)
    if family == "poisson":
        return rng.poisson(rng.gamma(1.0, 4.0, size=(8, 20))[label]).astype(float)
    share = rng.dirichlet(np.full(20, 0.5), size=8)
    return np.array([rng.multinomial(40, share[z]) for z in label], dtype=float)


@pytest.mark.compiled
@pytest.mark.parametrize("half_life", [None, 2000])
@pytest.mark.parametrize("family", ["gaussian", "multinomial", "bernoulli", "poisson"])
def test_k_is_right_soon_after_two_of_six_clusters_were_replaced(family, half_life):
    model = StreamClusterer(family=family, half_life=half_life, background=False)
    model.learn_many(replaced(family, 1))
    assert model.n_clusters == 6
    died = [change for change in model.events if change.kind == "died" and change.at > 8000]
    assert len(died) == 2


@pytest.mark.compiled
def test_chunky_em_counts_the_events_of_a_present_once():
    rng = np.random.default_rng(1)
    label = rng.integers(6, size=14_000)
    centre = 12.0 * rng.normal(size=(2, 6, 2))
    later = (np.arange(14_000) >= 10_000).astype(int)
    rows = centre[later, label] + rng.normal(size=(14_000, 2))
    model = StreamClusterer(refit="chunky-em", background=False)
    model.learn_many(rows)
    assert model.n_clusters <= 10  # up to 70 where they counted for all events before
