"""The section [features]: the parameters of features of a stream."""

from __future__ import annotations

from typing import Literal

from streamclust_connectors.settings.base import Count, Positive, Section, Seed


class FeaturesSection(Section):
    """The features of a stream, as `streamclust.StreamFeatures` has them; used with model = "features"."""

    penalty: Positive | None = None
    """What a feature must explain of the sampled events to be one (λ²); by default it is taken from their noise."""
    half_life: Positive | None = None
    """An event's weight halves after so many events; by default never."""
    warmup: Count = 256
    """Events before the first refit."""
    refit_every: Count = 8192
    """Events between refits in the long run."""
    reservoir: Count = 1000
    """Events of the sample that refits read: the bound on memory."""
    max_features: Count = 32
    """Number of features, at most."""
    restarts: Count = 3
    """Searches from nothing at refits 1, 2, 4, 8, ..."""
    missing: Literal["impute", "error"] = "impute"
    """A value that an event lacks is filled in by its features ("impute") or a reason to refuse it ("error")."""
    seed: Seed = 0
    """The same seed and events give the same features."""
