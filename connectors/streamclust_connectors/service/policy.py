"""Intervals and error handling of the service loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from streamclust_connectors.interfaces import Channel, Encode
from streamclust_connectors.service.assigned_partitions import OnDataLoss, Start
from streamclust_connectors.service.outputs import PLAIN_FORM, AssignmentForm


@dataclass(frozen=True)
class Policy:
    """Intervals of the service loop, in seconds, and its reaction to failures."""

    poll: float = 0.5
    checkpoint_every: float = 10.0
    checkpoint_events: int | None = None
    """Also write a checkpoint after this number of events, at the end of the poll that reaches it."""
    snapshot_every: float | None = None
    snapshot_method: Literal["rbhc", "abc", "bhc"] = "rbhc"
    start: Start = "earliest"
    """Where to start a partition without a saved offset."""
    on_data_loss: OnDataLoss = "fail"
    form: AssignmentForm = PLAIN_FORM
    """Form of the messages of assignments."""
    encoders: Mapping[Channel, Encode] = field(default_factory=dict)
    """Writers of the records of channels that are not written as JSON."""
    backoff: float = 0.1
    longest_backoff: float = 10.0
    stop_within: float = 8.0
    """Time limit of the final checkpoint, retries included."""
    stop_at_end: bool = True
    """Whether to stop at the end of the source."""

    def wait_after(self, failures: int) -> float:
        """Seconds to wait after a number of failures in a row: doubled each time, up to a limit.

        >>> [Policy().wait_after(failures) for failures in (1, 2, 3, 100)]
        [0.1, 0.2, 0.4, 10.0]
        """
        return min(self.backoff * 2.0 ** min(failures - 1, 60), self.longest_backoff)
