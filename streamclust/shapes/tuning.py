"""Numbers that tune the joins of components into shapes.

"Decided by" names the measurement on record; "not distinguished" means that none separates the value from its
neighbours. Histograms along the line between two components have their own constants, in `_kernels/shapes`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class JoinTuning:
    """Tuning of edges, their heights and the joins.

    >>> JoinTuning().max_peak_ratio
    4.0
    """

    adjacent_share: float = 0.01
    """Share of a component's weight that must have the other as second best for two components to be adjacent. Lower
    judges more edges, which takes time; not distinguished."""
    ridge_variance: float = 1e-6
    """Variance added to components, in units of the data's: keeps flat components invertible; not distinguished."""
    gap_confidence: float = 0.999
    """Confidence of the upper bound on the ratio of a gap's events to those of the peaks beside it. Higher needs more
    events to see a gap; not distinguished."""
    max_gap_ratio: float = 0.5
    """Ratio below which that bound makes a gap. Higher parts more components; not distinguished."""
    gap_nats: float = 0.1
    """Height, in nats, that a gap adds for each nat that the bound is below `max_gap_ratio`; not distinguished."""
    max_heights: int = 100
    """Heights in the distribution of heights: those measured or, of more edges, quantiles of them. Time against
    detail; not distinguished."""
    em_iterations: int = 50
    """EM iterations for the shares of those heights. Time against accuracy; not distinguished."""
    min_error_nats: float = 1e-4
    """Smallest standard error of a height, in nats: avoids division by zero."""
    max_peak_ratio: float = 4.0
    """Ratio of two peaks above which the bells are not pieces of one plateau. Decided by drawn shapes: at 10 noise
    bridged them, at 2 those of uneven density broke; 3 to 5 hardly differ."""


TUNING = JoinTuning()
