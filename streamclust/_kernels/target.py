"""Python, numba, optimiser settings and processor that a kernel is compiled for."""

from __future__ import annotations

import platform
import sys

import numba
from llvmlite.binding import get_host_cpu_features
from numba import config

BUILD = (sys.implementation.cache_tag, sys.platform, numba.__version__, config.OPT, config.BOUNDSCHECK)

LEVEL = "x86-64-v3"
"""Processors for which kernels that come with the package are compiled."""
LEVEL_FEATURES = frozenset(
    "avx avx2 bmi bmi2 cx16 f16c fma lzcnt movbe popcnt sahf sse3 sse4.1 sse4.2 ssse3 xsave".split()
)
"""Features of every processor of that level, in LLVM's words."""


def host_has_level() -> bool:
    """Whether this processor runs code compiled for LEVEL, and the user asks for no other."""
    if platform.machine() not in ("x86_64", "AMD64") or config.CPU_NAME not in (None, LEVEL):
        return False
    return all(get_host_cpu_features().get(name) for name in LEVEL_FEATURES)


HAS_LEVEL = host_has_level()
