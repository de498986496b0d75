"""Numbers that tune sketches.

"Decided by" names the measurement on record; "not distinguished" means that none separates the value from its
neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SketchTuning:
    """Tuning of directions, residuals and compression.

    >>> SketchTuning().max_directions
    16
    """

    max_directions: int = 16
    """Directions of a sketch, at most, unless told. A refit costs the cube of them; ten already tell a hundred topics
    apart (docs/concepts/events.md)."""
    min_judged_events: int = 8
    """Events below which residuals are not judged, and below which a value counts as rare; not distinguished."""
    min_residual_share: float = 1e-9
    """Least mean of squared residuals, as a share of the squared lengths: avoids division by zero."""
    inside_share: float = 0.9999
    """Share of the residuals of the learnt events beyond which a residual is outside. False alarms against missed
    novelties; not distinguished."""
    left_errors: float = 6.0
    """Standard errors by which the mean squared residual of events must exceed its level for them to have left the
    sketch: by chance once in a billion."""
    left_growth: float = 0.25
    """Share of the level by which it must exceed it, too: learning directions again takes time; not distinguished."""
    max_residual_levels: float = 16.0
    """Levels that one squared residual counts for, at most: of 256 events a few wild ones must not look like new
    directions."""
    min_zero_share: float = 0.01
    """Share of zeros that a compressed feature has, at least; not distinguished."""
    compression_nats: float = 5.0
    """Nats by which a feature's other values must be likelier as log-normal than as normal to be compressed. Decided by
    digits, which must not be (.77 -> .65 otherwise, docs/concepts/events.md), together with `EXPONENTIAL_NATS`."""


TUNING = SketchTuning()
