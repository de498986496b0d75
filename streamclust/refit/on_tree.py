"""ME iterations over many points through an exact tree: whole nodes change hands [BKM section 9]."""

from __future__ import annotations

from collections.abc import Generator
from typing import Literal, get_args

import numpy as np

from streamclust._kernels.types import Ints
from streamclust.families import Finite
from streamclust.moments import Moments
from streamclust.refit.labelling import LONGEST
from streamclust.refit.problem import Problem
from streamclust.refit.search import Step
from streamclust.tree import SummaryTree
from streamclust.tree.descent import own

Assign = Literal["auto", "tree", "blas"]


def check_assign(assign: str) -> None:
    """Raise ValueError for a way of assigning there is not."""
    if assign not in get_args(Assign):
        raise ValueError(f"assign must be one of {', '.join(get_args(Assign))}, got {assign!r}")


def wants_tree(problem: Problem, assign: Assign) -> bool:
    """Whether to iterate through a tree: only as told. "auto" does not build one.

    A search leaves few iterations for all the points, too few to repay the building of a tree: for 10 clusters,
    100,000 to 1,000,000 points of 1 and 2 features, the whole fit took 1.0 to 2.3 times as long with one. (A tree
    that is there already is another matter: see `tree.label.tree_pays`.) And only the finite mixture lets clusters
    end without asking whether F falls.
    """
    return assign == "tree" and type(problem.mixture) is Finite


def iterate_on_tree(problem: Problem, clusters: Moments, stage: str) -> Generator[Step, None, Ints]:
    """ME iterations until F falls no more; returns the label of each point."""
    family, mixture, points = problem.family, problem.mixture, problem.rows.mean
    tree = SummaryTree(problem.rows.n_features, family.scatter, max_leaves=None)
    tree.insert(points, problem.rows.weight)
    clusters = clusters.scale(problem.weight / float(clusters.weight.sum()))
    lowest = np.inf
    for _ in range(LONGEST):
        form = family.cost_form(family.posterior(clusters), mixture.mixing(clusters.weight))
        ownership = own(tree, form)
        clusters = ownership.moments[np.flatnonzero(ownership.moments.weight > 0)]
        free_energy = mixture.free_energy(family, clusters)
        if not free_energy < lowest:
            break
        lowest = free_energy
        yield Step(stage, "iterate", len(clusters), free_energy)
    return ownership.predict(points)
