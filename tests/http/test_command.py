"""`streamclust serve` and `streamclust run --http`, as processes."""

import signal
import subprocess
from contextlib import contextmanager, nullcontext

import pytest
from typer.testing import CliRunner

from streamclust import StreamClusterer
from streamclust_connectors.cli import app
from streamclust_connectors.cli.http_server import http_server
from streamclust_connectors.http.server import listening
from streamclust_connectors.settings import ConfigError, load
from tests.http.conftest import objects, points, problem, until
from tests.http.processes import COMMAND, launched


@contextmanager
def command(folder, *arguments):
    """A process that listens, and a client of it."""
    with launched(folder, *arguments) as found, found.client() as client:
        yield found.process, client
    found.log.unlink()


def test_what_was_learnt_outlives_the_process(tmp_path):
    arguments = ("serve", "--http", "0", "--state", "state", "--set", "engine.warmup=50")
    rows = points(400)
    with command(tmp_path, *arguments) as (process, client):
        assert client.base_url.host == "127.0.0.1"
        client.post("/v1/learn", json=objects(rows[:200])).raise_for_status()
        clusters = client.get("/v1/clusters").json()["clusters"]
        told = client.get("/v1/events").json()["events"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(180) == 0
    (checkpoint,) = (tmp_path / "state" / "0").glob("*.checkpoint")
    assert StreamClusterer.load(checkpoint).n_seen == 200
    with command(tmp_path, *arguments) as (process, client):
        found = client.get("/v1/clusters").json()["clusters"]
        assert [(c["id"], c["weight"], c["mean"]) for c in found] == [
            (c["id"], c["weight"], c["mean"]) for c in clusters
        ]
        assert client.get("/v1/events").json()["events"] == told
        client.post("/v1/learn", json=objects(rows[200:])).raise_for_status()
        assert client.get("/v1/status").json()["events"] == 400
        process.send_signal(signal.SIGINT)
        assert process.wait(180) == 0


def test_a_killed_process_has_what_its_last_checkpoint_has(tmp_path):
    arguments = ("serve", "--http", "0", "--state", "state", "--set", "checkpoint.every_seconds=0.1")
    with command(tmp_path, *arguments) as (process, client):
        client.post("/v1/learn", json=objects(points(50))).raise_for_status()
        until(lambda: kept(tmp_path / "state") == 50)
        assert client.get("/v1/status").json()["last_checkpoint_age_seconds"] >= 0
        process.kill()
    with command(tmp_path, *arguments) as (_, client):
        assert client.get("/v1/status").json()["events"] == 50


def kept(state):
    """How many events the latest checkpoint holds."""
    files = sorted(state.rglob("*.checkpoint"))
    return StreamClusterer.load(files[-1]).n_seen if files else 0


def test_beside_a_source(tmp_path):
    arguments = ("run", "--source", "synthetic", "--set", "source.events=100000000", "--http", "0")
    with command(tmp_path, *arguments, "--set", "output.kind=none") as (process, client):
        until(lambda: client.get("/v1/status").json()["events"] > 0)
        status = client.get("/v1/status").json()
        assert status["source"] == "synthetic"
        until(lambda: client.get("/v1/clusters").json()["clusters"])
        problem(client.post("/v1/learn", json={"x0": 1}), 409)
        process.send_signal(signal.SIGTERM)
        assert process.wait(180) == 0


def test_without_being_told_nothing_listens():
    assert isinstance(http_server(None, load()), nullcontext)


def test_a_service_that_nothing_could_reach_is_refused():
    with pytest.raises(ConfigError, match=r"http\.enabled"):
        load(overrides={"source": {"kind": "http"}}).check()
    load(overrides={"source": {"kind": "http"}, "http": {"enabled": True}}).check()


def test_a_port_that_is_taken(tmp_path):
    with listening("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [COMMAND, "serve", "--http", str(port)],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("place", ["nowhere:http", "127.0.0.1:70000", "127.0.0.1", "127.0.0.1:"])
def test_a_place_that_is_none(place):
    done = CliRunner().invoke(app, ["serve", "--http", place])
    assert done.exit_code == 2
    assert "port" in done.output
