"""Refusals: events that cannot be learnt are counted, or raised."""

from __future__ import annotations

import warnings

from streamclust.parameters import Invalid


class RefusedEvents(UserWarning):
    """Warning, given once: events were refused; `n_refused` counts them."""


class Refusals:
    """Number of refused events, and the reason of the latest."""

    def __init__(self, invalid: Invalid) -> None:
        self.invalid = invalid
        self.count = 0
        self.latest = ""

    def add(self, error: object) -> None:
        """Count a refused event, and warn at the first; with invalid="raise", raise the error instead."""
        if self.invalid == "raise":
            raise error if isinstance(error, Exception) else ValueError(error)
        self.count += 1
        self.latest = str(error)
        if self.count == 1:
            warnings.warn(
                f"an event was refused: {error}. Further refusals are only counted in `n_refused`; pass "
                'invalid="raise" to raise instead',
                RefusedEvents,
                stacklevel=4,
            )
