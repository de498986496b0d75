"""`streamclust` as a process that listens: start it, read its log, talk to it."""

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.http.conftest import until

COMMAND = Path(sys.executable).with_name("streamclust")


class Launched:
    """A process, and the log that it writes."""

    def __init__(self, folder, arguments, name="log", **options):
        self.log = folder / name
        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(
                [COMMAND, *map(str, arguments)],
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                **options,
            )

    def said(self, words):
        """The lines of the log whose message has these words."""
        return [line for line in self.lines() if words in line["message"]]

    def lines(self):
        whole = (line for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n"))
        return [json.loads(line) for line in whole if line.startswith("{")]

    def until_said(self, words):
        until(lambda: self.said(words) or self.process.poll() is not None)
        found = self.said(words)
        assert found, self.log.read_text()
        return found[-1]

    @contextmanager
    def client(self):
        """Someone who talks to it, once it is ready."""
        url = self.until_said("listening")["url"]
        with httpx.Client(base_url=url, timeout=120) as client:
            until(lambda: ready(client))
            yield client


@contextmanager
def launched(folder, *arguments, name="log", **options):
    """A process until the end of this, however it ends."""
    found = Launched(folder, arguments, name, **options)
    try:
        yield found
        assert "Traceback" not in found.log.read_text()
    finally:
        found.process.kill()
        found.process.wait()


def ready(client):
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False
