"""Input of a fit: the problem that a tree's sample or points pose, under the prior to begin with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.families import AnyFamily, FamilyLike, Mixture, Rule, Summary, Uninformative, scoring
from streamclust.families import family as family_named
from streamclust.families.learners import AnyLearner, learner_of
from streamclust.families.resolution import n_independent_rows
from streamclust.moments import Moments, Scatter
from streamclust.parameters import MixtureName
from streamclust.refit.bkm.problem import Problem
from streamclust.refit.partition import Partition
from streamclust.refit.summary import LeafSummary, weighty_sample

Search = Literal["auto", "quick", "top-down"]
"""How K is searched: "auto" bottom-up, "quick" with fewer starts where data are few, "top-down" as in the paper."""
PriorName = Literal["learnt", "bkm", "agglomerative", "nearest"]
"""Where a family's prior comes from: learnt with the clusters, or informed by the data once [see `families.priors`]."""


def sampled_problem(
    family: FamilyLike,
    tree: LeafSummary,
    mixture: MixtureName | Mixture = "finite",
    prior: PriorName | None = None,
    search: Search = "auto",
) -> Problem:
    """The events that a tree has sampled, as rows to partition, under the prior to begin with."""
    points, weight = weighty_sample(tree)
    if not weight.sum() > 0:
        raise ValueError("the tree has no data; learn at least one event first")
    data = Sampled(tree.total, points, weight)
    family, mixture, learner = prepared(family, mixture, data, prior, search)
    size = effective_size(tree, weight)
    evidence = 1.0 if family.scatter == "none" else evidence_of(points)
    evidence = min(evidence, getattr(tree, "n_independent", np.inf) / size)
    # A sample point stands for many events. Scored at that weight, noise would look significant.
    rows = Moments(weight * (evidence * size / weight.sum()), points, np.zeros((len(points), 0)), "none")
    return Problem(family, mixture, rows, evidence, learner=learner)


def effective_size(tree: LeafSummary, weight: Floats) -> float:
    """Number of events that a tree's sample is worth: Kish's size, or more where the tree knows it better."""
    size = float(weight.sum() ** 2 / (weight**2).sum())
    if hasattr(tree, "sample_size"):
        size = max(size, tree.sample_size())
    return min(size, getattr(tree, "worth", np.inf))


def evidence_of(points: Floats) -> float:
    """Number of events that a sampled event counts for: 1 or, where events repeat others, the share of distinct ones.

    Repeated events tell nothing new: a refit finds no more clusters than distinct events can tell apart. Of one feature
    its resolution sees to that.
    """
    return n_independent_rows(points) / len(points)


@dataclass(frozen=True)
class Sampled:
    """A tree as the summary that a prior reads, with the sample already drawn from it."""

    total: Moments
    points: Floats
    weight: Floats

    def sample(self) -> tuple[Floats, Floats]:
        """The sample, as the tree gave it."""
        return self.points, self.weight


class WeightedPoints:
    """Points as the summary that a prior reads: weights count in the totals, rows of weight 0 nowhere."""

    def __init__(self, rows: Moments, kind: Scatter) -> None:
        self._rows = rows[np.flatnonzero(rows.weight > 0)]
        self._kind = kind

    @property
    def total(self) -> Moments:
        """One row: the moments of all points."""
        return self._rows.to_groups(None, kind=self._kind)

    def sample(self) -> tuple[Floats, Floats]:
        """Every point with its weight."""
        return self._rows.mean, self._rows.weight


def check_points(family: FamilyLike, points: Floats) -> None:
    """Raise ValueError for points that the family cannot have produced."""
    family_named(family).check(points)


def scored(
    family: FamilyLike, mixture: MixtureName | Mixture, data: Summary | Floats, rule: Rule = "bkm"
) -> tuple[AnyFamily, Mixture]:
    """The family, its prior informed by the data unless it has one, and the mixture that goes with it."""
    named = family_named(family)
    return scoring(mixture, named.informed(data, rule) if isinstance(named, type) else named, data)


def prepared(
    family: FamilyLike, mixture: MixtureName | Mixture, data: Summary, prior: PriorName | None, search: Search
) -> tuple[AnyFamily, Mixture, AnyLearner | None]:
    """The family and the mixture to begin with, and what learns the family's prior if it is to be learnt."""
    named = family_named(family)
    if learns_prior(family, mixture, prior, search):
        learner = learner_of(named, data)
        assert learner is not None
        found, mixed = scoring(mixture, learner.start(data.total), data)
        return found, mixed, learner
    rule: Rule = "bkm" if prior is None or prior == "learnt" else prior
    return *scored(named, mixture, data, rule), None


def learns_prior(
    family: FamilyLike, mixture: MixtureName | Mixture, prior: PriorName | None, search: Search
) -> bool:
    """Whether the prior is learnt with the clusters. A family object has its own."""
    named = family_named(family)
    if prior not in (None, *get_args(PriorName)):
        raise ValueError(f"prior must be one of {', '.join(get_args(PriorName))}, got {prior!r}")
    fixed = mixture == "uninformative" or isinstance(mixture, Uninformative) or search == "top-down"
    learnt = prior == "learnt" or (prior is None and named.scatter != "none")
    return learnt and not fixed and isinstance(named, type)


def check_start(sample: Problem, start: Moments | Partition) -> None:
    """Raise ValueError for clusters to start from that have other features than the data, or no weight."""
    clusters = start.clusters if isinstance(start, Partition) else start
    if clusters.n_features != sample.rows.n_features or not clusters.weight.sum() > 0:
        raise ValueError(
            f"start must be clusters of {sample.rows.n_features} features with some weight, got {len(clusters)} "
            f"of {clusters.n_features}; use start=None to begin from nothing"
        )


def check_search(search: str) -> None:
    """Raise ValueError for a search there is not."""
    if search not in get_args(Search):
        raise ValueError(f"search must be one of {', '.join(get_args(Search))}, got {search!r}")
