"""A headless browser, and a service whose dashboard it looks at."""

import json
import os
import shutil
import threading
from contextlib import contextmanager

import httpx
import numpy as np
import pytest
from playwright.sync_api import sync_playwright

from streamclust import StreamClusterer
from streamclust_connectors.cli.demo_stream import DemoStream, PacedSource
from streamclust_connectors.decode import Decoder
from streamclust_connectors.decode.fields import Fields
from streamclust_connectors.http.server import serving
from streamclust_connectors.service import Policy, Service
from streamclust_connectors.settings import load
from streamclust_connectors.sinks import LinesSink
from streamclust_connectors.sources import HttpSource, MemorySource
from tests.http.conftest import until

NAMES = "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"
RATE = 4000.0


@pytest.fixture(scope="session")
def browser():
    """Chromium as the system has it. Skips loudly without one or, where one is required, fails."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        reason = f"no browser: none of {', '.join(NAMES)} is installed"
        if os.environ.get("STREAMCLUST_REQUIRE_BROWSER"):
            pytest.fail(f"STREAMCLUST_REQUIRE_BROWSER is set, but there is {reason}", pytrace=False)
        pytest.skip(reason)
    sandboxed = os.geteuid() != 0  # Chromium's sandbox does not work for root
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, chromium_sandbox=sandboxed)
        yield browser
        browser.close()


@pytest.fixture(scope="session", autouse=True)
def compiled():
    """Kernels, which a first start compiles for a minute: the page is looked at when that is over."""
    rng = np.random.default_rng(0)
    model = StreamClusterer()
    model.learn_many(rng.normal(size=(5000, 2)) + 9.0 * rng.integers(3, size=(5000, 1)))
    model.assign_many(rng.normal(size=(5, 2)))
    model.snapshot()


@contextmanager
def served(source):
    """A service that learns a source and listens; its address."""
    with started(source, StreamClusterer()) as (url, _):
        yield url


@contextmanager
def started(source, clusterer, decoder=None, kind="synthetic"):
    """The same with a clusterer of one's own; address and service."""
    policy = Policy(poll=0.05, stop_at_end=False)
    service = Service(source, LinesSink(channels=()), clusterer, decoder=decoder, policy=policy)
    settings = load(overrides={"source": {"kind": kind}, "http": {"port": 0}})
    loop = threading.Thread(target=service.run)
    with serving(service, settings) as url:
        loop.start()
        try:
            until(lambda: service.stats.ready)
            yield url, service
        finally:
            service.stop()
            loop.join()


@pytest.fixture(scope="module")
def live():
    """A service in the middle of a stream."""
    with served(PacedSource(lambda: DemoStream(400_000), RATE)) as url:
        yield url


@pytest.fixture
def idle():
    """A service that nothing was sent to."""
    with served(MemorySource({("events", 0): []}, endless=True)) as url:
        yield url


@pytest.fixture
def told():
    """A service that learns what it is sent, which was three clusters of ten features; and the id of one that died."""
    rng = np.random.default_rng(2)
    with started(HttpSource(), StreamClusterer("diagonal")) as (url, service):
        kind = rng.integers(3, size=(500, 1))
        rows = rng.normal(size=(500, 10)) + 9.0 * kind * (np.arange(10) < 2)
        names = [f"feature {i}" for i in range(10)]
        httpx.post(f"{url}/v1/learn", json={"features": names, "vectors": rows.tolist()}).raise_for_status()
        httpx.get(f"{url}/v1/clusters").raise_for_status()  # which waits until they are learnt
        lineage = service.clusterer.lineage
        past = lineage.born(600, 1, 20.0)
        lineage.retire(700, 2, past, 20.0)
        yield url, past


@pytest.fixture(scope="module")
def embedded():
    """A service of embeddings, 384 numbers in a field of each event, of six topics."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(6, 384))
    rows = centres[rng.integers(6, size=3000)] + 0.4 * rng.normal(size=(3000, 384))
    events = [
        json.dumps({"id": i, "embedding": row}).encode() for i, row in enumerate(rows.round(4).tolist())
    ]
    source, decoder = MemorySource({("events", 0): events}, endless=True), Decoder(Fields(vector="embedding"))
    with started(source, StreamClusterer(scale="unit"), decoder) as (url, service):
        until(lambda: service.clusterer.n_seen == 3000)
        yield url


@pytest.fixture
def hostile():
    """A service whose events have names that would do harm, were they taken for HTML."""
    names = "<img src=x onerror=document.title='mine'>", "<b>bold</b>&amp;"
    rows = np.random.default_rng(4).normal(size=(60, 2)).tolist()
    events = [json.dumps(dict(zip(names, row, strict=True))).encode() for row in rows]
    with served(MemorySource({("events", 0): events}, endless=True)) as url:
        yield url, names


@pytest.fixture
def guarded(monkeypatch):
    """A service that asks for a token."""
    monkeypatch.setenv("STREAMCLUST_HTTP__TOKEN", "open-sesame")
    with served(PacedSource(lambda: DemoStream(4000))) as url:
        yield url
