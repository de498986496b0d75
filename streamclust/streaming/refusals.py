"""Refusals: events that cannot be learnt are counted, or raised; values that cannot be read are counted by feature."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from streamclust.parameters import Invalid

MAX_COUNTED_FEATURES = 1024
"""Features whose invalid values are counted by name; those of more are counted together."""
OTHER_FEATURES = "(other)"


class RefusedEvents(UserWarning):
    """Warning, given once: events were refused; `n_refused` counts them."""


class InvalidValues(UserWarning):
    """Warning, given once: values could not be read and count as missing; `n_invalid` counts them."""


class Refusals:
    """Number of refused events, and the reason of the latest; number of values of each feature that were invalid."""

    def __init__(self, invalid: Invalid) -> None:
        self.invalid = invalid
        self.count = 0
        self.latest = ""
        self.n_invalid: dict[Hashable, int] = {}

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

    def add_invalid(self, values: Iterable[tuple[Hashable, str]], warns: bool = True) -> None:
        """Count values that could not be read, each a feature and the reason, and warn at the first."""
        for feature, reason in values:
            if warns and not self.n_invalid:
                warnings.warn(
                    f"a value counts as missing: {reason}. Further ones are only counted in `n_invalid`; pass "
                    'invalid="raise" to raise instead',
                    InvalidValues,
                    stacklevel=4,
                )
            self._count(feature, 1)

    def _count(self, feature: Hashable, n: int) -> None:
        known = feature in self.n_invalid or len(self.n_invalid) < MAX_COUNTED_FEATURES
        name = feature if known else OTHER_FEATURES
        self.n_invalid[name] = self.n_invalid.get(name, 0) + n

    def invalid_to_list(self) -> list[tuple[str | int, int]]:
        """Features and the number of their invalid values, as JSON can hold them."""
        return [
            (name if isinstance(name, (str, int)) else str(name), n) for name, n in self.n_invalid.items()
        ]

    def merge(self, other: Refusals) -> None:
        """Add what another has counted."""
        self.count += other.count
        for feature, n in other.n_invalid.items():
            self._count(feature, n)


def invalid_counts(saved: Iterable[Sequence[Any]]) -> dict[Hashable, int]:
    """Read what `invalid_to_list` wrote."""
    return {pair[0]: pair[1] for pair in saved}
