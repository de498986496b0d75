"""TransformSearch: decides, while a stream is young, which of its skewed features are transformed.

It is decided when 128, 512 and 2,048 events have come, each time anew by the watched events in their own units. The
last decision stays. What was learnt is carried over: as long as all events are watched, trees are built anew from them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.engine import schedule
from streamclust.engine.present_events import PresentEvents
from streamclust.engine.reproject import retransform
from streamclust.engine.stream import Stream
from streamclust.families.mixed import NUMBER
from streamclust.parameters import TransformOf
from streamclust.refit.bkm.transform_choice import choose_transform
from streamclust.sketch import Transform


class TransformSearch:
    """Decides which features of a stream are transformed. Nothing is, unless asked for."""

    def __init__(self, stream: Stream, present: PresentEvents) -> None:
        self.stream = stream
        self.present = present
        self.auto = False
        """Whether the evidence decides about features that nobody has asked for."""
        self.wishes: Mapping[int, TransformOf] = {}
        """How columns are to be transformed."""

    def ask(self, auto: bool, wishes: Mapping[int, TransformOf]) -> None:
        """Decide by the evidence, too, or only as asked for; known knees hold at once."""
        self.auto, self.wishes = auto, wishes
        knee = self.stream.transform.knees(max([-1, *wishes]) + 1)
        for j, wish in wishes.items():
            if not isinstance(wish, str):
                knee[j] = float(wish)
        if not self.stream.led and knee.any():
            self.use(Transform(np.append(knee, self.stream.transform.knee[len(knee) :])))

    @property
    def due(self) -> int:
        """Event count of the next decision."""
        asked = self.auto or "log" in self.wishes.values()
        return self.stream.counters.transform_due if asked and self.stream.sketch is None else schedule.NEVER

    def decide(self) -> bool:
        """Decide now; whether anything changed."""
        stream = self.stream
        stream.counters.transform_due = schedule.next_transform(stream.n_seen, stream.counters.transform_due)
        found = self._found()
        if np.array_equal(found.columns, stream.transform.columns):
            return False
        self.use(found)
        stream.counters.last_challenge = 0.0  # search from nothing, too
        return True

    def _found(self) -> Transform:
        """The transform that the watched events speak for."""
        stream, recent = self.stream, self.stream.shards.recent
        rows = stream.transform.back(recent.watched_rows())
        if (gaps := recent.gaps()) is not None:
            rows = np.where(gaps.missing, np.nan, rows)
        columns = stream.settings.columns
        numbers = [j for j in range(rows.shape[1]) if j >= len(columns) or columns[j] == NUMBER]
        return choose_transform(
            stream.settings.family,
            rows,
            kish_weights(recent.watched_weights()),
            {j: wish for j, wish in self.wishes.items() if j < rows.shape[1]},
            numbers if self.auto else (),
            self.present.evidence,
        )

    def use(self, transform: Transform) -> None:
        """Transform by this from now on, and carry over what was learnt."""
        stream = self.stream
        if transform.is_same(stream.transform):
            return
        if not stream.shards:
            stream.transform = transform
            return
        retransform(stream, transform)
        stream.pending_refit = None
        counters = stream.counters
        counters.begin, counters.moving, counters.alarm = 0, False, counters.alarm.silenced()


def kish_weights(weight: Floats) -> Floats:
    """Weights that sum to the number of equal ones that they are worth."""
    return np.asarray(weight * (weight.sum() / np.square(weight).sum()))
