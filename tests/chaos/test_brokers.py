"""The chaos of three brokers, briefly; `python tests/chaos/brokers.py` strikes fifty times."""

import pytest

from tests.chaos.brokers import Chaos
from tests.connectors.cluster import Cluster


@pytest.mark.compiled
@pytest.mark.usefixtures("client")
def test_partitions_are_read_after_two_of_three_brokers_and_a_member_were_killed(brokers, client, tmp_path):
    with Cluster(brokers.address, client, replicas=3) as cluster:
        chaos = Chaos(brokers, cluster, tmp_path, n=3000, n_partitions=3, n_members=2, seed=1, tell=print)
        chaos.run(1)
