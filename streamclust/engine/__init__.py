"""The engine: events in, a published model out."""

from streamclust.engine.flow import Engine, Settings
from streamclust.engine.model import Model

__all__ = ["Engine", "Model", "Settings"]
