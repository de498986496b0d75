"""Summaries become clusters."""

from streamclust.refit.bkm import bkm_steps, fit_points, point_steps, refit
from streamclust.refit.partition import Partition

__all__ = ["Partition", "bkm_steps", "fit_points", "point_steps", "refit"]
