"""Kernels of `streamclust.families`: posteriors and evidences, cluster by cluster."""
