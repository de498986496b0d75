"""DPMeans, BPMeans and KFeatures: scikit-learn's contract, their answers, and bad input."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from streamclust.batch import BPMeans, DPMeans, KFeatures
from tests.streams import clustered

pytestmark = pytest.mark.compiled

DRAWS = "rows are drawn in proportion to their residuals: repeated rows and weighted ones draw differently"
WHOLE = "algorithm 2 moves rows one by one: a weighted row moves whole, repeated ones each for itself"


def expected_failures(estimator):
    reason = (
        DRAWS if isinstance(estimator, BPMeans) else WHOLE if getattr(estimator, "collapsed", False) else None
    )
    return {} if reason is None else {"check_sample_weight_equivalence_on_dense_data": reason}


@parametrize_with_checks(
    [DPMeans(), DPMeans(collapsed=True), BPMeans(restarts=1), KFeatures(2, restarts=1)],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_dp_means_answers_agree():
    x, truth = clustered(400, 3, k=4, seed=2, spread=15.0)
    model = DPMeans(penalty=100.0).fit(x)
    assert model.n_clusters_ == 4
    assert adjusted_rand_score(truth, model.labels_) == 1.0
    np.testing.assert_array_equal(model.predict(x), model.labels_)
    np.testing.assert_array_equal(model.fit_predict(x), model.labels_)
    assert model.score(x) == pytest.approx(-model.objective_)
    assert model.cluster_centers_.shape == (4, 3)
    hinted = DPMeans(n_clusters_hint=4).fit(x)
    assert hinted.penalty_ > 0
    assert 2 <= hinted.n_clusters_ <= 6


def planted(n=120, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.random((n, 3)) < 0.5) @ (3.0 * rng.normal(size=(3, 20))) + 0.3 * rng.normal(size=(n, 20))


@pytest.mark.parametrize("model", [BPMeans(), BPMeans(collapsed=True), KFeatures(), KFeatures(4)])
def test_features_and_back(model):
    x = planted()
    Z = model.fit_transform(x)
    assert 3 <= model.n_features_ <= 4
    np.testing.assert_array_equal(Z, model.allocations_)
    rebuilt = model.inverse_transform(Z)
    assert ((x - rebuilt) ** 2).sum() + model.penalty_ * model.n_features_ == pytest.approx(model.objective_)
    assert np.mean((x - rebuilt) ** 2) < 0.15
    assert len(model.get_feature_names_out()) == model.n_features_
    more = planted(30, seed=0)
    assert model.transform(more).shape == (30, model.n_features_)


def test_in_a_pipeline():
    x = planted()
    pipeline = make_pipeline(StandardScaler(), BPMeans(restarts=1)).fit(x)
    assert pipeline.transform(x).shape[0] == 120


@pytest.mark.parametrize("model", [DPMeans(), BPMeans(), KFeatures(), KFeatures(2)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_impossible_values_are_named(model, value):
    x = np.ones((10, 2))
    x[3, 1] = value
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        model.fit(x)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (DPMeans(penalty=0), "penalty"),
        (DPMeans(n_clusters_hint=0), "n_clusters_hint"),
        (BPMeans(penalty=-1), "penalty"),
        (BPMeans(restarts=0), "restarts"),
        (BPMeans(init="none"), "init must be one of"),
        (KFeatures(0), "n_features"),
        (KFeatures(max_features=0), "max_features"),
    ],
)
def test_bad_parameters_are_named(model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(np.arange(12.0).reshape(6, 2))


def test_wrong_columns_are_named():
    model = BPMeans().fit(planted())
    with pytest.raises(ValueError, match="20 features"):
        model.transform(np.ones((2, 3)))
    with pytest.raises(ValueError, match="columns, but there are"):
        model.inverse_transform(np.ones((2, 19)))
