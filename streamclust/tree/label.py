"""Labels of points by brute force, in a compiled loop or by matrix products; and when a tree is faster."""

from __future__ import annotations

from typing import Literal

import numpy as np

from streamclust._kernels.tree.costs import label_points
from streamclust._kernels.types import Floats, Ints
from streamclust.families.cost_form import CostForm, Linear

UNROLLED_FEATURES = (2, 3)
"""Numbers of features for which loops over Gaussian clusters are compiled separately: trees pay most there, and such
loops are several times as fast, for some seconds of compiling."""

BLOCK_NUMBERS = 2**15
"""Size of a block of a matrix product that stays within the cache."""


MIN_BLAS_FEATURES = 16
"""Features from which on matrix products are faster than the compiled loop (on one core: 1.5 times; 2.5 for 32)."""


def dims(form: CostForm) -> tuple[int, ...]:
    """A tuple whose length tells the compiler D; empty where loops are not unrolled."""
    d = form[0].shape[1]
    return (0,) * d if d in UNROLLED_FEATURES and not isinstance(form, Linear) else ()


def kernel_form(form: CostForm, n_features: int) -> tuple[Floats, Floats | None, Floats]:
    """(vector, root, offset) as kernels read them, checked."""
    if isinstance(form, Linear):
        vector, root = form.slope, None
    else:
        vector, root = form.centre, np.ascontiguousarray(form.root, dtype=float)
    k, d = vector.shape
    wanted = [(k, n_features), (k,)] if root is None else [(k, n_features), (k, d, d), (k,)]
    if k == 0 or [part.shape for part in form] != wanted:
        raise ValueError(
            f"costs of at least one cluster in {n_features} features are needed, got arrays of shapes "
            f"{', '.join(str(part.shape) for part in form)}"
        )
    return np.ascontiguousarray(vector, dtype=float), root, np.ascontiguousarray(form.offset, dtype=float)


def label(points: Floats, form: CostForm) -> Ints:
    """The cluster of least cost of each point, the first of equals: N x K costs in a compiled loop.

    >>> from streamclust.families.cost_form import Quadratic
    >>> label(np.array([[1.0], [3.0], [2.0]]), Quadratic(np.array([[0.0], [4.0]]), np.ones((2, 1, 1)), np.zeros(2)))
    array([0, 1, 0])
    """
    x = np.ascontiguousarray(points, dtype=float)
    vector, root, offset = kernel_form(form, x.shape[1])
    labels = np.empty(len(x), dtype=np.int64)
    label_points(x, vector, root, offset, dims(form), labels)
    return labels


def label_by_blas(points: Floats, form: CostForm) -> Ints:
    """Label points by matrix products: faster for many features; sums are rounded in another order."""
    x = np.asarray(points, dtype=float)
    vector, root, offset = kernel_form(form, x.shape[1])
    k, d = vector.shape
    labels = np.zeros(len(x), dtype=np.int64)
    if root is not None:  # all clusters' roots in one matrix, from a point among their centres
        middle = vector.mean(axis=0)
        roots = root.reshape(k * d, d)
        shift = np.einsum("kij,kj->ki", root, vector - middle).reshape(k * d, 1)
    step = max(BLOCK_NUMBERS // (k * d), 64)
    for start in range(0, len(x), step):
        part = x[start : start + step]
        if root is None:
            costs = vector @ part.T
        else:
            whitened = roots @ (part - middle).T
            whitened -= shift
            np.square(whitened, out=whitened)
            costs = whitened.reshape(k, d, len(part)).sum(axis=1)
        costs += offset[:, None]
        least, owner = costs[0], labels[start : start + step]
        for c in range(1, k):  # numpy's argmin takes longer than all of the above
            owner[costs[c] < least] = c
            least = np.minimum(least, costs[c])
    return labels


def tree_pays(n: int, d: int, k: int, linear: bool = False) -> bool:
    """Whether descending a tree is faster than scoring each of n points against k clusters.

    Measured by benchmarks/bkm_speedup.py against the compiled loop `label`, K = 5, separation 3: in the plane
    Gaussians gain from a thousand points on; for D = 3 from ten thousand, for D = 4 from twenty thousand, and for
    D = 8 they lose. Linear costs, whose bounds are exact, gain 3 to 5 times even for D = 8.
    """
    if linear:
        return d <= 8 and n * k >= 5_000 * d
    return d <= 4 and n * k >= (5_000, 5_000, 5_000, 50_000, 100_000)[d]


def fastest(n: int, d: int, k: int, linear: bool = False) -> Literal["tree", "points", "blas"]:
    """The method of `assign="auto"`: the tree where it pays, else the loop; matrix products for many features."""
    if tree_pays(n, d, k, linear):
        return "tree"
    return "blas" if d >= MIN_BLAS_FEATURES else "points"
