"""streamclust: streaming clustering that learns the number of clusters, in bounded memory, for ever."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamclust.streaming import StreamClusterer as StreamClusterer
    from streamclust.streaming import StreamFeatures as StreamFeatures

__version__: str

_WHERE = {"StreamClusterer": "streamclust.streaming", "StreamFeatures": "streamclust.streaming"}
"""Where each name of the package comes from: imported when first asked for, so that `import streamclust` is fast."""

__all__ = ["__version__", *_WHERE]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version  # slow to import

        found = globals()[name] = version("streamclust")
        return found
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
