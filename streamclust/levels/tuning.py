"""Numbers that tune the path of levels.

"Decided by" names the measurement on record; "not distinguished" means that none separates the value from its
neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LevelTuning:
    """Tuning of the merges.

    >>> LevelTuning().neighbours
    16
    """

    neighbours: int = 16
    """Nearest components to each, between which saddles of the density are looked for. Time against saddles that are
    missed; not distinguished from all pairs."""
    segment_points: int = 15
    """Points at which the density between two means is evaluated. Time against accuracy; not distinguished."""
    min_factor: float = 4.0
    """Factor in ζ over which a level must hold to be shown though the refit's own evidence is for more clusters. Too
    many clusters of small tables against too few; decided by breast_cancer (2 clusters of K = 5 to 9, ARI .00 to .46
    for .46 to .50) beside wine and iris, which hold over more."""
    shown_margin: float = 2.0
    """Factor by which another merge must lose less than one that is on show to come before it. Smaller follows the data
    sooner, larger keeps ids quieter. Not distinguished."""
    ridge_variance: float = 1e-6
    """Variance added to components, in units of that within: keeps flat components invertible; not distinguished."""


TUNING = LevelTuning()
