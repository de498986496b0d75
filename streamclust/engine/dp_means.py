"""DP-means of a summary tree, as a refit of a stream: the radius λ given or chosen, clusters with covariances.

DP-means itself knows means and a radius alone. What is published are Gaussian clusters like those of Bayesian k-means,
their moments read off the members, so that probabilities, novelty and ids work alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.engine.tuning import TUNING
from streamclust.families import FamilyLike
from streamclust.moments import Moments
from streamclust.parameters import MixtureName
from streamclust.refit.bkm.fit import published, sampled_problem
from streamclust.refit.bkm.labelling import Labelling
from streamclust.refit.bkm.merge_path import learn_prior
from streamclust.refit.bkm.problem import Problem
from streamclust.refit.bkm.tuning import TUNING as SEARCH
from streamclust.refit.dp_means.fit import fit_rows
from streamclust.refit.dp_means.means_partition import nearest_means
from streamclust.refit.partition import Partition
from streamclust.refit.penalties import check_penalty, penalty_for_clusters
from streamclust.refit.steps import last_result
from streamclust.refit.summary import LeafSummary, without_outliers

ROUGH_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 29, 35, 42, 50, 60, 72, 86, 100)
"""Rough numbers of clusters whose λ are tried."""
NEXT_RADII = (1.0, 1 / TUNING.max_radius_factor, TUNING.max_radius_factor)
"""A warm refit tries these multiples of its start's radius: it follows a stream whose clusters grow or shrink."""


def refit_dp_means(
    family: FamilyLike,
    tree: LeafSummary,
    start: Moments | Partition | None = None,
    penalty: float | None = None,
    mixture: MixtureName = "finite",
) -> Partition:
    """DP-means of what a tree has learnt, from given means (warm) or from nothing (cold).

    `family` is "gaussian", "diagonal" or "spherical". `penalty` is λ², a squared distance in the data's own units. With
    None, distances are in standard deviations of each feature within clusters (for "spherical", of all features
    together), and λ is the one, of those that a farthest-first traversal meets, whose clusters have the least free
    energy. A start that has a radius keeps it, or changes it a little.

    >>> from streamclust.tree import SummaryTree
    >>> tree = SummaryTree(2, max_leaves=64)
    >>> tree.insert(np.random.default_rng(0).normal(size=(5000, 2)) + 20.0 * (np.arange(5000)[:, None] % 3))
    >>> refit_dp_means("gaussian", tree).n_clusters, refit_dp_means("gaussian", tree, penalty=1e4).n_clusters
    (3, 1)
    """
    every, tree = tree, without_outliers(tree)
    sample = sampled_problem(family, tree, mixture)
    leaves = tree.leaves().to("none")
    search = RadiusSearch(
        sample, leaves if len(leaves) >= SEARCH.min_start_leaves else Moments.rows_of_points(*tree.sample())
    )
    radius = start.radius if isinstance(start, Partition) else None
    if penalty is not None:
        radius = np.full(leaves.n_features, np.sqrt(check_penalty(penalty)))
    if radius is None:
        state, radius = search.best_radius(deviations(tree.total))
    elif start is None or penalty is not None:
        state = search.within(radius, means_of(start))
    else:
        state, radius = search.near(radius, means_of(start))
    clusters = state.clusters.scale(float(tree.total.weight[0]) / sample.weight)
    labels = nearest_means(every.leaves().mean / radius, clusters.mean / radius)[0]
    return replace(last_result([published("sample", state, labels, clusters)]), radius=radius)


class RadiusSearch:
    """Rows to cluster by DP-means, and the sampled events that results are scored on."""

    def __init__(self, sample: Problem, rows: Moments) -> None:
        self.sample = sample
        self.rows = rows[np.flatnonzero(rows.weight > 0)]

    def near(self, radius: Floats, start: Floats | None) -> tuple[Labelling, Floats]:
        """The clusters of least free energy for this radius and those next to it, and their radius.

        The start's own clusters, of the sampled events, stay if theirs is less: leaves in which events of several new
        clusters lie cannot tell those apart.
        """
        tried = [(self.within(radius * step, start), radius * step) for step in NEXT_RADII]
        best, found = min(tried, key=lambda state: state[0].free_energy)
        if start is not None:
            best = min(best, self._scored(start / radius, radius), key=lambda state: state.free_energy)
        return best, found

    def best_radius(self, unit: Floats) -> tuple[Labelling, Floats]:
        """The clusters of least free energy, and their radius, in multiples of a unit for each feature.

        The first units are what features vary by in all. A feature that tells clusters apart varies less within them,
        so the search is repeated in units of that, while it finds better clusters.
        """
        best = self.best_multiple(unit)
        for _ in range(TUNING.max_rounds):
            found = self.best_multiple(deviations(pooled(best[0].clusters), unit))
            if not found[0].free_energy < best[0].free_energy:
                break
            best = found
        return best

    def best_multiple(self, unit: Floats) -> tuple[Labelling, Floats]:
        """The clusters of least free energy over a range of λ, from large to small, and their radius."""
        rows = self._rows_in(unit)
        best: tuple[Labelling, Floats] | None = None
        before, waited = np.zeros(0, dtype=np.int64), 0
        for penalty in penalties(rows):
            radius = unit * np.sqrt(penalty)
            found = fit_rows(rows, penalty)
            if np.array_equal(found.labels, before):
                continue
            before = found.labels
            state = self._scored(found.means * (unit / radius), radius)
            waited += 1
            if best is None or state.free_energy < best[0].free_energy:
                best, waited = (state, radius), 0
            if waited == SEARCH.patience_iterations:
                break
        assert best is not None
        return best

    def within(self, radius: Floats, start: Floats | None = None) -> Labelling:
        """The sampled events, labelled by the means of DP-means with this radius along each feature."""
        found = fit_rows(self._rows_in(radius), 1.0, start=None if start is None else start / radius)
        return self._scored(found.means, radius)

    def _scored(self, means: Floats, radius: Floats) -> Labelling:
        """The sampled events with the nearest mean, without outliers' means; the prior learnt from the clusters."""
        labels = self._labels(means, radius)
        count = np.bincount(labels, minlength=len(means))
        kept = count >= min(TUNING.min_cluster_events, count.max())
        state = Labelling(self.sample, labels if kept.all() else self._labels(means[kept], radius))
        if self.sample.learner is not None:
            state.rescore(self.sample.learner.start(state.clusters))
        return learn_prior(state)

    def _rows_in(self, unit: Floats) -> Moments:
        """The rows with every feature divided by its unit, and without scatter, which changes no assignment."""
        return Moments(self.rows.weight, self.rows.mean / unit, np.zeros((len(self.rows), 0)), "none")

    def _labels(self, means: Floats, radius: Floats) -> Ints:
        """The nearest mean of each sampled event."""
        return nearest_means(self.sample.rows.mean / radius, means)[0]


def means_of(start: Moments | Partition | None) -> Floats | None:
    """The means to start from."""
    clusters = start.clusters if isinstance(start, Partition) else start
    return None if clusters is None else clusters.mean


def penalties(rows: Moments) -> Iterator[float]:
    """λ² to try, falling: those of rough numbers of clusters, and some between where they are far apart."""
    before = np.inf
    for count in ROUGH_COUNTS:
        penalty = penalty_for_clusters(rows, count)
        if not penalty < before:  # rows have fewer different places than that
            return
        if before < np.inf:
            step = before / penalty
            between = min(TUNING.max_rounds, int(np.log(step) / np.log(TUNING.max_radius_factor**2)))
            yield from (before * step ** (-i / (between + 1)) for i in range(1, between + 1))
        yield penalty
        before = penalty


def pooled(clusters: Moments) -> Moments:
    """One row: what varies within the clusters, all of them together."""
    centred = Moments(clusters.weight, np.zeros_like(clusters.mean), clusters.scatter, clusters.kind)
    return centred.total()


def deviations(total: Moments, absent: Floats | float = 1.0) -> Floats:
    """Each feature's standard deviation, or that of all together where no more is kept; `absent` where it is 0."""
    variance = total.covariance if total.kind == "scalar" else total.to("diagonal").covariance[0]
    deviation = np.sqrt(np.broadcast_to(variance, total.n_features))
    return np.where(deviation > 0, deviation, absent)
