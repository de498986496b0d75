"""River estimators: thin shells over the engine and the refits."""

from typing import TYPE_CHECKING

from streamclust.engine import Model
from streamclust.engine.cluster_view import ClusterView
from streamclust.engine.door import LeftSketch
from streamclust.engine.feature_profiles import FeatureProfile, Profiles
from streamclust.engine.model import Assignment
from streamclust.streaming.checked import Checked, Reason
from streamclust.streaming.intake import RefusedEvents
from streamclust.streaming.reporting import Cluster
from streamclust.streaming.stream_clusterer import StreamClusterer

if TYPE_CHECKING:
    from streamclust.streaming.stream_features import StreamFeatures

__all__ = [
    "Assignment",
    "Checked",
    "Cluster",
    "ClusterView",
    "FeatureProfile",
    "LeftSketch",
    "Model",
    "Profiles",
    "Reason",
    "RefusedEvents",
    "StreamClusterer",
    "StreamFeatures",
]


def __getattr__(name: str) -> object:
    """Import StreamFeatures on first use, so that a service starts faster."""
    if name != "StreamFeatures":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from streamclust.streaming.stream_features import StreamFeatures

    return StreamFeatures
