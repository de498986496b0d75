"""River estimators: thin shells over the engine and the refits."""

from typing import TYPE_CHECKING, Any

from streamclust.streaming.intake import RefusedEvents
from streamclust.streaming.stream_clusterer import StreamClusterer

if TYPE_CHECKING:
    from streamclust.streaming.stream_features import StreamFeatures

__all__ = ["RefusedEvents", "StreamClusterer", "StreamFeatures"]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """StreamFeatures, when first asked for: a service starts without it, and sooner."""
    if name != "StreamFeatures":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from streamclust.streaming.stream_features import StreamFeatures

    return StreamFeatures
