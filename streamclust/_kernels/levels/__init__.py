"""Loops of `streamclust.levels`: how far apart the means of two clusters are."""
