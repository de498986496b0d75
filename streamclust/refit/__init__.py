"""Refits: summary -> Partition, Mixture or FeatureAllocation."""

from streamclust.refit.bkm import bkm_steps, fit_points, point_steps, refit
from streamclust.refit.chunky_em import chunky_em_steps, fit_mixture, point_em_steps, refit_mixture
from streamclust.refit.mixture import Mixture
from streamclust.refit.partition import Partition

__all__ = [
    "Mixture",
    "Partition",
    "bkm_steps",
    "chunky_em_steps",
    "fit_mixture",
    "fit_points",
    "point_em_steps",
    "point_steps",
    "refit",
    "refit_mixture",
]
