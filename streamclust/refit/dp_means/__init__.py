"""DP-means: clusters within a radius, of points, leaves or streams [Broderick, Kulis & Jordan]. `fit` is the way in."""
