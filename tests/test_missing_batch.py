"""BayesianKMeans takes missing values as streams do, and sparse tables."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.metrics import adjusted_rand_score

from streamclust.batch import BayesianKMeans, StreamEstimator
from tests.streams import clustered


def holes(rows, share, seed=0):
    gone = np.random.default_rng(seed).random(rows.shape) < share
    gone[gone.all(axis=1)] = False
    return np.where(gone, np.nan, rows)


@pytest.mark.compiled
def test_gaps_do_not_hide_the_clusters():
    rows, truth = clustered(900, 4, k=3, seed=2)
    model = BayesianKMeans(shape="ellipse").fit(holes(rows, 0.15))
    assert adjusted_rand_score(truth, model.labels_) > 0.9
    assert adjusted_rand_score(truth, model.predict(rows)) > 0.95
    np.testing.assert_array_equal(model.predict(holes(rows, 0.15)), model.labels_)
    table = model.predict_proba(holes(rows, 0.3))
    np.testing.assert_allclose(table.sum(axis=1), 1.0)
    one = np.full((1, 4), np.nan)
    one[0, 0] = rows[0, 0]
    assert np.isfinite(model.score_samples(one)).all()


@pytest.mark.compiled
def test_summaries_take_gaps_too():
    rows, truth = clustered(900, 3, k=3, seed=4)
    whole = holes(rows, 0.1)
    model = BayesianKMeans(max_leaves=128, shape="ellipse")
    for part in np.split(whole, 3):
        model.partial_fit(part)
    assert adjusted_rand_score(truth, model.predict(whole)) > 0.85


@pytest.mark.compiled
def test_mixed_tables_take_gaps():
    rows, truth = clustered(600, 2, k=3, seed=5)
    x, y = holes(rows, 0.15).T
    rng = np.random.default_rng(0)
    channel = np.where(rng.random(600) < 0.1, None, np.array(["web", "shop", "app"])[truth])
    model = BayesianKMeans().fit(
        [{"x": a, "y": b, "channel": c} for a, b, c in zip(x, y, channel, strict=True)]
    )
    assert adjusted_rand_score(truth, model.labels_) > 0.9


@pytest.mark.compiled
def test_a_sparse_table_is_its_dense_one():
    rows, _ = clustered(300, 3, k=2, seed=1)
    rows[np.abs(rows) < 1.0] = 0.0
    dense, sparse = BayesianKMeans().fit(rows), BayesianKMeans().fit(csr_array(rows))
    np.testing.assert_array_equal(dense.labels_, sparse.labels_)
    np.testing.assert_array_equal(dense.predict(rows), sparse.predict(csr_array(rows)))
    dense, sparse = StreamEstimator().fit(rows), StreamEstimator().fit(csr_array(rows))
    np.testing.assert_array_equal(dense.labels_, sparse.labels_)


def test_what_has_no_value_is_refused():
    rows = np.array([[1.0, 2.0], [np.nan, np.nan], [3.0, 4.0]])
    with pytest.raises(ValueError, match="row 1 has no value"):
        BayesianKMeans().fit(rows)
    with pytest.raises(ValueError, match="column 1 has no value"):
        BayesianKMeans().fit(np.array([[1.0, np.nan], [2.0, np.nan], [3.0, np.nan]]))
    with pytest.raises(ValueError, match="NaN"):
        BayesianKMeans(family="poisson").fit(np.array([[1.0, np.nan], [2.0, 3.0]]))
