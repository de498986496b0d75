"""A hash of whole numbers: which events or rows are kept where not all can be."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamclust._kernels.types import Ints


def splitmix64(numbers: Ints) -> NDArray[np.uint64]:
    """64 bits for each whole number that look independent of those of any other (Steele, Lea and Flood's SplitMix).

    >>> [hex(int(bits)) for bits in splitmix64(np.array([1, 2]))]
    ['0xe220a8397b1dcdaf', '0x6e789e6aa1b965f4']
    """
    z = np.asarray(numbers).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def splitmix64_of(number: int) -> int:
    """`splitmix64` of one whole number, in plain Python: sooner than an array of one.

    >>> hex(splitmix64_of(1))
    '0xe220a8397b1dcdaf'
    """
    mask = (1 << 64) - 1
    z = number * 0x9E3779B97F4A7C15 & mask
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
    return z ^ (z >> 31)
