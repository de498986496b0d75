"""The service: a loop that reads a source, learns its events, sends results to a sink and saves checkpoints."""

from streamclust_connectors.service.loop import Service
from streamclust_connectors.service.policy import Policy

__all__ = ["Policy", "Service"]
