"""Levels of the batch estimator: the number of clusters by default, fewer or more on request."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import load_iris
from sklearn.metrics import adjusted_rand_score

from streamclust.batch import BayesianKMeans

pytestmark = pytest.mark.compiled


def heavy_tails(k=5, n=4000, seed=0, freedom=3):
    rng = np.random.default_rng(seed)
    centres = 12.0 * np.stack([np.arange(k), np.arange(k) % 2], axis=1)
    labels = rng.integers(k, size=n)
    noise = rng.normal(size=(n, 2)) * np.sqrt(1 / rng.chisquare(freedom, size=(n, 1)))
    return centres[labels] + noise, labels


@pytest.fixture(scope="module")
def tails():
    x, labels = heavy_tails()
    return x, labels, BayesianKMeans().fit(x)


def test_clusters_with_heavy_tails_are_one_each(tails):
    x, labels, model = tails
    assert model.path_.n_finest > 5  # Gaussians explain tails by clusters of their own
    assert model.n_clusters_ == 5
    assert adjusted_rand_score(labels, model.labels_) > 0.97
    assert_array_equal(model.predict(x), model.labels_)


@pytest.mark.parametrize("n", [1_500, 12_000])
def test_the_number_is_the_same_for_any_number_of_events(n):
    x, _ = heavy_tails(n=n, seed=3)
    assert BayesianKMeans().fit(x).n_clusters_ == 5


def test_cut_labels_rows_at_any_level(tails):
    _, _, model = tails
    finest = model.path_.n_finest
    for number in range(1, finest + 1):
        labels = model.cut(number)
        assert len(set(labels)) == number
        sizes = np.bincount(labels)
        assert_array_equal(sizes, np.sort(sizes)[::-1])
    assert_array_equal(model.cut(5), model.labels_)
    with pytest.raises(ValueError, match=f"from 1 to {finest}, got {finest + 1}"):
        model.cut(finest + 1)


def test_levels_tell_which_is_shown(tails):
    model = tails[2]
    assert [level.n_clusters for level in model.levels_] == list(range(model.path_.n_finest, 0, -1))
    assert [level.n_clusters for level in model.levels_ if level.shown] == [5]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"n_clusters": 3}, 3),
        ({"n_clusters": 1}, 1),
        ({"n_clusters": (2, 4)}, None),
        ({"detail": "fine"}, "finest"),
        ({"n_clusters": 1000}, "finest"),
        ({"detail": 1e9}, "finest"),
        ({"detail": 0.001}, 1),
    ],
)
def test_other_levels_on_request(tails, options, expected):
    x, _, known = tails
    model = BayesianKMeans(**options).fit(x)
    if expected is None:
        assert 2 <= model.n_clusters_ <= 4
    else:
        assert model.n_clusters_ == (known.path_.n_finest if expected == "finest" else expected)
    assert (
        len(model.weights_) == len(model.centers_) == model.n_clusters_ == model.predict_proba(x[:1]).shape[1]
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clusters": 0}, "at least 1"),
        ({"n_clusters": 2.5}, "whole number"),
        ({"n_clusters": (12, 5)}, r"use \(5, 12\)"),
        ({"n_clusters": (1, 2, 3)}, "pair"),
        ({"detail": "medium"}, "detail must be 'auto'"),
        ({"detail": 0}, "positive number of events"),
        ({"detail": True}, "positive number of events"),
        ({"detail": float("nan")}, "positive number of events"),
    ],
)
def test_requests_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        BayesianKMeans(**options).fit(np.eye(4))


@pytest.mark.parametrize("x", [np.zeros((1, 2)), np.ones((50, 3))])
def test_one_event_and_equal_events_are_one_cluster(x):
    for detail in ("auto", "fine", "coarse", 10):
        model = BayesianKMeans(detail=detail).fit(x)
        assert model.n_clusters_ == 1
        assert_array_equal(model.cut(1), np.zeros(len(x)))


@pytest.mark.parametrize("family", ["multinomial", "poisson", "bernoulli"])
def test_counts_have_levels(family):
    """Two kinds, each of two that differ less."""
    rng = np.random.default_rng(0)
    rate = np.array([[9, 9, 1, 1, 1, 1], [9, 3, 1, 1, 1, 4], [1, 1, 9, 9, 1, 1], [1, 1, 9, 3, 4, 1]]) / 10
    kind = np.repeat(np.arange(4), 250)
    x = rng.random((1000, 6)) < rate[kind] if family == "bernoulli" else rng.poisson(20 * rate[kind])
    model = BayesianKMeans(family, detail="fine").fit(x.astype(float))
    assert adjusted_rand_score(kind // 2, model.cut(2)) > 0.7
    assert BayesianKMeans(family, n_clusters=2).fit(x.astype(float)).n_clusters_ == 2


def test_a_ring_around_a_disc_stays_two_clusters():
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 1500)
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1) * 8 + rng.normal(scale=0.3, size=(1500, 2))
    model = BayesianKMeans().fit(np.concatenate([ring, rng.normal(size=(700, 2))]))
    assert model.n_clusters_ == 2


def test_small_data_are_left_alone():
    x, kind = load_iris(return_X_y=True)
    model = BayesianKMeans().fit(x)
    assert model.n_clusters_ == model.path_.n_finest == 3
    assert adjusted_rand_score(kind, model.labels_) > 0.9
