"""Bayesian k-means: how many clusters there are, and which [Kurihara & Welling].

Two ways in, both generators of steps whose last one holds the Partition: `bkm_steps` refits a summary tree,
`point_steps` fits points. `refit` and `fit_points` run them to the end.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, cast, get_args

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.families import Mixture, scoring
from streamclust.families import family as family_named
from streamclust.families.free_energy import MixtureName
from streamclust.families.priors import spread_indices
from streamclust.moments import Moments, Scatter
from streamclust.refit.labelling import Labelling
from streamclust.refit.on_tree import Assign, check_assign, iterate_on_tree, wants_tree
from streamclust.refit.partition import Partition
from streamclust.refit.problem import Problem
from streamclust.refit.search import (
    STARTS,
    Step,
    Steps,
    best_merges,
    bottom_up,
    iterate,
    polish,
    refine,
    shake,
    step,
)
from streamclust.refit.top_down import top_down

Search = Literal["auto", "quick", "top-down"]
"""How K is searched: bottom-up; the same without second thoughts where data are few; or as the paper does."""

FEW_LEAVES = 4 * STARTS[-1]
"""A tree of fewer leaves has a sample small enough to start on: nothing would be won on the leaves."""
LEAF_SETTLING = 3
"""ME iterations after each merge on the leaves: the sample will settle what they leave open."""
LEAF_MERGES = 8
"""Merges at once on the leaves, where so many pay."""
FEW_CUTS = 2, 1
"""Principal and random first cuts of a cluster that a refit tries to split: its start has seen most of them."""
MOST_ROWS, FEWEST_ROWS = 20_000, 5_000
"""Searches start on at most MOST_ROWS points, fewer where points are wide, never fewer than FEWEST_ROWS."""


class Progress(NamedTuple):
    """A step of a refit; the last one has the result."""

    stage: str
    """Where K is being searched: "leaves", "sample", "points"; free energies compare within one."""
    move: str
    n_clusters: int
    free_energy: float
    partition: Partition | None = None


class Tree(Protocol):
    """What a refit reads of a summary tree."""

    @property
    def total(self) -> Moments:
        """One row: the moments of everything."""
        ...

    def leaves(self) -> Moments:
        """One row for each leaf."""
        ...

    def sample(self) -> tuple[Floats, Floats]:
        """Points and the weight each stands for."""
        ...


Start = Moments | Partition | None


def refit(
    family: Any,  # noqa: ANN401
    tree: Tree,
    start: Start = None,
    rng: np.random.Generator | int | None = 0,
    mixture: MixtureName | Mixture = "finite",
    search: Search = "auto",
) -> Partition:
    """Cluster what a tree has learnt: from given clusters (warm), or from nothing (cold).

    `family` is a name, a family class (its prior is then informed by the tree) or a family object.

    >>> from streamclust.tree import SummaryTree
    >>> rng = np.random.default_rng(0)
    >>> events = rng.normal(size=(3000, 2)) + 9.0 * rng.integers(3, size=(3000, 1))
    >>> tree = SummaryTree(n_features=2, max_leaves=64)
    >>> tree.insert(events)
    >>> refit("gaussian", tree).n_clusters
    3
    """
    return result(bkm_steps(family, tree, start, rng, mixture, search))


def bkm_steps(
    family: Any,  # noqa: ANN401
    tree: Tree,
    start: Start = None,
    rng: np.random.Generator | int | None = 0,
    mixture: MixtureName | Mixture = "finite",
    search: Search = "auto",
) -> Generator[Progress, None, None]:
    """`refit`, as a generator of its states: who calls it draws the progress, or stops it."""
    check_search(search)
    points, weight = tree.sample()
    if not weight.sum() > 0:
        raise ValueError("the tree has no data; learn at least one event first")
    family, mixture = scored(family, mixture, Sampled(tree.total, points, weight))
    rng = np.random.default_rng(rng)
    size = min(float(weight.sum() ** 2 / (weight**2).sum()), getattr(tree, "worth", np.inf))
    # A sample point stands for many events. Scored at that weight, noise would look significant.
    rows = Moments(weight * (size / weight.sum()), points, np.zeros((len(points), 0)), "none")
    sample = Problem(family, mixture, rows, local_kish=True)
    leaves = Problem(family, mixture, tree.leaves().to(family.scatter))
    if search == "top-down":
        state = yield from told(top_down(sample, "sample"))
    elif start is not None:
        state = yield from told(warm(sample, start, rng))
    elif len(leaves.rows) < FEW_LEAVES and search == "quick":
        state = yield from told(cold_from_leaves(sample, sample, rng))
    elif len(leaves.rows) < FEW_LEAVES:
        state = yield from told(cold(sample, rng, "sample"))
    else:
        state = yield from told(cold_from_leaves(leaves, sample, rng))
    # The sample's moments scaled to N: leaves taken whole score a little lower on hard data.
    clusters = state.clusters.scale(leaves.weight / sample.weight)
    labels = leaves.costs(clusters).argmin(axis=0)
    yield published("sample", state, labels, clusters)


def cold(problem: Problem, rng: np.random.Generator, stage: str) -> Steps:
    """Two bottom-up starts, the better of them refined."""
    states: list[Labelling] = []
    for k in STARTS:
        states += [(yield from bottom_up(problem, k, rng, stage))]
    best = yield from refine(min(states, key=lambda s: s.free_energy), rng, stage)
    best = yield from shake(best, rng, stage)
    return (yield from polish(best, stage))


def cold_from_leaves(leaves: Problem, sample: Problem, rng: np.random.Generator) -> Steps:
    """Start on the leaves, which see rare clusters; decide K on the sample, which has no straddling leaves."""
    states: list[Labelling] = []
    for k in STARTS:
        state = yield from bottom_up(leaves, k, rng, "leaves", LEAF_SETTLING, LEAF_MERGES)
        state = Labelling.nearest(sample, state.clusters)
        yield step("sample", "relabel", state)
        yield from iterate(state, "sample")
        states += [(yield from best_merges(state, "sample"))]
    best = min(states, key=lambda s: s.free_energy)
    return (yield from refine(best, rng, "sample", *FEW_CUTS))


def warm(sample: Problem, start: Moments | Partition, rng: np.random.Generator) -> Steps:
    """From given clusters: converge, merge, split in a few directions."""
    clusters = start.clusters if isinstance(start, Partition) else start
    if clusters.n_features != sample.rows.n_features or not clusters.weight.sum() > 0:
        raise ValueError(
            f"start must be clusters of {sample.rows.n_features} features with some weight, got {len(clusters)} "
            f"of {clusters.n_features}; use start=None to begin from nothing"
        )
    state = Labelling.nearest(sample, clusters.to(sample.family.scatter))
    yield step("sample", "relabel", state)
    yield from iterate(state, "sample")
    state = yield from best_merges(state, "sample")
    return (yield from refine(state, rng, "sample", *FEW_CUTS))


# ---------------------------------------------------------------- points


def fit_points(
    family: Any,  # noqa: ANN401
    points: Floats,
    weight: Floats | None = None,
    rng: np.random.Generator | int | None = 0,
    mixture: MixtureName | Mixture = "finite",
    search: Search = "auto",
    assign: Assign = "auto",
) -> Partition:
    """Cluster points, each counted `weight` times (once).

    >>> points = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([0.0, 9.0], 100)[:, None]
    >>> fit_points("gaussian", points).n_clusters
    2
    """
    return result(point_steps(family, points, weight, rng, mixture, search, assign))


def point_steps(
    family: Any,  # noqa: ANN401
    points: Floats,
    weight: Floats | None = None,
    rng: np.random.Generator | int | None = 0,
    mixture: MixtureName | Mixture = "finite",
    search: Search = "auto",
    assign: Assign = "auto",
) -> Generator[Progress, None, None]:
    """`fit_points`, as a generator of its states."""
    check_search(search)
    check_assign(assign)
    check_points(family, points)
    rows = Moments.rows_of_points(points, weight)
    if not rows.weight.sum() > 0:
        raise ValueError("every point has weight 0: there is nothing to cluster")
    data = WeightedPoints(rows, family_named(family).scatter)
    family, mixture = scored(family, mixture, data)
    rng = np.random.default_rng(rng)
    problem = Problem(family, mixture, rows)
    if search == "top-down":
        state = yield from told(top_down(problem, "points"))
    else:
        state = yield from told(search_points(problem, rng, assign, search))
    yield published("points", state, state.labels, state.clusters)


def search_points(problem: Problem, rng: np.random.Generator, assign: Assign, search: Search) -> Steps:
    """Starts and refinement; where points are many, on some of them first, and on all of them in the end."""
    if search == "quick" and len(problem.rows) <= FEWEST_ROWS:
        return (yield from cold_from_leaves(problem, problem, rng))
    d = problem.rows.n_features
    most = int(np.clip(2e7 / d**2, FEWEST_ROWS, MOST_ROWS))
    if len(problem.rows) <= most:
        return (yield from cold(problem, rng, "points"))
    some = problem.subset(spread_indices(len(problem.rows), most))
    if not some.weight > 0:
        some = problem.subset(np.argsort(-problem.rows.weight, kind="stable")[:most])
    started = yield from cold(some, rng, "some points")
    if wants_tree(problem, assign):
        state = Labelling(problem, (yield from iterate_on_tree(problem, started.clusters, "points")))
    else:
        state = Labelling.nearest(problem, started.clusters)
    yield step("points", "relabel", state)
    yield from iterate(state, "points")
    return (yield from refine(state, rng, "points", principal=2, random=0))


# ---------------------------------------------------------------- shared


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


def check_points(family: Any, points: Floats) -> None:  # noqa: ANN401
    """Raise ValueError for points that the family cannot have produced."""
    named: Any = family_named(family)
    # No family's check reads its prior, so a class, which has none yet, answers as well as an object.
    if isinstance(named, type):
        cast(Any, named).check(named, points)
    else:
        named.check(points)


def scored(family: Any, mixture: MixtureName | Mixture, data: Any) -> tuple[Any, Mixture]:  # noqa: ANN401
    """The family, its prior informed by the data unless it has one, and the mixture that goes with it."""
    named: Any = family_named(family)
    return scoring(mixture, cast(Any, named).informed(data) if isinstance(named, type) else named, data)


def told(steps: Steps) -> Generator[Progress, None, Labelling]:
    """A search's steps as progress; returns what the search returns."""
    while True:
        try:
            s: Step = next(steps)
        except StopIteration as end:
            found: Labelling = end.value
            return found
        yield Progress(*s)


def published(stage: str, state: Labelling, labels: Ints, clusters: Moments) -> Progress:
    """The last step: the partition, with the heaviest cluster first."""
    order = np.argsort(-clusters.weight, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    problem = state.problem
    partition = Partition(
        problem.family, problem.mixture, rank[labels], clusters[order], state.free_energy, problem.weight
    )
    return Progress(stage, "publish", state.n_clusters, state.free_energy, partition)


def result(steps: Iterable[Progress]) -> Partition:
    """The partition that a run of steps ends with."""
    partition = None
    for progress in steps:
        partition = progress.partition
    assert partition is not None
    return partition


def check_search(search: str) -> None:
    """Raise ValueError for a search there is not."""
    if search not in get_args(Search):
        raise ValueError(f"search must be one of {', '.join(get_args(Search))}, got {search!r}")
