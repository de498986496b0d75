"""StreamEstimator: the engine with scikit-learn's partial_fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClusterMixin, DensityMixin
from sklearn.utils import Tags
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from streamclust._kernels.types import Floats, Ints
from streamclust.engine import Engine, EngineSettings, Model
from streamclust.engine.projection import Projection
from streamclust.engine.settings import check_parameters
from streamclust.levels import Level, levels_of
from streamclust.lineage import Change
from streamclust.moments import Moments
from streamclust.parameters import (
    GAUSSIANS,
    Detail,
    DriftChoice,
    FamilyName,
    MixtureName,
    NumberOfClusters,
    RefitName,
    ScaleName,
    ShapeName,
    Transforms,
    wishes_by_column,
)
from streamclust.refit.bkm.fit import check_points
from streamclust.schema.frames import warn_left_out, without_text
from streamclust.tree.rows import check_rows
from streamclust.utils.late import issparse

OUTLIER = -1
"""Label of a point that is more novel than nearly all."""


class StreamEstimator(ClusterMixin, DensityMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """The streaming engine, scikit-learn style: `partial_fit` learns, refits come by themselves.

    Columns of a frame that are text or dates are left out, with a warning that names them. Missing values (NaN) are
    drawn from the clusters, as in `StreamClusterer`. A sparse table counts as a dense one.

    Labels are ids: they last from refit to refit, and one that has gone does not come back.

    Parameters
    ----------
    family
        What a cluster is: "gaussian" (any covariance), "diagonal", "spherical", "multinomial", "bernoulli", "poisson"
        or "mixed" (numbers beside categories).
    refit
        How clusters are found: by "bkm" (Bayesian k-means: hard clusters, their number by free energy), "chunky-em" (a
        Gaussian mixture) or "dp-means" (clusters within a radius λ). λ² is `birth_penalty`; by default λ, in standard
        deviations of each feature within clusters, is the one whose clusters have the least free energy.
    mixture
        Prior of the clusters' shares under "bkm" and "dp-means": "finite" (Dirichlet), "infinite" (Dirichlet process)
        or "uninformative"; "chunky-em" takes "finite" alone.
    max_leaves
        Number of leaves of the summary, at most: the bound on memory and on the cost of a refit; by default 512, and 8
        for each cluster where there are more than 64 of them, up to 4,096 or 64 MB.
    refit_every
        Events between refits: at first they come more often, later only as evidence grows or the stream changes.
    warmup
        Events before the first refit; by default 8 for each feature, but at least 20 and at most 100. Until then
        everything is one cluster. The next refits come each time the count has doubled.
    half_life
        Half-life of an event's weight: a number of events or, if times are given, a time; by default none.
    drift
        Whether the clusters are those of the latest events ("follow") or of all events in any order ("ignore").
        "follow": clusters that the latest 30,000 events no longer hold are retired, and shares are theirs where they
        differ from those of all events. A stream that is sorted by cluster looks like one that changes: the clusters of
        its end remain. "ignore", for data that are finite or only badly mixed: nothing is retired and no event counts
        for more than another, so that `settle` finds what is in the whole.
    birth_penalty
        Squared distance from every centre (λ² of DP-means) beyond which an event may open a cluster between refits and,
        with refit="dp-means", in them; by default the clusters' own ellipsoids decide.
    shape
        Whether each component that is found is a cluster ("ellipse"), or Gaussians that are pieces of one shape, a
        ring, say, are joined into one ("any"); by default "any" for Gaussians and refit="bkm", else "ellipse".
    detail
        How fine the clusters shown are: "auto" (the level that stands out), "fine" (all that refits can tell apart),
        "coarse" (the next coarser level that stands out) or a number of events that tell two clusters apart. Refits
        find the finest clusters; a path of merges leads from them to one, and any level of it can be shown. It may be
        changed at any time, and takes effect at once.
    n_clusters
        Number of clusters to show, or the least and the most; by default `detail` decides. If there are fewer, all are
        shown. It may be changed at any time, and takes effect at once.
    background
        Whether refits run in a thread beside the stream. The results are the same bit for bit.
    on_event
        Called with each lifecycle event (`Change`) as it happens.
    seed
        The same seed and events give the same clusters, however the events were batched.
    max_directions
        Gaussian events of more features than this are reduced to this many directions at most; by default those of more
        than 64 features, to at most 16, or 64 where clusters of unit length overlap in those. The directions are those
        in which the first 1,024 events vary most above the noise; until then events wait, and all are one cluster.
        Clusters are found in these directions, and reported in the features.
    scale
        How wide events are compared: with each feature in its own deviations ("deviation"), or by their angle ("unit"),
        for embeddings and texts. "unit" divides every event by its length first, however many features it has; an event
        of zeros is refused.
    transforms
        Skewed features that are compared by their logarithm: "auto" (features without negative values that span more
        than a decade, where the clusters are much likelier so), "none", or a mapping of features to "log", "none" or
        the value (knee) below which the transform is linear. A feature's knee is the value that a tenth of its values
        are smaller than. "auto" decides when 128, 512 and 2,048 events have come, and when `settle` is called before;
        then transforms stay. Features are reported in their own units: the mean of one that is transformed is a median.
    outliers
        Events that are more novel than all but this share of recent events are outside every cluster, and have the id
        -1; by default every event has a cluster. `predict_one` of a stream returns None for them. It may be changed at
        any time.

    Examples
    --------
    >>> points = np.random.default_rng(0).normal(size=(600, 2)) + np.repeat([0.0, 9.0], 300)[:, None]
    >>> model = StreamEstimator()
    >>> for part in np.split(np.random.default_rng(1).permutation(points), 6):
    ...     model = model.partial_fit(part)
    >>> model.n_clusters_, len(set(model.predict(points[:300])))
    (2, 1)
    """

    def __init__(
        self,
        family: FamilyName = "gaussian",
        refit: RefitName = "bkm",
        mixture: MixtureName = "finite",
        max_leaves: int | None = None,
        refit_every: int = 20_000,
        warmup: int | None = None,
        half_life: float | None = None,
        drift: DriftChoice = "follow",
        birth_penalty: float | None = None,
        shape: ShapeName | None = None,
        detail: Detail = "auto",
        n_clusters: NumberOfClusters = None,
        background: bool = True,
        on_event: Callable[[Change], object] | None = None,
        seed: int = 0,
        max_directions: int | None = None,
        scale: ScaleName = "deviation",
        transforms: Transforms = "auto",
        outliers: float | None = None,
    ) -> None:
        self.family = family
        self.refit = refit
        self.mixture = mixture
        self.max_leaves = max_leaves
        self.refit_every = refit_every
        self.warmup = warmup
        self.half_life = half_life
        self.drift = drift
        self.birth_penalty = birth_penalty
        self.shape = shape
        self.detail = detail
        self.n_clusters = n_clusters
        self.background = background
        self.on_event = on_event
        self.seed = seed
        self.max_directions = max_directions
        self.scale = scale
        self.transforms = transforms
        self.outliers = outliers

    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the points as a stream from its beginning, and find what is in the whole, in whatever order.

        That is `drift="ignore"`, whatever `drift` says.
        """
        points, weight = self._checked(X, sample_weight, reset=True)
        self._start(points, "ignore")
        return self._learn(points, weight, settle=True)

    def partial_fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn more points; `labels_` are those of the points given last."""
        first = not hasattr(self, "engine_")
        points, weight = self._checked(X, sample_weight, reset=first)
        if first:
            self._start(points, self.drift)
        else:
            self._check_unchanged()
        return self._learn(points, weight, settle=False)

    def _checked(
        self, X: ArrayLike, sample_weight: ArrayLike | None, reset: bool
    ) -> tuple[Floats, Floats | None]:
        X, left_out = without_text(X)
        if left_out and reset:
            warn_left_out(left_out, stacklevel=4)
        points = self._validated(X, reset)
        if sample_weight is None:
            return points, None
        return points, _check_sample_weight(sample_weight, points, dtype=np.float64, ensure_non_negative=True)

    def _validated(self, X: ArrayLike, reset: bool) -> Floats:
        """Rows of numbers, NaN where one is missing."""
        found = validate_data(
            self, X, accept_sparse=True, dtype=np.float64, reset=reset, ensure_all_finite="allow-nan"
        )
        points: Floats = found.toarray() if issparse(found) else found
        return points

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.sparse = True
        return tags

    def _start(self, points: Floats, drift: DriftChoice) -> None:
        free = ("on_event", "outliers", "detail", "n_clusters")
        self._started_with = {name: value for name, value in self.get_params().items() if name not in free}
        told = self.get_params() | {"drift": drift}
        ours = {
            name: told.pop(name) for name in ("on_event", "max_directions", "scale", "transforms", "outliers")
        }
        check_parameters(ours)
        if self.family == "mixed":
            raise ValueError(
                'family="mixed" is for StreamClusterer and BayesianKMeans: this takes tables of numbers'
            )
        self.engine_ = Engine(0, EngineSettings(**told), self.on_event)
        self.projection_ = Projection(self.engine_, self.max_directions, self.scale)
        names = getattr(self, "feature_names_in_", range(points.shape[1]))
        wishes = wishes_by_column(self.transforms, list(names))
        self.engine_.transforms.ask(self.transforms == "auto" and self._may_transform, wishes)

    @property
    def _may_transform(self) -> bool:
        """Whether the evidence may decide that features are transformed."""
        return self.family in GAUSSIANS and self.scale == "deviation" and self.birth_penalty is None

    def _check_unchanged(self) -> None:
        """Raise ValueError if a parameter was set that what was learnt until now rests on."""
        now = self.get_params()
        self.engine_.lineage.on_event = self.on_event
        shown = self.engine_.settings
        if (shown.detail, shown.n_clusters) != (self.detail, self.n_clusters):
            check_parameters({"detail": self.detail, "n_clusters": self.n_clusters})
            self.engine_.show(self.detail, self.n_clusters)
        changed = [name for name, value in self._started_with.items() if now[name] != value]
        if changed:
            raise ValueError(
                f"{', '.join(changed)} cannot be changed between calls of partial_fit: what was learnt rests on "
                f"{', '.join(f'{name}={self._started_with[name]!r}' for name in changed)}; call fit, or learn with a "
                "clone of this estimator"
            )

    def _learn(self, points: Floats, weight: Floats | None, settle: bool) -> Self:
        missing = np.isnan(points)
        if missing.all(axis=1).any():
            raise ValueError(f"row {missing.all(axis=1).argmax()} has no value: leave it out")
        x, w, t = check_rows(points.shape[1], np.where(missing, 0.0, points), weight, None)
        check_points(self.family, x)
        if missing.any():
            x = points if weight is None else points[weight > 0]
        self.projection_.learn(x, w, t)
        if settle:
            self.projection_.begin()
            self.engine_.settle()
        self.labels_ = self._labels(points)
        return self

    def _labels(self, points: Floats) -> Ints:
        """The id of each point's cluster, or -1 for an outlier."""
        if self.engine_.shown is None:
            return np.zeros(len(points), dtype=np.int64)
        found = self._model.assign(points)
        if self.outliers is None:
            return found.cluster
        recent = None if self.projection_.sketch is None else self.projection_.recent.latest()
        return np.where(
            self.engine_.queries.tail(found.novelty, recent) < self.outliers, OUTLIER, found.cluster
        )

    @property
    def _model(self) -> Model:
        check_is_fitted(self, "engine_")
        assert self.engine_.shown is not None  # there is one after the first event
        return self.engine_.shown

    @property
    def levels_(self) -> tuple[Level, ...]:
        """The levels that can be shown, the finest first, and how long each persists."""
        shown = self._model
        assert self.engine_.model is not None
        return levels_of(self.engine_.model.path, len(shown.names))

    @property
    def n_clusters_(self) -> int:
        """How many clusters there are now."""
        return len(self._model.names)

    @property
    def ids_(self) -> Ints:
        """The id of each row of `clusters_`, and of each column of `predict_proba`."""
        ids: Ints = self._model.names
        return ids

    @property
    def clusters_(self) -> Moments:
        """One row per cluster, as of now."""
        check_is_fitted(self, "engine_")
        found = self.engine_.queries.clusters()
        back = self.engine_.transform if self.engine_.sketch is None else self.engine_.sketch
        return back.expand_moments(found)

    @property
    def means_(self) -> Floats:
        """Mean of each cluster, in the features."""
        return self.clusters_.mean

    def _asked(self, X: ArrayLike) -> Floats:
        check_is_fitted(self, "engine_")
        return self._validated(without_text(X)[0], reset=False)

    def predict(self, X: ArrayLike) -> Ints:
        """The id of each point's cluster; -1 for an outlier, if `outliers` says how rare one is."""
        points = self._asked(X)
        return self._labels(points)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """p(cluster | x), a column for each of `ids_`."""
        points = self._asked(X)
        table: Floats = self._model.probability(points)
        return table

    def score_samples(self, X: ArrayLike) -> Floats:
        """log p(x) of each point: low for a novelty."""
        points = self._asked(X)
        return -np.asarray(self._model.novelty(points))

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Mean of `score_samples`."""
        return float(self.score_samples(X).mean())
