"""produce, run and dlq on a real broker."""

import json
import os
import signal
import subprocess
import warnings
from types import SimpleNamespace

import pytest

from streamclust_connectors.cli.dead_letters import refused_at
from streamclust_connectors.service.outputs import ERROR_HEADER_PREFIX
from tests.cli.conftest import COMMAND

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its own files the old way
    from tests.connectors.cluster import until
    from tests.connectors.conftest import broker_address, cluster, shared_broker  # noqa: F401

pytestmark = [pytest.mark.compiled, pytest.mark.filterwarnings("ignore:read_text is deprecated")]

BAD = [b"not json", b'{"x": "east"}', b"\xff\x00"]


def test_from_a_file_to_clusters_and_the_dead_letters_back(cluster, files, invoke):
    """A file is produced, learnt exactly once by two services in turn; what was refused is listed, then sent again."""
    topic = cluster.topic(partitions=2)
    (files / "plain.jsonl").write_text("".join(f'{{"x": {i % 7}, "y": {i % 5}}}\n' for i in range(400)))
    at = ("--topic", topic, "--bootstrap-servers", cluster.address)
    assert "400 events" in invoke("produce", *at, "--input", files / "plain.jsonl").stderr
    assert "100 events" in invoke("produce", *at, "--events", "100", "--set", "source.features=3").stderr
    cluster.write(topic, BAD, key=b"k", headers=[("h", b"1")])

    serve(cluster, files, topic, lambda: len(cluster.read(f"{topic}.assignments")) == 500)
    ids = [found["id"] for found in cluster.values(f"{topic}.assignments")]
    assert len(ids) == len(set(ids)) == 500
    letters = cluster.read(f"{topic}.dlq")
    assert sorted(letter.value for letter in letters) == sorted(BAD)

    listed = invoke("dlq", "ls", *at).stdout
    assert "3 dead letters" in listed
    assert "feature 'x' must be a number" in listed
    assert "not json" not in listed
    assert "1 dead letter in" in invoke("dlq", "ls", *at, "--limit", "1").stdout

    elsewhere = cluster.topic("again")
    assert "3 dead letters would be" in invoke("dlq", "replay", *at, "--dry-run").stdout
    assert "1 dead letter sent" in invoke("dlq", "replay", *at, "--to", elsewhere, "--limit", "1").stdout
    assert "2 dead letters sent" in invoke("dlq", "replay", *at, "--to", elsewhere).stdout
    assert "0 dead letters sent" in invoke("dlq", "replay", *at).stdout
    again = cluster.read(elsewhere)
    assert sorted(record.value for record in again) == sorted(BAD)
    assert {(record.key, tuple(record.headers)) for record in again} == {(b"k", (("h", b"1"),))}

    cluster.write(topic, [b'{"x": 1, "y": 2}'])
    serve(cluster, files, topic, lambda: len(cluster.read(f"{topic}.assignments")) == 501)
    assert "501 events" in invoke("inspect", files / "state").stdout


def test_dead_letters_that_are_not_whole_stay_behind(cluster, invoke):
    topic = cluster.topic()
    cluster.write(f"{topic}.dlq", [b""], headers=[("__streamclust.errors.left_out", b"value")])
    cluster.write(f"{topic}.dlq", [b"oops"], headers=[("__streamclust.errors.topic", topic.encode())])
    done = invoke("dlq", "replay", "--topic", topic, "--bootstrap-servers", cluster.address)
    assert "1 dead letter sent again" in done.stdout
    assert "1 was skipped" in done.stderr
    assert [record.value for record in cluster.read(topic)] == [b"oops"]


def serve(cluster, files, topic, done):
    """Run the service until something is so, then ask it to stop."""
    environment = {
        "STREAMCLUST_KAFKA__BOOTSTRAP_SERVERS": cluster.address,
        "STREAMCLUST_KAFKA__TOPIC": topic,
        "STREAMCLUST_OUTPUT__DELIVERY": "exactly-once",
        "STREAMCLUST_CHECKPOINT__DIRECTORY": str(files / "state"),
        "STREAMCLUST_KAFKA__GROUP_INSTANCE_ID": "first",
        "STREAMCLUST_KAFKA__OPTIONS__HEARTBEAT_INTERVAL_MS": "500",
    }
    log = (files / "log").open("w")
    process = subprocess.Popen([COMMAND, "run"], env=os.environ | environment, stderr=log, stdout=log)
    try:
        until("the service to do its work", done)
        process.send_signal(signal.SIGTERM)
        assert process.wait(180) == 0, (files / "log").read_text()
    finally:
        process.kill()
        process.wait()
        log.close()
    told = [json.loads(line) for line in (files / "log").read_text().splitlines()]
    assert {"started", "stopped"} <= {line["message"] for line in told}
    assert "east" not in (files / "log").read_text()


def test_a_producer_goes_on_until_it_is_told_to_stop(cluster):
    topic = cluster.topic()
    more = ["--topic", topic, "-b", cluster.address, "--repeat", "--rate", "500", "--set", "source.events=50"]
    process = subprocess.Popen([COMMAND, "produce", *more], stderr=subprocess.PIPE, text=True)
    try:
        until("more events than the stream has", lambda: len(cluster.read(topic)) > 50)
        process.terminate()
        _, told = process.communicate(timeout=180)
    finally:
        process.kill()
    assert process.returncode == 0
    assert told.split(" events in")[0].split()[-1] == f"{len(cluster.read(topic)):,}"


def test_a_topic_without_dead_letters(cluster, invoke):
    at = ("--topic", cluster.topic(), "--bootstrap-servers", cluster.address)
    assert "there are no dead letters yet" in invoke("dlq", "ls", *at, code=3).stderr
    assert "output.dlq is false" in invoke("dlq", "ls", *at, "--set", "output.dlq=false", code=2).stderr


def test_an_option_that_no_client_knows(invoke):
    more = ("--topic", "events", "--set", "kafka.options.nonsense=1", "--set", "kafka.client=kafka-python")
    assert "kafka-python has no option nonsense" in invoke("dlq", "ls", *more, code=2).stderr


def test_a_broker_that_is_not_there(command):
    more = ("--topic", "events", "-b", "127.0.0.1:1", "--set", "kafka.options.bootstrap_timeout_ms=500")
    assert command("dlq", "ls", *more, code=5).stderr.startswith("error: ")


@pytest.mark.parametrize(
    "told", [b"1700000000000", b"yesterday", b"", None, "²".encode(), b"9" * 5000, b"-1"]
)
def test_a_letter_of_somebody_else_is_dated_by_its_own_record(told):
    name = f"{ERROR_HEADER_PREFIX}timestamp"
    letter = SimpleNamespace(headers=[("other", None), (name, told)], timestamp=1_600_000_000_000)
    assert refused_at(letter).year == (2023 if told == b"1700000000000" else 2020)
