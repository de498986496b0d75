"""Profiles: the suite as it is, and a small one for kernels that run interpreted (NUMBA_DISABLE_JIT=1)."""

import os

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # before scipy: scikit-learn then checks array API input too

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from streamclust._kernels.compile import HAS_INTERNALS

INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT") == "1"
if INTERPRETED:  # compiled kernels overflow to infinity without a word; interpreted ones should too
    np.seterr(over="ignore", divide="ignore", invalid="ignore")

quiet = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("default", max_examples=60, **quiet)
settings.register_profile(
    "steady", max_examples=25, derandomize=True, **quiet
)  # the same examples every time
settings.register_profile("small", max_examples=6, derandomize=True, **quiet)
settings.register_profile("thorough", max_examples=1000, **quiet)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "small" if INTERPRETED else "default"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """One more than there are cores: many tests wait for brokers, timers and other processes."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(config, items):
    """Tests over long streams need compiled kernels: interpreted, they would take hours. Some need their cache."""
    for item in items:
        if INTERPRETED and "compiled" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="needs compiled kernels (NUMBA_DISABLE_JIT is set)"))
        if not HAS_INTERNALS and "own_cache" in item.keywords:
            item.add_marker(
                pytest.mark.skip(reason="needs the cache of kernels, which numba alone does not use")
            )
