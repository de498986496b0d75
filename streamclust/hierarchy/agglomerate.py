"""agglomerate: rows of Moments to a Dendrogram."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.families import AnyFamily, FamilyLike, Summary
from streamclust.families import family as family_named
from streamclust.families.gaussian_simple import AnyGaussian
from streamclust.hierarchy.agglomerative import Agglomerative
from streamclust.hierarchy.bhc import Bayesian
from streamclust.hierarchy.closest_pair import conga_merges
from streamclust.hierarchy.dendrogram import Dendrogram
from streamclust.hierarchy.lazy_list import lazy_merges
from streamclust.hierarchy.nn_chain import chain_merges
from streamclust.hierarchy.problem import MergeProblem, Merges, Method, check_rows
from streamclust.hierarchy.rbhc import Relaxed
from streamclust.hierarchy.ward import ward_merges
from streamclust.moments import Moments

MethodName = Literal["rbhc", "abc", "bhc"]
Search = Literal["auto", "chain", "lazy", "conga"]


class MergeProgress(NamedTuple):
    """Number of merges done; the last one carries the dendrogram."""

    merges: int
    n_merges: int
    evaluations: int = 0
    dendrogram: Dendrogram | None = None


@dataclass(frozen=True)
class RowSummary:
    """Rows of Moments as what a data-informed prior reads: their total, and their means as a sample."""

    rows: Moments

    @property
    def total(self) -> Moments:
        """One row."""
        return self.rows.to_groups(None, kind="full" if self.rows.kind == "none" else self.rows.kind)

    def sample(self) -> tuple[Floats, Floats]:
        """The means, and the weights."""
        return self.rows.mean, self.rows.weight


def agglomerate(
    family: FamilyLike,
    moments: Moments,
    method: MethodName | Method = "rbhc",
    search: Search = "auto",
    threshold: float | None = None,
    phi0: float | None = None,
    alpha: float = 1.0,
    data: Summary | Floats | None = None,
) -> Dendrogram:
    """Merge rows of Moments into one tree.

    Parameters
    ----------
    family
        A name, a family class or a family with its prior. A prior still to be informed is informed by `data`,
        or by the rows; B0 is then mean(NN²)/D, the better default for trees.
    moments
        The rows: points, leaves, clusters.
    method
        "rbhc" (stops above a threshold, if given), "abc" (at the least free energy), "bhc" (where merging
        becomes less likely than not).
    search
        "chain", for RBHC alone: the costs of ABC and BHC are not reducible. "lazy" and "conga" always merge
        the cheapest pair. "auto": the chain for RBHC, the lazy list for the others. Spherical RBHC is
        Ward's and has a faster exact way, which the chain stands for.
    threshold
        RBHC's λ.
    phi0
        ABC's φ0; the family's own unless given.
    alpha
        BHC's α.
    data
        What informs the prior: a tree, or points.

    >>> points = np.array([[0.0, 0.0], [0.1, 0.2], [5.0, 5.0], [5.2, 5.1], [4.9, 5.3]])
    >>> agglomerate("diagonal", Moments.rows_of_points(points), "abc").best_cut()
    array([0, 0, 1, 1, 1])
    """
    last = None
    for progress in agglomerate_steps(family, moments, method, search, threshold, phi0, alpha, data):
        last = progress.dendrogram
    assert last is not None
    return last


def agglomerate_steps(
    family: FamilyLike,
    moments: Moments,
    method: MethodName | Method = "rbhc",
    search: Search = "auto",
    threshold: float | None = None,
    phi0: float | None = None,
    alpha: float = 1.0,
    data: Summary | Floats | None = None,
) -> Generator[MergeProgress, None, None]:
    """`agglomerate`, as a generator of its progress: who calls it draws a bar, or stops it."""
    check_rows(moments)
    family = informed(family, RowSummary(moments) if data is None else data, method)
    chosen = method_named(method, family, threshold, phi0, alpha)
    search = check_search(search, chosen)
    problem = MergeProblem.of(chosen, family, moments)
    # Searches merge rows in place; where to stop is asked of the rows as they were.
    working = replace(problem, rows=problem.rows.copy())
    merges = Merges(len(moments))
    for done in _run(working, merges, search, chosen):
        yield MergeProgress(done, len(moments) - 1, merges.evaluations)
    if chosen.name == "rbhc":  # information lost is never negative, but for rounding
        np.maximum(merges.costs, 0.0, out=merges.costs)
    greedy = search != "chain"
    tree = Dendrogram.of_merges(merges.pairs, merges.costs, moments, chosen.name, greedy, merges.first_storey)
    stop = chosen.n_clusters(problem, tree.cost, tree.height)
    if merges.first_storey < len(moments) - 1:
        stop = len(moments) - merges.first_storey
    yield MergeProgress(len(moments) - 1, len(moments) - 1, merges.evaluations, tree.stopping_at(stop))


def _run(problem: MergeProblem, merges: Merges, search: Search, method: Method) -> Generator[int, None, None]:
    if search == "lazy":
        yield from lazy_merges(problem, merges)
    elif search == "conga":
        yield from conga_merges(problem, merges)
    elif problem.is_ward:
        yield from ward_merges(problem, merges)
    else:
        threshold = method.threshold if isinstance(method, Relaxed) else None
        yield from chain_merges(problem, merges, np.inf if threshold is None else threshold)


def informed(family: FamilyLike, data: Summary | Floats, method: MethodName | Method) -> AnyFamily:
    """The family with its prior. RBHC has none: of the prior it reads the centre and the smoothing alone."""
    kind = family_named(family)
    if not isinstance(kind, type):
        return kind
    if method == "rbhc" and issubclass(kind, AnyGaussian):
        return kind.informed(data, rule="nearest", B0=1.0)  # B0 is not read
    return kind.informed(data, rule="nearest")


def method_named(
    method: MethodName | Method,
    family: AnyFamily,
    threshold: float | None,
    phi0: float | None,
    alpha: float,
) -> Method:
    """The method of that name with its parameter; φ0 is the family's unless given."""
    if not isinstance(method, str):
        return method
    if method not in get_args(MethodName):
        raise ValueError(f"method must be one of {', '.join(get_args(MethodName))}, got {method!r}")
    if threshold is not None and method != "rbhc":
        raise ValueError(
            f"a threshold is for rbhc: {method} knows where to stop; cut(cost=...) cuts elsewhere"
        )
    if method == "rbhc":
        return Relaxed(threshold)
    return (
        Agglomerative(family.concentration if phi0 is None else phi0) if method == "abc" else Bayesian(alpha)
    )


def check_search(search: Search, method: Method) -> Search:
    """The search to use, or a refusal."""
    if search not in get_args(Search):
        raise ValueError(f"search must be one of {', '.join(get_args(Search))}, got {search!r}")
    if search == "auto":
        return "lazy" if method.greedy else "chain"
    if search == "chain" and method.greedy:
        raise ValueError(f"the chain needs reducible costs, which those of {method.name} are not; use lazy")
    return search
