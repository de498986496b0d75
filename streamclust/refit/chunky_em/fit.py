"""Chunky greedy EM: Gaussian mixtures, and how many components they have [Nunnink].

Two ways in, both generators of steps whose last one holds the Mixture: `chunky_em_steps` refits a summary tree,
`point_em_steps` fits points. `refit_mixture` and `fit_mixture` run them to the end.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from numpy.typing import ArrayLike

from streamclust._kernels.types import Ints
from streamclust.moments import Moments
from streamclust.refit.chunky_em.boxes import Boxes, fitted
from streamclust.refit.chunky_em.covariance import Components, Covariance, Space, form_of
from streamclust.refit.chunky_em.mixture import Mixture
from streamclust.refit.chunky_em.search import Data, label_all, pass_over, search
from streamclust.refit.partition import Partition
from streamclust.refit.steps import Step, last_result
from streamclust.refit.summary import NodeSummary, without_outliers
from streamclust.tree import SummaryTree
from streamclust.tree.rows import check_rows, whole_number
from streamclust.utils.outliers import outlying

MIN_DEVIATION_SHARE = 1e-2
"""Default lower bound on a component's deviation in any direction, as a share of the data's deviation there."""
LEAST_DEVIATION_SHARE = 1e-6
"""The smallest such bound that may be asked for."""
MAX_BOXED_POINTS = 4096
"""Points up to which each is a box of its own: EM on them is ordinary EM, and a tree would save nothing."""
MAX_BOXED_SAMPLE = 1024
"""Sampled points up to which points are the boxes, if they are all events of a tree: leaves straddle clusters."""
MIN_LEAVES, LEAF_POINTS = 8192, (4, 64)
"""Leaves of the tree over all points, at least, and limits on the points in each."""

Start = Mixture | Partition | Moments | None


# ---------------------------------------------------------------- trees


def refit_mixture(
    tree: NodeSummary,
    start: Start = None,
    seed: np.random.Generator | int | None = 0,
    covariance: Covariance = "full",
    n_components: int | None = None,
    floor: float = MIN_DEVIATION_SHARE,
) -> Mixture:
    """Fit a mixture to what a tree has learnt: from a given one (warm), or from nothing.

    `start` is a mixture, Bayesian k-means' partition, or clusters as Moments. None for `n_components` finds their
    number by BIC. The cost depends on the tree's leaves, not on how many events it has learnt.

    >>> from streamclust.tree import SummaryTree
    >>> rng = np.random.default_rng(0)
    >>> events = rng.normal(size=(3000, 2)) + 9.0 * rng.integers(3, size=(3000, 1))
    >>> tree = SummaryTree(n_features=2, max_leaves=64)
    >>> tree.insert(events)
    >>> refit_mixture(tree).n_clusters
    3
    """
    return last_result(chunky_em_steps(tree, start, seed, covariance, n_components, floor))


def chunky_em_steps(
    tree: NodeSummary,
    start: Start = None,
    seed: np.random.Generator | int | None = 0,
    covariance: Covariance = "full",
    n_components: int | None = None,
    floor: float = MIN_DEVIATION_SHARE,
) -> Generator[Step[Mixture], None, None]:
    """`refit_mixture`, as a generator of its states: who calls it draws the progress, or stops it."""
    check(covariance, n_components, floor)
    every, tree = tree, without_outliers(tree)
    points, weight = tree.sample()
    if not weight.sum() > 0:
        raise ValueError("the tree has no data; learn at least one event first")
    space = Space(form_of(covariance), tree.total, floor)
    rows = Moments(weight, points, np.zeros((len(points), 0)), "none")
    if len(points) <= MAX_BOXED_SAMPLE and same_moments(
        rows.to_groups(None, kind=tree.total.kind), tree.total
    ):
        source, boxes = None, Boxes.of_rows(space, rows)
    else:
        source, boxes = tree, Boxes.of_tree(space, tree)
    n_events = min(getattr(tree, "worth", np.inf), getattr(tree, "n_independent", np.inf))
    data = Data(space, source, points, weight, n_events)
    fit = yield from search(data, boxes, clusters_of(start, space), n_components, np.random.default_rng(seed))
    leaves = fitted(space, Boxes.of_rows(space, every.leaves()), fit.components)
    labels = leaves.shared.mass.argmax(axis=1)
    yield published("boxes", data, covariance, fit.components, labels, fit.free_energy)


def same_moments(sample: Moments, total: Moments) -> bool:
    """Whether a sample has the moments of all events: then it holds every one of them."""
    size = float(np.abs(total.scatter).max(initial=0.0))
    return bool(np.allclose(sample.scatter, total.scatter, rtol=0.0, atol=1e-6 * size))


# ---------------------------------------------------------------- points


def fit_mixture(
    points: ArrayLike,
    weight: ArrayLike | None = None,
    start: Start = None,
    seed: np.random.Generator | int | None = 0,
    covariance: Covariance = "full",
    n_components: int | None = None,
    floor: float = MIN_DEVIATION_SHARE,
) -> Mixture:
    """Fit a mixture to points, each counted `weight` times (once).

    >>> points = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([0.0, 9.0], 100)[:, None]
    >>> fit_mixture(points).n_clusters
    2
    """
    return last_result(point_em_steps(points, weight, start, seed, covariance, n_components, floor))


def point_em_steps(
    points: ArrayLike,
    weight: ArrayLike | None = None,
    start: Start = None,
    seed: np.random.Generator | int | None = 0,
    covariance: Covariance = "full",
    n_components: int | None = None,
    floor: float = MIN_DEVIATION_SHARE,
) -> Generator[Step[Mixture], None, None]:
    """`fit_mixture`, as a generator of its states: chunky EM on a tree over the points, then EM on the points."""
    check(covariance, n_components, floor)
    every = np.asarray(points)
    d = every.shape[1] if every.ndim == 2 else 1
    x, w, _ = check_rows(d, every, weight, None)
    if len(x) == 0:
        raise ValueError("there is nothing to fit: no points, or every point has weight 0")
    w = w if len(w) else np.ones(len(x))
    ordinary = ~outlying(x)
    x, w = (x, w) if ordinary.all() else (x[ordinary], w[ordinary])
    form = form_of(covariance)
    tree: SummaryTree | None = None
    if len(x) > MAX_BOXED_POINTS:
        leaf_size = int(np.clip(len(x) // MIN_LEAVES, *LEAF_POINTS))
        tree = SummaryTree(d, form.scatter, max_leaves=None, leaf_size=leaf_size)
        tree.insert(x, w)
        space = Space(form, tree.total, floor)
        boxes = Boxes.of_tree(space, tree)
    else:
        rows = Moments(w, x, np.zeros((len(x), 0)), "none")
        space = Space(form, rows.to_groups(None, kind=form.scatter), floor)
        boxes = Boxes.of_rows(space, rows)
    data = Data(space, tree, x, w)
    fit = yield from search(data, boxes, clusters_of(start, space), n_components, np.random.default_rng(seed))
    components = fit.components
    if tree is not None:
        components = yield from pass_over(space, components, x, w)
    counted = np.ones(len(every)) * (1.0 if weight is None else np.asarray(weight, dtype=float))
    if not ordinary.all():
        counted[np.flatnonzero(counted > 0)[~ordinary]] = 0.0
    labels, likelihood = label_all(space, components, np.asarray(every, dtype=float), counted)
    yield published("points", data, covariance, components, labels, likelihood)


# ---------------------------------------------------------------- shared


def clusters_of(start: Start, space: Space) -> Moments | None:
    """Moments of the clusters to start from."""
    clusters = start.clusters if isinstance(start, (Mixture, Partition)) else start
    if clusters is None:
        return None
    if not isinstance(clusters, Moments):
        raise ValueError(
            f"start must be a Mixture, a Partition, clusters as Moments, or None, got {type(start).__name__}"
        )
    if clusters.n_features != space.n_features or not clusters.weight.sum() > 0:
        raise ValueError(
            f"start must be clusters of {space.n_features} features with some weight, got {len(clusters)} of "
            f"{clusters.n_features}; use start=None to begin from nothing"
        )
    return clusters.to(space.form.scatter)


def published(
    stage: str,
    data: Data,
    covariance: Covariance,
    components: Components,
    labels: Ints,
    free_energy: float,
) -> Step[Mixture]:
    """The last step: the mixture, with the heaviest component first."""
    narrow = data.space.n_collapsed(components)
    if narrow:
        data.notes.append(
            f"{narrow} of {components.n_components} components are single points, or nearly: they were widened to "
            f"{np.sqrt(data.space.least):g} of the data's deviation"
        )
    order = np.argsort(-components.weight, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    found = Components(*(part[order] for part in data.space.leaving(components)))
    mixture = Mixture(
        covariance,
        *found,
        rank[labels],
        data.n,
        float(free_energy),
        tuple(data.notes),
        data.space.least_covariance,
    )
    return Step(stage, "publish", len(order), float(free_energy), mixture)


def check(covariance: str, n_components: int | None, floor: float) -> None:
    """Raise ValueError for settings that mean nothing."""
    form_of(covariance)
    if n_components is not None:
        whole_number("n_components", n_components, least=1)
    if not LEAST_DEVIATION_SHARE <= floor <= 1:
        raise ValueError(
            f"floor must be between {LEAST_DEVIATION_SHARE} and 1 of the data's deviation, got {floor!r}"
        )
