"""The spectrum of a symmetric matrix: all eigenvalues, and the vectors of the largest."""

from __future__ import annotations

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.utils.late import dormqr, dsytrd, eigh_tridiagonal, eigvalsh_tridiagonal

WORKSPACE_COLUMNS = 64
"""Columns that LAPACK reduces at once, at most."""


def spectrum(matrix: Floats, most: int) -> tuple[Floats, Floats]:
    """All eigenvalues, the largest first, and the vectors (as columns) of the `most` largest.

    By one reduction to three diagonals, which is what takes the time: LAPACK's drivers give either all vectors or those
    of a few with the values of no others.

    >>> values, vectors = spectrum(np.diag([1.0, 3.0, 2.0]), 1)
    >>> values, np.abs(vectors).round(12).T
    (array([3., 2., 1.]), array([[0., 1., 0.]]))
    """
    n = len(matrix)
    if n == 1:
        return matrix[0].copy(), np.ones((1, 1))
    reflectors, diagonal, beside, tau, _ = dsytrd(matrix, lower=1, lwork=WORKSPACE_COLUMNS * n)
    values = eigvalsh_tridiagonal(diagonal, beside)[::-1]
    _, found = eigh_tridiagonal(
        diagonal, beside, select="i", select_range=(n - most, n - 1), lapack_driver="stemr"
    )
    found = np.asfortranarray(found[:, ::-1])
    # the reflectors leave the first row as it is
    rest, _, _ = dormqr("L", "N", reflectors[1:, :-1], tau, found[1:], WORKSPACE_COLUMNS * most)
    return values, np.concatenate([found[:1], rest])
