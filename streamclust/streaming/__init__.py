"""River estimators: thin shells over the engine and the refits."""

from typing import TYPE_CHECKING

from streamclust.engine import Model
from streamclust.engine.cluster_view import ClusterView
from streamclust.engine.feature_profiles import FeatureProfile, Profiles
from streamclust.engine.model import Assignment
from streamclust.engine.projection import LeftSketch
from streamclust.streaming.checked_events import Checked, Reason
from streamclust.streaming.clusterer import StreamClusterer
from streamclust.streaming.clusters import Cluster
from streamclust.streaming.comparison import ClusterChange, ClusterComparison, compare_snapshots
from streamclust.streaming.descriptions import ClusterLine, Descriptions, FeatureMixture
from streamclust.streaming.diagnosis import DataHint, Diagnosis, Finding
from streamclust.streaming.examples import Example, Representatives
from streamclust.streaming.portraits import Portrait, portrait_of_snapshot
from streamclust.streaming.posteriors import ClusterPosterior
from streamclust.streaming.refusals import InvalidValues, RefusedEvents
from streamclust.streaming.shards import ClustererShards, FeatureShards, ModelSharing

if TYPE_CHECKING:
    from streamclust.streaming.features import StreamFeatures

__all__ = [
    "Assignment",
    "Checked",
    "Cluster",
    "ClusterChange",
    "ClusterComparison",
    "ClusterLine",
    "ClusterPosterior",
    "ClusterView",
    "ClustererShards",
    "DataHint",
    "Descriptions",
    "Diagnosis",
    "Example",
    "FeatureMixture",
    "FeatureProfile",
    "FeatureShards",
    "Finding",
    "InvalidValues",
    "LeftSketch",
    "Model",
    "ModelSharing",
    "Portrait",
    "Profiles",
    "Reason",
    "RefusedEvents",
    "Representatives",
    "StreamClusterer",
    "StreamFeatures",
    "compare_snapshots",
    "portrait_of_snapshot",
]


def __getattr__(name: str) -> object:
    """Import StreamFeatures on first use, so that a service starts faster."""
    if name != "StreamFeatures":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from streamclust.streaming.features import StreamFeatures

    return StreamFeatures
