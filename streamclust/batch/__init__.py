"""scikit-learn estimators: thin shells over the refits and the hierarchies."""

from streamclust.batch.agglomerative_bayesian import AgglomerativeBayesian
from streamclust.batch.bayesian_hierarchical import BayesianHierarchical
from streamclust.batch.bayesian_k_means import BayesianKMeans
from streamclust.batch.bp_means import BPMeans
from streamclust.batch.chunky_gaussian_mixture import ChunkyGaussianMixture
from streamclust.batch.dp_means import DPMeans
from streamclust.batch.k_features import KFeatures
from streamclust.batch.relaxed_bhc import RelaxedBHC
from streamclust.batch.stream_estimator import StreamEstimator

__all__ = [
    "AgglomerativeBayesian",
    "BPMeans",
    "BayesianHierarchical",
    "BayesianKMeans",
    "ChunkyGaussianMixture",
    "DPMeans",
    "KFeatures",
    "RelaxedBHC",
    "StreamEstimator",
]
