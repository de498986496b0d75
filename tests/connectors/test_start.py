"""What a service does not wait for when it starts."""

import subprocess
import sys

import pytest

from streamclust_connectors.cli.wiring import warm_up
from streamclust_connectors.settings import Settings

SLOW = {"matplotlib", "pandas", "pyarrow", "sklearn", "scipy.optimize", "scipy.spatial", "scipy.stats"}


@pytest.mark.parametrize(
    "modules",
    [
        "streamclust.streaming",
        "streamclust_connectors.service, streamclust_connectors.shared_state",
        "streamclust_connectors.kafka.reading, streamclust_connectors.kafka.sending",
    ],
)
def test_packages_that_only_a_refit_needs_are_not_imported(modules):
    code = f"import sys, {modules}; print(*({SLOW!r} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


@pytest.mark.parametrize(
    "family", ["gaussian", "diagonal", "spherical", "multinomial", "bernoulli", "poisson"]
)
def test_kernels_are_warmed_up_whatever_the_family(family, recwarn):
    warm_up(Settings(engine={"family": family}))
    assert not recwarn.list
