"""What every batch estimator of four well separated clusters must answer."""

import numpy as np
from sklearn.metrics import adjusted_rand_score

SHAPES = {"gaussian": (4, 3, 3), "full": (4, 3, 3), "diagonal": (4, 3), "spherical": (4,)}
"""Of the covariances of four clusters in three dimensions."""


def agree_with_each_other(model, x, z, kind):
    """Labels, predictions, probabilities, weights and densities of a model fitted to x, whose clusters are z."""
    assert adjusted_rand_score(z, model.labels_) > 0.99
    np.testing.assert_array_equal(model.predict(x), model.labels_)
    np.testing.assert_array_equal(model.predict_proba(x).argmax(axis=1), model.labels_)
    np.testing.assert_allclose(model.predict_proba(x).sum(axis=1), 1.0)
    np.testing.assert_allclose(model.weights_.sum(), 1.0)
    assert np.all(np.diff(model.weights_) <= 0)
    assert model.means_.shape == (4, 3)
    assert model.covariances_.shape == SHAPES[kind]
    assert model.score_samples(x).shape == (len(x),)
    assert model.score(x) > model.score(x + 1000.0)
