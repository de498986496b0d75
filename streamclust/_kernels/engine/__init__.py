"""Kernels of `streamclust.engine`: predictions."""
