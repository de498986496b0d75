"""Missing values of the next events: drawn from the model or, before the first refit, taken from the nearest leaf."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from streamclust._kernels.types import Bools, Floats
from streamclust.engine.imputation import imputed
from streamclust.engine.stream import Stream


class Imputer:
    """Fills in the missing values of events before they are learnt."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    @property
    def is_empty(self) -> bool:
        """Whether there is neither an event nor a model from which missing values could be filled in."""
        return not (self.stream.led and self.stream.model) and not self.stream.shards.hold_events

    @property
    def n_imputable(self) -> int:
        """Number of features, the first ones, whose missing values are drawn from the model: 0 before a refit."""
        model = self.stream.model
        refitted = self.stream.led or self.stream.counters.n_refits > 0
        return model.n_coordinates if model is not None and refitted else 0

    def means(self) -> Floats:
        """The mean of all events known: of the shards or, where they hold none, of the model."""
        shards, model = self.stream.shards, self.stream.model
        if shards.n_features == 0:
            return np.zeros(0)
        if shards.hold_events or model is None:
            return np.asarray(shards.merged_tree().total.mean[0])
        known = model.clusters.total().mean[0]
        return np.concatenate([known, np.zeros(max(0, shards.n_features - len(known)))])

    def impute(self, rows: Floats, missing: Bools) -> Floats:
        """Rows of the next events, with the missing values of features that the model knows drawn from it."""
        model, n_known = self.stream.model, self.n_imputable
        if model is None or not missing[:, :n_known].any():
            return rows
        number = self.stream.n_seen + np.arange(len(rows))
        drawn = imputed(model, rows[:, :n_known], missing[:, :n_known], number, self.stream.settings.seed)
        return np.concatenate([drawn, rows[:, n_known:]], axis=1)

    def fill(self, row: Floats, shard: Hashable) -> Floats:
        """A row with its missing values taken from the nearest leaf; 0 before the first event."""
        shards = self.stream.shards
        return shards.fill(row, shard) if shards.hold_events else np.nan_to_num(row)
