"""Rubbish through a real broker, briefly; `python tests/chaos/fuzz.py` sends a million messages."""

import pytest

from tests.chaos.fuzz import run

pytestmark = pytest.mark.compiled


def test_rubbish_is_told_once_and_changes_nothing(cluster, tmp_path):
    seen = run(cluster, tmp_path, n=4000, n_partitions=2, seed=1)
    assert min(seen.values()) > 0
