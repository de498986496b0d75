import numpy as np
import pytest

from streamclust_connectors.synthetic import Mixture, topics


@pytest.mark.parametrize("tau", [0.5, 3.0])
def test_the_closest_pair_is_tau_apart(tau):
    mixture = Mixture(n_features=3, n_clusters=6, tau=tau, seed=1)
    deviation = np.linalg.norm(mixture.roots, axis=(1, 2)) / np.sqrt(3)
    gaps = np.linalg.norm(mixture.centroids[:, None] - mixture.centroids, axis=-1)
    apart = gaps / (deviation[:, None] + deviation) * 2
    assert apart[np.triu_indices(6, 1)].min() == pytest.approx(tau)


def test_events_have_the_moments_of_their_clusters():
    mixture = Mixture(n_features=2, n_clusters=2, tau=2.0, seed=3)
    events, labels = mixture.sample(40_000)
    for k in range(2):
        own = events[labels == k]
        expected = mixture.roots[k] @ mixture.roots[k].T
        assert np.abs(own.mean(axis=0) - mixture.centroids[k]).max() < 0.03 * np.sqrt(np.trace(expected))
        assert np.abs(np.cov(own.T) - expected).max() < 0.05 * np.trace(expected)


def test_a_seed_gives_the_same_events_and_batches_add_up():
    first = Mixture(2, seed=5).sample(100)[0]
    np.testing.assert_array_equal(first, Mixture(2, seed=5).sample(100)[0])
    assert [len(batch) for batch in Mixture(2, seed=5).batches(250, 100)] == [100, 100, 50]


def test_one_cluster_needs_no_neighbour():
    assert Mixture(2, n_clusters=1).sample(10)[0].shape == (10, 2)


def test_a_matrix_that_moves_centroids_keeps_the_shapes():
    still, moved = Mixture(3, seed=2), Mixture(3, seed=2, moved=True)
    np.testing.assert_array_equal(still.roots, moved.roots)
    assert not np.allclose(still.centroids, moved.centroids)


def test_documents_have_their_length_and_their_topic():
    counts, labels = topics(n=300, d=5, k=3, length=40, seed=1)
    np.testing.assert_array_equal(counts.sum(axis=1), 40)
    means = np.array([counts[labels == c].mean(axis=0) for c in range(3)])
    nearest = np.linalg.norm(counts[:, None] - means, axis=-1).argmin(axis=1)
    assert (nearest == labels).mean() > 0.8
