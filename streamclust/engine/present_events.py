"""Present events: recent events by which looks and refits judge the stream as it is now."""

from __future__ import annotations

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.engine import schedule
from streamclust.engine.model import Model, Seen
from streamclust.engine.recent_events import BLOCK_EVENTS, WINDOW_EVENTS
from streamclust.engine.shards import LOOK_SAMPLE_EVENTS
from streamclust.engine.stream import Stream

MIN_PRESENT_EVENTS = 1024
"""The present, the time for which the stream has been as it is, has at least so many events: from fewer a refit would
merge clusters that are far apart."""

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
            kept = self._evidence = key, model, self.stream.shards.sequence(begin).evidence(model)
        return kept[2]

    def recent(self, gap: int) -> tuple[Floats, Floats]:
        """Events that stand for the last `gap`, and their weights."""
        n, shards = self._n_sampled(gap), self.stream.shards
        return (shards.latest(n), shards.latest_weights(n)) if n else shards.near(LOOK_SAMPLE_EVENTS)

    def weight_of_one(self) -> float:
        """Average weight of one of the latest events."""
        return float(self.recent(self.stream.counters.look_gap)[1].mean())

    def _n_sampled(self, gap: int) -> int:
        """Number of watched events of each shard that stand for the last `gap`; 0 if the latest in a row do."""
        shards = self.stream.shards
        if gap < schedule.LOOK_EVENTS and len(shards.whole):
            return 0
        n = min(max(gap // BLOCK_EVENTS, LOOK_SAMPLE_EVENTS), WINDOW_EVENTS)
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
            seen = model.see(rows) if model is current else self.stream.shards.latest_seen_by(model, n)
            kept = self._last_seen = key, model, (rows, weight, seen)
        return kept[2]

    def rows(self) -> tuple[Floats, Floats, bool]:
        """The events kept of the present, at least 1,024 if there are, their weights, and whether they cover it.

        They are the latest events in a row and, of the time before those, the watched ones, each of which stands for
        all events of its block.
        """
        n_seen, shards = self.stream.n_seen, self.stream.shards
        first = n_seen - max(n_seen - self.stream.counters.begin, MIN_PRESENT_EVENTS)
        rows, weight = shards.near()
        start = n_seen - len(rows)
        if first >= start:
            return rows[first - n_seen :], weight[first - n_seen :], True
        older, each, at = shards.watched()
        between = (at >= first) & (at < start)
        covered = bool(at[0] <= first)
        older, each = older[between], (each * shards.stands_for())[between]
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
        model, shards = self.stream.published, self.stream.shards
        short = self.stream.n_seen - self.stream.counters.begin < BLOCK_EVENTS * WINDOW_EVENTS
        if model.hidden or model.moved or short:
            rows, each, _ = self.rows()
            of = np.append(model.everyone.place, -1)[model.everyone.see(rows).cell]
            alone = np.flatnonzero(of < 0)  # an event outside all clusters says nothing of a retired one
            of[alone] = model.clusters_shown[model.nearest(rows[alone]).cluster]
            return of, each
        rows, each, _ = shards.watched()
        return self.owners(rows, shards.seen_by(model.published).cell), each * shards.stands_for()
