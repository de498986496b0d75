"""Server-sent events, by a real server."""

import json
import threading
from contextlib import contextmanager

import httpx
import pytest

from tests.http.conftest import objects, points, problem, until

SSE = {"Accept": "text/event-stream"}


@contextmanager
def following(url, **headers):
    """What comes by a stream, as it comes."""
    found, over = [], threading.Event()

    def read():
        try:
            with httpx.stream("GET", f"{url}/v1/events", headers=SSE | headers, timeout=180) as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                event = {}
                for line in answer.iter_lines():
                    if over.is_set():
                        return
                    if line:
                        name, _, value = line.partition(": ")
                        event[name] = value
                    elif event:
                        found.append(event)
                        event = {}
        finally:
            ended.set()

    ended = threading.Event()
    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield found, ended
    finally:
        over.set()
        thread.join(180)


def lifecycle(found):
    return [json.loads(event["data"]) for event in list(found) if event["event"] == "lifecycle"]


def test_changes_and_figures_come_as_they_happen(start):
    api = start()
    with following(api.url) as (found, _):
        until(lambda: found)
        assert found[0]["event"] == "status"
        assert json.loads(found[0]["data"])["events"] == 0
        api.client.post("/v1/learn", json=objects(points()))
        until(lambda: lifecycle(found))
        told = api.client.get("/v1/events").json()["events"]
        until(lambda: len(lifecycle(found)) == len(told))
        assert lifecycle(found) == told
        numbers = [int(event["id"]) for event in found if event["event"] == "lifecycle"]
        assert numbers == [event["seq"] for event in told]
        until(lambda: sum(event["event"] == "status" for event in found) >= 2)


def test_a_stream_goes_on_where_another_broke_off(api):
    told = api.client.get("/v1/events").json()["events"]
    with following(api.url, **{"Last-Event-ID": "1"}) as (found, _):
        until(lambda: len(lifecycle(found)) == len(told) - 1)
        assert lifecycle(found) == told[1:]


def test_as_many_follow_as_may(start):
    api = start(http={"max_streams": 1})
    with following(api.url) as (found, _):
        until(lambda: found)
        answer = api.client.get("/v1/events", headers=SSE)
        assert "max_streams" in problem(answer, 503)["detail"]
        assert api.client.get("/v1/events").status_code == 200
    until(lambda: api.app.state.streams.followers == 0)
    with following(api.url) as (found, _):
        until(lambda: found)


def test_nobody_keeps_the_service_from_ending(start, monkeypatch):
    monkeypatch.setattr(
        "streamclust_connectors.http.server.SHUTDOWN_SECONDS", 600
    )  # connections are cut off then
    api = start()
    with following(api.url) as (found, ended):
        until(lambda: found)
        api.leave()
        assert ended.wait(180)
    with pytest.raises(httpx.ConnectError):
        api.client.get("/livez")
