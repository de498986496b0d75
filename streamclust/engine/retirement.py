"""Retirement: clusters that the stream no longer feeds are hidden, and shown again when it returns to them."""

from __future__ import annotations

from collections.abc import Set

import numpy as np

from streamclust.engine.leaf_shares import kish
from streamclust.engine.present_events import PresentEvents
from streamclust.engine.stream import Stream
from streamclust.engine.tuning import TUNING


class Retirement:
    """Retires and resumes the clusters of a stream."""

    def __init__(self, stream: Stream, present: PresentEvents) -> None:
        self.stream = stream
        self.present = present

    def judge(self) -> None:
        """Retire clusters that the stream no longer feeds, and resume those that it has come back to."""
        if not self.stream.settings.follows:
            return
        model, shards = self.stream.published, self.stream.shards
        of, each = self.present.all_owners()
        weight = model.membership.weight
        count, share = np.bincount(of, minlength=len(weight)), np.bincount(of, each, len(weight)) / each.sum()
        evidence = shards.recent.sequence(self.stream.counters.begin).share_evidence(model.with_retired)
        independent = min(1.0, evidence * float(shards.recent.stands_for()[-1]))
        expected = independent * kish(each) * weight / weight.sum()
        fed = share >= TUNING.retired_share
        retired = np.array([cluster in self.stream.lineage.retired for cluster in model.ids])
        back = retired & fed & (count >= TUNING.return_events)
        gone = ~retired & ~fed & (count < TUNING.return_events) & (expected >= TUNING.min_expected_events)
        ids = np.array(model.ids)
        self.apply(set(ids[back].tolist()), set(ids[gone].tolist()))

    def apply(self, back: Set[int], gone: Set[int] = frozenset()) -> None:
        """Resume and retire these clusters; publish a new version of the model if that changes it."""
        model, lineage, n_seen = self.stream.published, self.stream.lineage, self.stream.n_seen
        version = model.version + 1
        for cluster, weight in zip(model.ids, model.membership.weight.tolist(), strict=True):
            if cluster in back:
                lineage.resume(n_seen, version, cluster, weight)
            elif cluster in gone:
                lineage.retire(n_seen, version, cluster, weight)
        hidden = frozenset(lineage.retired)
        if hidden != model.hidden:
            self.stream.publish(model.changed(version=version, n_seen=n_seen, hidden=hidden))
