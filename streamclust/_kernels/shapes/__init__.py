"""Loops of `streamclust.shapes`: events between two components, two bells, a plateau, narrow gaps."""
