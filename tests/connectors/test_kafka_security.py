"""TLS and passwords, asked for by a real broker, given to `streamclust run` by a file and by the environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamclust.checkpoint import Checkpoints
from tests.connectors.broker import PASSWORD, USER
from tests.connectors.cluster import Cluster, events, until

pytestmark = pytest.mark.compiled

COMMAND = Path(sys.executable).with_name("streamclust")
N = 300


def run(directory, settings, *arguments):
    """The service, as a user starts it, with nothing else in its environment."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("STREAMCLUST_")}
    with (directory / "log").open("w") as log:
        return subprocess.Popen(
            [COMMAND, "run", *arguments], env=given | settings, cwd=directory, stdout=log, stderr=log
        )


def check(process, cluster, topic, directory):
    """Every event is learnt and told, what is none is a dead letter, and the service ends in good order."""
    try:

        def told():
            assert process.poll() is None, (directory / "log").read_text()
            return len(cluster.read(f"{topic}.assignments")) == N and cluster.read(f"{topic}.dlq")

        until("the service to do its work", told)
        process.terminate()
        assert process.wait(180) == 0, (directory / "log").read_text()
    finally:
        process.kill()
        process.wait()
    assert Checkpoints(directory / "state" / "0").latest().values["n_seen"] == N
    assert PASSWORD not in (directory / "log").read_text()


@pytest.mark.usefixtures("client")
def test_tls_by_a_file(cluster, secure_broker, tmp_path):
    topic = cluster.topic()
    cluster.write(topic, [*events(N)[0], b"oops"])
    (tmp_path / "service.toml").write_text(f"""
        [kafka]
        client = "{cluster.client}"
        bootstrap_servers = "{secure_broker["tls"]}"
        topic = "{topic}"
        group_id = "{cluster.name}"
        security_protocol = "SSL"
        ssl_cafile = "{secure_broker["certificate"]}"
        [checkpoint]
        directory = "state"
    """)
    check(run(tmp_path, {}, "--config", "service.toml"), cluster, topic, tmp_path)


def test_tls_and_a_password_by_the_environment(secure_broker, client, tmp_path):
    """Consumer, transactional producer and admin log in; so do those of the test, by another mechanism."""
    login = {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD, "sasl_mechanism": "PLAIN"}
    with Cluster(secure_broker["sasl"], security_protocol="SASL_PLAINTEXT", **login) as cluster:
        topic = cluster.topic()
        cluster.write(topic, [*events(N)[0], b"oops"])
        (tmp_path / "password").write_text(PASSWORD + "\n")
        settings = {
            "KAFKA__CLIENT": client,
            "KAFKA__BOOTSTRAP_SERVERS": secure_broker["both"],
            "KAFKA__TOPIC": topic,
            "KAFKA__GROUP_ID": cluster.name,
            "KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
            "KAFKA__SSL_CAFILE": secure_broker["certificate"],
            "KAFKA__SASL_MECHANISM": "SCRAM-SHA-512",
            "KAFKA__SASL_PLAIN_USERNAME": USER,
            "KAFKA__SASL_PLAIN_PASSWORD_FILE": "password",
            "OUTPUT__DELIVERY": "exactly-once",
        }
        process = run(
            tmp_path, {f"STREAMCLUST_{name}": value for name, value in settings.items()}, "--state", "state"
        )
        check(process, cluster, topic, tmp_path)


@pytest.mark.parametrize(
    ("listener", "protocol", "more"),
    [
        ("sasl", "SASL_PLAINTEXT", {"SASL_MECHANISM": "PLAIN", "SASL_PLAIN_USERNAME": USER}),
        ("tls", "SSL", {"SSL_CHECK_HOSTNAME": "false"}),
    ],
    ids=["a wrong password", "a broker nobody vouches for"],
)
def test_nothing_goes_on_without_trust(secure_broker, client, tmp_path, listener, protocol, more):
    """The service waits, as for a broker that is down, and says so; it can still be stopped."""
    settings = {"SECURITY_PROTOCOL": protocol, "BOOTSTRAP_SERVERS": secure_broker[listener], "TOPIC": "any"}
    settings |= {"CLIENT": client, "SASL_PLAIN_PASSWORD": "guessed"} | more
    if client == "kafka-python":
        settings["OPTIONS__BOOTSTRAP_TIMEOUT_MS"] = "1500"
    process = run(
        tmp_path,
        {f"STREAMCLUST_KAFKA__{name}": value for name, value in settings.items()},
        *("--state", "state"),
    )
    try:
        until("a sentence", lambda: "trying again" in (tmp_path / "log").read_text())
        process.terminate()
        assert process.wait(180) == 0
    finally:
        process.kill()
        process.wait()
    log = (tmp_path / "log").read_text()
    assert ("Unable to bootstrap" if client == "kafka-python" else "_TRANSPORT") in log
    assert "Traceback" not in log
    assert "guessed" not in log
