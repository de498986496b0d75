"""Rubbish of every kind; `python benchmarks/kafka_throughput.py --fuzz` sends a million."""

import pytest

from tests.conftest import INTERPRETED
from tests.connectors.fuzz import fuzz


@pytest.mark.parametrize("seed", [1, 2])
def test_rubbish_is_told_and_changes_nothing(seed):
    seen = fuzz(300 if INTERPRETED else 10_000, seed)
    assert min(seen.values()) > 0
