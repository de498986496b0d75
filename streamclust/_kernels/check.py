"""One pass over numbers that come from outside."""

import numpy as np

from streamclust._kernels.compile import kernel_with_free_sums
from streamclust._kernels.types import Floats


@kernel_with_free_sums
def all_within(values: Floats, limit: float) -> bool:
    """Whether every value is a number of at most that size; by blocks, so that the inner loop is a vector's."""
    block = 4096
    for start in range(0, values.size, block):
        outside = 0
        for i in range(start, min(start + block, values.size)):
            outside += 0 if abs(values[i]) <= limit else 1
        if outside > 0:
            return False
    return True


@kernel_with_free_sums
def all_counts(values: Floats) -> bool:
    """Whether every value is 0, 1, 2, ..."""
    wrong = 0
    for i in range(values.size):
        wrong += 0 if values[i] >= 0.0 and values[i] == np.floor(values[i]) else 1
    return wrong == 0


@kernel_with_free_sums
def all_yes_or_no(values: Floats) -> bool:
    """Whether every value is 0 or 1."""
    wrong = 0
    for i in range(values.size):
        wrong += 0 if values[i] == 0.0 or values[i] == 1.0 else 1
    return wrong == 0
