"""Stable cluster ids: matches clusters of successive refits, and logs births, deaths, returns, splits and merges."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.visits import Visits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

log = logging.getLogger(__name__)

Kind = Literal["born", "died", "returned", "split", "merged"]

MAX_EVENTS = 10_000
"""Number of lifecycle events kept; older ones are dropped."""
RETIRED_CLAIM = 1e-6
"""Factor on a retired cluster's overlap, so that a live cluster's claim to an id comes first."""
FED_PART_OF_PEAK = 0.1
"""A cluster counts as fed in a step of the history where it has at least this part of its largest share."""
MAX_STEPS = 512
"""Bound on the steps of a history; must be even."""
MAX_CLUSTERS_PER_STEP = 64
"""Number of clusters, the heaviest, whose weights a step keeps apart."""


@dataclass(frozen=True)
class Change:
    """Change of the set of ids: `parents` left it, `children` entered it, each id with its weight then.

    A split keeps the parent's id for the child that shares most with it, a merge that of the parent that shares
    most with the child: such an id is among both.

    >>> Change("split", at=20_000, version=7, parents={3: 900.0}, children={3: 500.0, 8: 400.0})
    split 3 -> 3, 8 at event 20000
    >>> Change("returned", at=90_000, version=9, parents={}, children={3: 500.0}, away=45_000)
    returned 3 after 45000 events at event 90000
    """

    kind: Kind
    at: int
    """Number of events learnt before it."""
    version: int
    """Version of the first model that shows it."""
    parents: dict[int, float]
    children: dict[int, float]
    away: int | None = None
    """Number of events for which a cluster that returned was away; None for other kinds."""
    level: int | None = None
    """Number of clusters of the level on show then; None if that was the finest by request."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON; ids are stored in pairs, since keys of JSON objects are text. None is left out."""
        optional = {"away": self.away, "level": self.level}
        return {name: value for name, value in optional.items() if value is not None} | {
            "kind": self.kind,
            "at": self.at,
            "version": self.version,
            "parents": [[i, w] for i, w in self.parents.items()],
            "children": [[i, w] for i, w in self.children.items()],
        }

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Change:
        """Read what `to_dict` wrote."""
        if state["kind"] not in get_args(Kind):
            raise ValueError(f"no lifecycle event is of kind {state['kind']!r}")
        parents, children = ({int(i): float(w) for i, w in state[side]} for side in ("parents", "children"))
        away = None if state.get("away") is None else int(state["away"])
        level = None if state.get("level") is None else int(state["level"])
        return cls(state["kind"], int(state["at"]), int(state["version"]), parents, children, away, level)

    def __repr__(self) -> str:
        before, after = (", ".join(map(str, side)) for side in (self.parents, self.children))
        arrow = f"{before} -> {after}" if before and after else before or after
        pause = "" if self.away is None else f" after {self.away} events"
        return f"{self.kind} {arrow}{pause} at event {self.at}"


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


class Mark(NamedTuple):
    """State of a lineage, to which it can be restored."""

    next_id: int
    retired: dict[int, int]
    born_at: dict[int, int]
    history: tuple[HistoryStep, ...]
    n_unreported: int
    visits: Visits


class Lineage:
    """Issues ids, follows them from refit to refit, and keeps the log of what changed.

    A cluster that the stream no longer feeds is retired: it is reported as dead, though the summary still
    contains it. If the stream returns to it, it has its old id again.
    """

    def __init__(self, on_event: Callable[[Change], object] | None = None) -> None:
        self.on_event = on_event
        self.retired: dict[int, int] = {}
        """Retired clusters, and the event count since which each is away."""
        self.born_at: dict[int, int] = {}
        """Event count at which each current id was issued."""
        self.history = History()
        self.level: int | None = None
        """Number of clusters of the level that this lineage follows, to be noted with events."""
        self.visits = Visits()
        """When each cluster was last there, and how long it has stayed away before."""
        self._next = 0
        self._log: deque[Change] = deque(maxlen=MAX_EVENTS)
        self._unreported: deque[Change] = deque()
        """Lifecycle events, in the log already, that `on_event` has not been called with."""

    def issue(self, at: int) -> int:
        """An id that was never issued before."""
        self.born_at[self._next] = at
        self._next += 1
        return self._next - 1

    def __iter__(self) -> Iterator[Change]:
        return iter(self._log)

    def __len__(self) -> int:
        return len(self._log)

    # ---------------------------------------------------------------- single changes

    def born(self, at: int, version: int, weight: float) -> int:
        """A new cluster; returns its id."""
        new = self.issue(at)
        self._report([Change("born", at, version, {}, {new: weight})])
        return new

    def retire(self, at: int, version: int, cluster: int, weight: float, last: int | None = None) -> None:
        """Report a cluster as dead though the summary still contains it; `last`: its latest event, if that is known."""
        record = self.visits.records.get(cluster)
        fed_until = self.history.fed_until(cluster) if record is None else record.last
        fed_until = fed_until if last is None else last
        self.retired[cluster] = max(at if fed_until is None else fed_until, self.born_at[cluster])
        self._report([Change("died", at, version, {cluster: weight}, {})])

    def resume(self, at: int, version: int, cluster: int, weight: float) -> None:
        """Report that the stream has returned to a retired cluster, under its id.

        A part that split from a cluster after that was retired was never reported: it is born now.
        """
        since = self.retired.pop(cluster)
        self.visits = self.visits.returned(cluster, at)
        if self.born_at[cluster] > since:
            self._report([Change("born", at, version, {}, {cluster: weight})])
        else:
            self._report([Change("returned", at, version, {}, {cluster: weight}, away=at - since)])

    # ---------------------------------------------------------------- a refit

    def follow(
        self,
        at: int,
        version: int,
        old: Sequence[int],
        old_weight: Floats,
        new_weight: Floats,
        shared: Floats,
    ) -> tuple[int, ...]:
        """Ids of the new clusters, given the weight that each old and each new cluster share (old x new).

        Pairs are matched for the largest shared weight in all, a match needing a majority of one side. A new
        cluster without a match that has a majority from one old one is its child by a split; an old one without
        a match that went into one new one by majority has merged into it.
        """
        live = np.array([cluster not in self.retired for cluster in old], dtype=bool)
        match = matched(shared, old_weight, new_weight, live)
        parent, heir = majority(shared, new_weight), majority(shared.T, old_weight)
        ids = [old[match[j]] if j in match else self.issue(at) for j in range(len(new_weight))]
        # A pair with a majority would have been matched, were both of its sides free. So the parent of a new cluster
        # without a match has one, as has the heir of an old cluster without a match.
        kept = {i: j for j, i in match.items()}
        splits = {i: [j] for i, j in kept.items()}
        merges = {j: [i] for j, i in match.items()}
        changes: list[Change] = []
        for j in (j for j in range(len(ids)) if j not in match):
            if parent[j] < 0:
                changes += [Change("born", at, version, {}, {ids[j]: float(new_weight[j])})]
            elif live[parent[j]]:
                splits[parent[j]] += [j]
            else:
                self.retired[ids[j]] = min(self.retired[old[parent[j]]], at - 1)
        for i in (i for i in range(len(old)) if i not in kept and live[i]):
            if heir[i] < 0 or ids[heir[i]] in self.retired:
                changes += [Change("died", at, version, {old[i]: float(old_weight[i])}, {})]
            else:
                merges[heir[i]] += [i]
        families: list[tuple[Kind, list[int], list[int]]] = [
            *(("merged", parents, [j]) for j, parents in merges.items() if len(parents) > 1),
            *(("split", [i], children) for i, children in splits.items() if len(children) > 1),
        ]
        for kind, before, after in families:
            parents = {old[i]: float(old_weight[i]) for i in before}
            changes += [Change(kind, at, version, parents, {ids[j]: float(new_weight[j]) for j in after})]
        self.retired = {cluster: since for cluster, since in self.retired.items() if cluster in set(ids)}
        self.born_at = {cluster: self.born_at[cluster] for cluster in ids}
        self._report(changes)
        return tuple(ids)

    def _report(self, changes: Iterable[Change]) -> None:
        for change in changes:
            noted = change if self.level is None else replace(change, level=self.level)
            self._log.append(noted)
            self._unreported.append(noted)

    def deliver(self) -> None:
        """Call `on_event` with what has happened since the last delivery; what it raises is logged.

        For whoever changes a model to call once the change can be seen.
        """
        while self._unreported:
            change = self._unreported.popleft()
            if self.on_event is None:
                continue
            try:
                self.on_event(change)
            except Exception:
                log.exception("on_event failed for the lifecycle event %r; the stream goes on", change)

    def mark(self) -> Mark:
        """The state as of now, for `restore`."""
        return Mark(
            self._next,
            self.retired.copy(),
            self.born_at.copy(),
            tuple(self.history),
            len(self._unreported),
            self.visits,
        )

    def restore(self, mark: Mark) -> None:
        """Undo all changes since a mark, none of which was delivered."""
        while len(self._unreported) > mark.n_unreported:
            self._unreported.pop()
            self._log.pop()
        self._next, self.retired, self.born_at = mark.next_id, mark.retired.copy(), mark.born_at.copy()
        self.history, self.visits = History(mark.history), mark.visits

    def plot(self, **options: Any) -> Axes:
        """The clusters as a river of bands: see `streamclust.plots.plot_lineage`."""
        from streamclust.plots import plot_lineage

        return plot_lineage(self, **options)

    # ---------------------------------------------------------------- saving

    def to_dict(self) -> dict[str, Any]:
        """Convert to types of JSON."""
        return {
            "next": self._next,
            "level": self.level,
            "born_at": [[i, at] for i, at in self.born_at.items()],
            "retired": [[i, since] for i, since in sorted(self.retired.items())],
            "log": [change.to_dict() for change in self._log],
            "history": self.history.to_list(),
            "visits": self.visits.to_list(),
        }

    @classmethod
    def from_dict(cls, state: dict[str, Any], on_event: Callable[[Change], object] | None = None) -> Lineage:
        """Read what `to_dict` wrote."""
        lineage = cls(on_event)
        lineage._next = int(state["next"])
        lineage.level = state.get("level")
        lineage.born_at = {int(i): int(at) for i, at in state["born_at"]}
        lineage._log.extend(map(Change.from_dict, state["log"]))
        lineage.retired = lineage._away_since(state["retired"])
        lineage.history = History.from_list(state.get("history", ()))  # older checkpoints have none
        if "visits" in state:
            lineage.visits = Visits.from_list(state["visits"])
        return lineage

    def _away_since(self, retired: Iterable[Any]) -> dict[int, int]:
        """Retired clusters as `to_dict` wrote them. Older files have ids alone: away since they were reported dead."""
        died = {i: change.at for change in self._log if change.kind == "died" for i in change.parents}
        pairs = ((i, died.get(i, 0)) if isinstance(i, int) else i for i in retired)
        return {int(i): int(since) for i, since in pairs}


def matched(shared: Floats, old_weight: Floats, new_weight: Floats, live: Bools) -> dict[int, int]:
    """Map new clusters to the old ones whose ids they keep. Live clusters have precedence over retired ones."""
    worthy = (shared > 0.5 * old_weight[:, None]) | (shared > 0.5 * new_weight)
    claim = np.where(worthy, np.where(live[:, None], shared, RETIRED_CLAIM * shared), 0.0)
    return {int(j): int(i) for i, j in zip(*best_pairs(claim), strict=True) if worthy[i, j]}


def best_pairs(claim: Floats) -> tuple[Ints, Ints]:
    """Rows and columns of the pairs, none in two of them, of the largest sum; those of no claim may be left out."""
    if claim.size and ((claim > 0).sum(axis=0) <= 1).all():  # no two rows want the same column
        return np.arange(len(claim)), claim.argmax(axis=1)
    if claim.size and ((claim > 0).sum(axis=1) <= 1).all():
        return claim.argmax(axis=0), np.arange(claim.shape[1])
    from scipy.optimize import linear_sum_assignment  # 20 MB, and slow to import

    rows, columns = linear_sum_assignment(claim, maximize=True)
    return rows, columns


def majority(shared: Floats, weight: Floats) -> list[int]:
    """For each column, the row with more than half of its weight; -1 if there is none."""
    if not len(shared):
        return [-1] * len(weight)
    best = shared.argmax(axis=0)
    most = shared[best, np.arange(len(weight))]
    return [int(i) for i in np.where(most > 0.5 * weight, best, -1)]
