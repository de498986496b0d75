"""One pass over numbers that come from outside."""

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
