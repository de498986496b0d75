"""Alarm: residuals of a stream's events that have grown, so that features are to be searched for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from streamclust._kernels.types import Floats

LEVEL_BLOCKS = 64
"""Memory of the usual level of residuals, in blocks of events."""
FIRST_BLOCKS = 8
"""Blocks from which the usual level is learnt, before any is judged by it."""
WILD = 4.0
"""A row's squares count up to this multiple of the usual: one wild event is no change."""
SLACK_DEVIATIONS = 1.0
"""Part of each block's excess, in deviations, that chance may have."""
ALARM_DEVIATIONS = 8.0
"""Sum of excesses, in deviations, that chance exceeds once in some e^16 blocks, were they Gaussian."""


class ResidualAlarm(NamedTuple):
    """A sequential test [CUSUM, Page 1954] of the mean squared residual of blocks of events; immutable.

    >>> alarm, rng = ResidualAlarm(), np.random.default_rng(0)
    >>> for block in range(40):
    ...     alarm = alarm.after(rng.chisquare(20, size=64) / 20 * (1.0 if block < 30 else 1.3), 64 * block, 64)
    ...     if alarm.rings:
    ...         break
    >>> block > 29, alarm.since >= 64 * 29
    (True, True)
    """

    n_blocks: int = 0
    mean: float = 0.0
    variance: float = 0.0
    excess: float = 0.0
    """Sum of excesses since `since`, in deviations."""
    since: int = 0
    """Event count from which residuals are larger than usual, if they are."""

    @property
    def rings(self) -> bool:
        """Whether residuals have grown."""
        return self.excess > ALARM_DEVIATIONS

    def after(self, squares: Floats, at: int, n: int) -> ResidualAlarm:
        """With a block of n events, numbers `at` - n to `at`: mean squares of the residuals of each row."""
        if len(squares) == 0:
            return self
        clipped = squares if self.n_blocks == 0 else np.minimum(squares, WILD * max(self.mean, 1e-300))
        value = float(clipped.mean())
        excess = 0.0
        if self.n_blocks >= FIRST_BLOCKS and self.variance > 0:
            excess = max(self.excess + (value - self.mean) / math.sqrt(self.variance) - SLACK_DEVIATIONS, 0.0)
        n_blocks = min(self.n_blocks + 1, LEVEL_BLOCKS)
        change = value - self.mean
        mean = self.mean + change / n_blocks
        variance = self.variance + (change * (value - mean) - self.variance) / n_blocks
        return ResidualAlarm(n_blocks, mean, variance, excess, self.since if excess > 0 else at)

    @classmethod
    def from_list(cls, values: Sequence[float]) -> ResidualAlarm:
        """The alarm whose fields these are; ValueError or TypeError if they are none."""
        n_blocks, mean, variance, excess, since = values
        if not all(map(math.isfinite, values)) or variance < 0:
            raise ValueError("its arrays do not fit each other: the alarm is none")
        return cls(int(n_blocks), mean, variance, excess, int(since))
