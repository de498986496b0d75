import os
import pty
import re
import signal
import socket
import subprocess
from contextlib import ExitStack

import httpx
import pytest

from streamclust_connectors.cli.demo import DEFAULT_PORT
from tests.cli.conftest import COMMAND

pytestmark = pytest.mark.compiled
STEPS = "loading", "dashboard", "compiling", "compiled", "stream"
PICTURES = "clusters.png", "dendrogram.png", "lineage.png"


def test_the_demo_ends_by_itself(tmp_path, command):
    done = command("demo", "--events", "12000", "--seconds", "2", "--out", tmp_path / "pictures")
    assert re.search(r"^dashboard http://127\.0\.0\.1:\d+$", done.stdout, re.MULTILINE)
    steps = [line.split()[0] for line in done.stdout.splitlines() if line[:1].isalpha()]
    assert [name for name in steps if name in STEPS] == list(STEPS)
    assert re.search(r"^compiled +(\d+) of \d+ kernels are ready", done.stdout, re.MULTILINE)
    assert "born 0 at event 1" in done.stdout
    assert "of 12,000 events" in done.stdout
    assert "lifecycle events" in done.stdout
    assert float(re.search(r"adjusted Rand index (\S+)", done.stdout)[1]) > 0.5
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == sorted(PICTURES)
    for name in PICTURES:
        assert f"plot     {tmp_path / 'pictures' / name}" in done.stdout
        assert (tmp_path / "pictures" / name).read_bytes().startswith(b"\x89PNG")


def test_the_demo_can_do_without_a_dashboard(tmp_path, invoke):
    done = invoke("demo", "--events", "3000", "--rate", "0", "--no-http", "--out", tmp_path)
    assert "dashboard" not in done.stdout
    assert "of 3,000 events" in done.stdout
    assert "adjusted Rand index not yet known" in done.stdout
    assert (tmp_path / "clusters.png").exists()


def test_the_demo_goes_on_serving_until_interrupted(tmp_path):
    arguments = ["demo", "--events", "3000", "--rate", "0", "--serve", "--out", tmp_path]
    with subprocess.Popen(
        [COMMAND, *arguments], stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as running:
        lines = iter(running.stdout.readline, "")
        url = next(line.split()[1] for line in lines if line.startswith("dashboard"))
        assert any(line.startswith(f"serving at {url}") for line in lines)  # once the stream has ended
        assert httpx.get(f"{url}/v1/status").json()["events"] == 3000
        assert "<title>streamclust</title>" in httpx.get(f"{url}/").text
        running.send_signal(signal.SIGINT)
        assert running.wait(180) == 0


def test_on_a_terminal_the_demo_serves_at_its_own_port_until_interrupted(tmp_path):
    """The same command as above without options, before a person: a pseudo-terminal."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if probe.connect_ex(("127.0.0.1", DEFAULT_PORT)) == 0:
            pytest.skip(f"port {DEFAULT_PORT} is taken")
    person, terminal = pty.openpty()
    arguments = ["demo", "--events", "3000", "--rate", "0", "--out", tmp_path]
    with (
        subprocess.Popen([COMMAND, *arguments], stdout=terminal, stderr=terminal, stdin=terminal) as running,
        ExitStack() as end,
    ):
        end.callback(running.kill)  # else a failure here would wait for it for ever
        os.close(terminal)
        said = ""
        while "until interrupted" not in said:
            said += os.read(person, 4096).decode(errors="replace")
        assert f"serving at http://127.0.0.1:{DEFAULT_PORT} " in said
        assert httpx.get(f"http://127.0.0.1:{DEFAULT_PORT}/v1/status").json()["events"] == 3000
        running.send_signal(signal.SIGINT)
        while True:  # a terminal that nobody reads would hold the process up
            try:
                if not os.read(person, 4096):
                    break
            except OSError:
                break
        assert running.wait(180) == 0
    os.close(person)


def test_a_port_that_is_taken_is_named(invoke):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = invoke("demo", "--events", "1000", "--port", port, code=1)
    assert f"127.0.0.1:{port}" in done.stderr
