"""Stable cluster ids: matches clusters of successive refits, and logs births, deaths, returns, splits and merges."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.lineage.changes import Change, Kind
from streamclust.lineage.history import History, HistoryStep
from streamclust.lineage.matching import majority, matched
from streamclust.lineage.names import checked_name, inherited
from streamclust.lineage.visits import Visits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

log = logging.getLogger(__name__)

MAX_EVENTS = 10_000
"""Number of lifecycle events kept; older ones are dropped."""


class Mark(NamedTuple):
    """State of a lineage, to which it can be restored."""

    next_id: int
    retired: dict[int, int]
    born_at: dict[int, int]
    history: tuple[HistoryStep, ...]
    n_unreported: int
    visits: Visits
    names: dict[int, str]


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
        self.names: dict[int, str] = {}
        """Names that people gave to clusters, by id. A new dict whenever one changes: other threads read it."""
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

    def name(self, cluster: int, name: str | None) -> None:
        """Give a name to a cluster, or take it away; retired clusters have names, too."""
        if cluster not in self.born_at:
            raise KeyError(f"there is no cluster {cluster} now; the clusters are {sorted(self.born_at)}")
        others = {i: kept for i, kept in self.names.items() if i != cluster}
        self.names = others if name is None else others | {cluster: checked_name(name)}

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
        self._report(changes, inherited(self.names, changes))
        self.names = {cluster: name for cluster, name in self.names.items() if cluster in self.born_at}
        return tuple(ids)

    def _report(self, changes: Iterable[Change], names: dict[int, str] | None = None) -> None:
        """Note changes, after which clusters have these names; by default those that they had."""
        before, self.names = self.names, self.names if names is None else names
        for change in changes:
            noted = replace(change.named(before, self.names), level=self.level)
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
            self.names,
        )

    def restore(self, mark: Mark) -> None:
        """Undo all changes since a mark, none of which was delivered."""
        while len(self._unreported) > mark.n_unreported:
            self._unreported.pop()
            self._log.pop()
        self._next, self.retired, self.born_at = mark.next_id, mark.retired.copy(), mark.born_at.copy()
        self.history, self.visits, self.names = History(mark.history), mark.visits, mark.names

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
            "names": [[i, name] for i, name in sorted(self.names.items())],
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
        lineage.names = {int(i): checked_name(name) for i, name in state.get("names", ())}
        if "visits" in state:
            lineage.visits = Visits.from_list(state["visits"])
        return lineage

    def _away_since(self, retired: Iterable[Any]) -> dict[int, int]:
        """Retired clusters as `to_dict` wrote them. Older files have ids alone: away since they were reported dead."""
        died = {i: change.at for change in self._log if change.kind == "died" for i in change.parents}
        pairs = ((i, died.get(i, 0)) if isinstance(i, int) else i for i in retired)
        return {int(i): int(since) for i, since in pairs}
