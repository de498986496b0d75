"""Parts of the way of one source are told from sources of their own."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamclust import StreamClusterer
from streamclust._kernels.engine.continuity import crossings
from streamclust.engine.continuity import continuous_pairs, sources
from tests.engine.test_dependence import ar


@given(st.integers(0, 10_000), st.integers(0, 40), st.integers(1, 3), st.integers(1, 4))
def test_crossings_are_those_of_each_pair_alone(seed, n, d, k):
    rng = np.random.default_rng(seed)
    cell, points = rng.integers(k + 1, size=n), rng.normal(size=(n, d))
    direction = rng.normal(size=(k, k, d))
    number, squares = crossings(cell, points, direction)
    for a in range(k):
        for b in range(a + 1, k):
            both = np.flatnonzero((cell == a) | (cell == b))
            steps = [(i, j) for i, j in itertools.pairwise(both) if cell[i] != cell[j]]
            assert number[a, b] == len(steps)
            expected = sum(((points[j] - points[i]) @ direction[a, b]) ** 2 for i, j in steps)
            np.testing.assert_allclose(squares[a, b], expected, atol=1e-12)
    assert not np.tril(number).any()


def test_a_way_is_one_source_and_two_sources_are_two():
    rng = np.random.default_rng(0)
    way = ar(rng, 4000, 3, 500)
    parts = np.digitize(way[:, 0], [-0.5, 0.5])
    assert len(set(sources([(parts, way)], 3).tolist())) == 1
    label = rng.integers(2, size=4000)
    two = way + 6.0 * label[:, None]
    assert not continuous_pairs(label, two, 2).any()
    runs = np.arange(4000) // 500 % 2  # one source at a time
    assert not continuous_pairs(runs, rng.normal(size=(4000, 3)) + 6.0 * runs[:, None], 2).any()


def test_few_steps_in_many_dimensions_tell_a_way():
    """A source crosses from one part of its way to the next once: in some feature that step is large by chance."""
    for seed in range(20):
        way = ar(np.random.default_rng(seed), 60, 16, 300)
        assert continuous_pairs(np.repeat([0, 1], 30), way, 2)[0, 1]


def test_a_jump_in_one_feature_of_slow_ones_is_a_step_between_sources():
    """The sensors of a room are slow; that its light is on or off tells two clusters apart."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        way, on = ar(rng, 400, 16, 300), np.arange(400) // 40 % 2
        way[:, 3] = 9.0 * on + 0.1 * rng.normal(size=400)
        assert not continuous_pairs(on, way, 2).any()


@pytest.mark.compiled
@pytest.mark.parametrize("k", [1, 5])
def test_sources_that_wander_slowly_in_many_dimensions_stay_whole(k):
    rng = np.random.default_rng(k)
    centres = 4.0 * rng.normal(size=(5, 16))
    source = rng.integers(k, size=20_000)
    rows = centres[source]
    for s in range(k):
        own = source == s
        rows[own] += ar(rng, int(own.sum()), 16, 100)
    model = StreamClusterer(background=False)
    model.learn_many(rows)
    assert model.n_clusters == k
    assert sum(change.at > 10_000 for change in model.events) == 0
