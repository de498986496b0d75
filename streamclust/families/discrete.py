"""Clusters of counts and of yes/no features: multinomial, Bernoulli product, Poisson [BKM appendices B, C].

Their labelling costs are linear in the point, slope · x + intercept, so bounds over a box are exact.
Weights are real: decayed counts are as good as whole ones. Points are checked to be counts by `check`
alone, at the door.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self, cast

import numpy as np

from streamclust._kernels.check import all_counts, all_yes_or_no
from streamclust._kernels.types import Floats
from streamclust.families.base import Family, Rule, Summary, as_rows, check_finite, complain
from streamclust.families.cost_form import Linear
from streamclust.families.gaussian import row_cost
from streamclust.families.priors import read
from streamclust.moments import Moments, Scatter
from streamclust.utils.late import betaln, digamma, gammaln, xlogy

# ---------------------------------------------------------------- what the three share


def linear_cost(slope: Floats, intercept: Floats, rows: Floats | Moments) -> Floats:
    """n (slope · x̄ + intercept) for rows x clusters."""
    rows = as_rows(rows, "none")
    return row_cost(rows.weight, intercept, rows.weight[:, None] * (rows.mean @ slope.T))


def expected_log(values: Floats, probability: Floats) -> Floats:
    """Σ_d x_d log p_d for rows x clusters, with 0 log 0 = 0 and x log 0 = -∞."""
    seen = probability > 0
    total = values @ np.log(np.where(seen, probability, 1.0)).T
    impossible = (values > 0).astype(float) @ (~seen).astype(float).T > 0
    return np.where(impossible, -np.inf, total)


def check_counts(points: Floats, family: str) -> None:
    """Raise ValueError naming the first value that is not a whole number of at least 0."""
    if all_counts(np.ascontiguousarray(points, dtype=float).ravel()) and np.isfinite(points.max(initial=0.0)):
        return
    check_finite(points)
    rule = f"{family} data must be counts (0, 1, 2, ...)"
    complain(points < 0, points, rule, "shift or drop negative values, or use the gaussian family")
    complain(
        points != np.floor(points), points, rule, "round it, or use the gaussian family for measurements"
    )


def _check_data(data: Summary | Floats, family: AnyCounts) -> None:
    """Points are checked; what a summary has learnt was checked at the door."""
    if not hasattr(data, "sample"):
        family.check(np.asarray(data, dtype=float))


def _positive(**values: float | Floats) -> None:
    for name, value in values.items():
        if not np.all(np.asarray(value) > 0):
            raise ValueError(f"{name} must be positive, got {value}")


# ---------------------------------------------------------------- multinomial


class Dirichlet(NamedTuple):
    """Posteriors (38): ψ for each cluster and category."""

    psi: Floats
    slope: Floats
    intercept: Floats


class MultinomialParameters(NamedTuple):
    """Category probabilities (clusters, D)."""

    probability: Floats


@dataclass(frozen=True, eq=False)
class Multinomial:
    """Counts over D categories (words of a document), with a Dirichlet prior ψ0 [appendix B].

    >>> family = Multinomial()
    >>> topics = Moments.rows_of_points([[3.0, 1, 0], [2, 2, 0], [0, 1, 3]]).to_groups(np.array([0, 0, 1]))
    >>> family.labelling_cost(family.posterior(topics), np.array([[4.0, 0, 0], [0, 0, 4]])).argmin(axis=1)
    array([0, 1])
    """

    name: ClassVar[str] = "multinomial"
    scatter: ClassVar[Scatter] = "none"
    concentration: ClassVar[float] = 1.0

    psi0: float | Floats = 0.1
    smoothing: float = 0.01

    def __post_init__(self) -> None:
        _positive(psi0=self.psi0)

    @classmethod
    def informed(cls, data: Summary | Floats, rule: Rule = "bkm", psi0: float | Floats = 0.1) -> Self:
        """The paper's ψ0 = 0.1, the same for every rule: the data do not inform it."""
        family = cls(psi0)
        _check_data(data, family)
        return family

    @classmethod
    def check(cls, points: Floats) -> None:
        """Whole numbers of at least 0."""
        check_counts(points, cls.name)

    def log_base(self, points: Floats) -> Floats:
        """log of the multinomial coefficients W! / Π x_d!, the last line of (39)."""
        return cast(Floats, gammaln(points.sum(axis=1) + 1) - gammaln(points + 1).sum(axis=1))

    def _prior(self, d: int) -> Floats:
        return np.broadcast_to(np.asarray(self.psi0, dtype=float), (d,))

    def _update(self, moments: Moments) -> Floats:
        return self._prior(moments.n_features) + moments.weight[:, None] * np.maximum(moments.mean, 0.0)

    def log_marginal(self, moments: Moments) -> Floats:
        """log Γ(Dψ0) - log Γ(Σψ_d) + Σ_d [log Γ(ψ_d) - log Γ(ψ0)]: the cluster's part of -(39)."""
        prior, psi = self._prior(moments.n_features), self._update(moments)
        totals = gammaln(prior.sum()) - gammaln(psi.sum(axis=1))
        return cast(Floats, totals + (gammaln(psi) - gammaln(prior)).sum(axis=1))

    def posterior(self, moments: Moments) -> Dirichlet:
        """ψ_d = ψ0 + t_d (38), with the slope -ψ(ψ_d) + ψ(Σψ_d) of (40)."""
        psi = self._update(moments)
        slope = digamma(psi.sum(axis=1, keepdims=True)) - digamma(psi)
        return Dirichlet(psi, slope, np.zeros(len(psi)))

    def parameters(self, posterior: Dirichlet) -> MultinomialParameters:
        """The mean probabilities."""
        return MultinomialParameters(posterior.psi / posterior.psi.sum(axis=1, keepdims=True))

    def labelling_cost(self, posterior: Dirichlet, rows: Floats | Moments) -> Floats:
        """(40) without its mixing term, summed over each row's points."""
        return linear_cost(posterior.slope, posterior.intercept, rows)

    def cost_form(self, posterior: Dirichlet, mixing: float | Floats = 0.0) -> Linear:
        """The labelling cost less its mixing term: slope · x + offset."""
        return Linear(posterior.slope, posterior.intercept - mixing)

    def predictive(self, posterior: Dirichlet, points: Floats) -> Floats:
        """Dirichlet-multinomial."""
        out = np.empty((len(points), len(posterior.psi)))
        for k, psi in enumerate(posterior.psi):
            totals = gammaln(psi.sum()) - gammaln(psi.sum() + points.sum(axis=1))
            out[:, k] = totals + (gammaln(psi + points) - gammaln(psi)).sum(axis=1)
        return out + self.log_base(points)[:, None]

    @classmethod
    def log_density(cls, parameters: MultinomialParameters, rows: Floats | Moments) -> Floats:
        """Mean Σ_d x_d log p_d over each row's points."""
        return expected_log(as_rows(rows, "none").mean, parameters.probability)

    def generator(self, moments: Moments) -> Floats:
        """Σ t log(t/T) on t = (1-a) x̄ + a T/D, T = Σ_d x̄_d [relaxed BHC].

        For rows of equal T this is Σ t log t and a constant. Divided by T, it stays the multinomial's own
        divergence when points differ in length: a long document is not far from a short one of the same
        words.
        """
        x = np.maximum(moments.mean, 0.0)
        total = x.sum(axis=1, keepdims=True)
        smooth = (1 - self.smoothing) * x + self.smoothing * total / x.shape[1]
        share = np.divide(smooth, total, out=np.zeros_like(smooth), where=total > 0)
        return cast(Floats, xlogy(smooth, share).sum(axis=1))


# ---------------------------------------------------------------- Bernoulli product


class Betas(NamedTuple):
    """Posteriors (44): pseudo-counts of ones and of zeros for each cluster and feature."""

    ones: Floats
    zeros: Floats
    slope: Floats
    intercept: Floats


class BernoulliParameters(NamedTuple):
    """Probabilities of a one and of a zero (clusters, D).

    They are kept apart: where ones weigh 1e17 times as much as zeros, 1 - probability is 0, and a zero impossible.
    """

    probability: Floats
    complement: Floats


@dataclass(frozen=True, eq=False)
class BernoulliProduct:
    """Yes/no features, independent within a cluster, with Beta(ω0, ω0) priors [appendix C].

    `zeros0`, where given, is the prior's pseudo-count of zeros; ω0 is then that of ones alone.

    >>> family = BernoulliProduct()
    >>> posterior = family.posterior(Moments.of_points([[1.0, 0.0], [1.0, 1.0]], kind="none"))
    >>> posterior.ones, posterior.zeros
    (array([[2.1, 1.1]]), array([[0.1, 1.1]]))
    """

    name: ClassVar[str] = "bernoulli"
    scatter: ClassVar[Scatter] = "none"
    concentration: ClassVar[float] = 1.0

    omega0: float | Floats = 0.1
    smoothing: float = 0.01
    zeros0: float | Floats | None = None

    def __post_init__(self) -> None:
        _positive(omega0=self.omega0, zeros0=self.prior_zeros)

    @property
    def prior_zeros(self) -> float | Floats:
        """The prior's pseudo-count of zeros."""
        return self.omega0 if self.zeros0 is None else self.zeros0

    @classmethod
    def informed(cls, data: Summary | Floats, rule: Rule = "bkm", omega0: float | Floats = 0.1) -> Self:
        """The paper's ω0 = 0.1, the same for every rule: the data do not inform it."""
        family = cls(omega0)
        _check_data(data, family)
        return family

    @classmethod
    def check(cls, points: Floats) -> None:
        """Zeros and ones."""
        if all_yes_or_no(np.ascontiguousarray(points, dtype=float).ravel()):
            return
        check_finite(points)
        cure = "threshold it, or use the multinomial or poisson family for counts"
        complain((points != 0) & (points != 1), points, "bernoulli data must be 0 or 1", cure)

    def log_base(self, points: Floats) -> Floats:
        """Zero."""
        return np.zeros(len(points))

    def _update(self, moments: Moments) -> tuple[Floats, Floats]:
        x = np.clip(moments.mean, 0.0, 1.0)  # a mean of ones can round to a little more than 1
        n = moments.weight[:, None]
        return self.omega0 + n * x, self.prior_zeros + n * (1 - x)

    def log_marginal(self, moments: Moments) -> Floats:
        """Σ_d log B(ω1, ω0') - log B(ω0, ω0): the cluster's part of -(45)."""
        ones, zeros = self._update(moments)
        return cast(Floats, (betaln(ones, zeros) - betaln(self.omega0, self.prior_zeros)).sum(axis=1))

    def posterior(self, moments: Moments) -> Betas:
        """(44), with the slope -ψ(ω1) + ψ(ω0') and intercept Σ_d [ψ(ω0'+ω1) - ψ(ω0')] of (46)."""
        ones, zeros = self._update(moments)
        slope = digamma(zeros) - digamma(ones)
        return Betas(ones, zeros, slope, (digamma(ones + zeros) - digamma(zeros)).sum(axis=1))

    def parameters(self, posterior: Betas) -> BernoulliParameters:
        """The mean probabilities."""
        both = posterior.ones + posterior.zeros
        return BernoulliParameters(posterior.ones / both, posterior.zeros / both)

    def labelling_cost(self, posterior: Betas, rows: Floats | Moments) -> Floats:
        """(46) without its mixing term, summed over each row's points."""
        return linear_cost(posterior.slope, posterior.intercept, rows)

    def cost_form(self, posterior: Betas, mixing: float | Floats = 0.0) -> Linear:
        """The labelling cost less its mixing term: slope · x + offset."""
        return Linear(posterior.slope, posterior.intercept - mixing)

    def predictive(self, posterior: Betas, points: Floats) -> Floats:
        """A product of Bernoullis at the mean probabilities."""
        return self.log_density(self.parameters(posterior), points)

    @classmethod
    def log_density(cls, parameters: BernoulliParameters, rows: Floats | Moments) -> Floats:
        """Mean Σ_d [x log p + (1-x) log(1-p)] over each row's points."""
        x = np.clip(as_rows(rows, "none").mean, 0.0, 1.0)
        return expected_log(x, parameters.probability) + expected_log(1 - x, parameters.complement)

    def generator(self, moments: Moments) -> Floats:
        """Σ [t log t + (1-t) log(1-t)] on t = (1-a) x̄ + a/2 [relaxed BHC]."""
        t = (1 - self.smoothing) * np.clip(moments.mean, 0.0, 1.0) + self.smoothing / 2
        return cast(Floats, (xlogy(t, t) + xlogy(1 - t, 1 - t)).sum(axis=1))


# ---------------------------------------------------------------- Poisson


class Gammas(NamedTuple):
    """Posteriors of rates: Gamma(a, rate b), with a (clusters, D) and b (clusters, D)."""

    a: Floats
    b: Floats
    slope: Floats
    intercept: Floats


class PoissonParameters(NamedTuple):
    """Rates (clusters, D)."""

    rate: Floats


@dataclass(frozen=True, eq=False)
class Poisson:
    """Independent counts with a Gamma(a0, rate b0) prior for each feature's rate.

    >>> family = Poisson.informed(np.array([[0.0, 8.0], [2.0, 12.0]]))
    >>> family.a0 / family.b0
    array([ 1., 10.])
    """

    name: ClassVar[str] = "poisson"
    scatter: ClassVar[Scatter] = "none"
    concentration: ClassVar[float] = 1.0

    a0: float | Floats = 1.0
    b0: float | Floats = 1.0
    smoothing: float = 0.01

    def __post_init__(self) -> None:
        _positive(a0=self.a0, b0=self.b0)

    @classmethod
    def informed(cls, data: Summary | Floats, rule: Rule = "bkm", a0: float = 1.0) -> Self:
        """Per feature, the prior whose mean rate is the data's, b0 = a0 / mean, the same for every rule.

        a0 = 1 is the exponential, the distribution of most entropy among those of a given mean: it says
        what the typical rate is, and nothing of how clusters differ. A feature never seen counts as half an
        event in all the stream. The generator's smoothing is 0.01 of the mean rate.
        """
        total, points = read(data, cls.scatter)
        if not hasattr(data, "sample"):
            check_counts(points, cls.name)
        rate = np.maximum(total.mean[0], 0.5 / max(float(total.weight[0]), 1.0))
        return cls(np.full(len(rate), a0), a0 / rate, 0.01 * float(rate.mean()))

    @classmethod
    def check(cls, points: Floats) -> None:
        """Whole numbers of at least 0."""
        check_counts(points, cls.name)

    def log_base(self, points: Floats) -> Floats:
        """-Σ_d log x_d!."""
        return cast(Floats, -gammaln(points + 1).sum(axis=1))

    def _update(self, moments: Moments) -> tuple[Floats, Floats]:
        n = moments.weight[:, None]
        a = self.a0 + n * np.maximum(moments.mean, 0.0)
        return a, np.broadcast_to(self.b0 + n, a.shape)

    def log_marginal(self, moments: Moments) -> Floats:
        """Σ_d [a0 log b0 - log Γ(a0) + log Γ(a) - a log b]."""
        a, b = self._update(moments)
        prior = self.a0 * np.log(self.b0) - gammaln(self.a0)
        return cast(Floats, (prior + gammaln(a) - a * np.log(b)).sum(axis=1))

    def posterior(self, moments: Moments) -> Gammas:
        """a = a0 + t_d, b = b0 + n, with the slope log b - ψ(a) and the intercept Σ_d a/b."""
        a, b = self._update(moments)
        return Gammas(a, b, np.log(b) - digamma(a), (a / b).sum(axis=1))

    def parameters(self, posterior: Gammas) -> PoissonParameters:
        """The mean rates."""
        return PoissonParameters(posterior.a / posterior.b)

    def labelling_cost(self, posterior: Gammas, rows: Floats | Moments) -> Floats:
        """Σ_d [a/b - x_d (ψ(a) - log b)], summed over each row's points."""
        return linear_cost(posterior.slope, posterior.intercept, rows)

    def cost_form(self, posterior: Gammas, mixing: float | Floats = 0.0) -> Linear:
        """The labelling cost less its mixing term: slope · x + offset."""
        return Linear(posterior.slope, posterior.intercept - mixing)

    def predictive(self, posterior: Gammas, points: Floats) -> Floats:
        """A product of negative binomials of size a and success probability b/(b+1)."""
        out = np.empty((len(points), len(posterior.a)))
        for k, (a, b) in enumerate(zip(posterior.a, posterior.b, strict=True)):
            rising = gammaln(a + points) - gammaln(a)
            out[:, k] = (rising - a * np.log1p(1 / b) - points * np.log1p(b)).sum(axis=1)
        return out + self.log_base(points)[:, None]

    @classmethod
    def log_density(cls, parameters: PoissonParameters, rows: Floats | Moments) -> Floats:
        """Mean Σ_d [x log λ - λ] over each row's points."""
        rate = parameters.rate
        return cast(Floats, expected_log(as_rows(rows, "none").mean, rate) - rate.sum(axis=1))

    def generator(self, moments: Moments) -> Floats:
        """Σ (t+a) log(t+a), less the linear term t+a [relaxed BHC]."""
        t = np.maximum(moments.mean, 0.0) + self.smoothing
        return cast(Floats, (xlogy(t, t) - t).sum(axis=1))


AnyCounts = Multinomial | BernoulliProduct | Poisson

if TYPE_CHECKING:  # mypy holds them to the protocol
    _multinomial: type[Family[Dirichlet, MultinomialParameters]] = Multinomial
    _bernoulli: type[Family[Betas, BernoulliParameters]] = BernoulliProduct
    _poisson: type[Family[Gammas, PoissonParameters]] = Poisson
