"""Weights add up to what was learnt, each cluster's to its own events, through changes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamclust import StreamClusterer

D = 6


def stream(family, seed, parts):
    """Events of clusters that come and go: for each part, its clusters and number of events; with their labels."""
    rng = np.random.default_rng(seed)
    place = rng.permutation(6)
    level = np.eye(6)[place]
    label = np.concatenate([rng.choice(clusters, size=n) for clusters, n in parts])
    if family == "multinomial":
        share = 0.02 + level
        rows = np.array([rng.multinomial(40, share[z] / share[z].sum()) for z in label], dtype=float)
    elif family == "poisson":
        rows = rng.poisson(0.5 + 20.0 * level[label]).astype(float)
    elif family == "bernoulli":
        copies = np.repeat(level, 4, axis=1)
        rows = (rng.random((len(label), 24)) < 0.03 + 0.94 * copies[label]).astype(float)
    else:
        rows = 12.0 * level[label] + rng.normal(size=(len(label), D))
    return rows, label


def check(model, rows, label, half_life):
    n = len(rows)
    weight = np.ones(n) if half_life is None else 0.5 ** ((n - 1 - np.arange(n)) / half_life)
    clusters = list(model.clusters)
    total = sum(cluster.weight for cluster in clusters)
    assert total == pytest.approx(weight.sum(), rel=1e-6)
    told = model.predict_many(rows)
    for cluster in clusters:
        own = float(weight[told == cluster.id].sum())
        size = float((weight**2).sum() / weight.sum())  # weight of one event, at most
        assert abs(cluster.weight - own) <= 0.06 * total + 6.0 * np.sqrt(max(own, 1.0) * size)


PARTS = st.lists(
    st.tuples(st.sampled_from([(0,), (1, 2), (0, 1, 2), (3, 4, 5), (2, 5)]), st.integers(300, 2500)),
    min_size=1,
    max_size=4,
)


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("family", "half_life"),
    [
        (family, half_life)
        for family in ("gaussian", "diagonal", "multinomial", "bernoulli", "poisson")
        for half_life in (None, 1500)
    ],
)
@settings(max_examples=5, deadline=None)
@given(st.integers(0, 1000), PARTS, st.booleans())
def test_weights_are_those_of_the_clusters_own_events(family, half_life, seed, parts, sharded):
    rows, label = stream(family, seed, parts)
    model = StreamClusterer(family=family, half_life=half_life, background=False)
    sharded = sharded and half_life is None  # forgetting by event count goes by the shard's own
    for i, first in enumerate(range(0, len(rows), 500)):
        part = rows[first : first + 500]
        model.learn_many(part, shard=i % 2 if sharded else 0)
        check(model, rows[: first + len(part)], label[: first + len(part)], half_life)
