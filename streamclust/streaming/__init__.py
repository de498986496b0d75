"""River estimators: thin shells over the engine and the refits."""

from streamclust.streaming.intake import RefusedEvents
from streamclust.streaming.stream_clusterer import StreamClusterer
from streamclust.streaming.stream_features import StreamFeatures

__all__ = ["RefusedEvents", "StreamClusterer", "StreamFeatures"]
