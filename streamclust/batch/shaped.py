"""Estimators whose clusters may be joined from several components, and shown at one of several levels."""

from __future__ import annotations

from typing import cast, get_args

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.levels import Level, Path, chosen_level, levels_of
from streamclust.moments import Moments
from streamclust.parameters import (
    Detail,
    NumberOfClusters,
    ShapeName,
    check_detail,
    check_n_clusters,
)
from streamclust.shapes import MergeTree, heaviest_first, merge_tree
from streamclust.utils.outliers import outlying
from streamclust.utils.values import check_choice


def check_shape(shape: str) -> None:
    """Raise ValueError for a shape there is not."""
    check_choice("shape", shape, get_args(ShapeName))


class ShapedMixin:
    """Which cluster each component belongs to: one of its own or, with `shape="any"`, that of its shape."""

    component_labels_: Ints
    merge_tree_: MergeTree
    path_: Path
    detail: Detail
    n_clusters: NumberOfClusters

    def _own_clusters(self, n_components: int) -> None:
        """Every component is a cluster."""
        self.component_labels_ = np.arange(n_components)
        if hasattr(self, "merge_tree_"):
            del self.merge_tree_

    def _join(self, components: Moments, points: Floats, weight: Floats | None, caution: float = 0.0) -> None:
        """Join components that are pieces of one shape by `caution` standard errors, the heaviest cluster first."""
        ordinary = ~outlying(points)
        if not ordinary.all():
            points, weight = points[ordinary], None if weight is None else weight[ordinary]
        self.merge_tree_ = merge_tree(components, points, weight)
        self.component_labels_ = heaviest_first(self.merge_tree_.joined_by(caution), components.weight)

    def _check_level(self) -> None:
        """Raise ValueError for a level that cannot be."""
        check_detail(self.detail)
        check_n_clusters(self.n_clusters)

    def _show_level(self, path: Path, weight: Floats) -> None:
        """Show the level asked for, its heaviest cluster first."""
        self.path_ = path
        shown = chosen_level(path, self.detail, self.n_clusters)
        self.component_labels_ = heaviest_first(path.labels(shown), weight)

    @property
    def levels_(self) -> tuple[Level, ...]:
        """The levels, the finest first: how many clusters each has, and how long it persists."""
        return levels_of(self.path_, self._n_joined)

    @property
    def _n_joined(self) -> int:
        return int(self.component_labels_.max()) + 1

    def _summed(self, probability: Floats) -> Floats:
        """Probabilities of components, added up to those of their clusters."""
        member = self.component_labels_[:, None] == np.arange(self._n_joined)
        return cast(Floats, probability @ member.astype(float))
