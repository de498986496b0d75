"""Clients that keep a connection and do nothing with it, or hardly anything."""

import logging
import resource
import signal
import socket
from contextlib import ExitStack
from itertools import count

import httpx
import pytest

from streamclust_connectors.http.connections import RESERVED_FILES, BoundedConnection, Limits, Throttle
from streamclust_connectors.settings import load
from tests.http.conftest import until
from tests.http.processes import launched, ready
from tests.http.test_command import kept

HALF_HEADER = b"POST /v1/learn HTTP/1.1\r\nHost: localhost\r\nContent-"
HALF_BODY = b"POST /v1/learn HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n[{"
WHOLE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connected(url, request):
    host, port = url.removeprefix("http://").split(":")
    wire = socket.create_connection((host, int(port)), timeout=60)
    wire.sendall(request)
    return wire


def rest(wire):
    """All that comes until the server closes."""
    found = b""
    try:
        while more := wire.recv(65536):
            found += more
    except ConnectionResetError:
        pass
    return found


# -------------------------------------------------------------------- time


@pytest.mark.parametrize("request_", [HALF_HEADER, HALF_BODY])
def test_half_a_request_is_not_awaited_for_ever(start, request_):
    found = start(http={"header_seconds": 0.3, "body_seconds": 0.3})
    with connected(found.url, request_) as wire:
        answer = rest(wire)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"application/problem+json" in head
    assert b"_seconds)" in body
    assert found.client.post("/v1/learn", json={"x": 1}).json()["learnt"] == 1


@pytest.mark.parametrize(("request_", "answers"), [(b"", 0), (WHOLE, 1)])
def test_a_connection_without_a_request_is_closed_without_a_word(start, request_, answers):
    found = start(http={"header_seconds": 0.3})
    with connected(found.url, request_) as wire:
        assert rest(wire).count(b"HTTP/1.1 ") == answers


@pytest.mark.parametrize(
    ("request_", "more"), [(b"GET /livez HTTP/1.1\r\nX-Long: ", b"o"), (HALF_BODY, b" ")]
)
def test_a_byte_now_and_then_does_not_prolong_it(start, request_, more):
    found = start(http={"header_seconds": 0.5, "body_seconds": 0.5})
    with connected(found.url, request_) as wire:
        wire.settimeout(0.02)
        for _ in count():
            try:
                wire.sendall(more)
                if wire.recv(65536).startswith(b"HTTP/1.1 408 "):
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break


def test_an_answer_that_nobody_takes(start, monkeypatch):
    late, too_late = [], BoundedConnection._too_late

    def noted(self, awaited):
        too_late(self, awaited)
        late.append(awaited)

    monkeypatch.setattr(BoundedConnection, "_too_late", noted)
    found = start(http={"body_seconds": 0.3})
    with connected(found.url, b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000) as wire:
        until(lambda: late == ["answer"])
        assert rest(wire).count(b"HTTP/1.1 200 OK") < 1000
    assert found.client.get("/livez").status_code == 200


def test_a_request_that_takes_its_time_is_left_in_peace(start):
    """Bodies in pieces, more than one request on a connection, and a pause between them."""
    found = start(http={"header_seconds": 30, "body_seconds": 30})
    with connected(found.url, HALF_BODY) as wire:
        for part in (b'"x": ', b"1}]", b" " * (100 - 10), WHOLE):
            wire.sendall(part)
        answers = b""
        while answers.count(b"HTTP/1.1 200 OK") < 2 and (more := wire.recv(4096)):
            answers += more
        assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert found.service.clusterer.n_seen == 1


# -------------------------------------------------------------------- number


def test_one_too_many_takes_the_place_of_whoever_waits_longest(start):
    found = start(http={"max_connections": 3})
    with ExitStack() as stack:
        wires = [
            stack.enter_context(connected(found.url, request)) for request in (HALF_HEADER, HALF_BODY, b"")
        ]
        found.client.close()
        with httpx.Client(base_url=found.url, timeout=180) as client:
            for _ in range(3):
                assert client.get("/livez").status_code == 200
        assert rest(wires[0]).startswith(b"HTTP/1.1 503 ")


def test_limits_leave_file_handles_to_the_rest():
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, files[1]))
        assert Limits.of(load().http).max_connections == 256 - RESERVED_FILES
        assert Limits.of(load(overrides={"http": {"max_connections": 10}}).http).max_connections == 10
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)


def test_hundreds_of_slow_clients_and_few_file_handles(tmp_path):
    def few_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    arguments = ("serve", "--http", "0", "--state", "state", "--set", "checkpoint.every_seconds=0.1")
    with (
        launched(tmp_path, *arguments, preexec_fn=few_files) as found,
        found.client() as client,
        ExitStack() as stack,
    ):
        url = str(client.base_url).rstrip("/")
        for request in (HALF_HEADER, HALF_BODY, WHOLE, b"") * 100:
            stack.enter_context(connected(url, request))
        with httpx.Client(base_url=url, timeout=180) as other:
            assert other.post("/v1/learn", json={"x": 1}).json()["learnt"] == 1
            until(lambda: kept(tmp_path / "state") == 1)
            until(lambda: ready(other))
        stack.close()
        with httpx.Client(base_url=url, timeout=180) as other:
            assert other.post("/v1/learn", json={"x": 1}).json()["learnt"] == 1
        assert found.process.poll() is None
        found.process.send_signal(signal.SIGTERM)
        assert found.process.wait(180) == 0
        assert len(found.log.read_bytes()) < 10_000


# -------------------------------------------------------------------- what is said


def test_the_same_words_are_said_once_in_a_while():
    throttle = Throttle()
    said = [throttle.filter(logging.makeLogRecord({"msg": msg})) for msg in "aabab"]
    assert said == [True, False, True, False, False]
    throttle._last["a"] -= 60
    record = logging.makeLogRecord({"msg": "a"})
    assert throttle.filter(record)
    assert record.left_out == 2
