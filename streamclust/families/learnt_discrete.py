"""Priors of counts that are learnt: pseudo-counts by the evidence of the clusters found, feature by feature.

Large pseudo-counts say that clusters are alike in a feature, as in words that everybody uses; small ones that each has
its own. They are learnt by Newton's method in their logarithms and, where that does not help, by a step of which it is
proved that the evidence does not fall [Minka, Estimating a Dirichlet distribution, 2000; for the Gamma likewise].
The prior on them is weak: as if one more cluster, of a single event, had been seen. Without it, a word that never
occurs would get no pseudo-count at all, and could never be learnt later. Where each feature has a strength of its own
(Bernoulli, Poisson), strengths are expected to be of one size: a few clusters that agree in a feature by chance would
otherwise be taken to agree for certain.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np

from streamclust._kernels.families.rising import rising
from streamclust._kernels.types import Floats
from streamclust.families.base import Summary
from streamclust.families.discrete import AnyCounts, BernoulliProduct, Multinomial, Poisson
from streamclust.families.priors import read
from streamclust.moments import Moments

MAX_STRENGTH_RATIO = 100.0
"""The greatest strength of a prior, relative to the weight of all data: clusters are then nearly the same there."""
LOG_STRENGTH_PRECISION = 1.0
"""One over the variance, between features, that the logarithms of strengths are expected to have."""
MIN_PSEUDO_COUNT = 1e-9
"""The least pseudo-count."""
MAX_LOG_STEP = 3.0
"""The largest change of a pseudo-count's logarithm in one step of Newton's method."""
MIN_RELATIVE_DETERMINANT = 1e-3
"""The least determinant of the Hessian, relative to its diagonal's: below, the loss is nearly flat in one direction."""
MIN_GAIN_SHARE = 1e-9
"""A step is taken if it lowers the loss by more than this share of it."""
NEWTON_STEPS = 5
"""Steps of Newton's method in a round."""


class Scan(NamedTuple):
    """The loss of groups of pseudo-counts, and where to go from there.

    loss    (G,): -log evidence of the group's features
    newton  (G, M): the change of their logarithms by Newton's method
    safe    (G, M): the change by the fixed point, which never raises the loss
    """

    loss: Floats
    newton: Floats
    safe: Floats


@dataclass(frozen=True, eq=False)
class CountLearner(ABC):
    """Learns the pseudo-counts of a family from clusters.

    anchor  one row: the pseudo-cluster that the prior on pseudo-counts stands for
    weight  of all the data: in events, or in words where the family is multinomial
    """

    kind: ClassVar[type[AnyCounts]]

    anchor: Moments
    weight: float

    # ---------------------------------------------------------------- what differs

    @classmethod
    @abstractmethod
    def of(cls, kind: type[AnyCounts], data: Summary | Floats) -> Self:
        """From a tree, or from an array of points."""

    @abstractmethod
    def start(self, clusters: Moments) -> AnyCounts:
        """The prior to begin with."""

    @abstractmethod
    def counts(self, family: AnyCounts) -> Floats:
        """(G, M): the pseudo-counts, in groups that share a strength."""

    @abstractmethod
    def family(self, counts: Floats) -> AnyCounts:
        """The family with these pseudo-counts."""

    @abstractmethod
    def scan(self, counts: Floats, clusters: Moments, centre: float) -> Scan:
        """Losses and steps, the logarithms of strengths being expected to be near `centre`."""

    @abstractmethod
    def strength(self, counts: Floats) -> Floats:
        """(G, 1): how many events a group counts for."""

    # ---------------------------------------------------------------- what is the same

    def carried(self, family: AnyCounts) -> AnyCounts:
        """A prior that was learnt from earlier data, within the bounds of these."""
        counts = self.counts(family)
        if counts.shape != self.counts(self.start(self.anchor)).shape:
            return self.start(self.anchor)
        return self.family(self._bounded(counts))

    def improved(self, family: AnyCounts, clusters: Moments, rounds: int = 2) -> AnyCounts:
        """A prior of no higher free energy."""
        seen = Moments.stack([clusters, self.anchor])
        counts = self.counts(family)
        moved = False
        for _ in range(rounds * NEWTON_STEPS):
            centre = float(np.log(self.strength(counts)).mean())
            now = self.scan(counts, seen, centre)
            for step in (now.newton, now.safe):
                trial = self._bounded(counts * np.exp(step))
                loss = self.scan(trial, seen, centre).loss
                lower = loss < now.loss - MIN_GAIN_SHARE * np.abs(now.loss)
                if lower.any():
                    break
            else:
                break
            moved = True
            counts = np.where(lower[:, None], trial, counts)
        return self.family(counts) if moved else family

    def loss(self, family: AnyCounts, clusters: Moments) -> float:
        """The part of F that depends on the prior: -log p(clusters | θ) - log p(θ)."""
        return self.cost(family) - float(family.log_marginal(clusters).sum())

    def cost(self, family: AnyCounts) -> float:
        """-log p(θ) up to a constant: the loss of one pseudo-cluster, and of strengths that differ between features."""
        logs = np.log(self.strength(self.counts(family)))
        return float(unlikeness(logs, float(logs.mean())).sum() - family.log_marginal(self.anchor).sum())

    def _bounded(self, counts: Floats) -> Floats:
        most = MAX_STRENGTH_RATIO * max(self.weight, 1.0)
        return np.maximum(counts * np.minimum(1.0, most / self.strength(counts)), MIN_PSEUDO_COUNT)


def newton_step(gradient: Floats, diagonal: Floats, coupling: Floats, factor: Floats) -> Floats:
    """-H⁻¹ g for H = diag(diagonal) + coupling vvᵀ, v = factor, in each row; shortened where H is all but singular."""
    ratio = factor / diagonal
    determinant = np.maximum(1 + coupling * (factor * ratio).sum(axis=1), MIN_RELATIVE_DETERMINANT)
    along = coupling * (ratio * gradient).sum(axis=1) / determinant
    return np.asarray(np.clip(along[:, None] * ratio - gradient / diagonal, -MAX_LOG_STEP, MAX_LOG_STEP))


def unlikeness(logs: Floats, centre: float) -> Floats:
    """-log p of each strength up to a constant: its logarithm is normal about `centre`."""
    return np.asarray(LOG_STRENGTH_PRECISION / 2 * (logs - centre) ** 2)


def dirichlet_scan(counts: Floats, seen: Floats, centre: float) -> Scan:
    """Of G Dirichlets with M pseudo-counts each, where K clusters have counts (K, G, M)."""
    k, groups, m = seen.shape
    own, strength = counts.ravel(), counts.sum(axis=1)
    value, slope, curvature = (
        part.reshape(groups, m) for part in rising(own, np.ascontiguousarray(seen.reshape(k, -1)))
    )
    total, fall, bend = rising(strength, np.ascontiguousarray(seen.sum(axis=2)))
    logs = np.log(strength)
    pull = LOG_STRENGTH_PRECISION * (logs - centre) / strength
    gradient = counts * (fall[:, None] - slope)
    diagonal = -(counts**2) * curvature + np.maximum(gradient, 0.0) + np.finfo(float).tiny
    ratio = np.divide(slope, fall[:, None], out=np.ones_like(slope), where=(slope > 0) & (fall[:, None] > 0))
    loss = total - value.sum(axis=1) + unlikeness(logs, centre)
    newton = newton_step(
        gradient + pull[:, None] * counts, diagonal, bend + LOG_STRENGTH_PRECISION / strength**2, counts
    )
    return Scan(loss, newton, np.log(ratio))


class DirichletLearner(CountLearner):
    """ψ0 of each word.

    >>> words = np.repeat([[9.0, 1.0, 5.0], [1.0, 9.0, 5.0]], 20, axis=0)
    >>> clusters = Moments.rows_of_points(words).to_groups(np.arange(40) // 20)
    >>> learner = DirichletLearner.of(Multinomial, words)
    >>> psi0 = learner.improved(learner.start(clusters), clusters, rounds=20).psi0
    >>> bool(psi0[2] > psi0[0] and np.isclose(psi0[0], psi0[1]))
    True
    """

    kind = Multinomial

    @classmethod
    def of(cls, kind: type[AnyCounts], data: Summary | Floats) -> Self:
        """From data; the pseudo-cluster has one word, each equally likely."""
        total, _ = read(data, "none")
        d = total.n_features
        return cls(row(np.full(d, 1 / d)), float(total.weight[0] * np.maximum(total.mean, 0.0).sum()))

    def start(self, clusters: Moments) -> Multinomial:
        """The paper's 0.1."""
        return Multinomial(np.full(clusters.n_features, 0.1))

    def counts(self, family: AnyCounts) -> Floats:
        """(1, D)."""
        assert isinstance(family, Multinomial)
        return np.broadcast_to(np.asarray(family.psi0, dtype=float), (1, self.anchor.n_features))

    def family(self, counts: Floats) -> Multinomial:
        """ψ0."""
        return Multinomial(counts[0])

    def scan(self, counts: Floats, clusters: Moments, centre: float) -> Scan:
        """All words share one strength."""
        return dirichlet_scan(counts, totals(clusters)[:, None, :], centre)

    def strength(self, counts: Floats) -> Floats:
        """Σ_d ψ0."""
        return np.asarray(counts.sum(axis=1, keepdims=True))


class BetaLearner(CountLearner):
    """Pseudo-counts of ones and zeros of each feature."""

    kind = BernoulliProduct

    @classmethod
    def of(cls, kind: type[AnyCounts], data: Summary | Floats) -> Self:
        """From data; the pseudo-cluster has half a one and half a zero in each feature."""
        total, _ = read(data, "none")
        return cls(row(np.full(total.n_features, 0.5)), float(total.weight[0]))

    def start(self, clusters: Moments) -> BernoulliProduct:
        """Half a one and half a zero."""
        half = np.full(clusters.n_features, 0.5)
        return BernoulliProduct(half, zeros0=half)

    def counts(self, family: AnyCounts) -> Floats:
        """(D, 2)."""
        assert isinstance(family, BernoulliProduct)
        shape = (self.anchor.n_features,)
        return np.stack([np.broadcast_to(p, shape) for p in (family.omega0, family.prior_zeros)], axis=1)

    def family(self, counts: Floats) -> BernoulliProduct:
        """The family with these pseudo-counts of ones and of zeros."""
        return BernoulliProduct(np.ascontiguousarray(counts[:, 0]), zeros0=np.ascontiguousarray(counts[:, 1]))

    def scan(self, counts: Floats, clusters: Moments, centre: float) -> Scan:
        """Each feature has its own strength."""
        x = np.clip(clusters.mean, 0.0, 1.0)
        return dirichlet_scan(counts, clusters.weight[:, None, None] * np.stack([x, 1 - x], axis=2), centre)

    def strength(self, counts: Floats) -> Floats:
        """ω1 + ω0'."""
        return np.asarray(counts.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class GammaLearner(CountLearner):
    """a0 and b0 of each feature's rate."""

    kind = Poisson
    smoothing: float

    @classmethod
    def of(cls, kind: type[AnyCounts], data: Summary | Floats) -> Self:
        """From data; the pseudo-cluster has one event at the mean rates."""
        informed = Poisson.informed(data)
        total, _ = read(data, "none")
        return cls(row(np.asarray(informed.a0 / informed.b0)), float(total.weight[0]), informed.smoothing)

    def start(self, clusters: Moments) -> Poisson:
        """a0 = 1, about the mean rates."""
        rate = self.anchor.mean[0]
        return Poisson(np.ones(len(rate)), 1 / rate, self.smoothing)

    def counts(self, family: AnyCounts) -> Floats:
        """(D, 2)."""
        assert isinstance(family, Poisson)
        shape = (self.anchor.n_features,)
        return np.stack([np.broadcast_to(p, shape) for p in (family.a0, family.b0)], axis=1)

    def family(self, counts: Floats) -> Poisson:
        """a0 and b0."""
        return Poisson(np.ascontiguousarray(counts[:, 0]), np.ascontiguousarray(counts[:, 1]), self.smoothing)

    def scan(self, counts: Floats, clusters: Moments, centre: float) -> Scan:
        """Each feature by itself: a0 by Minka's bound, b0 as EM would."""
        a, b = counts.T
        n, t = clusters.weight[:, None], totals(clusters)
        value, slope, curvature = rising(np.ascontiguousarray(a), t)
        events = np.log1p(n / b).sum(axis=0)
        after = t / (b + n)
        loss = a * events + (t * np.log(b + n)).sum(axis=0) - value + unlikeness(np.log(b), centre)
        share = n / (b + n)
        by_a = a * (events - slope)
        by_b = b * after.sum(axis=0) - a * share.sum(axis=0) + LOG_STRENGTH_PRECISION * (np.log(b) - centre)
        safe_a = np.log(np.divide(slope, events, out=np.ones_like(a), where=(slope > 0) & (events > 0)))
        new_a = a * np.exp(safe_a)
        rate = ((new_a + t) / (b + n)).mean(axis=0)
        safe = np.stack([safe_a, np.log(new_a / (rate * b))], axis=1)
        # In logarithms: the second derivative in b is Σ (a + t) b n / (b + n)², that in both -a Σ n / (b + n).
        aa = -(a**2) * curvature + np.maximum(by_a, 0.0) + np.finfo(float).tiny
        bb = ((a + t) * b * n / (b + n) ** 2).sum(axis=0) + LOG_STRENGTH_PRECISION
        ab = -a * share.sum(axis=0)
        determinant = np.maximum(aa * bb - ab**2, MIN_RELATIVE_DETERMINANT * aa * bb)
        newton = np.stack(
            [(ab * by_b - bb * by_a) / determinant, (ab * by_a - aa * by_b) / determinant], axis=1
        )
        return Scan(loss, np.clip(newton, -MAX_LOG_STEP, MAX_LOG_STEP), safe)

    def strength(self, counts: Floats) -> Floats:
        """b0."""
        return counts[:, 1:]


def row(mean: Floats) -> Moments:
    """One event."""
    return Moments(np.ones(1), mean[None], np.zeros((1, 0)), "none")


def totals(clusters: Moments) -> Floats:
    """(K, D): summed counts."""
    return np.ascontiguousarray(clusters.weight[:, None] * np.maximum(clusters.mean, 0.0))
