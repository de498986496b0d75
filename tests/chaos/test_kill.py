"""The kill test, briefly; `python tests/chaos/kill.py` kills fifty times."""

import pytest

from tests.chaos.kill import run

pytestmark = [pytest.mark.compiled, pytest.mark.usefixtures("client")]


@pytest.mark.parametrize(
    ("client", "partitions", "delivery"),
    [
        ("kafka-python", 3, "exactly-once"),
        ("confluent", 3, "exactly-once"),
        ("kafka-python", 1, "at-least-once"),
    ],
    indirect=["client"],
)
def test_no_event_is_lost_or_counted_twice(cluster, tmp_path, partitions, delivery):
    run(cluster, tmp_path, kills=2, n=6000, n_partitions=partitions, delivery=delivery, seed=partitions)
