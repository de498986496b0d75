"""Refits beside the stream: started on a copy of the tree at one event count, in effect at a later one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import Thread
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.engine.births import FEWEST
from streamclust.engine.model import LARGE, Model, Result
from streamclust.engine.present import WithStrays
from streamclust.engine.watch import STRIDE
from streamclust.families.free_energy import MixtureName
from streamclust.moments import Moments
from streamclust.refit.bkm import fit_points as refit_points
from streamclust.refit.bkm import refit as refit_bkm
from streamclust.refit.chunky_em import refit_mixture
from streamclust.refit.mixture import Mixture
from streamclust.tree import SummaryTree

Method = Literal["bkm", "chunky-em"]

FEW_STRAYS = 20
"""Fewer strays than this are not searched for clusters."""
CLEARLY = 5.0
"""Nats by which a cold challenger must win: what is as good as equal keeps its ids."""


COVARIANCE: dict[Any, Any] = {"gaussian": "full", "diagonal": "diagonal", "spherical": "spherical"}
"""The families that have mixtures of chunky EM, as that calls them."""


@dataclass(frozen=True)
class Recipe:
    """How to refit, whatever the data."""

    family: Any
    method: Method = "bkm"
    mixture: MixtureName = "finite"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            raise ValueError(f"refit must be one of {', '.join(get_args(Method))}, got {self.method!r}")
        if self.method == "chunky-em" and self.family not in COVARIANCE:
            raise ValueError(
                f'refit="chunky-em" fits Gaussians: family must be one of {", ".join(COVARIANCE)}, '
                f'got {self.family!r}; use refit="bkm" for it'
            )


class Work(NamedTuple):
    """All that a refit needs, and nobody else writes to."""

    recipe: Recipe
    tree: SummaryTree
    old: Model
    start: Moments
    recent: Floats
    strays: Floats
    search_strays: bool
    cold: bool
    number: int


@dataclass(frozen=True, eq=False)
class Found:
    """What a refit found, and the weight its clusters share with those before (old x new).

    `outside` is the share of the events watched last, when it began, that are in none of its clusters.
    """

    result: Result
    shared: Floats
    old_weight: Floats
    new_weight: Floats
    outside: float


class Refit:
    """A refit on its way. What it does depends on event counts alone, not on how long it takes.

    It may be pickled, copied or saved on its way: that waits for it.
    """

    def __init__(self, due: int, found: Found | None = None) -> None:
        self.due = due
        self._found = found
        self._error: BaseException | None = None
        self._thread: Thread | None = None

    @classmethod
    def started(cls, work: Work, due: int, background: bool) -> Refit:
        """Begin, in a thread of its own if `background`."""
        refit = cls(due)
        if background:
            refit._thread = Thread(target=refit._run, args=(work,), name="streamclust-refit", daemon=True)
            refit._thread.start()
        else:
            refit._run(work)
        return refit

    def _run(self, work: Work) -> None:
        try:
            self._found = find(work)
        except BaseException as error:  # handed to whoever waits for the result
            self._error = error

    def result(self) -> Found:
        """What was found; waits for it."""
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._found is not None
        return self._found

    def __getstate__(self) -> dict[str, Any]:
        return {"due": self.due, "_found": self.result(), "_error": None, "_thread": None}


def find(work: Work) -> Found:
    """Refit from given clusters; where `cold`, challenge the result by one from nothing."""
    recipe, start = work.recipe, work.start
    tree = WithStrays(work.tree, work.old.large, work.strays) if recipe.method == "bkm" else work.tree
    if start.n_features < tree.n_features:  # features have appeared since: all of them vary about one value
        start = start.widen(tree.total.mean[0, start.n_features :])
    if work.search_strays and recipe.method == "bkm":
        start = with_rare(recipe, start, work)
    best = fit(recipe, tree, start, work.number)
    if work.cold:
        challenger = fit(recipe, tree, None, work.number)
        if loss(challenger) < loss(best) - CLEARLY:
            best = challenger
    points, weight = tree.sample()
    everyone = replace(work.old, hidden=frozenset())
    before = np.where(everyone.outside(points), -1, everyone.nearest(points).cluster)
    shared, new_weight = compare(before, best.assign(points), weight, len(work.old.ids), best.n_clusters)
    strangers = Model(0, 0, best, tuple(range(best.n_clusters))).outside(work.recent)
    return Found(best, shared, shared.sum(axis=1), new_weight, float(strangers.mean()))


def with_rare(recipe: Recipe, start: Moments, work: Work) -> Moments:
    """Clusters to start from: the large ones of those given, and what is found among the strays alone.

    Beside all the rest rare clusters weigh too little to be told apart; among themselves they do not. The refit that
    starts from them gives up those that do not pay.
    """
    strays = work.strays[work.old.large.outside(work.strays)]
    if len(strays) < FEW_STRAYS:
        return start
    rng = np.random.default_rng([recipe.seed, work.number])
    found = refit_points(recipe.family, strays, rng=rng, search="quick").clusters
    rare = found[np.flatnonzero(found.weight >= FEWEST)].scale(float(STRIDE))
    large = start[np.flatnonzero(start.weight >= LARGE * start.weight.sum())]
    return Moments.stack([large, rare])


def fit(recipe: Recipe, tree: SummaryTree | WithStrays, start: Moments | None, number: int) -> Result:
    """One refit; the same seed and number give the same clusters."""
    rng = np.random.default_rng([recipe.seed, number])
    if recipe.method == "bkm":
        return refit_bkm(recipe.family, tree, start, rng, recipe.mixture, search="quick")
    assert isinstance(tree, SummaryTree)
    return refit_mixture(tree, start, rng, covariance=COVARIANCE[recipe.family])


def loss(result: Result) -> float:
    """What is to be small, in nats of the events K was decided on: F falls for partitions and rises for mixtures."""
    return -result.free_energy if isinstance(result, Mixture) else result.free_energy


def compare(before: Ints, after: Ints, weight: Floats, k_old: int, k_new: int) -> tuple[Floats, Floats]:
    """The weight that old and new clusters share of a sample labelled by both, and each new one's; -1 is nobody's."""
    inside = before >= 0
    cell = before[inside] * k_new + after[inside]
    shared = np.asarray(np.bincount(cell, weight[inside], k_old * k_new), dtype=float)
    return shared.reshape(k_old, k_new), np.asarray(np.bincount(after, weight, k_new), dtype=float)
