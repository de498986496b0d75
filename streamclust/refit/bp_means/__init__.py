"""BP-means and K-features: any number of features per row [Broderick, Kulis & Jordan]. `fit` is the way in."""
