"""Parts of kernels, which only kernels can call, made callable for tests."""

from numba import njit


def from_python(part):
    """A kernel that does nothing but call the part."""

    @njit(error_model="numpy")
    def call(*arguments):
        return part(*arguments)

    return call
