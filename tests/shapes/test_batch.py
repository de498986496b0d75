"""`shape=` of the batch estimators: clusters of several components, and what speaks of them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_blobs, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score

from streamclust.batch import BayesianKMeans, ChunkyGaussianMixture
from streamclust.families import Gaussian

pytestmark = pytest.mark.compiled

SHAPES = {
    "moons": make_moons(1500, noise=0.06, random_state=1),
    "circles": make_circles(1500, factor=0.5, noise=0.04, random_state=1),
}


@pytest.mark.parametrize("leaves", [None, 256])
@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_found(name, leaves):
    x, truth = SHAPES[name]
    model = BayesianKMeans(max_leaves=leaves).fit(x)
    assert adjusted_rand_score(truth, model.labels_) > 0.95
    assert adjusted_rand_score(truth, BayesianKMeans(shape="ellipse", max_leaves=leaves).fit(x).labels_) < 0.6


@pytest.mark.parametrize("seed", range(4))
def test_joins_are_judged_as_streams_judge_them(seed):
    """By their heights alone: half a standard error of caution would break one of these circles of few events."""
    x, truth = make_circles(300, factor=0.4, noise=0.06, random_state=seed)
    assert adjusted_rand_score(truth, BayesianKMeans().fit(x).labels_) > 0.95


@pytest.mark.parametrize(
    "options",
    [
        {"prior": "bkm"},
        {"search": "top-down"},
        {"mixture": "uninformative"},
        {"family": Gaussian.informed(SHAPES["moons"][0])},
    ],
)
def test_what_the_paper_finds_is_left_as_it_is(options):
    model = BayesianKMeans(**options).fit(SHAPES["moons"][0])
    assert model.n_clusters_ == len(model.components_) > 2
    assert not hasattr(model, "merge_tree_")


@pytest.mark.parametrize("family", ["multinomial", "bernoulli", "poisson"])
def test_counts_have_no_shapes(family):
    x = np.repeat([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]], 40, axis=0)
    model = BayesianKMeans(family).fit(x if family == "bernoulli" else 5 * x)
    assert model.n_clusters_ == 2
    assert not hasattr(model, "merge_tree_")


@pytest.mark.parametrize("family", ["gaussian", "diagonal", "spherical"])
def test_answers_agree_with_each_other(family):
    x, _ = SHAPES["moons"]
    model = BayesianKMeans(family, shape="any").fit(x)
    k = model.n_clusters_
    assert k < len(model.components_) == len(model.component_labels_)
    assert_array_equal(np.unique(model.component_labels_), np.arange(k))
    assert_array_equal(model.predict(x), model.labels_)
    probability = model.predict_proba(x)
    assert probability.shape == (len(x), k)
    assert_allclose(probability.sum(axis=1), 1.0)
    components = model.partition_.probability(x)
    for c in range(k):
        assert_allclose(probability[:, c], components[:, model.component_labels_ == c].sum(axis=1))
        mine = x[model.labels_ == c]
        assert_allclose(model.means_[c], mine.mean(axis=0))
        assert_allclose(model.weights_[c], len(mine) / len(x))
        assert model.predict(model.centers_[[c]]) == c
    assert np.all(np.diff(model.weights_) <= 0)
    assert model.covariances_.shape[0] == k


@pytest.mark.parametrize("leaves", [None, 128])
def test_ellipses_stay_as_they_are(leaves):
    x, truth = make_blobs(900, centers=5, cluster_std=0.8, random_state=3)
    plain, shaped = (BayesianKMeans(shape=shape, max_leaves=leaves).fit(x) for shape in ("ellipse", "any"))
    assert_array_equal(plain.labels_, shaped.labels_)
    assert adjusted_rand_score(truth, shaped.labels_) > 0.97
    assert_array_equal(plain.component_labels_, np.arange(plain.n_clusters_))
    assert_array_equal(plain.centers_, plain.means_)
    assert not hasattr(plain, "merge_tree_")
    assert not hasattr(shaped.set_params(shape="ellipse").fit(x), "merge_tree_")


def test_partial_fit_joins_what_was_learnt_so_far():
    x, truth = SHAPES["circles"]
    model = BayesianKMeans(shape="any")
    for start in range(0, 1500, 500):
        model.partial_fit(x[start : start + 500])
    assert adjusted_rand_score(truth, model.predict(x)) > 0.95
    assert model.clusters_.weight.sum() == pytest.approx(1500)


@pytest.mark.parametrize("leaves", [None, 256])
def test_chunky_em_joins_cautiously(leaves):
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(6000, 2)) * [8.0, 1.0]
    strip = np.arange(6000) % 2
    x[:, 1] += 4.0 * strip
    model = ChunkyGaussianMixture(8, shape="any", max_leaves=leaves).fit(x)
    assert model.n_components_ == 8
    assert model.n_clusters_ < 8
    assert_array_equal(model.predict(x), model.labels_)
    assert_allclose(model.predict_proba(x).sum(axis=1), 1.0)
    assert model.predict_proba(x).shape == (6000, model.n_clusters_)
    for c in range(model.n_clusters_):
        assert len(np.unique(strip[model.labels_ == c])) == 1
    plain = ChunkyGaussianMixture(8, max_leaves=leaves).fit(x)
    assert plain.n_clusters_ == 8
    assert_array_equal(plain.component_labels_, np.arange(8))


def test_weights_count():
    x, truth = SHAPES["moons"]
    kept = np.arange(len(x)) % 5 > 0
    model = BayesianKMeans(shape="any").fit(x, sample_weight=kept.astype(float))
    assert adjusted_rand_score(truth[kept], model.labels_[kept]) > 0.95


def test_what_is_not_offered_is_named():
    x, _ = SHAPES["moons"]
    with pytest.raises(ValueError, match="shape must be 'ellipse' or 'any', got 'round'"):
        BayesianKMeans(shape="round").fit(x)
    with pytest.raises(ValueError, match="shape must be 'ellipse' or 'any', got 'round'"):
        ChunkyGaussianMixture(shape="round").fit(x)
    with pytest.raises(ValueError, match="poisson ones have no covariances"):
        BayesianKMeans("poisson", shape="any").fit(np.ones((20, 2)))


def test_one_point_and_equal_points():
    for x in (np.ones((1, 2)), np.ones((30, 2)), np.repeat([[0.0, 0.0], [5.0, 5.0]], 40, axis=0)):
        model = BayesianKMeans(shape="any").fit(x)
        assert model.n_clusters_ == len(np.unique(x, axis=0))
