import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from streamclust import StreamClusterer
from streamclust.batch import StreamEstimator
from tests.streams import clustered

pytestmark = pytest.mark.compiled  # the engine's own tests and laws run interpreted


SPARSE_FAILURES = {
    f"check_estimator_sparse_{kind}": "the check asks whatever has predict_proba for its classifier_tags"
    for kind in ("array", "matrix")
}


@parametrize_with_checks([StreamEstimator()], expected_failed_checks=lambda estimator: SPARSE_FAILURES)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_it_learns_in_parts_what_it_learns_at_once():
    rows, labels = clustered(3000, 2, k=3, seed=4)
    whole = StreamEstimator().fit(rows)
    parts = StreamEstimator()
    for part in np.array_split(rows, 7):
        parts.partial_fit(part)
    parts.engine_.settle()
    np.testing.assert_array_equal(whole.predict(rows), parts.predict(rows))
    np.testing.assert_array_equal(whole.means_, parts.means_)
    assert adjusted_rand_score(labels, whole.labels_) > 0.95
    assert whole.n_clusters_ == len(whole.ids_) == 3
    np.testing.assert_allclose(whole.predict_proba(rows).sum(axis=1), 1.0)
    assert whole.score(rows) > whole.score(rows + 100.0)


def test_it_stands_in_a_pipeline():
    rows, labels = clustered(1000, 3, k=3, seed=2)
    pipeline = make_pipeline(StandardScaler(), StreamEstimator())
    assert adjusted_rand_score(labels, pipeline.fit_predict(rows)) > 0.9


def test_missing_values_are_learnt_as_in_a_stream():
    rows, _ = clustered(1500, 3, k=3, seed=2)
    rows[np.random.default_rng(0).random(rows.shape) < 0.1] = np.nan
    rows[0] = [np.nan, 0.0, np.nan]
    rows = rows[~np.isnan(rows).all(axis=1)]
    estimator, stream = StreamEstimator().fit(rows), StreamClusterer(drift="ignore")
    stream.learn_many(rows)
    stream.settle()
    assert estimator.predict(rows).tolist() == stream.predict_many(rows).tolist()
    assert estimator.n_clusters_ == 3
    with pytest.raises(ValueError, match="row 1 has no value"):
        StreamEstimator().fit([[0.0, 1.0], [np.nan, np.nan]])
    with pytest.raises(ValueError, match="infinity"):
        StreamEstimator().fit([[0.0, 1.0], [np.inf, 1.0]])


def test_weights_of_nothing_are_refused():
    with pytest.raises(ValueError, match="non-zero"):
        StreamEstimator().fit([[1.0], [2.0]], sample_weight=[0.0, 0.0])
