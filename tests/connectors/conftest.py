"""One broker for all tests that want a real one, shared by the workers of pytest-xdist."""

import fcntl
import json
import os
import subprocess
from contextlib import contextmanager

import pytest

from tests.connectors.broker import JavaBroker, JavaBrokers, Missing, find_broker
from tests.connectors.cluster import CLIENTS, Cluster
from tests.connectors.schema_registry import RealRegistry


def without_broker(error):
    """Skip loudly or, where a broker is required, fail."""
    if os.environ.get("STREAMCLUST_REQUIRE_KAFKA"):
        pytest.fail(f"STREAMCLUST_REQUIRE_KAFKA is set, but there is {error}", pytrace=False)
    pytest.skip(str(error))


@contextmanager
def locked(path):
    path.touch()
    with path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        held = json.loads(file.read() or '{"users": 0}')
        yield held
        file.seek(0)
        file.truncate()
        file.write(json.dumps(held))


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory):
    """What is known of it; the first worker starts it, the last one stops it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    broker = None
    try:
        with locked(shared / "broker.json") as held:
            if not held["users"]:
                broker = find_broker(shared / "broker", secure=True).start()
                held |= {"address": broker.address, "secure": broker.secure, "stop": broker.stop_command}
            held["users"] += 1
            known = dict(held)
    except Missing as error:
        without_broker(error)
    yield known
    with locked(shared / "broker.json") as held:
        held["users"] -= 1
        if not held["users"]:
            subprocess.run(held["stop"], check=False, capture_output=True)
    if broker is not None:
        broker.forget()


@pytest.fixture(scope="session")
def broker_address(shared_broker):
    """Where it listens to anyone."""
    return shared_broker["address"]


@pytest.fixture(scope="session")
def secure_broker(shared_broker):
    """Where it listens with TLS and passwords."""
    if not shared_broker["secure"]:
        without_broker(
            "no listener with TLS and passwords on this broker: one of the tests' own, by Java, has them"
        )
    return shared_broker["secure"]


@pytest.fixture(params=CLIENTS)
def client(request):
    """The library that the service uses."""
    return request.param


@pytest.fixture
def cluster(broker_address, request):
    """Topics of its own on the shared broker; services use the client under test, if there is one."""
    client = request.getfixturevalue("client") if "client" in request.fixturenames else CLIENTS[0]
    with Cluster(broker_address, client) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory):
    """A broker that may be killed."""
    try:
        broker = JavaBroker(tmp_path_factory.mktemp("own-broker")).start()
    except Missing as error:
        without_broker(error)
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    """Three brokers, each of which may be killed."""
    try:
        found = JavaBrokers(tmp_path_factory.mktemp("brokers")).start()
    except Missing as error:
        without_broker(error)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def registry_url(tmp_path_factory):
    """URL of a schema registry."""
    try:
        found = RealRegistry(tmp_path_factory.mktemp("registry")).start()
    except Missing as error:
        if os.environ.get("STREAMCLUST_REQUIRE_REGISTRY"):
            pytest.fail(f"STREAMCLUST_REQUIRE_REGISTRY is set, but there is no {error}", pytrace=False)
        pytest.skip(f"no schema registry: {error}")
    yield found.url
    found.stop()
