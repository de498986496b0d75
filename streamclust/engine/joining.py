"""Clusters of any shape in a stream: which components are pieces of one, without flickering from refit to refit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.engine.model import Model
from streamclust.engine.results import Result, large_rows, point_parameters
from streamclust.engine.tuning import TUNING
from streamclust.families.gaussian import GaussianParameters
from streamclust.refit.chunky_em.mixture import Mixture
from streamclust.shapes import MergeTree, gaussian_components, joins_within, merge_tree

if TYPE_CHECKING:
    from streamclust.hierarchy.snapshot import ComponentJoins


def joined_components(
    result: Result,
    points: Floats,
    weight: Floats,
    component: Ints,
    parent: Ints,
    anew: bool = False,
    evidence: float = 1.0,
) -> tuple[Ints, Ints]:
    """The cluster of each component, numbered by first component; and pairs that are one plateau.

    `component` is the one that each point belongs to, `parent` the cluster that each component was part of before, -1
    for none. What was joined stays so unless its height is above 0 by a standard error, and what was apart stays so
    unless it is below by as much. `anew`: joins are judged by their heights alone, whatever they were before. An event
    counts for `evidence` independent ones: errors are larger where that is less than 1.
    """
    tree = tree_of(result, points, weight, component)
    edges = tree.edges
    before = np.full(int(tree.twin.max()) + 1, -1)
    before[tree.twin] = parent
    one, other = before[edges.pairs].T
    known = (one >= 0) & (other >= 0)
    leaning = np.where(known & (not anew), np.where(one == other, 1.0, -1.0), 0.0)
    caution = TUNING.caution_errors if isinstance(result, Mixture) else 0.0
    return tree.clusters((leaning - caution) * edges.error / np.sqrt(evidence)), tree.plateaus


def component_joins(model: Model, points: Floats, weight: Floats) -> ComponentJoins | None:
    """Merge tree of the active components within their clusters; None if each is a cluster."""
    if len(model.names) == len(model.rows):
        return None
    from streamclust.hierarchy.snapshot import ComponentJoins  # slow to import, and not needed to start

    points = points[:, : model.n_coordinates]
    tree = tree_of(model.active, points, weight, model.nearest(points).component)
    return ComponentJoins(model.place, *joins_within(tree, model.place))


def tree_of(result: Result, points: Floats, weight: Floats, component: Ints) -> MergeTree:
    """The merge tree of a refit's components, from points of which each belongs to one."""
    fitted = point_parameters(result)
    assert isinstance(fitted, GaussianParameters)  # shapes are not joined of counts
    components = gaussian_components(result.clusters.weight, fitted.mean, fitted.covariance)
    return merge_tree(components, points, weight * emphasis(result.clusters.weight, weight, component))


def emphasis(of_components: Floats, weight: Floats, component: Ints) -> Floats:
    """Factors that make the events of each rare component weigh as much as those of the smallest large one.

    A height is an average over the events of two components: beside a large one, a rare one would not count.
    """
    own = np.bincount(component, weight, len(of_components))
    large = large_rows(of_components)
    factor = own[large].min() / np.where(own > 0, own, np.inf)
    factor[large] = 1.0
    return np.asarray(np.maximum(factor, 1.0)[component])
