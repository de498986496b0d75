"""streamclust: streaming clustering that learns the number of clusters, in bounded memory, for ever."""

from importlib import import_module
from importlib.metadata import version
from typing import Any

__version__ = version("streamclust")

_WHERE = {"StreamClusterer": "streamclust.streaming", "StreamFeatures": "streamclust.streaming"}
"""Where each name of the package comes from: imported when first asked for, so that `import streamclust` is fast."""

__all__ = ["__version__", *_WHERE]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
