"""Section [features]: parameters of the features of a stream."""

from __future__ import annotations

from typing import Literal

from streamclust_connectors.settings.base import Count, Positive, Section, Seed


class FeaturesSection(Section):
    """Parameters of `streamclust.StreamFeatures`; used with model = "features"."""

    penalty: Positive | None = None
    """Minimal reduction of the squared error of the sample by a feature (λ²); estimated from the noise if not set."""
    half_life: Positive | None = None
    """Number of events after which an event's weight has halved; never if not set."""
    warmup: Count = 256
    """Number of events before the first refit."""
    refit_every: Count = 8192
    """Number of events between refits in the long run."""
    reservoir: Count = 1000
    """Number of sampled events that refits read; bounds the memory."""
    max_features: Count = 32
    """Maximal number of features."""
    restarts: Count = 3
    """Number of searches from scratch at refits 1, 2, 4, 8, ..."""
    missing: Literal["impute", "error"] = "impute"
    """Missing values are imputed from the features ("impute"), or the event is refused ("error")."""
    seed: Seed = 0
    """Seed of random numbers; equal seeds and events give equal features."""
