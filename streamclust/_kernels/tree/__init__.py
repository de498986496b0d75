"""Kernels of `streamclust.tree`: the summary tree, and descents through a tree of points."""
