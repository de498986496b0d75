"""A real schema registry on loopback, Apicurio's from Maven Central, and a guard before it with TLS and passwords."""

import base64
import json
import os
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.connectors.broker import free_port
from tests.jars import Missing, unpacked

VERSION = "2.6.13.Final"
ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
START_SECONDS = 120.0


class RealRegistry:
    """Apicurio Registry, which forgets everything when it ends."""

    def __init__(self, directory):
        self.directory = directory
        self.home = unpacked(ARTIFACT, f"apicurio-registry-{VERSION}")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def start(self):
        told = {"QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_HTTP_PORT": str(self.port)}
        flags = ["-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        jar = self.home / f"apicurio-registry-app-{VERSION}-runner.jar"
        with (self.directory / "log").open("w") as log:
            self.process = subprocess.Popen(
                ["java", *flags, "-jar", jar],
                env=os.environ | told,
                cwd=self.directory,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                asked(f"{self.url}/subjects")
            except OSError:
                time.sleep(0.2)
            else:
                return self
        self.stop()
        raise Missing(f"registry that starts: {(self.directory / 'log').read_text()[-500:]}")

    def stop(self):
        self.process.kill()
        self.process.wait()


def asked(url, body=None):
    """What the registry answers, by no client but Python's own."""
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, content, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())


def register(url, subject, schema, kind="AVRO", references=()):
    """Register a schema, and return its id."""
    body = {"schema": schema, "schemaType": kind, "references": list(references)}
    return asked(f"{url}/subjects/{subject}/versions", body)["id"]


class Guard:
    """Passes requests on to a registry, over TLS, if they have the password."""

    def __init__(self, url, directory, user, password):
        key, self.certificate = directory / "guard.key", directory / "guard.pem"
        names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "9", *names]
        subprocess.run([*command, "-keyout", key, "-out", self.certificate], check=True, capture_output=True)
        wanted = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
                status, content = 401, b"{}"
                if self.headers.get("Authorization") == wanted:
                    kept = {"Content-Type": self.headers.get("Content-Type") or "application/json"}
                    request = urllib.request.Request(url + self.path, body, kept, method=self.command)
                    try:
                        with urllib.request.urlopen(request, timeout=10) as answer:
                            status, content = answer.status, answer.read()
                    except urllib.error.HTTPError as error:
                        status, content = error.code, error.read()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = answer  # noqa: N815

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
