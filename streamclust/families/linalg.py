"""Small linear algebra over stacks of matrices: (rows, D, D) in, (rows, ...) out."""

from __future__ import annotations

from typing import cast

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.utils.late import gammaln

FIRST_JITTER = 1e-12
"""The first ridge tried on a matrix that is not positive definite, relative to its mean diagonal entry."""


def cholesky(stack: Floats) -> Floats:
    """Lower Cholesky factors of a stack of symmetric matrices (or of one).

    Jitter policy: every matrix is tried as it is. One that fails gets a ridge of 1e-12 times its mean
    diagonal entry, then ten times that, and so on until it succeeds; the others are untouched. The ridge is
    relative, so the policy is the same at every scale of the data.

    >>> cholesky(np.array([[[4.0, 0.0], [0.0, 9.0]]]))
    array([[[2., 0.],
            [0., 3.]]])
    """
    if not np.all(np.isfinite(stack)):
        raise ValueError(
            "a matrix to factorise holds NaN or infinity; check the data and the prior it came from"
        )
    try:
        return cast(Floats, np.linalg.cholesky(stack))
    except np.linalg.LinAlgError:
        flat = stack.reshape(-1, *stack.shape[-2:])
        return np.stack([_cholesky_with_jitter(matrix) for matrix in flat]).reshape(stack.shape)


def _cholesky_with_jitter(matrix: Floats) -> Floats:
    try:
        return cast(Floats, np.linalg.cholesky(matrix))
    except np.linalg.LinAlgError:
        pass
    scale = float(np.trace(matrix)) / len(matrix)
    if not scale > 0:
        raise ValueError(
            f"a covariance needs a positive trace, got {np.trace(matrix)}; its rows have no spread"
        )
    jitter = FIRST_JITTER * scale
    while True:
        try:
            return cast(Floats, np.linalg.cholesky(matrix + jitter * np.eye(len(matrix))))
        except np.linalg.LinAlgError:
            jitter *= 10.0


def log_determinant(factor: Floats) -> Floats:
    """log |L Lᵀ| of each lower Cholesky factor L."""
    return cast(Floats, 2.0 * np.log(np.einsum("...ii->...i", factor)).sum(axis=-1))


def solve_lower(factor: Floats, right: Floats) -> Floats:
    """L⁻¹ R for stacks of lower triangular L (rows, D, D) and right sides R (rows, D, M).

    Forward substitution, vectorised over the stack: D steps whatever the number of rows.
    """
    solution = np.empty(np.broadcast_shapes(right.shape, (*factor.shape[:-1], right.shape[-1])))
    for i in range(factor.shape[-1]):
        known = np.matmul(factor[..., i : i + 1, :i], solution[..., :i, :])[..., 0, :]
        solution[..., i, :] = (right[..., i, :] - known) / factor[..., i, i, None]
    return solution


def whitener(factor: Floats) -> Floats:
    """W = L⁻¹: ‖W y‖² is yᵀ (L Lᵀ)⁻¹ y."""
    return solve_lower(factor, np.broadcast_to(np.eye(factor.shape[-1]), factor.shape))


def floor_eigenvalues(matrix: Floats, relative: float) -> Floats:
    """A symmetric matrix with no eigenvalue below `relative` times their mean.

    Returned untouched, bit for bit, where none is.
    """
    values, vectors = np.linalg.eigh(matrix)
    lowest = relative * values.mean()
    if values[0] >= lowest:
        return matrix
    floored = (vectors * np.maximum(values, lowest)) @ vectors.T
    return cast(Floats, (floored + floored.T) / 2)


def multigammaln(x: float | Floats, dimension: int) -> Floats:
    """log Γ_D(x) = D(D-1)/4 log π + Σ_{i=1..D} log Γ(x + (1-i)/2), for real x > (D-1)/2, elementwise."""
    arguments = np.asarray(x, dtype=float)[..., None] - np.arange(dimension) / 2
    return cast(Floats, gammaln(arguments).sum(axis=-1) + dimension * (dimension - 1) / 4 * np.log(np.pi))
