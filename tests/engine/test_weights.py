"""A cluster weighs what its events weigh, while the latest events are all there are."""

import numpy as np
import pytest

from streamclust import StreamClusterer

CENTRES = np.array([[0.0, 0.0], [12.0, 0.0], [0.0, 12.0]])


def assert_true_weights(model, labels, half_life):
    """Weights add up to what was learnt, decayed, and each cluster's to its own events."""
    ages = np.arange(len(labels))[::-1]
    each = np.ones(len(labels)) if half_life is None else np.exp2(-ages / half_life)
    weight = {cluster.id: cluster.weight for cluster in model.clusters}
    assert sum(weight.values()) == pytest.approx(each.sum(), rel=1e-9)
    for label in np.unique(labels):
        cluster = model.predict_one(dict(enumerate(CENTRES[label].tolist())))
        assert weight[cluster] == pytest.approx(each[labels == label].sum(), abs=0.01 * each.sum())


@pytest.mark.compiled
@pytest.mark.parametrize("half_life", [None, 2000])
@pytest.mark.parametrize("order", [(0, 0, 0, 1, 1, 1, 1, 1, 1, 1), (0, 0, 1, 1, 2, 1, 2, 0, 0, 1)])
def test_a_cluster_without_new_events_does_not_grow(order, half_life):
    rng, model = np.random.default_rng(0), StreamClusterer(half_life=half_life)
    labels = np.repeat(order, 1000)
    for start in range(0, len(labels), 500):
        of = labels[start : start + 500]
        model.learn_many(CENTRES[of] + rng.normal(size=(500, 2)))
        if start % 1000:
            assert_true_weights(model, labels[: start + 500], half_life)
