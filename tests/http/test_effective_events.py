"""The status of a service tells how many independent events its events are worth."""

import numpy as np

from tests.http.conftest import N, objects, points, taught


def effective(found):
    """Effective number of events by a copy of the model made now."""
    with found.service.lock:
        found.backend._model_copy.clear()
    found.client.get("/v1/clusters").raise_for_status()
    return found.client.get("/v1/status").json()["effective_events"]


def test_repeated_events_are_worth_less_than_independent_ones(start):
    found = taught(start)
    status = found.client.get("/v1/status").json()
    assert effective(found) == status["events"] == N
    again = np.repeat(points(seed=1)[:200], 20, axis=0)
    found.client.post("/v1/learn", json=objects(again)).raise_for_status()
    assert 0 < effective(found) < (N + len(again)) / 3


def test_the_status_waits_for_nobody(start):
    """It tells the number that was computed last while the loop is busy, or none."""
    found = taught(start)
    known = effective(found)
    with found.service.lock:
        assert found.backend.status()["effective_events"] == known
        found.backend._model_copy.clear()
        assert found.backend.status()["effective_events"] is None
