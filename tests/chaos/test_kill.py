"""The kill test, briefly; `python tests/chaos/kill.py` kills fifty times."""

import pytest

from tests.chaos.kill import run

pytestmark = pytest.mark.compiled


@pytest.mark.parametrize(
    ("partitions", "delivery", "kills"),
    [(1, "exactly-once", 2), (3, "exactly-once", 2), (3, "at-least-once", 2)],
)
def test_no_event_is_lost_or_counted_twice(cluster, tmp_path, partitions, delivery, kills):
    run(cluster, tmp_path, kills=kills, n=6000, n_partitions=partitions, delivery=delivery, seed=partitions)
