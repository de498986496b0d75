"""Chunky greedy EM: Gaussian mixtures on boxes of a tree, and their number [Nunnink]. `fit` is the way in."""
