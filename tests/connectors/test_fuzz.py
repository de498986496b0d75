"""Rubbish of every kind, between doubles; tests/chaos/fuzz.py sends it through a broker."""

import pytest

from tests.conftest import INTERPRETED
from tests.connectors.fuzz import fuzz


@pytest.mark.parametrize("seed", [1, 2])
def test_rubbish_is_told_and_changes_nothing(seed):
    seen = fuzz(300 if INTERPRETED else 10_000, seed)
    assert min(seen.values()) > 0
