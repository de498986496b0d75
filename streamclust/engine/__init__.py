"""The engine: events in, a published model out."""

from streamclust.engine.engine import Engine
from streamclust.engine.model import Model
from streamclust.engine.settings import EngineSettings

__all__ = ["Engine", "EngineSettings", "Model"]
