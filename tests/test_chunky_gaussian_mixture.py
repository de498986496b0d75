"""ChunkyGaussianMixture: its contract, its answers, and bad input."""

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture
from sklearn.utils.estimator_checks import parametrize_with_checks

from streamclust.batch import ChunkyGaussianMixture
from streamclust.moments import Moments
from tests.answers import agree_with_each_other
from tests.streams import clustered

pytestmark = pytest.mark.compiled

EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": (
        "candidates are drawn from boxes, and repeated points make other boxes than weighted ones"
    )
}


@parametrize_with_checks(
    [
        ChunkyGaussianMixture(),
        ChunkyGaussianMixture(max_leaves=64),
        ChunkyGaussianMixture(n_components=2, covariance="diagonal"),
        ChunkyGaussianMixture(covariance="spherical"),
    ],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES if estimator.n_components else {},
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture
def blobs():
    return clustered(600, 3, k=4, seed=2, spread=15.0)


@pytest.mark.parametrize(
    ("covariance", "leaves"),
    [
        ("full", None),
        ("full", 128),
        ("diagonal", None),
        ("diagonal", 128),
        ("spherical", None),
        ("spherical", 128),
    ],
)
def test_answers_agree_with_each_other(blobs, covariance, leaves):
    x, z = blobs
    model = ChunkyGaussianMixture(covariance=covariance, max_leaves=leaves).fit(x)
    assert model.n_components_ == 4
    agree_with_each_other(model, x, z, covariance)
    assert model.score(x) == pytest.approx(model.score_samples(x).mean())
    assert model.lower_bound_ <= model.score(x) + 1e-9
    if leaves is None:
        assert model.lower_bound_ == pytest.approx(model.score(x))
    again = ChunkyGaussianMixture(covariance=covariance, max_leaves=leaves)
    np.testing.assert_array_equal(again.fit_predict(x), model.labels_)
    points, labels = model.sample(50)
    np.testing.assert_array_equal(model.predict(points), labels)
    np.testing.assert_array_equal(model.sample(50)[0], points)


@pytest.mark.parametrize(
    ("ours", "theirs"), [("full", "full"), ("diagonal", "diag"), ("spherical", "spherical")]
)
def test_bic_is_scikit_learns(blobs, ours, theirs):
    x, _ = blobs
    model = ChunkyGaussianMixture(4, covariance=ours).fit(x)
    peer = GaussianMixture(4, covariance_type=theirs, means_init=model.means_, tol=1e-8, reg_covar=0).fit(x)
    assert model.bic(x) == pytest.approx(peer.bic(x), rel=1e-4)


def test_the_number_asked_for_and_where_to_start(blobs):
    x, z = blobs
    assert ChunkyGaussianMixture(3).fit(x).n_components_ == 3
    start = Moments.rows_of_points(x).to_groups(z, kind="full")
    told = ChunkyGaussianMixture(4, start=start).fit(x)
    cold = ChunkyGaussianMixture(4).fit(x)
    np.testing.assert_allclose(told.means_, cold.means_, atol=1e-2)
    assert told.n_iter_ < cold.n_iter_
    warm = ChunkyGaussianMixture(start=cold.mixture_).fit(x)
    np.testing.assert_allclose(warm.means_, cold.means_, atol=1e-2)


def test_sample_weight_counts(blobs):
    x, _ = blobs
    keep = np.arange(600) < 450
    model = ChunkyGaussianMixture().fit(x, sample_weight=keep.astype(float))
    alone = ChunkyGaussianMixture().fit(x[keep])
    np.testing.assert_allclose(model.means_, alone.means_)
    np.testing.assert_array_equal(model.labels_[keep], alone.labels_)


def test_verbose_tells_each_step(blobs, capsys):
    x, _ = blobs
    model = ChunkyGaussianMixture(verbose=True).fit(x)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert {line[2] for line in lines} >= {"iterate", "insert", "remove", "restore", "publish"}
    assert lines[-1][1:6] == ["points", "publish", "K", "=", str(model.n_components_)]
    assert sum(line[2] == "iterate" for line in lines) == model.n_iter_


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("leaves", [None, 16])
def test_more_components_than_distinct_points(leaves):
    x = np.repeat([[0.0, 0.0], [5.0, 5.0], [9.0, 0.0]], 40, axis=0)
    model = ChunkyGaussianMixture(10, max_leaves=leaves)
    with pytest.warns(UserWarning, match="10 components were asked for, but the data have room for 3"):
        model.fit(x)
    assert model.n_components_ == 3
    assert "3 of 3 components are single points" in model.mixture_.notes[1]
    assert np.all(np.isfinite(model.score_samples(x)))


@pytest.mark.parametrize("leaves", [None, 16])
def test_one_point(leaves):
    model = ChunkyGaussianMixture(max_leaves=leaves).fit([[1.0, 2.0]])
    assert "1 of 1 components are single points" in model.mixture_.notes[0]
    assert model.n_components_ == 1
    np.testing.assert_array_equal(model.means_, [[1.0, 2.0]])
    np.testing.assert_array_equal(model.labels_, [0])


def test_fewer_points_than_features():
    x = np.random.default_rng(0).normal(size=(4, 30))
    model = ChunkyGaussianMixture().fit(x)
    assert model.n_components_ == 1
    assert np.all(np.isfinite(model.score_samples(x)))
    assert np.all(np.linalg.eigvalsh(model.covariances_) > 0)


@pytest.mark.parametrize("leaves", [None, 32])
@pytest.mark.parametrize(("value", "message"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_impossible_values_are_named(value, message, leaves):
    x = np.random.default_rng(0).normal(size=(10, 2))
    fitted = ChunkyGaussianMixture(max_leaves=leaves).fit(x)
    x[3, 1] = value
    with pytest.raises(ValueError, match=message):
        ChunkyGaussianMixture(max_leaves=leaves).fit(x)
    with pytest.raises(ValueError, match=message):
        fitted.predict(x)


def test_bad_parameters_are_named(blobs):
    x, _ = blobs
    for settings, message in (
        ({"n_components": 0}, "n_components must be a whole number, at least 1"),
        ({"covariance": "tied"}, "covariance must be one of"),
        ({"max_leaves": 0}, "max_leaves must be a whole number"),
        ({"floor": 2.0}, "floor must be between"),
        ({"start": Moments.empty(2, 2)}, "start must be clusters of 3 features"),
    ):
        with pytest.raises(ValueError, match=message):
            ChunkyGaussianMixture(**settings).fit(x)
    with pytest.raises(ValueError, match="n_samples"):
        ChunkyGaussianMixture().fit(x).sample(0)
    with pytest.raises(ValueError, match="Negative values"):
        ChunkyGaussianMixture().fit(x, sample_weight=-np.ones(600))
    with pytest.raises(ValueError, match="non-zero"):
        ChunkyGaussianMixture().fit(x, sample_weight=np.zeros(600))
    with pytest.raises(ValueError, match=r"3 features|features"):
        ChunkyGaussianMixture().fit(x).predict(x[:, :2])
