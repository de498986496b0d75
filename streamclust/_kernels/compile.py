"""One way to compile a kernel."""

from numba import njit

kernel = njit(cache=True, nogil=True, error_model="numpy")
"""Compiled once and kept on disk, free of the interpreter's lock, with IEEE division (no check per division).

No fastmath: sums keep their order.
"""

kernel_with_free_sums = njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "nsz"})
"""The same, with sums free to be taken in vectors: for loops whose result is a choice, not a number kept."""

inlined = njit(cache=True, nogil=True, error_model="numpy", inline="always")
"""Written into its callers instead of compiled on its own: for small parts, it saves most of the first start."""
