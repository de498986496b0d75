"""A service whose loop runs in a thread, a server in another, and clients that talk to it over a socket."""

import os
import threading
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import httpx
import numpy as np
import pytest

from streamclust import StreamClusterer
from streamclust_connectors.http.app import create_app
from streamclust_connectors.http.backend import Backend
from streamclust_connectors.http.server import running
from streamclust_connectors.service import Policy, Service
from streamclust_connectors.settings import load
from streamclust_connectors.sinks import ListSink
from streamclust_connectors.sources import HttpSource
from tests.conftest import INTERPRETED

N = 300 if INTERPRETED else 1000
CENTRES = np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]])
QUICK = Policy(poll=0.01)


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch):
    for name in [name for name in os.environ if name.startswith("STREAMCLUST_")]:
        monkeypatch.delenv(name)


def points(n=N, seed=7):
    """Three clusters of (x, y)."""
    rng = np.random.default_rng(seed)
    return CENTRES[rng.integers(3, size=n)] + rng.normal(size=(n, 2))


def objects(rows):
    return [{"x": x, "y": y} for x, y in rows.tolist()]


@contextmanager
def turning(service):
    """The service's loop in a thread."""
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        yield service
    finally:
        service.stop()
        thread.join(180)
        assert not thread.is_alive()


def made(source=None, policy=QUICK, **engine):
    return Service(
        source or HttpSource(), ListSink(), StreamClusterer(**{"warmup": 50} | engine), policy=policy
    )


@contextmanager
def starting():
    """A function that starts a service, and a server on a free port, to the end of this."""
    with ExitStack() as stack:

        def begin(service=None, http=None, health=None, vector=None, **engine):
            service = stack.enter_context(turning(service or made(**engine)))
            settings = load(overrides={"http": {"port": 0} | (http or {}), "health": health or {}})
            backend = Backend(service, "http", settings.http, vector=vector)
            app = create_app(backend, settings)
            server = ExitStack()
            stack.push(server)
            url = server.enter_context(running(app, settings.http))
            client = stack.enter_context(httpx.Client(base_url=url, timeout=120))
            until(lambda: service.stats.ready)
            return SimpleNamespace(
                client=client, url=url, service=service, backend=backend, app=app, leave=server.close
            )

        yield begin


@pytest.fixture
def start():
    with starting() as begin:
        yield begin


@pytest.fixture
def api(start):
    """A service that was taught three clusters."""
    return taught(start)


@pytest.fixture(scope="module")
def shared():
    """The same, for tests that leave it as it was."""
    with starting() as begin:
        yield taught(begin)


def taught(begin, **options):
    found = begin(**options)
    found.client.post("/v1/learn", json=objects(points())).raise_for_status()
    return found


def until(condition, patience=240.0):
    waiting = threading.Event()
    for _ in range(int(patience / 0.01)):
        if condition():
            return
        waiting.wait(0.01)
    raise AssertionError("waited in vain")


def problem(answer, status):
    """The problem that an answer must be."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    content = answer.json()
    assert content["status"] == status
    assert content["title"]
    assert content["detail"]
    return content
