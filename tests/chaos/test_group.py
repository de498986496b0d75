"""The chaos of a group, briefly; `python tests/chaos/group.py` strikes fifty times."""

import pytest

from tests.chaos.group import Chaos


@pytest.mark.compiled
def test_a_group_that_is_struck_loses_nothing_and_tells_nothing_twice(cluster, tmp_path):
    Chaos(cluster, tmp_path, n=3000, n_partitions=3, n_members=2, seed=1, tell=print).run(1)
