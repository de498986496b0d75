"""Checkpoints: an engine's state in one safe file."""

from streamclust.checkpoint.files import CheckpointError, Checkpoints, read, write
from streamclust.checkpoint.state import State, engine_from_state, engine_state, shard_from_state, shard_state

__all__ = [
    "CheckpointError",
    "Checkpoints",
    "State",
    "engine_from_state",
    "engine_state",
    "read",
    "shard_from_state",
    "shard_state",
    "write",
]
