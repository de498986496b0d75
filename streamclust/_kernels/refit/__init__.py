"""Kernels of `streamclust.refit`, a file for each algorithm."""
