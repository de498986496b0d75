"""Rows and their nearest means: the moves of DP-means, each of which lowers the objective."""

from __future__ import annotations

from typing import Self

import numpy as np

from streamclust._kernels.refit.dp_means import assign_rows, cheapest_union, move_rows, open_clusters
from streamclust._kernels.types import Floats, Ints
from streamclust.moments import Moments

MAX_OPENED_CLUSTERS = 8
"""Clusters that a pass of collapsed DP-means opens, at most."""
TIE_SHARE = 1e-9
"""Squared distances that differ from λ² by less than this share of it are equal to it, up to rounding."""
TWO_MEANS_ITERATIONS = 5
"""Iterations of the two halves of a cluster, before they are judged."""
SWAPS_TRIED = 10
"""Clusters that a swap tries to cut: those where a cut saves most."""
POWER_ITERATIONS = 5
"""Iterations towards the principal direction of a cluster."""


class DPProblem:
    """Rows of positive weight to partition, and λ². What is within a row (tr S) is a constant."""

    def __init__(self, rows: Moments, penalty: float, max_clusters: int) -> None:
        self.rows = rows
        self.penalty = penalty
        self.max_clusters = max_clusters
        self.full = False
        """Whether rows beyond λ were left where they are, because there were `max_clusters` already."""
        self.cuts: dict[tuple[float, bytes], tuple[float, float]] = {}
        """Saving of a cut of a cluster (its weight and mean), and the squared distance of the two means."""
        self.points = np.ascontiguousarray(rows.mean, dtype=float)
        self.columns = np.ascontiguousarray(self.points.T)
        self.weight = np.ascontiguousarray(rows.weight, dtype=float)
        self.inner = float(rows.trace.sum())
        self.centre = rows.to("none").total().mean
        """One row: the mean of all."""
        # A row opens a cluster where one of its events would: λ is a radius, whatever the row's weight.
        self.urge = np.minimum(self.weight, 1.0)

    def cost(self, clusters: Moments) -> float:
        """Σ ‖x - mean‖² + λ² (K - 1), of clusters with scalar scatter [MAD-Bayes eq. 9]."""
        return float(clusters.scatter.sum()) + self.penalty * (len(clusters) - 1)

    def group(self, labels: Ints, n_clusters: int) -> Moments:
        """Moments of each cluster."""
        return self.rows.to_groups(labels, n_clusters, kind="scalar")


class DPLabelling:
    """One partition of the rows: labels, means, masses and the objective."""

    def __init__(self, problem: DPProblem, means: Floats, ties_open: bool = False) -> None:
        self.problem = problem
        self.radius = problem.penalty * (1.0 - TIE_SHARE if ties_open else 1.0 + TIE_SHARE)
        """λ², but for the ties: rows at λ² up to rounding open clusters, or none of them does."""
        self.tied = False
        """Whether there were such rows."""
        self.mean = np.array(means, dtype=float, order="C")
        self.mass = np.zeros(len(means))
        self.labels = np.zeros(len(problem.points), dtype=np.int64)
        self.distance = np.empty(len(problem.points))
        self.objective = np.inf

    @property
    def n_clusters(self) -> int:
        """K."""
        return len(self.mean)

    def step(self) -> bool:
        """One pass of DP-means: rows in their order, means after it [Kulis & Jordan, alg. 1]; whether anything changed.

        A row goes to the nearest mean, a cluster opened earlier in the pass included; farther than λ from all of them,
        it opens one.
        """
        problem = self.problem
        first = not self.objective < np.inf
        mass, shift, moved = assign_rows(
            problem.columns, problem.weight, self.mean, self.labels, self.distance
        )
        if self._open_clusters():
            self._adopt(self.labels)
            return True
        live = mass > 0
        if not live.all():
            self.labels = (np.cumsum(live) - 1)[self.labels]
            self.mean, mass, shift = self.mean[live], mass[live], shift[live]
        shift /= mass[:, None]
        self.mean += shift
        self.mass = mass
        spread = float(problem.weight @ self.distance) - float(mass @ (shift**2).sum(axis=1))
        self.objective = problem.inner + spread + problem.penalty * (self.n_clusters - 1)
        return first or moved > 0

    def _open_clusters(self) -> bool:
        """Label rows by the clusters that rows beyond λ open, in their order; whether any opened."""
        problem = self.problem
        if not np.any(problem.urge * self.distance > (1.0 - TIE_SHARE) * problem.penalty):
            return False
        room = problem.max_clusters - self.n_clusters
        opened, full, tied = open_clusters(
            problem.points,
            problem.urge,
            self.radius,
            2 * TIE_SHARE,
            self.n_clusters,
            room,
            self.labels,
            self.distance,
        )
        problem.full |= full
        self.tied |= tied
        return bool(opened > 0)

    def collapsed_step(self) -> bool:
        """One pass of collapsed DP-means [MAD-Bayes alg. 2]; whether anything changed."""
        problem = self.problem
        spare = max(0, min(MAX_OPENED_CLUSTERS, problem.max_clusters - self.n_clusters))
        count = np.bincount(self.labels, minlength=self.n_clusters + spare)
        mean = np.concatenate([self.mean, np.zeros((spare, self.mean.shape[1]))])
        mass = np.concatenate([self.mass, np.zeros(spare)])
        moved = move_rows(problem.points, problem.weight, problem.penalty, mean, mass, count, self.labels)
        if moved:
            self._adopt(self.labels)
        return bool(moved)

    def _adopt(self, labels: Ints) -> Self:
        """Take labels as they are: means, masses and objective anew, from the rows."""
        used, self.labels = np.unique(labels, return_inverse=True)
        clusters = self.problem.group(self.labels, len(used))
        self.mean, self.mass = clusters.mean, clusters.weight
        self.objective = self.problem.cost(clusters)
        return self

    # ---------------------------------------------------------------- moves beyond the paper's

    def merge(self) -> bool:
        """Merge the two clusters whose union lowers the objective most, if any does.

        A union adds m m' / (m + m') ‖mean - mean'‖² and saves λ².
        """
        a, b, added = cheapest_union(self.mean, self.mass, -1, np.inf)
        if not added - self.problem.penalty < -self._rounding:
            return False
        self._adopt(np.where(self.labels == b, a, self.labels))
        return True

    def split(self) -> bool:
        """Split every cluster whose best halves lower the objective by more than λ²; whether any did."""
        pays = np.flatnonzero(self._cuts()[:, 0] > self.problem.penalty + self._rounding)
        pays = pays[: self.problem.max_clusters - self.n_clusters]
        labels = self.labels.copy()
        for new, c in enumerate(pays, start=self.n_clusters):
            labels[self._halves(int(c))[2]] = new
        if len(pays):
            self._adopt(labels)
        return len(pays) > 0

    def swap(self) -> bool:
        """Merge two clusters and cut a third in two, where both together lower the objective; K stays.

        Passes cannot do this: two means that share a cluster, far from two clusters that share a mean, stay there. The
        halves must have their means farther apart than the two that merge: by the objective alone, a large cluster
        would be cut at the expense of small ones.
        """
        saved, apart = self._cuts().T
        best, move = self._rounding, None
        for c in np.argsort(-saved, kind="stable")[:SWAPS_TRIED]:
            a, b, added = cheapest_union(self.mean, self.mass, int(c), float(apart[c]))
            if saved[c] - added > best:
                best, move = saved[c] - added, (a, b, int(c))
        if move is None:
            return False
        a, b, c = move
        labels = np.where(self.labels == b, a, self.labels)
        labels[self._halves(c)[2]] = b
        self._adopt(labels)
        return True

    @property
    def _rounding(self) -> float:
        """Changes of the objective below this are noise: moves that undo each other must not follow for ever."""
        return 1e-9 * self.objective

    def _cuts(self) -> Floats:
        """Saving of a cut of each cluster, and the squared distance of the two means; cached for each cluster."""
        known, cuts = self.problem.cuts, np.empty((self.n_clusters, 2))
        for c in range(self.n_clusters):
            cluster = float(self.mass[c]), self.mean[c].tobytes()
            if cluster not in known:
                known[cluster] = self._halves(c)[:2]
            cuts[c] = known[cluster]
        return cuts

    def _halves(self, c: int) -> tuple[float, float, Ints]:
        """Saving of a cut in the summed squares, the squared distance of the two means, and the rows that leave.

        By 2-means, from both sides of the cluster's principal direction.
        """
        mine = np.flatnonzero(self.labels == c)
        columns, weight = np.ascontiguousarray(self.problem.columns[:, mine]), self.problem.weight[mine]
        reach = principal_deviation(columns - self.mean[c][:, None], weight)
        means = self.mean[c] + np.stack([-reach, reach])
        side, distance = np.zeros(len(mine), dtype=np.int64), np.empty(len(mine))
        for _ in range(TWO_MEANS_ITERATIONS):
            mass, shift, moved = assign_rows(columns, weight, means, side, distance)
            if not mass.all():
                return 0.0, 0.0, mine[:0]
            means = means + shift / mass[:, None]
            if not moved:
                break
        apart = float(((means[1] - means[0]) ** 2).sum())
        return mass[0] * mass[1] / mass.sum() * apart, apart, mine[side == 1]


def principal_deviation(deviation: Floats, weight: Floats) -> Floats:
    """About one standard deviation along the direction in which rows (columns here) spread most.

    A few power iterations from the farthest row: linear in the number of features.
    """
    axis = deviation[:, (deviation**2).sum(axis=0).argmax()]
    scale = float(np.sqrt(axis @ axis))
    if not scale > 0:
        return axis
    along = axis @ deviation / scale
    for _ in range(POWER_ITERATIONS):
        axis = deviation @ (weight * along)
        length = float(np.sqrt(axis @ axis))
        if not length > 0:  # deviations so small that their squares are 0
            return np.zeros_like(axis)
        axis = axis / length
        along = axis @ deviation
    return np.asarray(axis * np.sqrt(along**2 @ weight / weight.sum()))
