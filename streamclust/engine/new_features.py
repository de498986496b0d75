"""New features: clusters are searched for from nothing some time after features have appeared."""

from __future__ import annotations

from streamclust.engine import schedule
from streamclust.engine.schedule import NEVER, RefitRequest
from streamclust.engine.stream import Stream
from streamclust.engine.tuning import TUNING


class FeatureSearch:
    """Notices new features, and asks for a search for the clusters that they tell apart."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    @property
    def awaits_features(self) -> bool:
        """Whether the next feature that appears starts a search."""
        late = self.stream.n_seen >= TUNING.settled_events
        return not self.stream.led and self.stream.counters.feature_due == NEVER and late

    def notice(self) -> None:
        """Schedule a search if features have appeared; called before the first event that has them is learnt."""
        counters, n_features = self.stream.counters, self.stream.shards.n_features
        if n_features <= counters.known_features:
            return
        counters.known_features = n_features
        if self.awaits_features:
            self.schedule_search()

    def schedule_search(self) -> None:
        """Schedule a look and a search for the event at which enough events have the new features."""
        self._schedule(0)
        self.hasten_look()

    def hasten_look(self) -> None:
        """Have the next look no later than the search that features have made due."""
        counters = self.stream.counters
        if counters.n_seen < counters.feature_due < counters.next_look:
            counters.look_gap -= counters.next_look - counters.feature_due
            counters.next_look = counters.feature_due

    def search(self) -> RefitRequest | None:
        """Ask for a search for clusters that new features tell apart, among the events that can have them.

        None if most events lack some feature: clusters would be those of the values filled in.
        """
        counters = self.stream.counters
        lag = 0 if self.lacks_directions else schedule.lag_of_change(counters.n_seen, counters.feature_gap)
        self._schedule(counters.feature_gap)
        if counters.n_filled > TUNING.major_share * (counters.n_seen - counters.features_since):
            return None
        if self.stream.settings.follows:
            counters.begin = max(counters.begin, counters.features_since)
        return RefitRequest(lag, search=True)

    @property
    def lacks_directions(self) -> bool:
        """Whether no cluster is known yet in the directions of a new sketch: births would be pieces of clusters."""
        return self.stream.sketch is not None and self.stream.counters.feature_gap == TUNING.min_search_events

    def begin(self) -> None:
        """Count events that lack a feature from now on: the next event is the first that has a new one."""
        if self.awaits_features:
            self.stream.counters.features_since, self.stream.counters.n_filled = self.stream.n_seen, 0

    def stop(self) -> None:
        """Have no search due."""
        self.stream.counters.feature_due, self.stream.counters.feature_gap = NEVER, 0

    def _schedule(self, gap: int) -> None:
        following = schedule.next_feature_search(self.stream.n_seen, gap)
        self.stream.counters.feature_due, self.stream.counters.feature_gap = following or (NEVER, 0)
