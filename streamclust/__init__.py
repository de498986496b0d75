"""streamclust: streaming clustering that learns the number of clusters, in bounded memory, for ever."""

from importlib.metadata import version

__version__ = version("streamclust")
