"""Comparison of the clusters of two states of a stream, or of two streams."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.lineage import labelled
from streamclust.lineage.matching import matched
from streamclust.streaming.descriptions import MIN_SHIFT, in_column
from streamclust.streaming.portraits import Portrait, nearest_clusters

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Kind = Literal["gone", "new", "grown", "shrunk", "moved", "same"]

MIN_GROWTH = 1.25
"""Factor by which a share must differ to be told."""
MIN_DEVIATES = 4.0
"""Standard errors by which a share or a mean must differ to be told."""
MIN_TOLD_FLOW = 0.05
"""Part of a cluster's events from which it is told where they are now."""


@dataclass(frozen=True)
class ClusterChange:
    """A cluster before and now; None where it was not, or is no more."""

    before: int | None
    now: int | None
    name: str | None
    kinds: tuple[Kind, ...]
    share_before: float
    share_now: float
    shift: float
    """Most that the mean of a feature has moved, in standard deviations of the cluster; 0 if new or gone."""
    feature: Hashable
    """The feature that moved most; None if new or gone."""
    events_now: dict[int, float]
    """Parts of its recent events of then by the clusters that they would be in now; of a new one by those of then."""

    def words(self) -> str:
        """The change in words.

        >>> ClusterChange(4, None, None, ("gone",), 0.2, 0.0, 0.0, None, {3: 0.92, 5: 0.02}).words()
        'gone: its events would be in 3 (92%)'
        >>> ClusterChange(2, 2, None, ("grown", "moved"), 0.2, 0.4, -2.1, "speed", {2: 1.0}).words()
        'grown, moved (speed -2.1 sd)'
        """
        where = ", ".join(f"{i} ({part:.0%})" for i, part in self.events_now.items() if part >= MIN_TOLD_FLOW)
        if "new" in self.kinds:
            return f"new: such events were in {where}" if where else "new: there were no such events"
        if "gone" in self.kinds:
            return f"gone: its events would be in {where}" if where else "gone"
        moved = f"moved ({self.feature} {self.shift:+.1f} sd)"
        return ", ".join(moved if kind == "moved" else kind for kind in self.kinds)


class ClusterComparison(Sequence[ClusterChange]):
    """A line for each cluster before or now, the largest first; prints as a table.

    `flows` (clusters before, clusters now) has the share of the earlier events of one that would be in the other now.
    """

    def __init__(
        self, lines: Iterable[ClusterChange], before: Portrait, now: Portrait, flows: Floats
    ) -> None:
        self._lines = tuple(lines)
        self.before, self.now, self.flows = before, now, flows

    @overload
    def __getitem__(self, place: int) -> ClusterChange: ...
    @overload
    def __getitem__(self, place: slice) -> ClusterComparison: ...
    def __getitem__(self, place: int | slice) -> ClusterChange | ClusterComparison:
        if isinstance(place, slice):
            return ClusterComparison(self._lines[place], self.before, self.now, self.flows)
        return self._lines[place]

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[ClusterChange]:
        return iter(self._lines)

    def to_dicts(self) -> list[dict[str, Any]]:
        """A dictionary for each line, as data frames are made of."""
        return [asdict(line) | {"words": line.words()} for line in self._lines]

    def _cells(self) -> list[tuple[str, str, str, str, str, str]]:
        ends = [[("" if i is None else str(i)) for i in (line.before, line.now)] for line in self._lines]
        shares = [
            [f"{line.share_before:.0%}" if a else "", f"{line.share_now:.0%}" if b else ""]
            for line, (a, b) in zip(self._lines, ends, strict=True)
        ]
        return [
            (a, b, line.name or "", p, q, line.words())
            for line, (a, b), (p, q) in zip(self._lines, ends, shares, strict=True)
        ]

    def __str__(self) -> str:
        cells = self._cells()
        names = in_column("name", [cell[2] for cell in cells])
        rows = [f"{'before':>6}  {'now':>5}{names[0]}  {'share':>5}  {'now':>5}  what became of it"]
        rows += [
            f"{a:>6}  {b:>5}{name}  {p:>5}  {q:>5}  {words}"
            for (a, b, _, p, q, words), name in zip(cells, names[1:], strict=True)
        ]
        return "\n".join(rows)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "<tr><th>before<th>now<th>name<th>share<th>share now<th>what became of it</tr>"
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in self._cells()
        )
        return f"<table>{head}{body}</table>"

    def plot(self, **options: Any) -> Axes:
        """The flows from the clusters before to those of now: see `streamclust.plots.plot_flows`."""
        from streamclust.plots import plot_flows

        ends = [
            [labelled(i, side.cluster_names) for i in side.ids.tolist()] for side in (self.before, self.now)
        ]
        ids = self.before.ids.tolist(), self.now.ids.tolist()
        return plot_flows(self.flows, self.before.share, self.now.share, ids, ends, **options)


def compare(before: Portrait, now: Portrait, owners_now: Ints) -> ClusterComparison:
    """Compare two states; `owners_now` are the clusters of now of the earlier events."""
    flows = flows_between(before, now, owners_now)
    pairs = same_clusters(before, now, flows)
    lines = [_line(before, now, flows, i, j) for i, j in pairs]
    return ClusterComparison(
        sorted(lines, key=lambda line: -max(line.share_before, line.share_now)), before, now, flows
    )


def compare_snapshots(before: Portrait, now: Portrait) -> ClusterComparison:
    """Compare two snapshots: the leaves of the earlier one are where the nearest leaves of the later one are."""
    return compare(before, now, nearest_clusters(before.seen_with(now.names), now))


def flows_between(before: Portrait, now: Portrait, owners_now: Ints) -> Floats:
    """Share of the events of each earlier cluster that would be in each of now: rows add up to the earlier shares.

    Of a cluster without any event at hand its mean stands for all of them; that is looked up with the events.
    """
    count = np.zeros((len(before.ids), len(now.ids)))
    rows, columns = (
        np.searchsorted(side.ids, own) for side, own in ((before, before.owners), (now, owners_now))
    )
    np.add.at(count, (rows, columns), before.point_weight)
    total = count.sum(axis=1, keepdims=True)
    return np.asarray(before.share[:, None] * count / np.where(total > 0, total, 1.0))


def same_clusters(before: Portrait, now: Portrait, flows: Floats) -> list[tuple[int | None, int | None]]:
    """Places of clusters that are the same, before and now: by their ids in one stream, else by their events."""
    if is_one_stream(before, now):
        place = {i: j for j, i in enumerate(now.ids.tolist())}
        match = {k: place[i] for k, i in enumerate(before.ids.tolist()) if i in place}
    else:
        found = matched(flows, before.share, now.share, np.ones(len(before.ids), dtype=bool))
        match = {i: j for j, i in found.items()}
    gone = [(i, match.get(i)) for i in range(len(before.ids))]
    return [*gone, *((None, j) for j in range(len(now.ids)) if j not in match.values())]


def is_one_stream(before: Portrait, now: Portrait) -> bool:
    """Whether one log holds the latest lifecycle event of the other, or one of them has none."""
    logs = before.log, now.log
    return not all(logs) or logs[0][-1] in logs[1] or logs[1][-1] in logs[0]


def _line(before: Portrait, now: Portrait, flows: Floats, i: int | None, j: int | None) -> ClusterChange:
    share = 0.0 if i is None else float(before.share[i]), 0.0 if j is None else float(now.share[j])
    ids = None if i is None else int(before.ids[i]), None if j is None else int(now.ids[j])
    name = None if ids[0] is None else before.cluster_names.get(ids[0])
    name = (None if ids[1] is None else now.cluster_names.get(ids[1])) or name
    shift, feature, kinds = 0.0, None, list[Kind]()
    if i is None or j is None:
        kinds = ["new"] if i is None else ["gone"]
    else:
        shift, feature, moved = shift_of(before, now, i, j)
        kinds = [*growth(share, (float(before.weight.sum()), float(now.weight.sum())))]
        kinds += ["moved"] if moved else []
    part = flows[:, j] if i is None else flows[i]
    ends = before.ids if i is None else now.ids
    total = part.sum()
    order = np.argsort(-part, kind="stable")
    flow = {int(ends[k]): float(part[k] / total) for k in order.tolist() if part[k] > 0}
    return ClusterChange(*ids, name, tuple(kinds or ["same"]), *share, shift, feature, flow)


def growth(share: tuple[float, float], total: tuple[float, float]) -> tuple[Kind, ...]:
    """Whether a share has grown or shrunk by more than chance, given the number of events of both.

    >>> growth((0.1, 0.2), (1000.0, 1000.0)), growth((0.2, 0.1), (1000.0, 1000.0)), growth((0.1, 0.2), (20.0, 20.0))
    (('grown',), ('shrunk',), ())
    """
    both = sum(s * n for s, n in zip(share, total, strict=True)) / sum(total)
    error = math.sqrt(max(both * (1.0 - both), 0.0) * sum(1.0 / n for n in total))
    if abs(share[1] - share[0]) <= MIN_DEVIATES * error or max(share) < MIN_GROWTH * min(share):
        return ()
    return ("grown",) if share[1] > share[0] else ("shrunk",)


def shift_of(before: Portrait, now: Portrait, i: int, j: int) -> tuple[float, Hashable, bool]:
    """Deviations by which the mean of a cluster has moved in the feature that moved most; that; whether it is told."""
    column = dict(zip(now.names, range(now.mean.shape[1]), strict=False))
    shared = [
        (k, column[name]) for k, name in enumerate(before.names[: before.mean.shape[1]]) if name in column
    ]
    if not shared:
        return 0.0, None, False
    old, new = (np.array(part, dtype=np.int64) for part in zip(*shared, strict=True))
    gap = now.mean[j, new] - before.mean[i, old]
    size = np.maximum(np.abs(now.mean[j, new]), np.abs(before.mean[i, old]))
    both = np.sqrt((before.deviation[i, old] ** 2 + now.deviation[j, new] ** 2) / 2)
    spread = np.maximum(both, 8.0 * np.finfo(float).eps * size)  # rounding is no way
    shift = np.divide(gap, spread, out=np.zeros(len(gap)), where=spread > 0)
    most = int(np.abs(shift).argmax())
    error = math.sqrt(1.0 / max(before.weight[i], 1.0) + 1.0 / max(now.weight[j], 1.0))
    told = abs(shift[most]) >= max(MIN_SHIFT, MIN_DEVIATES * error)
    return float(shift[most]), before.names[int(old[most])], bool(told)
