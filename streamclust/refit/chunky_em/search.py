"""The search for a mixture: refine boxes, insert and remove components, finish with EM over all points."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import numpy as np

from streamclust._kernels.refit.chunky_em import share_rows
from streamclust._kernels.types import Floats, Ints
from streamclust.families.priors import spread_indices
from streamclust.families.resolution import n_distinct_rows
from streamclust.moments import Moments
from streamclust.refit.chunky_em.boxes import GAIN_WORTH_A_BOX, Boxes, Fit, fitted, iterate, refine
from streamclust.refit.chunky_em.covariance import Components, Space, count_free
from streamclust.refit.chunky_em.greedy import insert, least_missed, without
from streamclust.refit.chunky_em.mixture import Mixture
from streamclust.refit.steps import Step
from streamclust.refit.summary import NodeSummary

PATIENCE_INSERTIONS = 2
"""Insertions past the best BIC before growth ends: F itself rises for ever."""
MAX_COMPONENTS = 200
"""Growth ends here, whatever BIC says."""
MAX_BIC_POINTS = 20_000
"""Points whose log-likelihood BIC reads, at most."""
MAX_VOUCHED_SIZES = 16.0
"""Events that a sample counts for, at most, in its own (Kish) sizes. Boxes that straddle overlapping clusters leave
something to explain, however little of it: counted three million times, it would make 36 components of 10."""
MAX_ATOMS = 8
"""Distinct values up to which each may be a component of its own, if BIC says so."""
ROUGH_TOLERANCE, FINAL_TOLERANCE = 1e-4, 1e-5
"""EM ends when F rises by less per point and iteration: while the mixture still changes, and in the end."""
MAX_PASSES, PASS_GAIN = 10, 1e-4
"""Ordinary EM over all points ends after MAX_PASSES, or if a pass raises the log-likelihood by less per point."""
BLOCK_NUMBERS = 2**15
"""Numbers of lifted points at a time: they stay within the processor's cache."""


Moves = Generator[Step[Mixture], None, Fit]


class Data:
    """Data of a search: standard coordinates, the tree to refine boxes from (or none), points to judge K on."""

    def __init__(
        self, space: Space, tree: NodeSummary | None, points: Floats, weight: Floats, n_events: float = np.inf
    ) -> None:
        self.space = space
        self.tree = tree
        self.n = float(weight.sum())
        self.n_events = min(self.n, n_events)
        """Number of independent events that decide K: fewer than `n` where the weights stand for more."""
        some = spread_indices(len(points), MAX_BIC_POINTS) if len(points) > MAX_BIC_POINTS else slice(None)
        sampled = weight[some] / float(weight[some].sum())
        self._sample = space.lift(points[some])
        self._weight = sampled * min(self.n_events, vouched_sizes(points) / float((sampled**2).sum()))
        self.notes: list[str] = []

    @property
    def least(self) -> float:
        """The weight that a component needs: that of enough events for a covariance to mean something."""
        return 2.0 * (self.space.n_features + 1) * (self.n / self.n_events)

    def bic(self, components: Components) -> float:
        """-2 log-likelihood, as the sample tells it of all points, plus log N for each free parameter."""
        joint = self._sample @ self.space.natural(components).T
        likelihood = share_rows(joint, self._weight, np.empty(len(joint)))
        free = count_free(self.space.form, components.n_components, self.space.n_features)
        return -2.0 * likelihood + free * float(np.log(max(self._weight.sum(), 2.0)))


def vouched_sizes(points: Floats) -> float:
    """Number of its own sizes that a sample vouches for: where events repeat each other, of distinct ones alone.

    A mixture has no resolution: each value that comes often would be a spike. Data of few values are spikes indeed.
    """
    distinct = n_distinct_rows(points)
    if distinct == len(points):
        return MAX_VOUCHED_SIZES
    return 1.0 if distinct <= MAX_ATOMS else distinct / len(points)


def move(name: str, fit: Fit) -> Step[Mixture]:
    """Progress after a move."""
    return Step("boxes", name, fit.components.n_components, fit.free_energy, n_rows=len(fit.boxes.weight))


# ---------------------------------------------------------------- boxes


def search(
    data: Data, boxes: Boxes, start: Moments | None, n_components: int | None, rng: np.random.Generator
) -> Moves:
    """From the start (one component, if none is given) to `n_components` or, for None, as many as BIC wants."""
    if start is None:
        components = data.space.maximise((boxes.weight @ boxes.lifted)[None, :])
    else:
        components = data.space.entering(start)
    fit = yield from settle(data, fitted(data.space, boxes, components))
    if n_components is None:
        if start is not None:
            fit = yield from shrink(data, fit)
        fit = yield from grow(data, fit, rng)
        fit = yield from shrink(data, fit)
    else:
        fit = yield from reach(data, fit, n_components, rng)
    return (yield from settle(data, fit, FINAL_TOLERANCE))


def settle(data: Data, fit: Fit, tolerance: float = ROUGH_TOLERANCE) -> Moves:
    """EM, and finer boxes, until neither gains much."""
    while True:
        steps = iterate(data.space, fit, tolerance)
        while True:
            try:
                yield move("iterate", next(steps))
            except StopIteration as end:
                fit = end.value
                break
        if data.tree is None or fit.components.n_components == 1:
            return fit
        finer, gain = refine(data.space, data.tree, fit)
        if not gain > GAIN_WORTH_A_BOX * data.n:
            return fit
        fit = finer
        yield move("refine", fit)


def grow(data: Data, fit: Fit, rng: np.random.Generator) -> Moves:
    """Insertions while BIC falls, and PATIENCE_INSERTIONS more."""
    best, lowest, waited = fit, data.bic(fit.components), 0
    while waited < PATIENCE_INSERTIONS:
        if fit.components.n_components == MAX_COMPONENTS:
            data.notes.append(f"growth ended at {MAX_COMPONENTS} components, the most there may be")
            break
        inserted = insert(data.space, fit, data.least, rng)
        if inserted is None:
            break
        fit = fitted(data.space, fit.boxes, inserted)
        yield move("insert", fit)
        fit = yield from settle(data, fit)
        bic = data.bic(fit.components)
        if bic < lowest:
            best, lowest, waited = fit, bic, 0
        else:
            waited += 1
    if best is not fit:
        best = fitted(data.space, fit.boxes, best.components)  # the boxes opened on the way stay open
        yield move("restore", best)
    return best


def shrink(data: Data, fit: Fit) -> Moves:
    """Remove the component whose removal lowers F least, while BIC falls."""
    lowest = data.bic(fit.components)
    while fit.components.n_components > 1:
        fewer = yield from give_up(data, fit)
        bic = data.bic(fewer.components)
        if not bic <= lowest:
            fit = fitted(data.space, fewer.boxes, fit.components)
            yield move("restore", fit)
            break
        fit, lowest = fewer, bic
    return fit


def give_up(data: Data, fit: Fit) -> Moves:
    """Remove one component."""
    fewer = without(fit.components, least_missed(data.space, fit))
    fit = fitted(data.space, fit.boxes, fewer)
    yield move("remove", fit)
    return (yield from settle(data, fit))


def reach(data: Data, fit: Fit, n_components: int, rng: np.random.Generator) -> Moves:
    """Insert or remove components until there are as many as asked for, or as the data support."""
    while fit.components.n_components > n_components:
        fit = yield from give_up(data, fit)
    while fit.components.n_components < n_components:
        # A number that was asked for counts for more than covariances that mean something.
        inserted = insert(data.space, fit, data.least, rng) or insert(
            data.space, fit, min(1.0, 1e-6 * data.n), rng
        )
        if inserted is None:
            data.notes.append(
                f"{n_components} components were asked for, but the data have room for {fit.components.n_components}: "
                "no further one could own a point of its own"
            )
            break
        fit = fitted(data.space, fit.boxes, inserted)
        yield move("insert", fit)
        fit = yield from settle(data, fit)
    return fit


# ---------------------------------------------------------------- points


def pass_over(
    space: Space, components: Components, points: Floats, weight: Floats
) -> Generator[Step[Mixture], None, Components]:
    """A few passes of ordinary EM over all points."""
    before = -np.inf
    enough = PASS_GAIN * float(weight.sum())
    for _ in range(MAX_PASSES):
        natural = space.natural(components)
        sums, likelihood = np.zeros_like(natural), 0.0
        for part in blocks(natural, points):
            lifted = space.lift(points[part])
            joint = lifted @ natural.T
            likelihood += share_rows(joint, weight[part], np.empty(len(joint)))
            sums += joint.T @ lifted
        components = space.maximise(sums)
        yield Step("points", "iterate", components.n_components, likelihood)
        if not likelihood - before > enough:
            break
        before = likelihood
    return components


def label_all(space: Space, components: Components, points: Floats, weight: Floats) -> tuple[Ints, float]:
    """The component of largest responsibility for each point, and the points' log-likelihood."""
    natural = space.natural(components)
    labels, likelihood = np.empty(len(points), dtype=np.int64), 0.0
    for part in blocks(natural, points):
        joint = space.lift(points[part]) @ natural.T
        labels[part] = joint.argmax(axis=1)
        likelihood += share_rows(joint, weight[part], np.empty(len(joint)))
    return labels, likelihood


def blocks(natural: Floats, points: Floats) -> Iterator[slice]:
    """Slices of all points, BLOCK_NUMBERS numbers at a time."""
    size = max(BLOCK_NUMBERS // natural.shape[1], 64)
    for start in range(0, len(points), size):
        yield slice(start, start + size)
