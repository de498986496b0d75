"""Kernels of `streamclust.hierarchy`: costs of merges, and searches for the next pair."""
