"""Chunky EM: all points of a box share their responsibilities [Nunnink section 3].

F, the lower bound (3.13) of the log-likelihood, rises with every step on any partition and with every refinement.
Nunnink adds that a local maximum of F is one of the log-likelihood; that holds for single points, not for shared
responsibilities.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

import numpy as np

from streamclust._kernels.refit.chunky_em import share_rows
from streamclust._kernels.types import Floats, Ints
from streamclust.moments import Moments
from streamclust.refit.chunky_em.covariance import Components, Space
from streamclust.refit.summary import NodeSummary

FIRST_BOXES = 512
"""Boxes of the first cut, at most; those of largest spread are opened first."""
GAIN_WORTH_A_BOX = 1e-3
"""Boxes are opened until opening them all would raise F by less than this, in nats per point (1e-2 inflates K)."""
OPENED_GAIN_SHARE = 0.9
"""Share of a refinement's possible gain that the opened boxes have."""
MAX_ITERATIONS = 500
"""EM iterations in a row, at most."""


class Boxes(NamedTuple):
    """A partition of the data: each box's node of the tree (none where rows were given), weight, lifted row."""

    nodes: Ints
    weight: Floats
    lifted: Floats

    @classmethod
    def of_rows(cls, space: Space, rows: Moments, nodes: Ints | None = None) -> Boxes:
        """One box for each row of moments; rows that keep no scatter are points."""
        nodes = np.zeros(0, dtype=np.int64) if nodes is None else nodes
        return cls(nodes, np.ascontiguousarray(rows.weight, dtype=float), space.lift(rows))

    @classmethod
    def of_tree(cls, space: Space, tree: NodeSummary, budget: int = FIRST_BOXES) -> Boxes:
        """A coarse cut of the tree."""
        nodes = tree.cut(budget=budget)
        return cls.of_rows(space, tree.moments(nodes), nodes)


class Shared(NamedTuple):
    """The result of an E-step."""

    mass: Floats
    """Responsibilities times the box's weight, boxes x components."""
    bound: Floats
    """F_b / |b| of each box."""
    free_energy: float


class Fit(NamedTuple):
    """Components, the boxes they were fitted to, and their responsibilities for them."""

    boxes: Boxes
    components: Components
    shared: Shared

    @property
    def free_energy(self) -> float:
        """F (3.13)."""
        return self.shared.free_energy


def share(space: Space, boxes: Boxes, components: Components) -> Shared:
    """The E-step: optimal shared responsibilities [chunky EM eq. 3.14]."""
    mass = boxes.lifted @ space.natural(components).T
    bound = np.empty(len(mass))
    free_energy = share_rows(mass, boxes.weight, bound)
    return Shared(mass, bound, free_energy)


def improve(space: Space, boxes: Boxes, shared: Shared) -> Components:
    """The M-step [chunky EM eqs. 3.15-3.17]."""
    return space.maximise(shared.mass.T @ boxes.lifted)


def fitted(space: Space, boxes: Boxes, components: Components) -> Fit:
    """The components with their responsibilities."""
    return Fit(boxes, components, share(space, boxes, components))


def iterate(space: Space, fit: Fit, tolerance: float) -> Generator[Fit, None, Fit]:
    """EM iterations on fixed boxes, until F rises by less than `tolerance` per point."""
    enough = tolerance * float(fit.boxes.weight.sum())
    for _ in range(MAX_ITERATIONS):
        before = fit.free_energy
        fit = fitted(space, fit.boxes, improve(space, fit.boxes, fit.shared))
        yield fit
        if not fit.free_energy - before > enough:
            break
    return fit


def refine(space: Space, tree: NodeSummary, fit: Fit) -> tuple[Fit, float]:
    """The boxes whose opening gains most are opened [chunky EM section 3.2.2]; also what opening all would gain.

    The gain is the difference between a box's F_b and those of its children, each at its optimal shared
    responsibilities: never negative.
    """
    boxes = fit.boxes
    below = tree.refine(boxes.nodes, boxes.nodes)
    inner = np.flatnonzero(~np.isin(boxes.nodes, below))  # a leaf stays in its cut
    nodes = below[~np.isin(below, boxes.nodes)]
    children = Boxes.of_rows(space, tree.moments(nodes), nodes)
    shared = share(space, children, fit.components)
    per_box = (children.weight * shared.bound).reshape(-1, 2).sum(axis=1)
    gain = per_box - boxes.weight[inner] * fit.shared.bound[inner]
    order = np.argsort(-gain, kind="stable")
    total = float(gain.sum())
    opened = order[: int(np.searchsorted(np.cumsum(gain[order]), OPENED_GAIN_SHARE * total)) + 1]
    kept = np.ones(len(boxes.weight), dtype=bool)
    kept[inner[opened]] = False
    new = (2 * opened[:, None] + np.arange(2)).ravel()
    finer = Boxes(*(np.concatenate([a[kept], b[new]]) for a, b in zip(boxes, children, strict=True)))
    mass = np.concatenate([fit.shared.mass[kept], shared.mass[new]])
    bound = np.concatenate([fit.shared.bound[kept], shared.bound[new]])
    return Fit(finer, fit.components, Shared(mass, bound, float(finer.weight @ bound))), total
