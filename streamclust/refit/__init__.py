"""Refits: summary -> Partition, Mixture or FeatureAllocation."""

from streamclust.refit.bkm.fit import bkm_steps, fit_points, point_steps, refit_bkm
from streamclust.refit.chunky_em.fit import chunky_em_steps, fit_mixture, point_em_steps, refit_mixture
from streamclust.refit.chunky_em.mixture import Mixture
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
    "refit_bkm",
    "refit_mixture",
]
