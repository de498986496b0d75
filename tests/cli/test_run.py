"""The service as a process: any source, any sink, its logs, its signals, its health."""

import json
import os
import signal
import subprocess
import time

import pytest

from streamclust import StreamClusterer
from streamclust_connectors.cli.service_commands import write_health
from tests.cli.conftest import COMMAND


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def channel(outputs, name):
    return [output for output in outputs if output["channel"] == name]


def test_a_file_to_a_file_and_on_after_a_restart(files, points, command):
    rows, _ = points
    arguments = (
        "run",
        "--input",
        "events.csv",
        "--set",
        "decode.key=name",
        "--state",
        "state",
        "-o",
        "found.jsonl",
    )
    done = command(*arguments)
    found = lines((files / "found.jsonl").read_text())
    assert [a["key"] for a in channel(found, "assignments")] == [f"event {i}" for i in range(len(rows))]
    assert channel(found, "lifecycle")[0]["kind"] == "born"
    assert done.stdout == ""
    assert [line["message"] for line in lines(done.stderr)] == ["started", "stopped"]
    assert lines(done.stderr)[-1]["events"] == len(rows)
    (checkpoint,) = (files / "state" / "0").glob("*.checkpoint")
    assert StreamClusterer.load(checkpoint).n_seen == len(rows)
    again = command(*arguments)
    assert lines(again.stderr)[-1]["events"] == 0
    assert len(channel(lines((files / "found.jsonl").read_text()), "assignments")) == len(rows)


def test_a_model_for_each_key_and_on_after_a_restart(files, command):
    events = [{"customer": f"c{i % 3}", "x": float(i % 7), "y": float(i % 5)} for i in range(90)]
    (files / "visits.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    arguments = (
        "run",
        "--input",
        "visits.jsonl",
        "--per",
        "customer",
        "--state",
        "state",
        "-o",
        "found.jsonl",
    )
    done = command(*arguments)
    found = lines((files / "found.jsonl").read_text())
    assert [one["key"] for one in channel(found, "assignments")] == [event["customer"] for event in events]
    assert {one["key"] for one in channel(found, "lifecycle")} == {"c0", "c1", "c2"}
    assert lines(done.stderr)[-1]["keys"] == 3
    assert [path.name for path in (files / "state" / "keys").glob("*.sqlite")] == ["visits.jsonl-0.sqlite"]
    again = command(*arguments)
    assert (lines(again.stderr)[-1]["events"], lines(again.stderr)[-1]["keys"]) == (0, 3)


def test_a_model_for_each_key_needs_a_directory(files, command):
    (files / "visits.jsonl").write_text('{"customer": "a", "x": 1}\n')
    done = command("run", "--input", "visits.jsonl", "--per", "customer", code=2)
    assert "per.key keeps its models in files; set checkpoint.directory" in done.stderr


def test_checkpoints_after_so_many_events(files, command):
    often = (
        "--checkpoint-events",
        1000,
        "--set",
        "checkpoint.every_seconds=1000",
        "--state",
        files / "state",
    )
    done = command("run", "--source", "synthetic", "--set", "source.events=8000", "-o", os.devnull, *often)
    assert lines(done.stderr)[-1]["checkpoints"] == 2  # after each of two polls; nothing is left for the end


def test_standard_input_to_standard_output(files, command):
    settings = ("--set", "decode.vector=payload.vector", "--set", "output.assignments=false")
    done = command("run", "--input", "-", *settings, input=(files / "events.jsonl").read_text())
    found = lines(done.stdout)
    assert {output["channel"] for output in found} == {"lifecycle", "dead-letters"}
    assert len(channel(found, "dead-letters")) == 2
    assert lines(done.stderr)[-1]["dead_letters"] == 2
    assert "east" not in done.stderr  # payloads never


def test_settings_of_a_file_and_of_the_environment(files, command, monkeypatch):
    (files / "service.toml").write_text(
        '[source]\nkind = "synthetic"\nevents = 5000\n[output]\nkind = "none"\n'
    )
    monkeypatch.setenv("STREAMCLUST_SOURCE__EVENTS", "300")
    done = command("run", "--config", "service.toml")
    assert done.stdout == ""
    assert lines(done.stderr)[-1]["events"] == 300


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_good_order(files, number):
    """Standard input stays open: there would be more to come."""
    arguments = ["run", "--input", "-", "--state", "state", "--set", "health.file=health.json"]
    output = files / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [COMMAND, *arguments], cwd=files, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.PIPE
        )
    try:
        events = b"".join(b'{"x": %d, "y": 1}\n' % i for i in range(500))
        process.stdin.write(events)
        process.stdin.flush()
        until(lambda: (files / "health.json").exists() and output.stat().st_size)
        process.send_signal(number)
        _, errors = process.communicate(events, timeout=180)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    (checkpoint,) = (files / "state" / "0").glob("*.checkpoint")
    learnt = StreamClusterer.load(checkpoint).n_seen
    assert learnt == len(channel(lines(output.read_text()), "assignments")) > 0
    assert not (files / "health.json").exists()


def until(condition, patience=240.0):
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_health(tmp_path, invoke):
    path = tmp_path / "health.json"
    assert "is the service running" in invoke("health", path, code=1).stderr
    write_health(path, age=1.0, ready=True)
    assert "healthy" in invoke("health", path).stdout
    write_health(path, age=1e4, ready=True)
    assert "the limit is 60 s" in invoke("health", path, code=1).stderr
    path.write_text(json.dumps({"time": time.time() - 1e4, "age": 0.0, "ready": True}))
    invoke("health", path, code=1)
    invoke("health", path, "--set", "health.max_age_seconds=20000")
    path.write_text("rubbish")
    invoke("health", path, code=1)
    invoke("health", code=2)


def test_nobody_at_the_other_end_of_the_pipe(files, invoke):
    """`streamclust predict ... | head` ends quietly."""
    invoke("fit", files / "events.csv", "--features", "x,y", "-o", files / "m")
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as pipe:
        done = subprocess.run(
            [COMMAND, "predict", "m", "events.csv"],
            cwd=files,
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert b"Traceback" not in done.stderr
    assert done.returncode == 1
