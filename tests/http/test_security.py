"""Who may ask, from where, and how much."""

import logging
import socket
from pathlib import Path

import httpx
import pytest

from streamclust_connectors.http.security import hostname, is_loopback
from streamclust_connectors.http.server import listening
from streamclust_connectors.settings import ConfigError, load, redacted, to_toml
from tests.http.conftest import problem

TOKEN = "hunter2-and-more"


# -------------------------------------------------------------------- the token


@pytest.fixture
def guarded(start, monkeypatch):
    monkeypatch.setenv("STREAMCLUST_HTTP__TOKEN", TOKEN)
    return start()


def test_without_the_token_nothing_of_what_was_learnt_is_told(guarded):
    client = guarded.client
    routes = [route for route in guarded.app.openapi()["paths"] if route not in ("/livez", "/readyz")]
    assert "/v1/learn" in routes
    for route in routes:
        for method in ("GET", "POST"):
            answer = client.request(method, route)
            problem(answer, 401)
            assert answer.headers["www-authenticate"].startswith("Bearer")
    problem(client.get("/v1/nothing-here"), 401)
    wrong = ("Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN, "Bearer \xff")
    for header in wrong:
        problem(client.get("/v1/status", headers={"Authorization": header.encode("latin-1")}), 401)
    assert guarded.service.clusterer.n_seen == 0


def test_with_it_everything_goes(guarded):
    for scheme in ("Bearer", "bearer", "BEARER"):
        client = httpx.Client(base_url=guarded.url, headers={"Authorization": f"{scheme} {TOKEN}"})
        assert client.get("/v1/status").status_code == 200
        assert client.post("/v1/learn", json={"x": 1}, timeout=60).json()["learnt"] == 1
        client.close()


def test_health_the_page_and_the_description_are_open(guarded):
    for path in ("/livez", "/readyz", "/", "/docs", "/openapi.json", "/static/style.css"):
        assert guarded.client.get(path).status_code == 200, path


def test_the_token_is_nowhere_to_be_read(guarded, caplog):
    with caplog.at_level(logging.DEBUG):
        client = guarded.client
        answers = [
            client.get("/v1/status", headers={"Authorization": f"Bearer {TOKEN}"}),
            client.get("/v1/status", headers={"Authorization": f"Bearer x{TOKEN}"}),
            client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}),
        ]
    assert all(TOKEN not in answer.text for answer in answers)
    ours = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert all(TOKEN not in record.getMessage() for record in ours)
    settings = load()
    assert TOKEN not in to_toml(settings) + str(redacted(settings)) + repr(settings)
    assert "# token is set" in to_toml(settings)


def test_the_token_may_lie_in_a_file_and_never_in_the_open(tmp_path, monkeypatch):
    (tmp_path / "token").write_text(TOKEN + "\n")
    monkeypatch.setenv("STREAMCLUST_HTTP__TOKEN_FILE", str(tmp_path / "token"))
    assert load().http.token.get_secret_value() == TOKEN
    with pytest.raises(ConfigError, match=r"STREAMCLUST_HTTP__TOKEN, or http\.token_file"):
        load(overrides={"http": {"token": TOKEN}})
    Path(tmp_path / "token").write_text("two words")
    with pytest.raises(ConfigError, match="without spaces") as error:
        load()
    assert "two words" not in str(error.value)


# -------------------------------------------------------------------- from where


def test_it_listens_on_this_machine_alone_unless_told(start):
    assert load().http.host == "127.0.0.1"
    found = start()
    assert found.url.startswith("http://127.0.0.1:")
    port = int(found.url.rsplit(":", 1)[1])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing; tells which address would be used
        outside = probe.getsockname()[0]
    if is_loopback(outside):
        pytest.skip("this machine has no address but loopback")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((outside, port), timeout=5)


def test_whoever_opens_it_to_all_without_a_token_is_warned(start, caplog):
    found = start(http={"host": "0.0.0.0"})
    assert "STREAMCLUST_HTTP__TOKEN" in caplog.text
    assert found.client.get("/livez", headers={"Host": "clusters.example"}).status_code == 200


def test_an_address_that_is_taken_is_named():
    with listening("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.1:{port}"):
            listening("127.0.0.1", port)


def test_pages_of_other_sites_may_not_ask(start):
    found = start()
    client, mine = found.client, {"Origin": found.url}
    assert client.post("/v1/learn", json={"x": 1}, headers=mine).status_code == 200
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "http://[", ""):
        problem(client.post("/v1/learn", json={"x": 1}, headers={"Origin": origin}), 403)
    # A name of their own that leads here: their page is then of the same origin, as far as the browser knows.
    for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "["):
        problem(client.get("/v1/status", headers={"Host": host}), 403)
    for host in ("localhost", "localhost:1234", "[::1]:80", "127.0.0.2"):
        assert client.get("/v1/status", headers={"Host": host}).status_code == 200
    assert found.service.clusterer.n_seen == 1


def test_pages_of_other_sites_may_not_ask_without_saying_where_they_are_from(start):
    """Some requests of a browser bear no Origin, but all say whether another site's page sends them."""
    found = start()
    client = found.client
    for site in ("cross-site", "same-site", "Cross-Site", "rubbish"):
        for mode in ("no-cors", "cors", "navigate"):
            headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
            problem(client.post("/v1/learn", json={"x": 1}, headers=headers), 403)
        problem(client.get("/v1/status", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}), 403)
        problem(client.get("/v1/status", headers={"Sec-Fetch-Site": site}), 403)
        link = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
        assert client.get("/", headers=link).status_code == 200
        assert client.head("/", headers=link).status_code == 200
    assert found.service.clusterer.n_seen == 0
    for site in ("same-origin", "none"):
        headers = {"Sec-Fetch-Site": site}
        assert client.post("/v1/learn", json={"x": 1}, headers=headers).status_code == 200
    assert found.service.clusterer.n_seen == 2


def test_names_of_this_machine():
    assert [hostname(h) for h in ("a:1", "[::1]:2", "[", "", "LOCALHOST:1")] == [
        "a",
        "::1",
        "",
        "",
        "localhost",
    ]
    assert [is_loopback(h) for h in ("", "example.org", "10.0.0.1", "127.1.2.3", "x.localhost")] == [
        False, False, False, True, True,
    ]  # fmt: skip


# -------------------------------------------------------------------- how much


def test_a_large_body_is_refused(start):
    found = start(http={"max_bytes": 1000})
    fits = b'{"x": 1' + b" " * 992 + b"}"
    assert len(fits) == 1000
    assert found.client.post("/v1/learn", content=fits).status_code == 200
    for route in ("/v1/learn", "/v1/predict", "/v1/snapshots"):
        assert "1000" in problem(found.client.post(route, content=fits + b" "), 413)["detail"]

        def chunks():
            for _ in range(11):
                yield b" " * 100

        problem(found.client.post(route, content=chunks()), 413)
    assert found.service.clusterer.n_seen == 1
    assert found.client.post("/v1/predict", json={"x": 1}).status_code == 200


def test_a_length_that_is_a_lie(start):
    """More, or less, than was announced; a length that is no number."""
    found = start(http={"max_bytes": 1000})
    host, port = found.url.removeprefix("http://").split(":")

    def said(request):
        with socket.create_connection((host, int(port)), timeout=60) as wire:
            wire.sendall(request)
            return wire.makefile("rb").readline()

    head = b"POST /v1/learn HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: "
    assert b" 413 " in said(head + b"999999999999999999\r\n\r\n")
    assert b" 413 " in said(head + b"1001\r\n\r\n")
    for nonsense in (b"-1", b"x", b"1e3", b"9" * 30):
        assert b" 400 " in said(head + nonsense + b"\r\n\r\n")
    assert found.service.clusterer.n_seen == 0


def test_a_name_as_long_as_a_book(start):
    found = start()
    long = "n" * 1_000_000
    bodies = ({long: 1}, [{"x": 1, long: 2}], {"vectors": [[1.0]], "features": [long]})
    for body in bodies:
        (refused,) = found.client.post("/v1/learn", json=body).json()["refused"]
        assert "at most 500 characters" in refused["reason"]
        assert len(refused["reason"]) < 300
    assert found.client.post("/v1/learn", json={"n" * 500: 1}).json()["learnt"] == 1
    assert found.client.get("/v1/status").json()["features"] == ["n" * 500]
    assert found.client.post("/v1/predict", json={"n" * 500: 1, long: 2}).status_code == 200


def test_too_many_events_at_once(start):
    found = start(http={"max_events": 3})
    for route in ("/v1/learn", "/v1/predict"):
        for body in ([{"x": 1}] * 4, {"vectors": [[]] * 4}):
            assert "max_events" in problem(found.client.post(route, json=body), 413)["detail"]
        assert found.client.post(route, json=[{"x": 1}] * 3).status_code == 200


def test_whoever_hangs_up_is_not_worth_a_word(start, caplog):
    found = start()
    host, port = found.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as wire:
        wire.sendall(b"POST /v1/learn HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n[{")
    assert found.client.post("/v1/learn", json={"x": 1}).json()["learnt"] == 1
    found.leave()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert found.service.clusterer.n_seen == 1
