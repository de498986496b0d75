"""New features: clusters are searched for from nothing some time after features have appeared."""

from __future__ import annotations

import sys

from streamclust.engine import schedule
from streamclust.engine.queries import Reading
from streamclust.moments import Moments

MAX_FILLED_SHARE = 0.5
"""New features start no search if a larger share of the events since lacks some feature."""
NEVER = sys.maxsize
"""The event count of what is not due."""


class NewFeatures(Reading):
    """The part of an engine that notices features, and searches for the clusters that they tell apart."""

    next_look: int
    look_gap: int
    """Number of events between the last look and `next_look`."""
    led: bool
    known_features: int
    """Number of features that were noticed."""
    feature_due: int
    """Event count from which a look starts a search because features have appeared."""
    features_since: int
    """Event count at which features last appeared that earlier events have filled-in values of."""
    n_filled: int
    """Number of events since then that lacked some feature."""
    feature_gap: int
    """Number of events between the last such search, or the first event that has the features, and the next."""

    def _start_refit(self, lag: int | None = None, more: Moments | None = None, search: bool = False) -> None:
        raise NotImplementedError

    @property
    def awaits_features(self) -> bool:
        """Whether the next feature that appears starts a search."""
        return (
            not self.led and self.feature_due == NEVER and self.n_seen >= schedule.MIN_EVENTS_BEFORE_FEATURES
        )

    def notice_features(self) -> None:
        """Have a search for clusters some time after features have appeared; before their first event is learnt."""
        if self.shards.n_features <= self.known_features:
            return
        self.known_features = self.shards.n_features
        if self.awaits_features:
            self._await_search()

    def _await_search(self) -> None:
        """Have a look, and a search for clusters, as soon as enough events have the features that are new."""
        self._schedule_features(0)
        self._hasten_look()

    def _hasten_look(self) -> None:
        """Have the next look no later than the search that features have made due."""
        if self.n_seen < self.feature_due < self.next_look:
            self.look_gap -= self.next_look - self.feature_due
            self.next_look = self.feature_due

    def _search_features(self) -> None:
        """Search for clusters that new features tell apart; among the events that can have them, if others cannot.

        Not where most events lack some feature: clusters would be those of the values filled in.
        """
        lag = 0 if self._lacks_directions else schedule.lag_of_change(self.n_seen, self.feature_gap)
        self._schedule_features(self.feature_gap)
        if self.n_filled > MAX_FILLED_SHARE * (self.n_seen - self.features_since):
            return
        if self.settings.follows:
            self.begin = max(self.begin, self.features_since)
        self._start_refit(lag=lag, search=True)

    @property
    def _lacks_directions(self) -> bool:
        """Whether no cluster is known yet in the directions of a new sketch: births would be pieces of clusters."""
        return self.sketch is not None and self.feature_gap == schedule.FEATURE_EVENTS

    def begin_features(self) -> None:
        """Count events that lack a feature from now on: the next event is the first that has a new one."""
        if self.awaits_features:
            self.features_since, self.n_filled = self.n_seen, 0

    def count_filled(self, n: int) -> None:
        """Count events, about to be learnt, that lack a feature."""
        self.n_filled += n

    def _schedule_features(self, gap: int) -> None:
        following = schedule.next_feature_search(self.n_seen, gap)
        self.feature_due, self.feature_gap = following or (NEVER, 0)
