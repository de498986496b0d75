"""Products of matrices without the other threads of BLAS.

Matrices are small here. OpenBLAS shares each product among threads which then wait for the next without letting go of
their cores: a product of 100 microseconds took 40 milliseconds of the processor's time.
"""

from __future__ import annotations

import numpy as np

from streamclust._kernels.types import Floats

UNSHARED_PRODUCTS = 2**18
"""Single products in a product of matrices up to which OpenBLAS works in the thread that asks for it."""


def product(a: Floats, b: Floats) -> Floats:
    """a @ b, some rows of a at a time.

    >>> a, b = np.random.default_rng(0).normal(size=(2, 300, 300))
    >>> bool(np.allclose(product(a, b), a @ b))
    True
    """
    found = np.empty((len(a), b.shape[1]))
    size = max(1, UNSHARED_PRODUCTS // max(1, b.size))
    for start in range(0, len(a), size):
        np.matmul(a[start : start + size], b, out=found[start : start + size])
    return found


def weighted_sum(weight: Floats, rows: Floats) -> Floats:
    """weight @ rows, in the thread that asks for it: OpenBLAS shares even small ones."""
    return np.asarray(np.einsum("i,ij->j", weight, rows))
