import numpy as np
import pytest

from streamclust_connectors.synthetic import Drift, SyntheticMixture, topics


@pytest.mark.parametrize("tau", [0.5, 3.0])
def test_the_closest_pair_is_tau_apart(tau):
    mixture = SyntheticMixture(n_features=3, n_clusters=6, tau=tau, seed=1)
    deviation = np.linalg.norm(mixture.roots, axis=(1, 2)) / np.sqrt(3)
    gaps = np.linalg.norm(mixture.centroids[:, None] - mixture.centroids, axis=-1)
    apart = gaps / (deviation[:, None] + deviation) * 2
    assert apart[np.triu_indices(6, 1)].min() == pytest.approx(tau)


def test_events_have_the_moments_of_their_clusters():
    mixture = SyntheticMixture(n_features=2, n_clusters=2, tau=2.0, seed=3)
    events, labels = mixture.sample(40_000)
    for k in range(2):
        own = events[labels == k]
        expected = mixture.roots[k] @ mixture.roots[k].T
        assert np.abs(own.mean(axis=0) - mixture.centroids[k]).max() < 0.03 * np.sqrt(np.trace(expected))
        assert np.abs(np.cov(own.T) - expected).max() < 0.05 * np.trace(expected)


def test_a_seed_gives_the_same_events_and_batches_add_up():
    first = SyntheticMixture(2, seed=5).sample(100)[0]
    np.testing.assert_array_equal(first, SyntheticMixture(2, seed=5).sample(100)[0])
    assert [len(batch) for batch in SyntheticMixture(2, seed=5).batches(250, 100)] == [100, 100, 50]


def test_one_cluster_needs_no_neighbour():
    assert SyntheticMixture(2, n_clusters=1).sample(10)[0].shape == (10, 2)


def test_a_matrix_that_moves_centroids_keeps_the_shapes():
    still, moved = SyntheticMixture(3, seed=2), SyntheticMixture(3, seed=2, moved=True)
    np.testing.assert_array_equal(still.roots, moved.roots)
    assert not np.allclose(still.centroids, moved.centroids)


def test_documents_have_their_length_and_their_topic():
    counts, labels = topics(n=300, d=5, k=3, length=40, seed=1)
    np.testing.assert_array_equal(counts.sum(axis=1), 40)
    means = np.array([counts[labels == c].mean(axis=0) for c in range(3)])
    nearest = np.linalg.norm(counts[:, None] - means, axis=-1).argmin(axis=1)
    assert (nearest == labels).mean() > 0.8


def test_clusters_move_appear_split_and_vanish_when_they_should():
    stream = Drift(n_features=3, n_clusters=5, n_events=30_000, births=2, deaths=1, splits=1, seed=4)
    events, labels = (np.concatenate(parts) for parts in zip(*stream.batches(1000), strict=True))
    assert events.shape == (30_000, 3)
    at = np.arange(30_000) / 30_000
    for k, track in enumerate(stream.tracks):
        own = at[labels == k]
        assert own.min() >= track.first
        assert own.max() < track.last
        assert len(own) > 1000
        late = labels == k
        late[at < track.last - 0.1] = False
        expected = track.origin + (track.last - 0.05) * track.path + track.apart
        assert np.abs(events[late].mean(axis=0) - expected).max() < 0.3
    assert sorted({track.first for track in stream.tracks}) == [0.0, 1 / 3, 0.5]
    assert len([track for track in stream.tracks if track.last == 2 / 3]) == 1


def test_drifting_clusters_start_apart_and_a_seed_gives_the_same_stream():
    stream = Drift(2, n_events=100, seed=2, gap=8.0)
    places = np.unique([track.origin for track in stream.tracks], axis=0)
    gaps = np.linalg.norm(places[:, None] - places, axis=-1)
    assert gaps[np.triu_indices(len(places), 1)].min() >= 8.0
    np.testing.assert_array_equal(
        next(stream.batches(100))[0], next(Drift(2, n_events=100, seed=2).batches(100))[0]
    )


def test_too_few_clusters_to_split_and_vanish_are_refused():
    with pytest.raises(ValueError, match=r"splits \+ deaths"):
        Drift(2, n_clusters=2)
