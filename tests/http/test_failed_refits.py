"""A service whose refits fail says so, and goes on."""

from streamclust.engine import refit
from tests.http.conftest import N, objects, points, problem, taught


def test_refits_that_fail_are_told_and_the_service_goes_on(start, monkeypatch):
    found = taught(start, refit_every=200)
    assert found.client.get("/readyz").status_code == 200
    assert found.client.get("/v1/status").json()["failed_refits"] == 0

    def find(work):
        raise ValueError("a matrix holds NaN")

    with monkeypatch.context() as patch:
        patch.setattr(refit, "find", find)
        while found.service.clusterer.n_failed_in_a_row < 3:
            found.client.post("/v1/learn", json=objects(points(seed=1))).raise_for_status()
        told = problem(found.client.get("/readyz"), 503)["detail"]
        assert "a matrix holds NaN" in told
        assert found.client.get("/livez").status_code == 200
        failed = found.client.get("/v1/status").json()["failed_refits"]
        assert failed >= 3
        assert f"streamclust_failed_refits_total {float(failed)}" in found.client.get("/metrics").text
        assert found.client.post("/v1/predict", json=objects(points(5))).status_code == 200
    while found.service.clusterer.n_failed_in_a_row:
        found.client.post("/v1/learn", json=objects(points(seed=2))).raise_for_status()
    assert found.client.get("/readyz").status_code == 200
    assert len(found.client.get("/v1/clusters").json()["clusters"]) == 3


def test_a_sensor_that_gets_stuck_does_not_stop_a_service_that_forgets(start):
    found = taught(start, half_life=200.0)
    for _ in range(25):
        found.client.post("/v1/learn", json=[{"x": 5.0, "y": 5.0}] * 1000).raise_for_status()
    found.client.post("/v1/learn", json=objects(points(seed=3))).raise_for_status()
    assert found.client.get("/readyz").status_code == 200
    status = found.client.get("/v1/status").json()
    assert (status["events"], status["failed_refits"]) == (2 * N + 25_000, 0)
