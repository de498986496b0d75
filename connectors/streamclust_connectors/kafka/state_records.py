"""States as Kafka records: an archive cut into parts below the message limit.

    key        <group>/<name>/<number of the part>
    headers    format, generation, number of parts

All parts of a state are sent in one transaction, so readers see all of them or none. A compacted topic keeps the latest
record of each key: the parts of the latest state and, if an older state had more parts, some of those. The generation
in the headers distinguishes them.
"""

from __future__ import annotations

import logging
import re
import uuid
import zlib
from dataclasses import dataclass, field
from typing import NamedTuple

from streamclust import __version__
from streamclust.checkpoint import CheckpointError, State, decode, encode
from streamclust_connectors.interfaces import Output, Record

FORMAT = 2
"""Version of this layout; a reader refuses later ones. States of format 1 were compressed as a whole."""
READABLE_FORMATS = ("1", "2")
ARCHIVE = b"PK"
"""First bytes of an archive; zlib's output never begins with them."""
NUMBER = re.compile("0|[1-9][0-9]{0,8}")
"""Numbers of parts in keys and headers; other keys belong to other programs."""
OVERHEAD_BYTES = 500
"""Room for key and headers in a message."""

log = logging.getLogger(__name__)


class StoredState(NamedTuple):
    """A state written under a name, joined from its parts; the body is None if it was deleted."""

    name: str
    generation: str
    body: bytes | None

    def state(self) -> State:
        """The state; CheckpointError if it cannot be read."""
        body = self.body or b""
        try:
            return decode(body if body.startswith(ARCHIVE) else zlib.decompress(body))
        except Exception as error:  # damaged data may raise anything
            raise CheckpointError(f"the state saved as {self.name!r} cannot be read: {error}") from error


def packed(state: State) -> bytes:
    """Serialise a state; arrays that shrink are compressed."""
    return encode(state, compress=True)


def parts(group: str, name: str, body: bytes, max_bytes: int) -> list[Output]:
    """Cut a body into messages of at most `max_bytes`."""
    room = max(1, max_bytes - OVERHEAD_BYTES - len(group) - len(name))
    cuts = [body[start : start + room] for start in range(0, len(body), room)] or [b""]
    headers = [
        ("streamclust.format", b"%d" % FORMAT),
        ("streamclust.generation", uuid.uuid4().hex[:16].encode()),
        ("streamclust.parts", b"%d" % len(cuts)),
        ("streamclust.version", __version__.encode()),
    ]
    return [Output(cut, f"{group}/{name}/{i}".encode(), headers) for i, cut in enumerate(cuts)]


@dataclass
class Assembler:
    """Joins the parts of a group's states while a topic is read in order."""

    group: str
    where: str
    """Name of the topic, for error messages."""
    lenient: bool = False
    """Whether a state of an unknown format is logged and skipped; else it raises CheckpointError."""
    _open: dict[str, tuple[str, dict[int, bytes]]] = field(default_factory=dict)

    def add(self, record: Record) -> StoredState | None:
        """Add a record; returns the state if this was its last part."""
        key = (record.key or b"").decode("utf-8", "replace")
        path, _, number = key.rpartition("/")
        name = path.removeprefix(f"{self.group}/")
        if name == path or not NUMBER.fullmatch(number):
            return None  # belongs to another group
        if record.value is None:
            self._open.pop(name, None)
            return StoredState(name, "", None) if number == "0" else None
        headers = {header: (value or b"").decode("utf-8", "replace") for header, value in record.headers}
        generation, n_parts = headers.get("streamclust.generation", ""), headers.get("streamclust.parts", "")
        written = headers.get("streamclust.format", "")
        if written not in READABLE_FORMATS:
            by = headers.get("streamclust.version", "?")
            self._refuse(
                f"{self.where} holds a state ({key}) of format {written or 'none'}, written by streamclust {by}; this "
                f"version ({__version__}) reads formats up to {FORMAT}. Run the version that wrote it"
            )
            return None
        if not generation or not NUMBER.fullmatch(n_parts):
            self._refuse(
                f"{self.where} holds a record ({key}) without the headers of a state; delete it (send a record of the "
                "same key without a value), or restore the headers"
            )
            return None
        open_generation, found = self._open.get(name, ("", {}))
        if open_generation != generation:
            found = {}
            self._open[name] = generation, found
        found[int(number)] = record.value
        n = int(n_parts)
        if len(found) < n or set(found) != set(range(n)):
            return None
        del self._open[name]
        return StoredState(name, generation, b"".join(found[i] for i in range(n)))

    def _refuse(self, reason: str) -> None:
        """Log a record that cannot be read if `lenient`, else raise CheckpointError."""
        if not self.lenient:
            raise CheckpointError(reason)
        log.error("skipped: %s", reason)
