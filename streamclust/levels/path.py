"""The path: from the clusters of a refit to one, a merge at a time, and the evidence per event at which each pays.

Every event counts ζ in (0, 1] as evidence for telling two clusters apart [coarsened posterior, Miller & Dunson 2019].
At ζ = 1 the clusters are those of the refit. As ζ falls, a merge pays as soon as what it loses is less than the
difference of two means costs:

    ζ L <= D/2 log(e + ζ n)        [BIC for D numbers]

n is the weight of the two: no other event tells whether they are one. By the weight of all events a difference would
cost more the more other clusters there are, and small clusters in many features would never be told apart. L is what
a merge loses, in nats: the lesser of
- -log of Wilks' Λ, n/2 log(1 + p (1 - p) δ²), how far apart two means are in the covariance within components. It does
  not compare covariances: those of a core and its tail differ too.
- n_s h, where n_s is the weight of the smaller and h the depth of the valley between the two: log density at the lower
  peak, less that at the saddle. Clusters of any distribution have one peak, though many Gaussians.

The pair that loses least merges next. Components that shapes have joined are joined from the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from streamclust._kernels.levels.distances import squared_distances
from streamclust._kernels.types import Floats, Ints
from streamclust.families import AnyFamily, Mixture
from streamclust.families.gaussian import GaussianParameters
from streamclust.levels.density import Bells, landscape
from streamclust.levels.tuning import TUNING
from streamclust.moments import Moments
from streamclust.refit.partition import Partition
from streamclust.shapes import gaussian_components
from streamclust.shapes.joins import by_first

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROUNDS = 100
"""Of the fixed point for ζ; it converges in a few."""
TIES = 1e-6
"""Part of the distance of means that is added to a loss: of several pairs without a valley the nearest merge first."""


@dataclass(frozen=True, eq=False)
class Path:
    """A nested sequence of partitions of components: levels of K, K - 1, ..., 1 clusters.

    owner     (components,)  the cluster of each at the finest level, 0 to K - 1
    children  (K - 1, 2)     merge t makes cluster K + t of these two
    zeta      (K - 1,)       evidence per event below which each merge pays: at most 1, and never rising
    n_events  how many events' evidence decided it
    log_odds  (K - 1,)       nats by which the events speak for two clusters instead of each merge, at ζ = 1

    >>> x = np.random.default_rng(0).normal(size=(400, 1)) + np.repeat([0.0, 1.0, 30.0, 32.0], 100)[:, None]
    >>> four = Moments.rows_of_points(x).to_groups(np.arange(400) // 100, kind="full")
    >>> path = path_of_gaussians(four, np.arange(4))
    >>> path.labels(2), path.zeta[0] > 10 * path.zeta[2]
    (array([0, 0, 1, 1]), np.True_)
    """

    owner: Ints
    children: Ints
    zeta: Floats
    n_events: float
    log_odds: Floats

    @property
    def n_finest(self) -> int:
        """K of the finest level."""
        return len(self.children) + 1

    def clusters(self, n_clusters: int) -> Ints:
        """The cluster of each cluster of the finest level at the level of `n_clusters`, numbered by first member."""
        if not 1 <= n_clusters <= self.n_finest:
            raise ValueError(f"n_clusters must be from 1 to {self.n_finest}, got {n_clusters}")
        node = np.arange(2 * self.n_finest - 1)
        for t in range(self.n_finest - n_clusters - 1, -1, -1):  # from the last merge to the first
            node[self.children[t]] = node[self.n_finest + t]
        return by_first(node[: self.n_finest])

    def labels(self, n_clusters: int) -> Ints:
        """The cluster of each component at the level of `n_clusters`, numbered by first component."""
        return by_first(self.clusters(n_clusters)[self.owner])

    @cached_property
    def bounds(self) -> Floats:
        """(K + 1,): the level of k clusters holds for ζ from bounds[k] to bounds[k - 1], k = 1, ..., K.

        The first is 1's: it holds down to ζ = 0. Entry 0 stands for that; entry K is the finest level's, 1.
        """
        return np.concatenate([[0.0], self.zeta[::-1], [1.0]])

    @cached_property
    def persistence(self) -> Floats:
        """(K,): log of the factor in ζ over which the level of 1, ..., K clusters holds; ∞ for 1."""
        with np.errstate(divide="ignore"):
            log = np.log(self.bounds)
        return np.asarray(np.diff(log))

    @cached_property
    def probability(self) -> Floats:
        """(K,): probability of 1, ..., K clusters among these levels, each as likely before; more are not judged.

        By BIC of the difference of two means, given the labels: where clusters overlap, it is too sure.
        """
        evidence = np.concatenate([[0.0], np.cumsum(self.log_odds[::-1])])
        odds = np.exp(evidence - evidence.max())
        return np.asarray(odds / odds.sum())

    @cached_property
    def separation(self) -> Floats:
        """(K,): probability that each cluster of the finest level is apart from what it merges with first.

        1 for a single cluster.
        """
        found = np.ones(self.n_finest)
        apart = 1.0 / (1.0 + np.exp(-np.clip(self.log_odds, -700.0, 700.0)))
        merge, side = np.nonzero(self.children < self.n_finest)
        found[self.children[merge, side]] = apart[merge]
        return found

    def resolution(self, n_clusters: int) -> float:
        """Number of events that tell `n_clusters` apart and no more, in the middle of the level's range of ζ.

        Infinite for the finest level: it holds however many events there are. 0 for one cluster of several, which holds
        down to ζ = 0.
        """
        if n_clusters == self.n_finest:
            return float("inf")
        return float(self.n_events * np.sqrt(self.bounds[n_clusters] * self.bounds[n_clusters - 1]))

    def plot(self, **options: Any) -> Axes:
        """Number of clusters against ζ: see `streamclust.plots.plot_path`."""
        from streamclust.plots import plot_path

        return plot_path(self, **options)

    def at(self, zeta: float) -> int:
        """Number of clusters where every event counts ζ."""
        return self.n_finest - int(np.count_nonzero(self.zeta > zeta)) if zeta < 1 else self.n_finest


NO_PAIRS: Ints = np.zeros((0, 2), dtype=np.int64)


def path_of(partition: Partition, owner: Ints, plateaus: Ints = NO_PAIRS) -> Path:
    """The path from a refit's components, of which shapes have joined those of one `owner`.

    `plateaus` are pairs of components whose events are one plateau (`MergeTree.plateaus`).
    """
    fitted = partition.family.parameters(partition.posterior)
    if not isinstance(fitted, GaussianParameters):
        return path_of_counts(
            partition.family, partition.mixture, partition.clusters, owner, partition.n_effective
        )
    components = gaussian_components(partition.clusters.weight, fitted.mean, fitted.covariance)
    return path_of_gaussians(components, owner, plateaus, partition.n_effective, partition.clusters)


def path_of_gaussians(
    components: Moments,
    owner: Ints,
    plateaus: Ints = NO_PAIRS,
    n_events: float | None = None,
    observed: Moments | None = None,
    together: Ints | None = None,
) -> Path:
    """The path from Gaussian components, some pairs of which are `plateaus`.

    `observed` are the moments of the components' events, if a prior makes the components' covariances others.
    `n_events` is how many events' evidence there is: the components' weight, unless told. `together` says which
    clusters are on show as one: see `merged_down`.
    """
    n = float(components.weight.sum()) if n_events is None else n_events
    components = components.scale(n / float(components.weight.sum()))
    bells = Bells.of(components)
    clusters = GaussianClusters(
        bells, bells if observed is None else bells.varying(observed), owner, plateaus
    )
    return merged_down(clusters, owner, n, components.n_features, together)


def path_of_counts(
    family: AnyFamily,
    mixture: Mixture,
    components: Moments,
    owner: Ints,
    n_events: float,
    together: Ints | None = None,
) -> Path:
    """The path from clusters of counts, or of mixed tables: a merge loses the free energy that it adds."""
    components = components.scale(n_events / float(components.weight.sum()))
    clusters = CountClusters(family, mixture, components, owner, n_events)
    return merged_down(clusters, owner, n_events, 1, together)


class GaussianClusters:
    """Clusters of Gaussian components, and the loss of merging two."""

    def __init__(self, bells: Bells, observed: Bells, owner: Ints, plateaus: Ints) -> None:
        k = int(owner.max()) + 1
        member = (owner[:, None] == np.arange(k)).astype(float)
        self.weight = bells.weight @ member
        self.mean = (member * bells.weight[:, None]).T @ bells.mean / self.weight[:, None]
        scatter = observed.covariance * bells.weight[:, None, None]
        self.within = np.einsum("ck,cij->kij", member, scatter)
        distance = distances(observed)
        peak, saddle = landscape(bells, distance, plateaus)
        self.peak = np.array([peak[owner == c].max() for c in range(k)])
        self.near = pairs_of_groups(distance, owner, k, np.minimum)
        self.saddle = pairs_of_groups(saddle, owner, k, np.maximum)

    def losses(self, c: int, others: Ints) -> Floats:
        """Nats lost by merging cluster c with each of the others."""
        n = self.weight[c] + self.weight[others]
        share = self.weight[c] / n
        apart = distances_from(c, others, self.mean, self.within, self.weight)
        # clusters of any shape may have one mean (a ring and its middle), and no component near each other
        apart = np.maximum(apart, self.near[c, others])
        of_means = n / 2 * np.log1p(share * (1 - share) * apart)
        depth = np.maximum(np.minimum(self.peak[c], self.peak[others]) - self.saddle[c, others], 0.0)
        of_density = np.minimum(self.weight[c], self.weight[others]) * depth
        return np.asarray(np.minimum(of_means, of_density) + TIES * of_means)

    def merge(self, a: int, b: int) -> None:
        """Put b into a."""
        n = self.weight[a] + self.weight[b]
        self.mean[a] += self.weight[b] / n * (self.mean[b] - self.mean[a])
        self.within[a] += self.within[b]
        self.weight[a] = n
        self.peak[a] = max(self.peak[a], self.peak[b])
        self.near[a] = self.near[:, a] = np.minimum(self.near[a], self.near[b])
        self.saddle[a] = self.saddle[:, a] = np.maximum(self.saddle[a], self.saddle[b])


class CountClusters:
    """Clusters of counts, and the loss of merging two."""

    def __init__(
        self, family: AnyFamily, mixture: Mixture, components: Moments, owner: Ints, n_events: float
    ) -> None:
        self.family, self.mixture, self.n_events = family, mixture, n_events
        self.rows = components.to_groups(owner)
        self.terms = mixture.cluster_terms(family, self.rows)
        self.n_clusters = len(self.rows)

    @property
    def weight(self) -> Floats:
        """(K,): of each cluster."""
        return self.rows.weight

    def losses(self, c: int, others: Ints) -> Floats:
        """Free energy that merging cluster c with each of the others adds, and what the difference itself costs."""
        merged = self.rows[np.full(len(others), c)] + self.rows[others]
        one_less = self.mixture.normaliser(self.n_events, self.n_clusters - 1) - self.mixture.normaliser(
            self.n_events, self.n_clusters
        )
        change = (
            self.mixture.cluster_terms(self.family, merged) - self.terms[c] - self.terms[others] + one_less
        )
        return np.asarray(change + np.log(np.e + merged.weight) / 2)

    def merge(self, a: int, b: int) -> None:
        """Put b into a."""
        both = self.rows[[a]] + self.rows[[b]]
        self.rows.weight[a], self.rows.mean[a] = both.weight[0], both.mean[0]
        self.rows.scatter[a] = both.scatter[0]
        self.terms[a] = self.mixture.cluster_terms(self.family, both)[0]
        self.n_clusters -= 1


def merged_down(
    clusters: GaussianClusters | CountClusters,
    owner: Ints,
    n_events: float,
    n_numbers: int,
    together: Ints | None = None,
) -> Path:
    """Merge the pair that loses least, until one cluster is left; two differ in `n_numbers` numbers.

    Clusters of one number in `together`, those below 0 apart, are on show as one. Such a pair merges first unless
    another loses less by a factor of `shown_margin`: of two merges that lose nearly the same, the one on show stays.
    """
    k = int(owner.max()) + 1
    group = np.full(k, -1) if together is None else np.array(together)
    loss = np.full((k, k), np.inf)
    for c in range(k - 1):
        loss[c, c + 1 :] = clusters.losses(c, np.arange(c + 1, k))
    alive, node = np.ones(k, dtype=bool), np.arange(k)
    children, lost, of_pair = np.zeros((k - 1, 2), dtype=np.int64), np.zeros(k - 1), np.zeros(k - 1)
    for t in range(k - 1):
        shown = (group[:, None] == group) & (group >= 0)
        a, b = divmod(int(np.where(shown, loss / TUNING.shown_margin, loss).argmin()), k)
        group[a] = group[a] if shown[a, b] else -1
        children[t], lost[t] = sorted((node[a], node[b])), loss[a, b]
        of_pair[t] = clusters.weight[a] + clusters.weight[b]
        clusters.merge(a, b)
        node[a], alive[b] = k + t, False
        loss[b], loss[:, b] = np.inf, np.inf
        alive[a] = False
        others = np.flatnonzero(alive)
        alive[a] = True
        if len(others):
            again = clusters.losses(a, others)
            loss[np.minimum(a, others), np.maximum(a, others)] = again
    return Path(
        np.asarray(owner),
        children,
        np.minimum.accumulate(evidence_needed(lost, n_numbers, of_pair)),
        n_events,
        lost - n_numbers / 2 * np.log(np.e + of_pair),
    )


def evidence_needed(lost: Floats, n_numbers: int, weight: Floats) -> Floats:
    """ζ at which losses, in nats, are no more than `n_numbers` numbers of so much weight cost; 1 at most.

    >>> evidence_needed(np.array([0.0, 5.0, 500.0]), 2, np.full(3, 1000.0)).round(3)
    array([1.   , 1.   , 0.004])
    """
    zeta = np.ones(len(lost))
    positive = np.maximum(lost, 1e-9)  # less costs nothing: ζ is 1
    for _ in range(ROUNDS):
        before = zeta
        zeta = np.minimum(n_numbers / 2 * np.log(np.e + zeta * weight) / positive, 1.0)
        if np.allclose(zeta, before, rtol=1e-12, atol=0.0):
            break
    return zeta


def distances(bells: Bells) -> Floats:
    """Squared distance of each two means, in the covariance within the two."""
    k = len(bells.weight)
    found = np.zeros((k, k))
    scatter = bells.covariance * bells.weight[:, None, None]
    for c in range(k - 1):
        others = np.arange(c + 1, k)
        found[c, others] = distances_from(c, others, bells.mean, scatter, bells.weight)
    return found + found.T


def distances_from(c: int, others: Ints, mean: Floats, scatter: Floats, weight: Floats) -> Floats:
    """Squared distance of mean c from others, in the covariance within the two."""
    found = squared_distances(mean, scatter, weight, c, others)
    lost = others[np.isinf(found)]  # rounding made a covariance singular
    if len(lost):
        within = (scatter[c] + scatter[lost]) / (weight[c] + weight[lost])[:, None, None]
        step = mean[lost] - mean[c]
        solved = np.linalg.solve(within, step[:, :, None])[:, :, 0]
        found[np.isinf(found)] = np.einsum("kd,kd->k", step, solved)
    return found


def pairs_of_groups(values: Floats, owner: Ints, k: int, best: np.ufunc) -> Floats:
    """The best value of a pair of components of each two groups."""
    order = np.argsort(owner, kind="stable")
    start = np.searchsorted(owner[order], np.arange(k))
    rows = best.reduceat(values[order], start, axis=0)
    return np.asarray(best.reduceat(rows[:, order], start, axis=1))
