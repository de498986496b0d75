"""Decoding: records of bytes become events, rows of numbers with keys, times and weights."""

from streamclust_connectors.decode.decoder import (
    READERS,
    Decoded,
    Decoder,
    Failure,
    Format,
    learnable_events,
    non_numeric_names,
)
from streamclust_connectors.decode.fields import Fields

__all__ = [
    "READERS",
    "Decoded",
    "Decoder",
    "Failure",
    "Fields",
    "Format",
    "learnable_events",
    "non_numeric_names",
]
