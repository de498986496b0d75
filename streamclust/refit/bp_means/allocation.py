"""Rows and their features: the moves of BP-means and K-features, each of which lowers the objective.

Everything is kept as residuals, x - zA. Means are corrected by what least squares finds in the residuals, and rows flip
features by what that changes: data far from the origin keep their digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from streamclust._kernels.refit.bp_means import collapsed_rows, flip_all, flip_some
from streamclust._kernels.types import Bools, Floats, Ints

MAX_EXHAUSTIVE_FEATURES = 10
"""Features up to which all 2^K combinations are tried for each row."""
MAX_QUICK_FEATURES = 4
"""Features up to which quick steps try all combinations: 2^4 take no longer than flips of one or two features."""
STARTS = 8
"""Random combinations from which flips of one or two features begin, besides the row's own, where features are more."""
SINGULAR_SHARE = 1e-10
"""Directions of ZᵀZ below this share of the largest hold nothing but rounding: features that depend on others."""


def flip(residual: Floats, A: Floats, Z: Bools, quick: bool = False) -> int:
    """Give each row its best features (Z is rewritten); returns how many rows changed.

    `quick` tries flips of one or two of the row's own features alone where all combinations are many.
    """
    if len(A) == 0:
        return 0
    gram = A @ A.T
    projection = np.ascontiguousarray(residual @ A.T)
    if len(A) <= (MAX_QUICK_FEATURES if quick else MAX_EXHAUSTIVE_FEATURES):
        order = np.argsort(gram.diagonal(), kind="stable")
        return int(flip_all(projection, gram, order, Z))
    starts = np.random.default_rng(len(A)).random((0 if quick else STARTS, len(A))) < 0.5
    return int(flip_some(projection, gram, starts, Z))


def nearest_features(points: Floats, A: Floats, usual: Bools) -> Bools:
    """Each point's features under given means, sought from the usual combination."""
    x = np.ascontiguousarray(points, dtype=float)
    Z = np.repeat(np.asarray(usual, dtype=bool)[None, :], len(x), axis=0)
    flip(x - A[usual].sum(axis=0), A, Z)
    return Z


def inverse(gram: Floats) -> Floats:
    """(ZᵀZ)⁻¹, or where features depend on each other (c3 = c1 + c2, say) its pseudo-inverse."""
    value, vector = np.linalg.eigh(gram)
    held = value > SINGULAR_SHARE * value[-1] if len(value) else value > 0
    return np.asarray((vector[:, held] / value[held]) @ vector[:, held].T)


@dataclass(frozen=True, eq=False)
class BPProblem:
    """Rows of positive weight, and λ²."""

    X: Floats
    weight: Floats
    penalty: float


class Allocation:
    """One allocation of features to the rows: Z, A, the residuals and their weighted sum of squares."""

    def __init__(self, problem: BPProblem, Z: Bools, A: Floats) -> None:
        self.problem = problem
        self.Z, self.A = Z, A
        self.residual = problem.X - Z.astype(float) @ A
        self._sum_squares()

    @classmethod
    def nothing(cls, problem: BPProblem) -> Self:
        """No features at all: every row is residual."""
        n, d = problem.X.shape
        return cls(problem, np.zeros((n, 0), dtype=bool), np.zeros((0, d)))

    def copy(self) -> Allocation:
        """A copy of the allocation that can be changed."""
        twin = object.__new__(Allocation)
        twin.problem, twin.Z, twin.A = self.problem, self.Z.copy(), self.A.copy()
        twin.residual, twin.squares, twin.remainder = self.residual, self.squares, self.remainder
        return twin

    def _sum_squares(self) -> None:
        self.squares: Floats = np.einsum("nd,nd->n", self.residual, self.residual)
        self.remainder = float(self.problem.weight @ self.squares)

    @property
    def n_features(self) -> int:
        """K."""
        return len(self.A)

    @property
    def objective(self) -> float:
        """tr (X - ZA)ᵀ(X - ZA) + λ² K [MAD-Bayes eq. 6]."""
        return self.remainder + self.problem.penalty * self.n_features

    # ---------------------------------------------------------------- the two steps

    def choose(self, quick: bool = False) -> int:
        """Each row takes its best features [alg. 4, step 1]; returns how many rows changed."""
        before = self.Z.copy()
        changed = flip(self.residual, self.A, self.Z, quick)
        if changed:
            self.residual = self.residual - (self.Z.astype(float) - before) @ self.A
        return changed

    def fit(self) -> None:
        """A = (ZᵀZ)⁻¹ZᵀX [alg. 1, step 2], as a correction from the residuals."""
        z = self.Z.astype(float)
        weighted = z * self.problem.weight[:, None]
        if self.n_features:
            change = inverse(weighted.T @ z) @ (weighted.T @ self.residual)
            self.A = self.A + change
            self.residual = self.problem.X - z @ self.A
        self._sum_squares()

    def step(self) -> bool:
        """Rows choose, means follow; whether the sum of squares fell. All flips are tried where quick ones end."""
        return self.quick_step() or self._choose_and_fit(quick=False)

    def quick_step(self) -> bool:
        """A step whose rows try but a few flips each; whether the sum of squares fell."""
        return self._choose_and_fit(quick=True)

    def _choose_and_fit(self, quick: bool) -> bool:
        before = self.remainder
        if not self.choose(quick):
            return False
        self.fit()
        return self.remainder < before - 1e-12 * before

    def collapsed_step(self) -> tuple[bool, int, float]:
        """One pass of collapsed BP-means; whether anything changed, and the row that costs most, with its cost."""
        problem = self.problem
        z = self.Z.astype(float)
        H = inverse((z * problem.weight[:, None]).T @ z)
        A, Z = self.A.copy(), self.Z.copy()
        order = np.argsort((A**2).sum(axis=1), kind="stable")
        changed, worst, cost = collapsed_rows(
            problem.X, problem.weight, Z, A, H, order, self.n_features <= MAX_EXHAUSTIVE_FEATURES
        )
        if not changed:
            return False, worst, cost
        trial = Allocation(problem, Z, A)
        trial.fit()
        if not trial.remainder < self.remainder - 1e-12 * self.remainder:
            return False, worst, cost
        self.Z, self.A = trial.Z, trial.A
        self.residual, self.squares, self.remainder = trial.residual, trial.squares, trial.remainder
        return True, worst, cost

    # ---------------------------------------------------------------- features come and go

    def with_feature(self, mean: Floats, members: Bools) -> Allocation:
        """The allocation with one more feature, not yet fitted."""
        return Allocation(
            self.problem, np.column_stack([self.Z, members]), np.concatenate([self.A, mean[None, :]])
        )

    def with_residual_of(self, row: int) -> Allocation:
        """The allocation with one more feature: the residual of a row, which alone has it [alg. 1]."""
        return self.with_feature(self.residual[row], np.arange(len(self.Z)) == row)

    def without(self, feature: int) -> Allocation:
        """The allocation without a feature, the means of the others fitted again."""
        kept = np.arange(self.n_features) != feature
        less = Allocation(self.problem, self.Z[:, kept], self.A[kept])
        less.fit()
        return less

    def farthest(self) -> int:
        """The row with the largest residual that counts: a row of many events no more than one of them."""
        return int(np.argmax(np.minimum(self.problem.weight, 1.0) * self.squares))

    def unused(self) -> Ints:
        """Features that no row has."""
        return np.flatnonzero(~self.Z.any(axis=0))
