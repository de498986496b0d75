"""The scikit-learn estimator: its contract, its answers, and bad input."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from streamclust.batch import BayesianKMeans
from streamclust.families import Gaussian
from streamclust.refit import bkm_steps
from tests.answers import agree_with_each_other
from tests.streams import clustered

pytestmark = pytest.mark.compiled

OTHER_SEEDS = (
    "k-means++ draws other seeds from repeated points than from weighted ones, and repeated points are at "
    "distance 0 of each other, which the data-informed prior sees"
)
SPARSE_FAILURES = {
    f"check_estimator_sparse_{kind}": "the check asks whatever has predict_proba for its classifier_tags"
    for kind in ("array", "matrix")
}
EXPECTED_FAILURES = SPARSE_FAILURES | {
    "check_sample_weight_equivalence_on_dense_data": OTHER_SEEDS,
    "check_sample_weight_equivalence_on_sparse_data": OTHER_SEEDS,
}


@parametrize_with_checks(
    [BayesianKMeans(), BayesianKMeans(max_leaves=64), BayesianKMeans("diagonal", mixture="infinite")],
    expected_failed_checks=lambda estimator: SPARSE_FAILURES if estimator.max_leaves else EXPECTED_FAILURES,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture
def blobs():
    return clustered(600, 3, k=4, seed=2, spread=15.0)


@pytest.mark.parametrize("leaves", [None, 128])
@pytest.mark.parametrize("family", ["gaussian", "diagonal", "spherical"])
def test_answers_agree_with_each_other(blobs, family, leaves):
    x, z = blobs
    model = BayesianKMeans(family, max_leaves=leaves).fit(x)
    assert model.n_clusters_ == 4
    agree_with_each_other(model, x, z, family)
    np.testing.assert_array_equal(BayesianKMeans(family, max_leaves=leaves).fit_predict(x), model.labels_)


def test_clusters_are_the_moments_of_their_points(blobs):
    x, _ = blobs
    model = BayesianKMeans().fit(x)
    for c in range(4):
        mine = x[model.labels_ == c]
        np.testing.assert_allclose(model.means_[c], mine.mean(axis=0))
        np.testing.assert_allclose(model.covariances_[c], np.cov(mine.T, bias=True))
        assert model.clusters_.weight[c] == len(mine)


def test_partial_fit_grows_a_summary(blobs):
    x, _ = blobs
    model = BayesianKMeans()
    for start in range(0, 600, 200):
        model.partial_fit(x[start : start + 200])
        assert len(model.labels_) == 200
        assert model.clusters_.weight.sum() == pytest.approx(start + 200)
    assert model.n_clusters_ == 4
    assert model.tree_.n_events == 600
    assert not hasattr(model.fit(x), "tree_")


def test_partial_fit_goes_on_from_its_clusters_and_is_challenged(blobs, monkeypatch):
    x, _ = blobs
    starts = []

    def watched(family, tree, start, *rest):
        starts.append(start)
        return bkm_steps(family, tree, start, *rest)

    monkeypatch.setattr("streamclust.batch.bayesian_k_means.bkm_steps", watched)
    model = BayesianKMeans()
    found = [model.partial_fit(x[begin : begin + 120]).partition_ for begin in range(0, 600, 120)]
    assert starts == [None, found[0], None, found[1], found[2], None, found[3]]
    starts.clear()
    topdown = BayesianKMeans(search="top-down", max_leaves=64)
    topdown.partial_fit(x[:300]).partial_fit(x[300:])
    assert starts == [None, None]


def test_sample_weight_counts(blobs):
    x, _ = blobs
    keep = np.arange(600) < 450
    model = BayesianKMeans(family=Gaussian.informed(x)).fit(x, sample_weight=keep.astype(float))
    alone = BayesianKMeans(family=Gaussian.informed(x)).fit(x[keep])
    assert model.free_energy_ == pytest.approx(alone.free_energy_)
    assert model.clusters_.weight.sum() == 450


def test_free_energy_reports_the_base_measure():
    words = np.random.default_rng(0).multinomial(20, [0.2, 0.3, 0.5], size=100).astype(float)
    model = BayesianKMeans("multinomial").fit(words)
    base = model.partition_.family.log_base(words).sum()
    assert model.free_energy_ == pytest.approx(model.partition_.free_energy - base)
    assert model.free_energy_ > 0  # of counts: -log of a probability
    with pytest.raises(AttributeError, match="multinomial clusters have no covariances"):
        _ = model.covariances_


def test_top_down_and_verbose(blobs, capsys):
    x, z = blobs
    model = BayesianKMeans(search="top-down", verbose=True).fit(x)
    assert adjusted_rand_score(z, model.labels_) > 0.99
    lines = capsys.readouterr().out.splitlines()
    assert "split" in lines[1]
    assert lines[-1].split()[1:6] == ["points", "publish", "K", "=", "4"]


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("leaves", [None, 32])
@pytest.mark.parametrize("mixture", ["finite", "infinite", "uninformative"])
def test_one_point(mixture, leaves):
    model = BayesianKMeans(mixture=mixture, max_leaves=leaves).fit([[1.0, 2.0]])
    assert model.n_clusters_ == 1
    np.testing.assert_array_equal(model.labels_, [0])
    np.testing.assert_array_equal(model.means_, [[1.0, 2.0]])


@pytest.mark.parametrize("mixture", ["finite", "infinite", "uninformative"])
def test_fewer_points_than_features(mixture):
    x = np.random.default_rng(0).normal(size=(4, 30))
    model = BayesianKMeans(mixture=mixture).fit(x)
    assert 1 <= model.n_clusters_ <= 4
    assert len(model.predict(x)) == 4


@pytest.mark.parametrize("mixture", ["finite", "infinite"])
@pytest.mark.parametrize("family", ["gaussian", "diagonal", "spherical"])
def test_duplicated_points(family, mixture):
    x = np.repeat([[0.0, 0.0], [5.0, 5.0], [9.0, 0.0]], 40, axis=0)
    model = BayesianKMeans(family, mixture).fit(x)
    assert model.n_clusters_ == 3
    assert adjusted_rand_score(np.repeat([0, 1, 2], 40), model.labels_) == 1.0


@pytest.mark.parametrize("family", ["gaussian", "diagonal", "spherical"])
def test_all_points_equal(family):
    model = BayesianKMeans(family).fit(np.full((50, 3), 7.0))
    assert model.n_clusters_ == 1


@pytest.mark.parametrize("leaves", [None, 64])
def test_constant_features(blobs, leaves):
    x, z = blobs
    flat = np.column_stack([x, np.full(600, 3.0), np.zeros(600)])
    model = BayesianKMeans(max_leaves=leaves).fit(flat)
    assert adjusted_rand_score(z, model.labels_) > 0.99
    assert np.all(np.isfinite(model.score_samples(flat)))


def test_constant_features_are_too_much_for_a_flat_prior(blobs):
    """Every cluster lies in a plane, where (32) is infinite: one cluster is as good as any."""
    x, _ = blobs
    model = BayesianKMeans(mixture="uninformative").fit(np.column_stack([x, np.zeros(600)]))
    assert model.n_clusters_ == 1
    assert model.free_energy_ == np.inf


@pytest.mark.parametrize("leaves", [None, 32])
@pytest.mark.parametrize(
    ("family", "value", "message"),
    [
        ("multinomial", 1.5, "multinomial data must be counts"),
        ("multinomial", -1.0, "multinomial data must be counts"),
        ("bernoulli", 2.0, "bernoulli data must be 0 or 1"),
        ("poisson", -1.0, "poisson data must be counts"),
        ("poisson", np.nan, "NaN"),
        ("gaussian", np.inf, "infinity"),
    ],
)
def test_impossible_values_are_named(family, value, message, leaves):
    x = np.ones((10, 2))
    x[3, 1] = value
    model = BayesianKMeans(family, max_leaves=leaves)
    with pytest.raises(ValueError, match=message):
        model.fit(x)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(x)
    fitted = BayesianKMeans(family).fit(np.ones((10, 2)))
    with pytest.raises(ValueError, match=message):
        fitted.predict(x)


def test_bad_parameters_are_named(blobs):
    x, _ = blobs
    with pytest.raises(ValueError, match="search must be one of"):
        BayesianKMeans(search="none").fit(x)
    with pytest.raises(ValueError, match="assign must be one of"):
        BayesianKMeans(assign="none").fit(x)
    with pytest.raises(ValueError, match="a summary does not keep them"):
        BayesianKMeans(assign="tree", max_leaves=64).fit(x)
    with pytest.raises(ValueError, match="a summary does not keep them"):
        BayesianKMeans(assign="tree").partial_fit(x)
    with pytest.raises(ValueError, match="needs the gaussian family"):
        BayesianKMeans("poisson", "uninformative").fit(np.ones((5, 2)))
    with pytest.raises(ValueError, match="Negative values"):
        BayesianKMeans().fit(x, sample_weight=-np.ones(600))
    with pytest.raises(ValueError, match="non-zero"):
        BayesianKMeans().fit(x, sample_weight=np.zeros(600))
