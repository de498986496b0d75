"""Levels: coarser and coarser partitions of the components that a refit found, and which of them to show."""

from streamclust.levels.choice import (
    Level,
    chosen_level,
    default_level,
    levels_of,
    prominence,
)
from streamclust.levels.path import NO_PAIRS, Path, path_of, path_of_counts, path_of_gaussians

__all__ = [
    "NO_PAIRS",
    "Level",
    "Path",
    "chosen_level",
    "default_level",
    "levels_of",
    "path_of",
    "path_of_counts",
    "path_of_gaussians",
    "prominence",
]
