"""Rows and their nearest means: the moves of DP-means, each of which lowers the objective."""

from __future__ import annotations

from typing import Self

import numpy as np

from streamclust._kernels.dp_means import assign_rows, cheapest_union, move_rows
from streamclust._kernels.types import Floats, Ints
from streamclust.moments import Moments

OPEN_SHARE = 4
"""A pass opens one cluster, or one for so many that there are: thousands, one by one, would take for ever."""
SPARE = 8
"""A pass of collapsed DP-means opens at most so many clusters."""
TWO_MEANS = 5
"""Iterations of the two halves of a cluster, before they are judged."""


class DPProblem:
    """Rows of positive weight to partition, and λ². What is within a row (tr S) is a constant."""

    def __init__(self, rows: Moments, penalty: float, max_clusters: int) -> None:
        self.rows = rows
        self.penalty = penalty
        self.max_clusters = max_clusters
        self.full = False
        """Whether rows beyond λ were left where they are, because there were `max_clusters` already."""
        self.whole: set[tuple[float, bytes]] = set()
        """Clusters (their weight and mean) that no split was found to improve."""
        self.points = np.ascontiguousarray(rows.mean, dtype=float)
        self.columns = np.ascontiguousarray(self.points.T)
        self.weight = np.ascontiguousarray(rows.weight, dtype=float)
        self.inner = float(rows.trace.sum())
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

    def __init__(self, problem: DPProblem, means: Floats, eager: bool = False) -> None:
        self.problem = problem
        self.eager = eager
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
        """Assign, update, open clusters at the farthest rows beyond λ. Whether anything changed.

        Few clusters open at once, not one for each row that is far: rows close to each other share one.
        """
        problem = self.problem
        first = not self.objective < np.inf
        mass, shift, moved = assign_rows(
            problem.columns, problem.weight, self.mean, self.labels, self.distance
        )
        self.objective = problem.inner + float(problem.weight @ self.distance)
        live = mass > 0
        if not live.all():
            self.labels = (np.cumsum(live) - 1)[self.labels]
            self.mean, mass, shift = self.mean[live], mass[live], shift[live]
        shift /= mass[:, None]
        self.mean += shift
        self.mass = mass
        self.objective += problem.penalty * (self.n_clusters - 1) - float(mass @ (shift**2).sum(axis=1))
        return self._open_clusters() or first or moved > 0

    def _open_clusters(self) -> bool:
        """Open a cluster at the farthest row, where there are many already at some more, λ apart; whether any opened.

        Rows were far from the means that they were assigned by. They must be as far from the means of now, unless the
        labelling is eager: that opens more clusters than λ asks for, mostly at a lower objective.
        """
        problem, before = self.problem, self.n_clusters
        far = np.flatnonzero(problem.urge * self.distance > problem.penalty)
        if len(far) == 0:
            return False
        urge = problem.urge * self.distance
        if not self.eager:
            gaps = ((problem.points[far] - self.mean[self.labels[far]]) ** 2).sum(axis=1)
            urge[far] = problem.urge[far] * gaps
        room = max(1, before // OPEN_SHARE)
        for row in far[np.argsort(-urge[far], kind="stable")[: 4 * room]]:
            x, w, own = problem.points[row], problem.weight[row], self.labels[row]
            rest = self.mass[own] - w
            gaps = ((self.mean[before if self.eager else 0 :] - x) ** 2).sum(axis=1)
            if np.any(problem.urge[row] * gaps <= problem.penalty) or not rest > 1e-12 * w:
                continue
            if self.n_clusters == problem.max_clusters:
                problem.full = True
                break
            gap = float(((x - self.mean[own]) ** 2).sum())
            self.objective += problem.penalty - w * self.mass[own] / rest * gap
            self.mean[own] -= w / rest * (x - self.mean[own])
            self.mass[own] = rest
            self.labels[row] = self.n_clusters
            self.mean, self.mass = np.append(self.mean, x[None, :], axis=0), np.append(self.mass, w)
            if self.n_clusters == before + room:
                break
        return self.n_clusters > before

    def collapsed_step(self) -> bool:
        """One pass of collapsed DP-means [MAD-Bayes alg. 2]; whether anything changed."""
        problem = self.problem
        spare = max(0, min(SPARE, problem.max_clusters - self.n_clusters))
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
        a, b, added = cheapest_union(self.mean, self.mass)
        if not added - self.problem.penalty < -1e-9 * self.objective:
            return False
        self._adopt(np.where(self.labels == b, a, self.labels))
        return True

    def split(self) -> bool:
        """Split every cluster whose best halves lower the objective by more than λ²; whether any did."""
        labels, k = self.labels.copy(), self.n_clusters
        for c in range(self.n_clusters):
            cluster = float(self.mass[c]), self.mean[c].tobytes()
            if k == self.problem.max_clusters or cluster in self.problem.whole:
                continue
            mine = np.flatnonzero(self.labels == c)
            side = self._halves(c, mine)
            if side is None:
                self.problem.whole.add(cluster)
            else:
                labels[mine[side]] = k
                k += 1
        if k == self.n_clusters:
            return False
        self._adopt(labels)
        return True

    def _halves(self, c: int, mine: Ints) -> Ints | None:
        """Which of a cluster's rows would go, by 2-means across its principal direction; None if it does not pay."""
        problem = self.problem
        columns, weight = np.ascontiguousarray(problem.columns[:, mine]), problem.weight[mine]
        deviation = columns - self.mean[c][:, None]
        variance, axes = np.linalg.eigh((deviation * weight) @ deviation.T / self.mass[c])
        reach = np.sqrt(max(float(variance[-1]), 0.0)) * axes[:, -1]
        means = self.mean[c] + np.stack([-reach, reach])
        side, distance = np.zeros(len(mine), dtype=np.int64), np.empty(len(mine))
        for _ in range(TWO_MEANS):
            mass, shift, moved = assign_rows(columns, weight, means, side, distance)
            if not mass.all():
                return None
            means = means + shift / mass[:, None]
            if not moved:
                break
        saved = mass[0] * mass[1] / mass.sum() * float(((means[1] - means[0]) ** 2).sum())
        return np.flatnonzero(side == 1) if saved > problem.penalty + 1e-9 * self.objective else None
