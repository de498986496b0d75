"""Posts lifecycle events and novel events to a URL: signed, retried until they are taken, each once."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from streamclust_connectors.incidents import Incident
from streamclust_connectors.interfaces import Channel, Partition, Record, Transient
from streamclust_connectors.relay.output_topics import OutputTopics

log = logging.getLogger(__name__)

REMEMBERED_IDS = 100_000
"""Number of ids of posted alerts that are remembered, to recognise outputs that were sent twice."""
REVIEWED_RECORDS = 20_000
"""Records of each partition before the committed offset whose ids are read at the start."""
LONGEST_WAIT_SECONDS = 60.0
ACCEPTED = range(200, 300)
"""HTTP statuses of a receiver that has taken an alert."""

Read = Callable[[bytes], Any]


class Alert(NamedTuple):
    """A lifecycle event or a novel event."""

    id: str
    kind: str
    content: Mapping[str, Any]

    def body(self) -> bytes:
        """The alert as JSON."""
        return msgspec.json.encode({"id": self.id, "type": self.kind, "data": self.content})


class Selection(NamedTuple):
    """Which outputs are alerts."""

    kinds: frozenset[str]
    """Kinds of lifecycle events."""
    novelty: float | None = None
    """Novelty from which on an event is an alert; None for no such alerts."""

    def alerts(self, channel: Channel, content: Any) -> Iterator[Alert]:  # noqa: ANN401  # a parsed message
        """The alerts in a message.

        >>> chosen = Selection(frozenset({"born"}), novelty=20.0)
        >>> [alert.kind for alert in chosen.alerts("lifecycle", {"id": "a", "kind": "born"})]
        ['lifecycle.born']
        >>> list(chosen.alerts("assignments", [{"id": "a", "novelty": 3.0}, {"id": "b", "novelty": None}]))
        []
        """
        for one in content if isinstance(content, list) else [content]:
            if channel == "lifecycle" and one["kind"] in self.kinds:
                yield Alert(f"lifecycle-{one['id']}", f"lifecycle.{one['kind']}", one)
            elif channel == "assignments" and self.is_novel(one.get("novelty")):
                yield Alert(f"novelty-{one['id']}", "novelty", one)

    def is_novel(self, novelty: float | None) -> bool:
        """Whether an event is novel."""
        return self.novelty is not None and novelty is not None and novelty >= self.novelty


def signature(secret: bytes, id: str, timestamp: int, body: bytes) -> str:
    """Signature by HMAC-SHA256 of id, time and body, as standard webhooks have it.

    >>> signature(b"secret", "a", 7, b"{}")
    'v1,LlMwEBak8amuQ0YaLkx9XrOtLXGHRBW3go3h2zToDe0='
    """
    signed = b".".join((id.encode(), str(timestamp).encode(), body))
    return "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()


class Receiver:
    """A URL that takes alerts."""

    def __init__(self, url: str, secret: str | None = None, timeout_seconds: float = 10.0) -> None:
        self.url, self.timeout = url, timeout_seconds
        self._secret = None if secret is None else secret.encode()

    def post(self, alert: Alert) -> None:
        """Post an alert; Transient if it was not taken."""
        body, now = alert.body(), int(time.time())
        headers = {"Content-Type": "application/json", "webhook-id": alert.id, "webhook-timestamp": str(now)}
        if self._secret is not None:
            headers["webhook-signature"] = signature(self._secret, alert.id, now, body)
        request = urllib.request.Request(self.url, body, headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                status = answer.status
        except urllib.error.HTTPError as error:
            status = error.code
            error.close()
        except OSError as error:  # URLError is one, and so is a time-out
            raise Transient(f"{self.url} does not answer: {error}") from error
        if status not in ACCEPTED:
            raise Transient(f"{self.url} answered {status}")


class Webhooks:
    """Posts the alerts of output topics, in order; the offsets of a group tell which were posted."""

    def __init__(
        self,
        topics: OutputTopics,
        channels: Mapping[str, tuple[Channel, Read]],
        selection: Selection,
        receiver: Receiver,
        give_up_seconds: float = 3600.0,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.topics, self.channels = topics, channels
        self.selection, self.receiver, self.give_up = selection, receiver, give_up_seconds
        self.stopping = False
        self.posted = self.repeated = self.abandoned = 0
        self._sleep = sleep
        self._known: OrderedDict[str, None] = OrderedDict()
        self._refused = Incident(log, "alerts are not taken")

    def start(self) -> None:
        """Go on behind the last alert that was posted; a new group starts at the end, with alerts yet to come.

        The records before it are read too, since outputs that the service sends again have the ids of the first.
        """
        self._start = {name: self._first_offset(name) for name in self.topics.partitions()}
        self.topics.seek({name: max(0, at - REVIEWED_RECORDS) for name, at in self._start.items()})

    def _first_offset(self, name: Partition) -> int:
        committed = self.topics.committed(name)
        if committed is None:
            committed = self.topics.end(name)
            self.topics.commit({name: committed})
        return committed

    def run_once(self, seconds: float = 0.5) -> None:
        """Post the alerts of one poll."""
        for name, records in self.topics.poll(seconds):
            for record in records:
                if not self._handle(name, record):
                    return
            if (end := records[-1].offset + 1) > self._start[name]:
                self.topics.commit({name: end})

    def _handle(self, name: Partition, record: Record) -> bool:
        """Post the alerts of a record; False if it was stopped before."""
        found = list(self._alerts(name[0], record))
        if record.offset < self._start[name]:
            self._remember(found)
            return True
        fresh = [alert for alert in found if alert.id not in self._known]
        self.repeated += len(found) - len(fresh)
        for alert in fresh:
            if not self._post(alert):
                return False
            self._remember([alert])
        if fresh:
            self.topics.commit({name: record.offset + 1})
        return True

    def _alerts(self, topic: str, record: Record) -> Iterator[Alert]:
        channel, read = self.channels[topic]
        if record.value is None:
            return
        try:
            content = read(record.value)
        except Transient:
            raise
        except Exception as error:  # written by others
            log.warning("a message of %s at offset %d cannot be read: %s", topic, record.offset, error)
            return
        yield from self.selection.alerts(channel, content)

    def _remember(self, alerts: Sequence[Alert]) -> None:
        for alert in alerts:
            self._known[alert.id] = None
        while len(self._known) > REMEMBERED_IDS:
            self._known.popitem(last=False)

    def _post(self, alert: Alert) -> bool:
        """Post an alert, and again until it is taken or given up; False if it was stopped before."""
        begun, wait = time.monotonic(), 0.5
        while not self.stopping:
            try:
                self.receiver.post(alert)
            except Transient as failure:
                if time.monotonic() - begun >= self.give_up:
                    log.error("alert %s was given up after %g s: %s", alert.id, self.give_up, failure)
                    self.abandoned += 1
                    return True
                self._refused.note(failure)
                self._sleep(wait)
                wait = min(2.0 * wait, LONGEST_WAIT_SECONDS)
            else:
                self._refused.end()
                self.posted += 1
                return True
        return False
