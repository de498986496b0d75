"""TLS and passwords, asked for by a real broker, given to `streamclust run` by a file and by the environment."""

import base64
import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from streamclust.checkpoint import Checkpoints
from streamclust_connectors.kafka.diagnosis import cause_of_failure
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


def test_mutual_tls(secure_broker, client, cluster, tmp_path):
    """The broker asks for a certificate of the client; without one the log says so."""
    if "client_key" not in secure_broker:
        pytest.skip("no openssl to make a client's certificate")
    topic = cluster.topic()
    cluster.write(topic, [*events(N)[0], b"oops"])
    settings = {
        "KAFKA__CLIENT": client,
        "KAFKA__BOOTSTRAP_SERVERS": secure_broker["mutual"],
        "KAFKA__TOPIC": topic,
        "KAFKA__GROUP_ID": cluster.name,
        "KAFKA__SECURITY_PROTOCOL": "SSL",
        "KAFKA__SSL_CAFILE": secure_broker["certificate"],
    }
    known = {"bootstrap_servers": secure_broker["mutual"], "security_protocol": "SSL"}
    assert "asks for a certificate of this client" in cause_of_failure(
        known | {"ssl_cafile": secure_broker["certificate"]}
    )
    settings |= {
        "KAFKA__SSL_CERTFILE": secure_broker["client_certificate"],
        "KAFKA__SSL_KEYFILE": secure_broker["client_key"],
    }
    process = run(
        tmp_path, {f"STREAMCLUST_{name}": value for name, value in settings.items()}, "--state", "state"
    )
    check(process, cluster, topic, tmp_path)


class TokenEndpoint(BaseHTTPRequestHandler):
    """Gives tokens without a signature, which a broker's default validator takes, to the one client that it knows."""

    def do_POST(self):
        login = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if login != f"the-client:{PASSWORD}" or asked["grant_type"] != ["client_credentials"]:
            self.send_error(401)
            return
        now = time.time()
        claims = {"sub": "oauth-client", "iat": int(now) - 5, "exp": int(now) + 600}
        parts = [b64(json.dumps(part).encode()) for part in ({"alg": "none", "typ": "JWT"}, claims)]
        body = json.dumps(
            {"access_token": ".".join([*parts, ""]), "token_type": "Bearer", "expires_in": 600}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def b64(content):
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def test_a_login_by_a_token_of_an_endpoint(secure_broker, client, cluster, tmp_path):
    """OAUTHBEARER, with tokens by client credentials."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), TokenEndpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    topic = cluster.topic()
    cluster.write(topic, [*events(N)[0], b"oops"])
    (tmp_path / "secret").write_text(PASSWORD)
    settings = {
        "KAFKA__CLIENT": client,
        "KAFKA__BOOTSTRAP_SERVERS": secure_broker["sasl"],
        "KAFKA__TOPIC": topic,
        "KAFKA__GROUP_ID": cluster.name,
        "KAFKA__SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "KAFKA__SASL_MECHANISM": "OAUTHBEARER",
        "KAFKA__SASL_OAUTH_TOKEN_URL": f"http://127.0.0.1:{server.server_port}/token",
        "KAFKA__SASL_OAUTH_CLIENT_ID": "the-client",
        "KAFKA__SASL_OAUTH_CLIENT_SECRET_FILE": "secret",
        "OUTPUT__DELIVERY": "exactly-once",
    }
    try:
        process = run(
            tmp_path, {f"STREAMCLUST_{name}": value for name, value in settings.items()}, "--state", "state"
        )
        check(process, cluster, topic, tmp_path)
    finally:
        server.shutdown()
        server.server_close()


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
    assert (
        "refuses the login of" if listener == "sasl" else "is not trusted (self-signed certificate)"
    ) in log
    assert "Traceback" not in log
    assert "guessed" not in log
