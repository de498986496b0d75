"""Bayesian k-means: hard clusters and their number by free energy [Kurihara & Welling]. `fit` is the way in."""
