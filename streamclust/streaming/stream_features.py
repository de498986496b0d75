"""StreamFeatures: the features of a stream, River style."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from river import base
from river.utils.dataframe import into_frame, to_native_frame

from streamclust._kernels.types import Bools, Floats
from streamclust.refit.feature_stream import FeatureStream, StreamSettings
from streamclust.refit.penalties import check_count, check_penalty
from streamclust.schema import Missing, Schema

FORMAT = 1


class StreamFeatures(base.MiniBatchTransformer):
    """Features of a stream: every event is a sum of some of them, any number [BP-means, Broderick et al. 2013].

    A cluster owns its events alone; a feature shares them. A photograph of a table has the table, and whichever of four
    objects lie on it: five features, where clustering needs sixteen groups.

    Between refits an event only chooses among the features there are, and their means follow. Features are born and
    end at refits, which read a uniform sample of the stream. Ids are issued once: a feature keeps its id through
    refits, and no id comes back.

    Parameters
    ----------
    penalty
        λ², what a feature must explain of the reservoir's rows to be one. None estimates it from their noise.
    half_life
        An event's weight halves after so many events. None never forgets.
    warmup
        Events before the first refit. Refits follow at doubling counts, later every `refit_every` events; all counts
        are rounded up to multiples of 64, the block in which events are learnt.
    refit_every
        Events between refits in the long run.
    reservoir
        Rows of the sample that refits read: the bound on memory.
    max_features
        The bound on the number of features; reaching it warns.
    restarts
        Searches from nothing at refits 1, 2, 4, 8, ..., besides the one from the present features.
    missing
        "impute": values may be absent, None or NaN, and new columns may come. A value that lacks is taken as the
        event's own features have it (before the first refit: as the mean of its column), and counted in `n_missing`.
        "error" refuses such events.
    seed
        The same seed and events give the same features, however the events are batched.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> parts = 5.0 * rng.normal(size=(3, 12))
    >>> events = rng.integers(2, size=(600, 3)) @ parts + rng.normal(size=(600, 12))
    >>> model = StreamFeatures(warmup=128)
    >>> model.learn_many(events)
    >>> model.predict_one(dict(enumerate(events[5]))) == model.predict_many(events[5:6])[0]
    True
    >>> sorted(model.features) == sorted(model.transform_one(dict(enumerate(events[5]))))
    True
    """

    def __init__(
        self,
        penalty: float | None = None,
        half_life: float | None = None,
        warmup: int = 256,
        refit_every: int = 8192,
        reservoir: int = 1000,
        max_features: int = 32,
        restarts: int = 3,
        missing: Missing = "impute",
        seed: int = 0,
    ) -> None:
        self.penalty = penalty
        self.half_life = half_life
        self.warmup = warmup
        self.refit_every = refit_every
        self.reservoir = reservoir
        self.max_features = max_features
        self.restarts = restarts
        self.missing = missing
        self.seed = seed
        if penalty is not None:
            check_penalty(penalty)
        if half_life is not None and not (isinstance(half_life, (int, float)) and 0 < half_life < math.inf):
            raise ValueError(
                f"half_life must be positive and finite, got {half_life!r}; use None to never forget"
            )
        for name in ("warmup", "refit_every", "reservoir", "max_features", "restarts"):
            check_count(name, getattr(self, name))
        self._schema = Schema(missing=missing)
        self._stream = FeatureStream(self._settings())

    def _settings(self) -> StreamSettings:
        return StreamSettings(
            self.penalty, self.half_life, self.warmup, self.refit_every, self.reservoir, self.max_features,
            self.restarts, self.seed,
        )  # fmt: skip

    # ---------------------------------------------------------------- learning

    def learn_one(self, x: dict[Any, Any]) -> None:
        """Learn an event; a value that is not a finite number is refused, and nothing is learnt."""
        self._stream.learn_row(self._schema.row(x))

    def learn_many(self, X: Any) -> None:  # noqa: ANN401
        """Learn a frame (pandas, polars, pyarrow), a numpy table or a list of events, as if one by one."""
        self._stream.learn(self._schema.table(X))

    def merge(self, other: StreamFeatures) -> None:
        """Learn what another stream's features have learnt; columns are matched by name. Then refit.

        Features that `other` has and this one has not get new ids here.
        """
        if not isinstance(other, StreamFeatures) or other is self:
            raise ValueError("only another StreamFeatures can be merged")
        for what in ("half_life", "missing"):
            if getattr(self, what) != getattr(other, what):
                both = f"{getattr(self, what)} and {getattr(other, what)}"
                raise ValueError(f"cannot merge streams of different {what}: {both}")
        names = dict.fromkeys([*self._schema.names, *other._schema.names])
        schema = Schema(list(names), self.missing)
        at = np.array([schema.column(name) for name in other._schema.names], dtype=np.int64)
        theirs = FeatureStream.from_arrays(other._settings(), other._stream.to_arrays())
        theirs.widen(len(other._schema))

        def spread(rows: Floats, fill: float) -> Floats:
            wide = np.full((len(rows), len(schema)), fill)
            wide[:, at] = rows
            return wide

        theirs.A, theirs.rows = spread(theirs.A, 0.0), spread(theirs.rows, np.nan)
        theirs.pending = [spread(row[None, :], np.nan)[0] for row in self._padded(theirs.pending, len(at))]
        self._schema = schema
        self._stream.widen(len(schema))
        self._stream.merge(theirs)

    @staticmethod
    def _padded(rows: Iterable[Floats], width: int) -> list[Floats]:
        return [np.concatenate([row, np.full(width - len(row), np.nan)]) for row in rows]

    # ---------------------------------------------------------------- asking

    def _allocated(self, rows: Floats) -> Bools:
        width = self._stream.A.shape[1]
        known = rows[:, :width]
        if known.shape[1] < width:
            known = np.pad(known, ((0, 0), (0, width - known.shape[1])), constant_values=np.nan)
        return self._stream.allocate(known)

    def predict_one(self, x: dict[Any, Any]) -> set[int]:
        """The ids of the features an event has; none before the first refit. Missing values are left out of account."""
        return self._sets(self._schema.row(x, extend=False)[None, :])[0]

    def predict_many(self, X: Any) -> list[set[int]]:  # noqa: ANN401
        """The ids of the features of each event."""
        return self._sets(self._schema.table(X, extend=False))

    def _sets(self, rows: Floats) -> list[set[int]]:
        ids = self._stream.ids
        return [set(ids[has].tolist()) for has in self._allocated(rows)]

    def transform_one(self, x: dict[Any, Any]) -> dict[Any, int]:
        """1 for each feature that the event has, 0 for the others, by id."""
        has = self._allocated(self._schema.row(x, extend=False)[None, :])[0]
        return dict(zip(self._stream.ids.tolist(), has.astype(int).tolist(), strict=True))

    def transform_many(self, X: Any) -> Any:  # noqa: ANN401
        """A column of 0 and 1 for each feature: a frame like the one given, or a numpy table."""
        Z = self._allocated(self._schema.table(X, extend=False)).astype(np.int64)
        if isinstance(X, (np.ndarray, list, tuple)):
            return Z
        ids = self._stream.ids.tolist()
        return to_native_frame({i: Z[:, k] for k, i in enumerate(ids)}, like=into_frame(X))

    def inverse_transform_one(self, z: Mapping[int, Any] | set[int]) -> dict[Hashable, float]:
        """The event that has these features: their sum. Takes what `transform_one` or `predict_one` gives.

        >>> StreamFeatures().inverse_transform_one(set())
        {}
        """
        wanted = {i for i, on in z.items() if on} if isinstance(z, Mapping) else set(z)
        unknown = wanted - set(self._stream.ids.tolist())
        if unknown:
            raise ValueError(f"there is no feature {sorted(unknown)[0]}; present are {sorted(self.features)}")
        has = np.isin(self._stream.ids, list(wanted))
        return self._schema.mapping(self._stream.A[has].sum(axis=0))

    # ---------------------------------------------------------------- what was found

    @property
    def features(self) -> dict[int, dict[Hashable, float]]:
        """The mean of each feature, by id and name of column."""
        return {
            i: self._schema.mapping(a) for i, a in zip(self._stream.ids.tolist(), self._stream.A, strict=True)
        }

    @property
    def weights(self) -> dict[int, float]:
        """How many events (decayed, if forgetting) have each feature."""
        return dict(zip(self._stream.ids.tolist(), self._stream.G.diagonal().tolist(), strict=True))

    @property
    def n_features(self) -> int:
        """How many features there are now."""
        return len(self._stream.A)

    @property
    def n_events(self) -> int:
        """How many events were learnt."""
        return self._stream.n_events + len(self._stream.pending)

    @property
    def n_missing(self) -> int:
        """How many values were imputed so far, of events whose block is learnt."""
        return self._stream.n_missing

    def plot(self, shape: tuple[int, int] | None = None, **options: Any) -> Any:  # noqa: ANN401
        """Each feature as an image of `shape` (height, width), or as bars: see `streamclust.plots.plot_features`."""
        from streamclust.plots import plot_features

        stream = self._stream
        share = stream.G.diagonal() / stream.weight if len(stream.A) else np.zeros(0)
        return plot_features(stream.A, share, shape, [f"feature {i}" for i in stream.ids.tolist()], **options)

    # ---------------------------------------------------------------- saving

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The whole state as arrays (settings and schema as JSON); `from_arrays` continues bit for bit."""
        about = {"format": FORMAT, "settings": self._get_params(), "schema": self._schema.to_dict()}
        return self._stream.to_arrays() | {"about": np.array(json.dumps(about))}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> StreamFeatures:
        """The estimator that `to_arrays` was called on."""
        try:
            about = json.loads(str(arrays["about"]))
            settings, schema, found = about["settings"], about["schema"], about["format"]
        except (KeyError, TypeError, ValueError) as wrong:
            raise ValueError(f"not a saved StreamFeatures: {wrong}") from None
        if found != FORMAT:
            raise ValueError(f"saved in format {found}, this version reads format {FORMAT}")
        model = cls(**settings)
        model._schema = Schema.from_dict(schema)
        model._stream = FeatureStream.from_arrays(model._settings(), arrays)
        return model
