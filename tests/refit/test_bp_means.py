"""BP-means and K-features: planted features are found; weights, penalties, bad input."""

import numpy as np
import pytest

from benchmarks.papers.pictures import components, planted_tables
from streamclust.refit.bp_means.fit import bp_means_steps, fit_features
from streamclust.refit.bp_means.k_features import fit_k_features
from streamclust.refit.penalties import marchenko_pastur_median, penalty_from_noise
from tests.naive import mad_bayes as naive


def planted(seed=0, n=100, noise=0.3, d=16, k=3):
    rng = np.random.default_rng(seed)
    A = 2.0 * rng.normal(size=(k, d))
    Z = rng.random((n, k)) < 0.5
    return Z @ A + noise * rng.normal(size=(n, d)), Z, A


def agrees(Z, truth):
    """Whether each true column is a column found, or its complement (the base then holds the feature)."""
    same = (Z[:, :, None] == truth[:, None, :]).mean(axis=0)
    return bool(np.all(np.maximum(same, 1 - same).max(axis=0) > 0.95))


@pytest.mark.compiled
@pytest.mark.parametrize("noise", [0.1, 0.5])
@pytest.mark.parametrize("algorithm", ["bp", "collapsed", "stepwise"])
def test_planted_features_are_found(algorithm, noise):
    for seed in range(3):
        x, truth, _ = planted(seed, noise=noise)
        found = fit_k_features(x) if algorithm == "stepwise" else fit_features(x, collapsed=algorithm != "bp")
        assert agrees(found.Z, truth)
        assert found.n_features <= 4
        exact = naive.remainder(x, truth.astype(float)) + 3 * found.penalty
        assert found.objective <= exact * 1.01 + found.penalty
        np.testing.assert_array_equal(found.assign(x), found.Z)
        assert found.cost(x) == pytest.approx(found.objective)


def test_k_features_of_a_known_number():
    x, truth, A = planted(noise=0.01, k=2)
    found = fit_k_features(x, 2)
    assert found.A.shape == (2, 16)
    assert agrees(found.Z, truth)
    assert np.abs(found.reconstruct() - truth @ A).max() < 0.1


@pytest.mark.compiled
def test_the_paper_s_start_is_there_too():
    x, _, _ = planted()
    steps = list(bp_means_steps(x, init="plus-plus", restarts=2))
    greedy = fit_features(x)
    assert steps[-1].objective >= greedy.objective * (1 - 1e-9)
    with pytest.raises(ValueError, match="init must be one of"):
        fit_features(x, init="random")


def test_weights_count_as_repeated_rows():
    x, _, _ = planted(n=40, noise=0.1)
    times = np.random.default_rng(1).integers(1, 4, size=40)
    weighted = fit_features(x, 20.0, weight=times.astype(float))
    repeated = fit_features(np.repeat(x, times, axis=0), 20.0)
    assert weighted.objective == pytest.approx(repeated.objective, rel=1e-6)
    assert weighted.counts.sum() == pytest.approx(repeated.counts.sum())
    np.testing.assert_allclose(sorted(weighted.counts), sorted(repeated.counts))


def test_rows_of_no_weight_take_their_nearest_features():
    x, truth, _ = planted(noise=0.05)
    weight = np.ones(100)
    weight[:20] = 0.0
    found = fit_features(x, weight=weight)
    assert found.Z.shape[0] == 100
    assert agrees(found.Z, truth)
    assert found.counts.max() <= 80


# ---------------------------------------------------------------- penalties


def test_penalty_from_noise_is_that_of_the_noise():
    for n, d in ((300, 20), (20, 300), (100, 100)):
        rng = np.random.default_rng(n)
        x, sigma = rng.normal(size=(n, d)), 0.7
        expected = sigma**2 * (np.sqrt(n) + np.sqrt(d)) ** 2
        assert penalty_from_noise(sigma * x) == pytest.approx(expected, rel=0.15)
        base = 10.0 * rng.normal(size=d) + np.outer(rng.random(n) < 0.5, 3.0 * rng.normal(size=d))
        assert penalty_from_noise(sigma * x + base) == pytest.approx(expected, rel=0.2)


def test_marchenko_pastur_median_is_that_of_simulated_noise():
    rng = np.random.default_rng(0)
    for ratio in (0.1, 0.5, 1.0):
        values = np.linalg.svd(rng.normal(size=(600, int(600 * ratio))), compute_uv=False) ** 2 / 600
        assert marchenko_pastur_median(ratio) == pytest.approx(np.median(values), rel=0.03)


@pytest.mark.parametrize("penalty", [0, -1.0, np.nan, np.inf, "much"])
def test_penalties_that_cannot_be(penalty):
    for fit in (fit_features, fit_k_features):
        with pytest.raises(ValueError, match=r"penalty .* must be positive and finite"):
            fit(np.ones((3, 2)), penalty=penalty)


def test_huge_penalty_is_no_feature_at_all():
    x, _, _ = planted(n=20)
    found = fit_features(x, 1e12)
    assert found.n_features == 0
    assert found.Z.shape == (20, 0)
    assert found.objective == pytest.approx((x**2).sum())
    np.testing.assert_array_equal(found.reconstruct(), np.zeros_like(x))


def test_tiny_penalty_is_capped_with_a_warning():
    x = np.random.default_rng(0).normal(size=(12, 6))
    with pytest.warns(RuntimeWarning, match="max_features=3"):
        found = fit_features(x, 1e-9, max_features=3, restarts=1)
    assert found.n_features == 3
    with pytest.warns(RuntimeWarning, match="max_features=2"):
        assert fit_k_features(x, penalty=1e-9, max_features=2, restarts=1).n_features == 2


# ---------------------------------------------------------------- bad and odd input


@pytest.mark.parametrize("collapsed", [False, True])
def test_one_row_equal_rows_and_zero_rows(collapsed):
    one = fit_features([[3.0, 4.0]], 1.0, collapsed=collapsed)
    assert one.n_features == 1
    np.testing.assert_allclose(one.reconstruct(), [[3.0, 4.0]])
    equal = fit_features(np.full((10, 3), 5.0), collapsed=collapsed)
    assert equal.n_features == 1
    np.testing.assert_allclose(equal.reconstruct(), 5.0)
    zeros = fit_features(np.zeros((10, 3)), collapsed=collapsed)
    assert zeros.n_features == 0
    assert zeros.objective == 0.0


def test_an_all_zero_row_has_no_features():
    x, _, _ = planted(n=60, noise=0.0)
    x[7] = 0.0
    found = fit_features(x, 1.0)
    assert not found.Z[7].any()


def test_features_that_depend_on_others_are_not_kept():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 5)) * 5
    x = np.array([a, b, a + b] * 10)
    found = fit_features(x, 1e-3)
    assert found.n_features == 2
    assert found.objective == pytest.approx(2e-3)


def test_more_features_than_rows():
    x = np.random.default_rng(0).normal(size=(3, 4))
    found = fit_k_features(x, 7, restarts=2)
    assert found.A.shape == (7, 4)
    assert np.isfinite(found.A).all()
    np.testing.assert_allclose(found.reconstruct(), x, atol=1e-9)


@pytest.mark.compiled
@pytest.mark.parametrize(("scale", "offset"), [(1.0, 1e8), (1e-8, 0.0), (1e6, -1e8)])
def test_any_distance_from_the_origin_and_any_scale(scale, offset):
    x, truth, _ = planted(noise=0.2)
    found = fit_features(x * scale + offset)
    assert agrees(found.Z, truth)
    assert found.n_features <= 4
    assert agrees(found.assign(x * scale + offset), truth)


@pytest.mark.compiled
def test_more_features_than_can_be_enumerated():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(12, 80))
    Z = rng.random((400, 12)) < 0.3
    x = Z @ A + 0.05 * rng.normal(size=(400, 80))
    found = fit_k_features(x, 12, restarts=2)
    truth = ((x - Z @ A) ** 2).sum()
    assert found.objective - 12 * found.penalty < 0.1 * (x**2).sum()
    assert found.assign(x).shape == (400, 12)
    assert truth > 0


def test_bad_rows_are_named():
    with pytest.raises(ValueError, match="finite"):
        fit_features([[1.0], [np.inf]])
    with pytest.raises(ValueError, match="table of rows and columns"):
        fit_features([1.0, 2.0])
    with pytest.raises(ValueError, match="no rows of any weight"):
        fit_features(np.ones((3, 2)), weight=np.zeros(3))
    with pytest.raises(ValueError, match="no rows of any weight"):
        fit_features(np.empty((0, 2)))
    with pytest.raises(ValueError, match="weight must be 3 finite numbers"):
        fit_features(np.ones((3, 2)), weight=[1.0, -1.0, 1.0])
    for name in ("restarts", "max_features"):
        with pytest.raises(ValueError, match=f"{name} must be a whole number"):
            fit_features(np.ones((3, 2)), **{name: 0})
    with pytest.raises(ValueError, match="n_features must be a whole number"):
        fit_k_features(np.ones((3, 2)), 0)


def test_a_result_can_be_looked_at():
    import matplotlib

    matplotlib.use("Agg")
    x, _, _ = planted(n=40)
    found = fit_k_features(x, 2)
    assert "2 features of 40 events" in repr(found)
    assert found._repr_html_().count("<tr>") == 3
    assert len(found.to_dict()["features"]) == 2
    images = found.plot((4, 4))
    np.testing.assert_allclose(images.axes[0].images[0].get_array(), found.A[0].reshape(4, 4))
    assert len(found.plot().axes[0].patches) == 16
    with pytest.raises(ValueError, match="no images of shape"):
        found.plot((3, 4))
    with pytest.raises(ValueError, match="nothing to draw"):
        fit_features(x, 1e12).plot()


def test_more_restarts_are_never_worse():
    """Runs of one seed begin alike, and each is finished before it is compared."""
    x, _ = components(planted_tables(seed=0)[0])
    for seed in range(3):
        reached = [fit_features(x, restarts=restarts, rng=seed).objective for restarts in (1, 2, 5)]
        assert reached == sorted(reached, reverse=True)
