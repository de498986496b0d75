import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from streamclust.families import DiagonalGaussian, Gaussian, Poisson, SphericalGaussian, priors
from streamclust.families.linalg import cholesky
from streamclust.moments import Moments
from tests.naive import families as naive

GOLDEN = json.loads((Path(__file__).parent.parent / "golden.json").read_text())
X = np.array(GOLDEN["X"])
GAUSSIANS = [Gaussian, DiagonalGaussian, SphericalGaussian]
RULES = ["bkm", "agglomerative", "nearest"]


@dataclass
class Summarised:
    """What a tree offers: totals of everything, and a sample."""

    total: Moments
    points: np.ndarray

    def sample(self):
        return self.points, np.ones(len(self.points))


def scale_of(family):
    """B0, b0 as a full matrix."""
    d = len(family.m0)
    if isinstance(family, Gaussian):
        return family.B0
    return np.diag(family.B0) if isinstance(family, DiagonalGaussian) else family.b0 * np.eye(d)


# ---------------------------------------------------------------- d_small


def test_golden_d_small():
    """Mutual neighbours count as one pair: this is the definition that gives the reference value."""
    assert_allclose(priors.d_small(X, fraction=1.0), GOLDEN["d_small_all_points"], rtol=1e-14)
    assert_allclose(priors.d_small(X), GOLDEN["d_small_all_points"], rtol=1e-14)


@pytest.mark.parametrize("fraction", [0.1, 0.5, 1.0])
def test_d_small_against_all_distances(fraction):
    x = np.random.default_rng(0).normal(size=(400, 2))
    cases = priors.spread_indices(400, max(30, int(400 * fraction)))
    assert_allclose(priors.d_small(x, fraction), naive.small_distance(x, cases))


def test_cases_are_spread_and_do_not_follow_a_period():
    cases = priors.spread_indices(1000, 100)
    assert len(np.unique(cases)) == 100
    assert_array_equal(cases, priors.spread_indices(1000, 100))
    for period in range(
        2, 65
    ):  # the χ² of its residues, in units of its mean; steps of the golden ratio reach 10
        counts = np.bincount(priors.spread_indices(3000, 300) % period, minlength=period)
        assert ((counts - 300 / period) ** 2).sum() / 300 < 3


def test_neighbours_among_duplicates_are_others():
    x = np.array([[0.0], [0.0], [0.0], [1.0], [1.0], [5.0]])
    closest = priors.closest_pairs(x, np.arange(6), 6)
    assert len(closest) in (4, 5)  # three points in one place make two pairs or three
    assert_array_equal(closest[:3], 0.0)
    assert_allclose(closest[-1], 4.0)
    assert priors.d_small(x) == 0.0


@pytest.mark.parametrize("d", [1, 2, 5])
def test_closest_pairs_against_all_distances(d):
    x = np.random.default_rng(d).normal(size=(150, d)) * np.linspace(1, 3, d)
    cases = np.arange(0, 150, 3)
    distance = np.linalg.norm(x[:, None] - x, axis=2)
    np.fill_diagonal(distance, np.inf)
    pairs = {tuple(sorted((case, distance[case].argmin()))) for case in cases}
    slow = sorted(distance[pair] for pair in pairs)
    assert_allclose(priors.closest_pairs(x, cases, 10), slow[:10])
    assert_allclose(priors.closest_pairs(x, cases, 1000), slow)


def test_large_tables_are_sampled(monkeypatch):
    monkeypatch.setattr(priors, "MAX_NEIGHBOUR_POINTS", 50)
    x = np.random.default_rng(1).normal(size=(500, 2))
    part = x[priors.spread_indices(500, 50)]
    family = Gaussian.informed(x)
    cases = priors.spread_indices(50, 30)
    assert_allclose(np.trace(family.B0), 2 * naive.small_distance(part, cases) ** 2)
    assert priors.d_small(x) == priors.d_small(part)
    assert_allclose(family.m0, x.mean(axis=0))


# ---------------------------------------------------------------- (21) and (22)


def test_rule_21():
    family = Gaussian.informed(X)
    covariance = np.cov(X.T, bias=True)
    d = GOLDEN["d_small_all_points"]
    assert (family.xi0, family.eta0) == (0.1, 2.0)
    assert_allclose(family.m0, X.mean(axis=0))
    assert_allclose(family.B0, d**2 * 2 * covariance / np.trace(covariance), rtol=1e-12)
    assert_allclose(family.smoothing, 0.01 * np.trace(covariance) / 2)


def test_the_golden_prior_has_the_shape_of_21():
    """Its d is one half, not d_small."""
    family = Gaussian.informed(X)
    assert_allclose(family.B0 / np.trace(family.B0), np.array(GOLDEN["prior"]["B0"]) / 0.5, rtol=1e-12)
    assert_allclose(family.m0, GOLDEN["prior"]["m0"])


def test_rule_22():
    family = Gaussian.informed(X, rule="agglomerative")
    assert (family.xi0, family.eta0) == (0.01, 2.0)
    assert_allclose(family.B0, 0.01 * GOLDEN["d_small_all_points"] ** 2 * np.eye(2))


def test_rule_nearest_skips_zero_distances():
    x = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [4.0, 0.0]])  # neighbours at 0, 0, 1, 3
    family = Gaussian.informed(x, rule="nearest", scale=2.0)
    assert_allclose(family.B0, 2.0 * (1 + 9) / 2 / 2 * np.eye(2))


def test_scale_and_given_scatter():
    assert_allclose(Gaussian.informed(X, scale=3.0).B0, 3 * Gaussian.informed(X).B0)
    assert_allclose(Gaussian.informed(X, rule="agglomerative", B0=0.5).B0, 0.5 * np.eye(2))
    assert_allclose(Gaussian.informed(X, B0=np.diag([1.0, 2.0])).B0, np.diag([1.0, 2.0]))
    assert SphericalGaussian.informed(X, B0=0.5).b0 == 0.5
    assert_allclose(DiagonalGaussian.informed(X, B0=0.5).B0, [0.5, 0.5])


@pytest.mark.parametrize("rule", RULES)
def test_the_three_gaussians_agree_on_a_feature(rule):
    """Diagonal and spherical priors are what the full one says of one feature."""
    full = Gaussian.informed(X, rule=rule)
    diagonal, spherical = DiagonalGaussian.informed(X, rule=rule), SphericalGaussian.informed(X, rule=rule)
    assert_allclose(diagonal.B0, np.diag(full.B0))
    assert_allclose(spherical.b0, np.trace(full.B0) / 2)
    assert (diagonal.eta0, spherical.a0) == (1.0, 0.5)


@pytest.mark.parametrize("cls", GAUSSIANS)
@pytest.mark.parametrize("rule", RULES)
def test_a_summary_of_all_points_informs_as_the_points_do(cls, rule):
    summary = Summarised(Moments.of_points(X), X)
    assert_allclose(scale_of(cls.informed(summary, rule=rule)), scale_of(cls.informed(X, rule=rule)))


# ---------------------------------------------------------------- hard data


def hard_data():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(40, 3))
    constant = x.copy()
    constant[:, 1] = 4.0
    copied = np.column_stack([x, x[:, 0]])
    return {
        "duplicated": np.repeat(x[:5], 20, axis=0),
        "rounded": np.round(x),
        "constant": constant,
        "copied": copied,
        "few": rng.normal(size=(3, 8)),
        "two": rng.normal(size=(2, 2)),
        "one": rng.normal(size=(1, 3)),
        "equal": np.full((10, 3), 7.3),
        "zero": np.zeros((4, 2)),
        "equal far away": np.full((10, 3), 1e8),
        "far": x + 1e8,
        "tiny": x * 1e-8,
        "tiny equal": np.full((3, 2), 1e-8),
        "mixed units": x * np.array([1e-5, 1.0, 1e5]),
        "one column": x[:, :1],
    }


@pytest.mark.parametrize("cls", GAUSSIANS)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", hard_data())
def test_priors_of_hard_data_are_proper(cls, rule, name):
    x = hard_data()[name]
    family = cls.informed(x, rule=rule)
    B0 = scale_of(family)
    assert np.all(np.isfinite(B0))
    np.linalg.cholesky(B0)  # as it is, without jitter
    assert family.smoothing > 0
    rows = Moments.stack(
        [Moments.of_points(x, kind=family.scatter), Moments.empty(1, x.shape[1], family.scatter)]
    )
    posterior = family.posterior(rows)
    assert np.all(np.isfinite(family.log_marginal(rows)))
    assert np.all(np.isfinite(family.labelling_cost(posterior, x)))
    assert np.all(np.isfinite(family.generator(rows[:1])))


def test_floor_of_d_small():
    x = np.repeat(np.random.default_rng(3).normal(size=(5, 2)), 20, axis=0)
    rms = np.sqrt(x.var(axis=0).mean())
    assert_allclose(SphericalGaussian.informed(x).b0, (1e-3 * rms) ** 2)


def test_small_units_are_not_drowned_by_large_ones():
    x = np.random.default_rng(4).normal(size=(200, 2))
    plain, mixed = (Gaussian.informed(v).B0 for v in (x, x * np.array([1.0, 1e5])))
    correlation = [b / np.sqrt(np.outer(np.diag(b), np.diag(b))) for b in (plain, mixed)]
    assert_allclose(*correlation, atol=1e-9)
    assert_allclose(mixed[1, 1] / mixed[0, 0], 1e10 * plain[1, 1] / plain[0, 0], rtol=1e-6)


def test_scale_equivariance():
    x = np.random.default_rng(5).normal(size=(60, 3))
    for scale in (1e-8, 1e8):
        assert_allclose(Gaussian.informed(x * scale).B0, scale**2 * Gaussian.informed(x).B0, rtol=1e-9)
    shifted = np.round(x * 64) / 64
    assert_allclose(Gaussian.informed(shifted + 1e8).B0, Gaussian.informed(shifted).B0, rtol=1e-6)


def test_poisson_prior_has_the_mean_rate_and_survives_features_never_seen():
    x = np.array([[0.0, 8.0, 0.0], [2.0, 12.0, 0.0]])
    family = Poisson.informed(x)
    assert_allclose(family.a0 / family.b0, [1.0, 10.0, 0.25])
    summary = Summarised(Moments.of_points(x, kind="none"), x)
    assert_allclose(Poisson.informed(summary).b0, family.b0)
    assert_allclose(Poisson.informed(x, a0=3.0).b0, 3 * family.b0)


# ---------------------------------------------------------------- refusals


def test_refusals():
    with pytest.raises(ValueError, match="rule must be one of bkm, agglomerative, nearest, got 'best'"):
        Gaussian.informed(X, rule="best")
    with pytest.raises(ValueError, match="scale must be positive, got 0"):
        Gaussian.informed(X, scale=0.0)
    with pytest.raises(ValueError, match="needs data"):
        Gaussian.informed(np.zeros((0, 2)))
    with pytest.raises(ValueError, match="rows and columns"):
        Gaussian.informed(np.zeros(3))
    with pytest.raises(ValueError, match="got nan in row 0, column 1"):
        Gaussian.informed(np.array([[0.0, np.nan]]))
    with pytest.raises(ValueError, match="does not hold"):
        Gaussian.informed(Summarised(Moments.of_points(X, kind="diagonal"), X))


def test_cholesky_of_every_hard_prior_needs_no_jitter():
    for x in hard_data().values():
        B0 = Gaussian.informed(x).B0
        assert_array_equal(cholesky(B0), np.linalg.cholesky(B0))
