"""Progress of a search: every search is a generator of steps, and its last step carries the result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

Result = TypeVar("Result")


class Step(NamedTuple, Generic[Result]):
    """State of a search after a move."""

    stage: str
    """The rows or the run that the search works on; objectives compare within one stage only."""
    move: str
    n_clusters: int
    """Number of clusters, components or features."""
    objective: float
    """Objective of the search: free energy (Bayesian k-means) and cost (DP-means, BP-means) fall, the bound on the
    log-likelihood (chunky EM) rises."""
    result: Result | None = None
    n_rows: int | None = None
    """Number of boxes or points that the objective is summed over, where a search changes it."""


def last_result(steps: Iterable[Step[Result]]) -> Result:
    """The result in the last step of a search."""
    found = None
    for step in steps:
        found = step.result
    assert found is not None
    return found
