"""What an engine is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Settings:
    """What an engine is told; the same settings, seed and events give the same bits."""

    family: Any = "gaussian"
    refit: Any = "bkm"
    mixture: Any = "finite"
    max_leaves: int = 512
    refit_every: int = 20_000
    warmup: int = 100
    half_life: float | None = None
    birth_penalty: float | None = None
    background: bool = True
    seed: int = 0
    leaf_size: int = 16
