"""History: the share of each cluster over the whole stream, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

FED_PART_OF_PEAK = 0.1
"""A cluster counts as fed in a step of the history where it has at least this part of its largest share."""
MAX_STEPS = 512
"""Bound on the steps of a history; must be even."""
MAX_CLUSTERS_PER_STEP = 64
"""Number of clusters, the heaviest, whose weights a step keeps apart."""


class HistoryStep(NamedTuple):
    """A step of a history: total weight of its events, and weight by cluster."""

    at: int
    """Number of events of the stream at its end."""
    total: float
    weight: dict[int, float]
    """The heaviest clusters by id."""

    @property
    def shares(self) -> dict[int, float]:
        """Each cluster's part of the total."""
        return {i: w / self.total for i, w in self.weight.items()}


class History:
    """Share of each cluster over the whole stream, in a bounded number of steps.

    Once it is full, neighbouring steps are added together: it covers the whole stream, ever more coarsely.

    >>> history = History()
    >>> history.add(100, {0: 90.0, 1: 10.0})
    >>> history.add(200, {0: 50.0, 1: 50.0})
    >>> [(step.at, step.shares[1]) for step in history]
    [(100, 0.1), (200, 0.5)]
    """

    def __init__(self, steps: Iterable[HistoryStep] = ()) -> None:
        self._steps = list(steps)

    def __iter__(self) -> Iterator[HistoryStep]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)

    def due(self, at: int) -> bool:
        """Whether a new step is due; steps become longer as the stream does."""
        return not self._steps or at - self._steps[-1].at >= 2 * at / MAX_STEPS

    def add(self, at: int, weight: dict[int, float]) -> None:
        """Count events that came until event `at`: as a step of their own or, while the last is short, with it."""
        if not (total := sum(weight.values())):
            return
        new, steps = heaviest(at, total, weight), self._steps
        if steps and (at == steps[-1].at or at - self._start < 2 * at / MAX_STEPS):
            steps[-1] = together(steps[-1], new)
        else:
            steps.append(new)
        if len(steps) > MAX_STEPS:
            pairs = zip(steps[:-1:2], steps[1::2], strict=True)
            self._steps = [*(together(first, second) for first, second in pairs), steps[-1]]

    def fed_until(self, cluster: int) -> int | None:
        """End of the last step in which a cluster had a good part of its largest share; None if it is in no step."""
        shares = [(step.at, step.weight.get(cluster, 0.0) / step.total) for step in self._steps]
        least = FED_PART_OF_PEAK * max((share for _, share in shares), default=0.0)
        return max((at for at, share in shares if share > 0 and share >= least), default=None)

    @property
    def _start(self) -> int:
        """Event count at which the last step begins."""
        return self._steps[-2].at if len(self._steps) > 1 else 0

    def to_list(self) -> list[Any]:
        """Convert to types of JSON."""
        return [[step.at, step.total, [[i, w] for i, w in step.weight.items()]] for step in self._steps]

    @classmethod
    def from_list(cls, state: Iterable[Any]) -> History:
        """Read what `to_list` wrote."""
        return cls(
            HistoryStep(int(at), float(total), {int(i): float(w) for i, w in weight})
            for at, total, weight in state
        )


def together(first: HistoryStep, second: HistoryStep) -> HistoryStep:
    """Two neighbouring steps as one."""
    ids = first.weight | second.weight
    weight = {i: first.weight.get(i, 0.0) + second.weight.get(i, 0.0) for i in ids}
    return heaviest(second.at, first.total + second.total, weight)


def heaviest(at: int, total: float, weight: dict[int, float]) -> HistoryStep:
    """A step limited to the heaviest MAX_CLUSTERS_PER_STEP clusters."""
    ids = sorted(weight, key=lambda i: (-weight[i], i))[:MAX_CLUSTERS_PER_STEP]
    return HistoryStep(at, float(total), {i: float(weight[i]) for i in sorted(ids)})
