"""BayesianKMeans: clusters and their number, scikit-learn style."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClusterMixin, DensityMixin
from sklearn.utils import Tags
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from streamclust._kernels.types import Floats, Ints
from streamclust.batch.missing_values import (
    assigned,
    check_values,
    completed,
    log_densities,
    model_of,
    probabilities,
    redrawn,
)
from streamclust.batch.shaped import ShapedMixin, check_shape
from streamclust.engine.settings import check_parameters
from streamclust.families import FamilyLike, Mixture
from streamclust.families import family as family_named
from streamclust.families.mixed import mixed
from streamclust.levels import NO_PAIRS, path_of
from streamclust.moments import Moments
from streamclust.parameters import (
    GAUSSIANS,
    Categorical,
    Detail,
    MixtureName,
    NumberOfClusters,
    ShapeName,
    Transforms,
    check_n_clusters,
    wishes_by_column,
)
from streamclust.refit.bkm.fit import (
    PriorName,
    Search,
    bkm_steps,
    check_points,
    check_search,
    learns_prior,
    point_steps,
)
from streamclust.refit.bkm.row_tree import Assign, check_assign
from streamclust.refit.bkm.transform_choice import choose_transform
from streamclust.refit.partition import Partition
from streamclust.refit.steps import Step
from streamclust.schema.encoding import Encoding
from streamclust.schema.frames import columns_by_name
from streamclust.shapes import gaussian_components, heaviest_first
from streamclust.sketch import Transform
from streamclust.tree import SummaryTree
from streamclust.utils.late import issparse


def is_numbers(X: object) -> bool:
    """Whether a table is an array of numbers."""
    return isinstance(X, np.ndarray) and X.dtype.kind in "iuf"


class BayesianKMeans(ShapedMixin, ClusterMixin, DensityMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Bayesian k-means: clusters and their number, by the least free energy [Kurihara & Welling].

    Parameters
    ----------
    family
        What a cluster is: "gaussian", "diagonal", "spherical", "multinomial", "bernoulli", "poisson", or a
        Family with a prior of its own; or "mixed" for tables of numbers and categories, which Gaussians become where
        `categorical` finds any.
    mixture
        How clusters share the events: "finite", "infinite" (a Dirichlet process) or "uninformative".
    search
        "auto", or "top-down" for the paper's own procedure.
    assign
        How iterations find the cheapest cluster of each point, whatever the search and the mixture: by descents of an
        exact "tree", built once, or by "blas", all costs in blocks, which is what "auto" does. The labels are the same.
        In the plane a tree pays from some 5,000 points on, in D = 3 hardly. It needs max_leaves=None.
    max_leaves
        None clusters all points. A number clusters a summary of at most that number of leaves: the time then
        hardly depends on the number of points. `partial_fit` needs a summary, of 512 leaves unless told.
    seed
        The same seed gives the same clusters.
    verbose
        Print each step of the search with its free energy.
    prior
        Where the prior of a family given by name comes from. "learnt": from the clusters, with them, whatever
        the features' units; "bkm" and "agglomerative": the papers' rules, from the data once. None: "learnt" for
        Gaussians, "bkm" for counts. The uninformative mixture and search="top-down" know no learnt prior, and get
        "bkm".
    shape
        "ellipse": each component that the search finds is a cluster. "any": components that are pieces of one shape (a
        ring, a moon, a block) are joined into one cluster, for Gaussian families. See `streamclust.shapes`. None: "any"
        for Gaussians under a learnt prior, else "ellipse".
    detail
        How fine the clusters shown are. The search finds the finest; a path of merges leads from them to one. "auto":
        the level that persists longest beside its neighbours; "fine": all that were found; "coarse": the next level
        after that of "auto" to stand out; or a number of events: two clusters are told apart if that many events would
        do. See `streamclust.levels`.
    n_clusters
        How many clusters to show: a number (all, where fewer were found), or the least and the most, of which the level
        that persists longest is taken. None: `detail` decides.
    categorical
        Columns that are categories, by name or position. "auto": columns of text, of yes and no, and numbers of two
        values; columns of text in which nearly every row has a value of its own are left out. False: none.
    transforms
        Skewed columns that are compared by their logarithm, about. "auto": columns without negative values that span
        more than a decade, where the free energy of the clusters is clearly lower so, under a learnt prior. "none"; or
        a mapping of columns to "log", "none" or the value (knee) below which the transform is linear.

    Attributes
    ----------
    labels_ : the cluster of each point
    n_clusters_ : how many there are
    levels_ : numbers of clusters that can be shown, the finest first, and how long each persists; `cut` labels points
    path_ : the merges from the finest level to one cluster
    free_energy_ : of the partition, `log_base` of the points included where they all are at hand
    means_, covariances_, weights_ : of each cluster's points; covariances where the family has them
    centers_ : the mean of each cluster's heaviest component, which lies within the cluster whatever its shape
    clusters_ : means, covariances and weights as Moments
    components_ : the components that the search found, as Moments
    component_labels_ : the cluster of each component
    merge_tree_ : how components were joined, at what heights; where shapes are "any"
    transform_ : which columns are transformed; means and covariances are in the columns' own units, where the mean of a
        transformed one is the value of the mean logarithm, a median
    encoding_ : the columns of a mixed table, their names and categories; None if all columns are numbers

    Examples
    --------
    >>> points = np.random.default_rng(0).normal(size=(300, 2)) + np.repeat([0.0, 8.0, 16.0], 100)[:, None]
    >>> model = BayesianKMeans().fit(points)
    >>> model.n_clusters_, model.predict([[8.1, 7.9]]) == model.labels_[150]
    (3, array([ True]))
    >>> from sklearn.datasets import make_moons
    >>> points, moon = make_moons(1000, noise=0.05, random_state=0)
    >>> model = BayesianKMeans().fit(points)
    >>> model.n_clusters_, bool(((model.labels_ == model.labels_[0]) == (moon == moon[0])).all())
    (2, True)
    >>> model = BayesianKMeans(shape="ellipse", n_clusters=4).fit(points)
    >>> model.n_clusters_, len(set(model.cut(3)))
    (4, 3)
    >>> BayesianKMeans(shape="ellipse").fit(points).n_clusters_ > 2
    True

    A missing value (NaN) is drawn from the clusters, and integrated out of predictions. Tables may have categories:

    >>> rng = np.random.default_rng(0)
    >>> table = [{"amount": rng.normal(loc), "channel": channel} for loc, channel in [(3, "web"), (4, "shop")] * 200]
    >>> model = BayesianKMeans().fit(table)
    >>> model.n_clusters_, model.encoding_.names
    (2, ('amount', 'channel=shop', 'channel=web'))
    """

    def __init__(
        self,
        family: FamilyLike = "gaussian",
        mixture: MixtureName | Mixture = "finite",
        search: Search = "auto",
        assign: Assign = "auto",
        max_leaves: int | None = None,
        seed: int = 0,
        verbose: bool = False,
        prior: PriorName | None = None,
        shape: ShapeName | None = None,
        detail: Detail = "auto",
        n_clusters: NumberOfClusters = None,
        categorical: Categorical = "auto",
        transforms: Transforms = "auto",
    ) -> None:
        self.family = family
        self.mixture = mixture
        self.search = search
        self.assign = assign
        self.max_leaves = max_leaves
        self.seed = seed
        self.verbose = verbose
        self.prior = prior
        self.shape = shape
        self.detail = detail
        self.n_clusters = n_clusters
        self.categorical = categorical
        self.transforms = transforms

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.sparse = True
        name = self.family if isinstance(self.family, str) else ""
        tags.input_tags.allow_nan = name in (*GAUSSIANS, "mixed")
        return tags

    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Cluster the points, each counted `sample_weight` times (once)."""
        points, weight = self._checked(X, sample_weight)
        slope = self.transform_.log_slope(points)
        points = self.transform_.of(points)
        if hasattr(self, "tree_"):
            del self.tree_
        if self.max_leaves is not None:
            return self._learn(points, weight)
        whole = self._completed(points, weight)
        steps = point_steps(
            self._kind, whole, weight, self.seed, self.mixture, self.search, self.assign, self.prior
        )
        partition = self._run(steps)
        gaps = np.isnan(points).any(axis=1)
        labels = (
            np.where(gaps, assigned(partition, points), partition.labels) if gaps.any() else partition.labels
        )
        self._publish(partition, labels, whole, weight)
        counted = partition.family.log_base(whole) + slope
        self.free_energy_ -= float(counted @ (np.ones(len(points)) if weight is None else weight))
        return self

    def partial_fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn more points into a summary of all points so far, and go on from the clusters found last.

        Calls 1, 2, 4, 8, ... also start from nothing, and take that where its free energy is lower: a start from
        given clusters stays close to them. `labels_` are those of the points given last.
        """
        points, weight = self._checked(X, sample_weight, reset=not hasattr(self, "tree_"))
        return self._learn(self.transform_.of(points), weight)

    def _completed(self, points: Floats, weight: Floats | None) -> Floats:
        """The points with missing values drawn: from the clusters known, if there are any."""
        if not np.isnan(points).any():
            return points
        if hasattr(self, "tree_") and hasattr(self, "partition_"):
            check_values(np.isnan(points))
            return redrawn(model_of(self.partition_), points, weight, self.seed + self.n_updates_)
        return completed(self._kind, points, weight, self.seed)

    @property
    def _takes_gaps(self) -> bool:
        """Whether missing values can be drawn."""
        return family_named(self._kind).scatter != "none"

    def _learn(self, points: Floats, weight: Floats | None) -> Self:
        if self.assign == "tree":
            raise ValueError(
                'assign="tree" puts all points in a tree, and a summary does not keep them: use assign="auto" with '
                "max_leaves and partial_fit, or max_leaves=None and fit"
            )
        kind = family_named(self._kind)
        asked, points = points, self._completed(points, weight)
        known = hasattr(self, "tree_")
        if not known:
            leaves = 512 if self.max_leaves is None else self.max_leaves
            self.tree_ = SummaryTree(points.shape[1], kind.scatter, max_leaves=leaves, seed=self.seed)
            self.n_updates_ = 0
        check_points(kind, points)
        self.tree_.insert(points, weight)
        if not self.tree_.total.weight[0] > 0:
            raise ValueError("every point has weight 0: there is nothing to cluster")
        self.n_updates_ += 1
        starts: list[Partition | None] = []
        if known and hasattr(self, "partition_") and self.search == "auto":
            starts += [self.partition_]
        if not starts or self.n_updates_.bit_count() == 1:
            starts += [None]
        settings = (self.seed, self.mixture, self.search, self.prior)
        found = [self._run(bkm_steps(self._kind, self.tree_, start, *settings)) for start in starts]
        partition = min(found, key=lambda p: p.free_energy)
        self._publish(partition, assigned(partition, asked), *self.tree_.sample())
        return self

    def _checked(
        self, X: ArrayLike, sample_weight: ArrayLike | None, reset: bool = True
    ) -> tuple[Floats, Floats | None]:
        """Validate the parameters and the points."""
        check_search(self.search)
        if self.shape is not None:
            check_shape(self.shape)
        check_assign(self.assign)
        self._check_level()
        points = self._read(X, reset)
        kind = family_named(self._kind)
        if self.shape == "any" and (kind.scatter == "none" or kind.name == "mixed"):
            raise ValueError(
                f'shape="any" joins Gaussian components, and {kind.name} ones have no covariances of all columns: use '
                'shape="ellipse"'
            )
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, points, dtype=np.float64, ensure_non_negative=True)
        if reset:
            self.transform_ = self._chosen_transform(points, weight)
        return points, weight

    def _chosen_transform(self, points: Floats, weight: Floats | None) -> Transform:
        """The transform of the columns, by what was asked for and what the points say."""
        check_parameters({"transforms": self.transforms})
        wishes = wishes_by_column(self.transforms, self._column_names(points.shape[1]))
        if not isinstance(self.transforms, str) and len(wishes) < len(self.transforms):
            raise ValueError(
                f"transforms names columns that are no numbers of the table: {list(self.transforms)}"
            )
        kind, asked = family_named(self._kind), self.transforms == "auto"
        by_itself = asked and kind.scatter != "none"
        if not by_itself and not wishes:
            return Transform.none()
        by_itself = by_itself and learns_prior(self._kind, self.mixture, self.prior, self.search)
        numbers = self._numbers(points.shape[1]) if by_itself else []
        check_points(self._kind, np.nan_to_num(points, nan=0.0))
        return choose_transform(self._kind, points, weight, wishes, numbers)

    def _column_names(self, n: int) -> Sequence[Hashable]:
        """Names of the columns that are numbers; None for the others."""
        if self.encoding_ is not None:
            return [*self.encoding_.numbers, *(None for _ in range(n - len(self.encoding_.numbers)))]
        return list(getattr(self, "feature_names_in_", range(n)))

    def _numbers(self, n: int) -> list[int]:
        """The columns that are numbers."""
        return list(range(n if self.encoding_ is None else len(self.encoding_.numbers)))

    def _read(self, X: ArrayLike, reset: bool) -> Floats:
        """Rows of numbers; those of a mixed table encoded, by an encoding that `reset` learns anew."""
        if reset:
            self.encoding_ = self._encoding(X)
        if self.encoding_ is None:
            return self._validated(X, reset)
        columns = columns_by_name(X)
        if columns is None:
            raise ValueError(
                "the model was fitted to a table with categories; give it a frame or a list of mappings"
            )
        return self._validated(self.encoding_.rows(columns), reset)

    def _validated(self, X: ArrayLike, reset: bool) -> Floats:
        """Rows of numbers, NaN where one is missing; of families of counts none may be."""
        finite = "allow-nan" if self._takes_gaps else True
        found = validate_data(
            self, X, accept_sparse=True, dtype=np.float64, reset=reset, ensure_all_finite=finite
        )
        return cast(Floats, found.toarray() if issparse(found) else found)

    def _encoding(self, X: ArrayLike) -> Encoding | None:
        """The encoding of a table with categories; None if there are none."""
        asked = str(self.family) == "mixed"
        if not asked and (self.family != "gaussian" or self.categorical is False):
            return None
        columns = None if issparse(X) else columns_by_name(X)
        if columns is None or not columns:  # scikit-learn says what is wrong with it
            return None
        # shapes are joined of Gaussians alone
        numbers_alone = self.shape == "any" and self.categorical == "auto"
        encoding = Encoding.of(columns, False if numbers_alone else self.categorical)
        if not encoding.numbers and self.categorical == "auto" and not asked and is_numbers(X):
            return None  # points of two values in every feature
        plain = not (encoding.categories or encoding.left_out or asked)
        mappings = isinstance(X, Sequence) and isinstance(X[0], Mapping)
        return None if plain and not mappings else encoding

    @property
    def _kind(self) -> FamilyLike:
        """The family of the rows: of tables with categories, that of their columns."""
        if self.encoding_ is None or not self.encoding_.categories:
            return self.family
        return mixed(self.encoding_.columns)

    def _run(self, steps: Iterable[Step[Partition]]) -> Partition:
        partition = None
        for i, progress in enumerate(steps):
            partition = progress.result
            if self.verbose:
                print(
                    f"{i:4d}  {progress.stage:<11} {progress.move:<8} "
                    f"K = {progress.n_clusters:<4d} F = {progress.objective:.6g}"
                )
        assert partition is not None
        return partition

    @property
    def _joins(self) -> bool:
        """Whether components that are pieces of one shape are joined into one cluster."""
        if self.shape is not None:
            return self.shape == "any"
        gaussian = self._kind is self.family and family_named(self.family).scatter != "none"
        return gaussian and learns_prior(self.family, self.mixture, self.prior, self.search)

    def _publish(self, partition: Partition, labels: Ints, points: Floats, weight: Floats | None) -> None:
        """Take a partition and the component of each point; components are joined by points that stand for all."""
        self.partition_ = partition
        self.free_energy_ = partition.free_energy
        self._own_clusters(partition.n_clusters)
        if self._joins:
            fitted = partition.family.parameters(partition.posterior)
            gaussians = gaussian_components(partition.clusters.weight, fitted.mean, fitted.covariance)
            self._join(gaussians, points, weight)
        plateaus = self.merge_tree_.plateaus if self._joins else NO_PAIRS
        self._show_level(path_of(partition, self.component_labels_, plateaus), partition.clusters.weight)
        self._component_of_row = labels
        self.labels_ = self.component_labels_[labels]

    def cut(self, n_clusters: int) -> Ints:
        """The cluster of each point given last, at the level of `n_clusters`; the largest cluster is 0.

        Levels are nested: a cluster of one is part of a cluster of every coarser one.
        """
        check_is_fitted(self, "partition_")
        check_n_clusters(n_clusters)
        return heaviest_first(self.path_.labels(n_clusters), self.partition_.clusters.weight)[
            self._component_of_row
        ]

    # ---------------------------------------------------------------- what was found

    @property
    def clusters_(self) -> Moments:
        """One row per cluster, the heaviest first."""
        check_is_fitted(self, "partition_")
        joined = self.partition_.clusters.to_groups(self.component_labels_, self._n_joined)
        return self.transform_.expand_moments(joined)

    @property
    def components_(self) -> Moments:
        """One row per component, the heaviest first."""
        check_is_fitted(self, "partition_")
        return self.transform_.expand_moments(self.partition_.clusters)

    @property
    def centers_(self) -> Floats:
        """Mean of each cluster's heaviest component."""
        components = self.components_
        return components.mean[np.unique(self.component_labels_, return_index=True)[1]]

    @property
    def n_clusters_(self) -> int:
        """K."""
        check_is_fitted(self, "partition_")
        return self._n_joined

    @property
    def means_(self) -> Floats:
        """Mean of each cluster's points."""
        return self.clusters_.mean

    @property
    def covariances_(self) -> Floats:
        """Covariance of each cluster's points: (K, D, D), (K, D) or (K,), as the family has it."""
        if self.clusters_.kind == "none":
            raise AttributeError(f"{self.partition_.family.name} clusters have no covariances")
        return self.clusters_.covariance

    @property
    def weights_(self) -> Floats:
        """Each cluster's share of the points."""
        return np.asarray(self.clusters_.weight / self.clusters_.weight.sum())

    # ---------------------------------------------------------------- asking

    def _asked(self, X: ArrayLike) -> Floats:
        check_is_fitted(self, "partition_")
        points = self.transform_.of(self._read(X, reset=False))
        known = np.where(np.isnan(points), 0.0, points) if self._takes_gaps else points
        self.partition_.family.check(known)
        return points

    def predict(self, X: ArrayLike) -> Ints:
        """The cluster of least labelling cost (20) for each point."""
        points = self._asked(X)
        return np.asarray(self.component_labels_[assigned(self.partition_, points)])

    def predict_proba(self, X: ArrayLike) -> Floats:
        """p(cluster | x), from posterior predictives and the shares of components, added up over each cluster's."""
        points = self._asked(X)
        return self._summed(probabilities(self.partition_, points))

    def score_samples(self, X: ArrayLike) -> Floats:
        """log p(x | all that was learnt) of each point: low for a novelty."""
        points = self._asked(X)
        return log_densities(self.partition_, points) + self.transform_.log_slope(
            self.transform_.back(points)
        )

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Mean of `score_samples`."""
        return float(self.score_samples(X).mean())
