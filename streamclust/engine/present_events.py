"""Present events: recent events by which looks and refits judge the stream as it is now."""

from __future__ import annotations

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.engine.leaf_shares import as_of_now, drifted, kish
from streamclust.engine.model import Model, Seen
from streamclust.engine.stream import Stream
from streamclust.engine.tuning import TUNING
from streamclust.families import family as family_named
from streamclust.tree import SummaryTree

Judged = tuple[Floats, Floats, Seen]
"""Events, their weights, and how a model sees them."""


class PresentEvents:
    """Reads the recent events of a stream; labels and evidence are kept until the stream goes on."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._last_seen: tuple[tuple[int, int], Model, Judged] | None = None
        """Last result of `seen`, with its event count, number of events and model."""
        self._evidence: tuple[tuple[int, int], Model, float] | None = None
        """Last `evidence`, with its event count, the begin of the present, and the model."""

    @property
    def evidence(self) -> float:
        """Independent events that one event is worth in decisions about clusters: 1, or less where events depend."""
        model, begin = self.stream.model, self.stream.counters.begin
        if model is None:
            return 1.0
        key, kept = (self.stream.n_seen, begin), self._evidence
        if kept is None or kept[0] != key or kept[1] is not model:
            kept = self._evidence = key, model, self.stream.shards.recent.sequence(begin).evidence(model)
        memory_events = self.stream.shards.recent.memory_events
        return min(kept[2], 1.0 / self.stream.counters.time_known_before(len(model.rows), memory_events))

    def recent(self, gap: int) -> tuple[Floats, Floats]:
        """Events that stand for the last `gap`, and their weights."""
        n, recent = self._n_sampled(gap), self.stream.shards.recent
        if not n:
            return recent.latest(TUNING.look_sample_events)
        return recent.watched_rows(n), recent.watched_weights(n)

    def weight_of_one(self) -> float:
        """Average weight of one of the latest events."""
        return float(self.recent(self.stream.counters.look_gap)[1].mean())

    def _n_sampled(self, gap: int) -> int:
        """Number of watched events of each shard that stand for the last `gap`; 0 if the latest in a row do."""
        shards = self.stream.shards
        if gap < TUNING.look_events and len(shards.recent.ring):
            return 0
        n = min(max(gap // TUNING.block_events, TUNING.look_sample_events), TUNING.window_events)
        return n // max(1, len(shards))

    def seen(self, gap: int) -> Judged:
        """The events of `recent`, their weights, and how the model sees them; watched ones are labelled once.

        Until clusters move, the model as it was published labels them: clusters learn little at a look.
        """
        n, current = self._n_sampled(gap), self.stream.published
        model = current.published if n and not current.moved else current
        key, kept = (self.stream.n_seen, n), self._last_seen
        if kept is None or kept[0] != key or kept[1] is not model:
            rows, weight = self.recent(gap)
            recent = self.stream.shards.recent
            seen = model.see(rows) if model is current else recent.watched_seen_by(model, n)
            kept = self._last_seen = key, model, (rows, weight, seen)
        return kept[2]

    def rows(self) -> tuple[Floats, Floats, bool]:
        """The events kept of the present, at least 1,024 if there are, their weights, and whether they cover it.

        They are the latest events in a row and, of the time before those, the watched ones, each of which stands for
        all events of its block.
        """
        n_seen, recent = self.stream.n_seen, self.stream.shards.recent
        first = n_seen - max(n_seen - self.stream.counters.begin, TUNING.min_search_events)
        rows, weight = recent.latest()
        start = n_seen - len(rows)
        if first >= start:
            return rows[first - n_seen :], weight[first - n_seen :], True
        older, each, at = recent.watched()
        between = (at >= first) & (at < start)
        covered = bool(at[0] <= first)
        older, each = older[between], (each * recent.stands_for())[between]
        if not len(rows):
            return older, each, covered
        return np.concatenate([older, rows]), np.concatenate([each, weight]), covered

    def owners(self, rows: Floats, cell: Ints) -> Ints:
        """The active cluster of each row, given its cell; rows in no cell go to the cluster of least cost."""
        model = self.stream.published
        of = np.append(model.place, -1)[cell]
        alone = np.flatnonzero(of < 0)
        if len(alone):
            of[alone] = model.nearest(rows[alone]).cluster
        return of

    def all_owners(self) -> tuple[Ints, Floats]:
        """The cluster, retired or not, of each event kept of the present, and their weights.

        If the present is as long as the watched events last, those alone: they are labelled already.
        """
        model, recent = self.stream.published, self.stream.shards.recent
        short = self.stream.n_seen - self.stream.counters.begin < TUNING.block_events * TUNING.window_events
        if model.hidden or model.moved or short:
            rows, each, _ = self.rows()
            of = np.append(model.with_retired.place, -1)[model.with_retired.see(rows).cell]
            alone = np.flatnonzero(of < 0)  # an event outside all clusters says nothing of a retired one
            of[alone] = model.membership.active_clusters[model.nearest(rows[alone]).cluster]
            return of, each
        rows, each, _ = recent.watched()
        return self.owners(rows, recent.seen_by(model.published).cell), each * recent.stands_for()

    # ---------------------------------------------------------------- trees

    def tree(self) -> tuple[SummaryTree, bool]:
        """Merge all shards into a tree to read, and say whether the stream has drifted.

        If it has, leaves weigh what they weigh of late.
        """
        tree = self.stream.shards.merged_tree().without_outliers()
        if not self.drifts_from(tree):
            return tree, False
        return as_of_now(tree, self.stream.shards.recent.watched_rows(), self._represented()), True

    def tree_of_rows(self, rows: Floats, weight: Floats) -> SummaryTree:
        """A tree of some events alone, to read, that weighs as much as all shards do."""
        s, shards = self.stream.settings, self.stream.shards
        scatter = family_named(s.family).scatter
        tree = SummaryTree(shards.n_features, scatter, None, leaf_size=s.leaf_size, seed=s.seed)
        tree.insert(rows, weight)
        tree = tree.without_outliers()
        return tree.reweighted(np.full(len(tree.leaves()), shards.weight / tree.weight), worth=kish(weight))

    def drifts_from(self, tree: SummaryTree) -> bool:
        """Whether the latest events are spread otherwise than all that a tree has learnt; no, if drift is ignored."""
        if not (self.stream.settings.follows and tree.n_events > 0):
            return False
        recent = self.stream.shards.recent
        evidence = min(1.0, float(recent.stands_for()[-1]) * self.evidence)
        return drifted(tree, recent.watched_rows(), self._represented(), evidence)

    def _represented(self) -> Floats:
        """Weight of the events that each watched row stands for: itself or, later, all of its block."""
        recent = self.stream.shards.recent
        weight: Floats = np.minimum(recent.watched_weights(), self.most_weight)
        return weight * recent.watched_stands_for()

    @property
    def most_weight(self) -> float:
        """The most that an event may weigh in decisions about clusters: a weighted event is one observation.

        Where a few events have most of the weight, all others would be evidence of nothing. Infinite where weights
        differ little.
        """
        parts = self.stream.shards.values()
        given = np.concatenate([part.watch.weights() for part in parts] or [np.ones(1)])
        most = TUNING.max_median_weights * float(np.median(given))
        return most if len(given) and given.max() > most > 0.0 else np.inf
