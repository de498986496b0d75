"""Checkpoints: the state of a clusterer, of a shard or of a model in one safe file."""

from streamclust.checkpoint.files import (
    FORMAT,
    CheckpointError,
    Checkpoints,
    decode,
    encode,
    read,
    reason_of,
    write,
)
from streamclust.checkpoint.shard_transfer import handed_on, shard_in, summary_in, waiting_in
from streamclust.checkpoint.state import (
    MERGED,
    engine_from_state,
    engine_state,
    features_from_state,
    features_state,
    model_from_state,
    model_in,
    model_state,
    shard_from_state,
    shard_state,
    sketch_from_state,
    transform_from_state,
)
from streamclust.checkpoint.validation import check_projection, check_refusals
from streamclust.checkpoint.waiting_events import pack_projection, unpack_projection
from streamclust.utils.state import State

__all__ = [
    "FORMAT",
    "MERGED",
    "CheckpointError",
    "Checkpoints",
    "State",
    "check_projection",
    "check_refusals",
    "decode",
    "encode",
    "engine_from_state",
    "engine_state",
    "features_from_state",
    "features_state",
    "handed_on",
    "model_from_state",
    "model_in",
    "model_state",
    "pack_projection",
    "read",
    "reason_of",
    "shard_from_state",
    "shard_in",
    "shard_state",
    "sketch_from_state",
    "summary_in",
    "transform_from_state",
    "unpack_projection",
    "waiting_in",
    "write",
]
