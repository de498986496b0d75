"""scikit-learn estimators: thin shells over the refits and the hierarchies."""

from streamclust.batch.bayesian_k_means import BayesianKMeans

__all__ = ["BayesianKMeans"]
