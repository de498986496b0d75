"""A state as Kafka records: an archive, compressed where it is worth it, in parts below the message limit, each part
with its generation.

    key        <group>/<name>/<number of the part>
    headers    format, generation, number of parts

All parts of a generation are sent in one transaction, so readers see all of them or none. A compacted topic keeps the
latest record of each key: the parts of the latest generation, and perhaps some of an older one that had more parts,
which are told apart by their generation.
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
from streamclust_connectors.ports import Output, Record

FORMAT = 2
"""Version of this layout; a reader refuses later ones. Format 1 was compressed as a whole."""
READABLE_FORMATS = ("1", "2")
ARCHIVE = b"PK"
"""Archives begin with this, and nothing that zlib has compressed does."""
NUMBER = re.compile("0|[1-9][0-9]{0,8}")
"""Numbers of parts, in keys and headers, as `parts` writes them; other keys are somebody else's."""
OVERHEAD_BYTES = 500
"""Room for key and headers in a message."""

log = logging.getLogger(__name__)


class Whole(NamedTuple):
    """Everything that was written under a name; without a body it was deleted."""

    name: str
    generation: str
    body: bytes | None

    def state(self) -> State:
        """The state; CheckpointError if it cannot be read."""
        body = self.body or b""
        try:
            return decode(body if body.startswith(ARCHIVE) else zlib.decompress(body))
        except Exception as error:  # damaged in whatever way
            raise CheckpointError(f"what was written as {self.name} cannot be read: {error}") from error


def packed(state: State) -> bytes:
    """A state as bytes, compressed where it is worth it."""
    return encode(state, compress=True)


def parts(group: str, name: str, body: bytes, largest: int) -> list[Output]:
    """Messages of at most `largest` bytes that together hold a body."""
    room = max(1, largest - OVERHEAD_BYTES - len(group) - len(name))
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
    """Puts the parts of one group's states together, as they are read in the order of the log."""

    group: str
    where: str
    """Name of the topic, for errors."""
    lenient: bool = False
    """Whether a state of another format is left out, and logged; else it is an error."""
    _open: dict[str, tuple[str, dict[int, bytes]]] = field(default_factory=dict)

    def add(self, record: Record) -> Whole | None:
        """What this record completes, if it does."""
        key = (record.key or b"").decode("utf-8", "replace")
        path, _, number = key.rpartition("/")
        name = path.removeprefix(f"{self.group}/")
        if name == path or not NUMBER.fullmatch(number):
            return None  # of another group
        if record.value is None:
            self._open.pop(name, None)
            return Whole(name, "", None) if number == "0" else None
        told = {header: (value or b"").decode("utf-8", "replace") for header, value in record.headers}
        generation, n_parts = told.get("streamclust.generation", ""), told.get("streamclust.parts", "")
        written = told.get("streamclust.format", "")
        if written not in READABLE_FORMATS:
            by = told.get("streamclust.version", "?")
            self._refuse(
                f"{self.where} holds a state ({key}) of format {written or 'none'}, written by streamclust {by}; this "
                f"one ({__version__}) reads formats up to {FORMAT}: run the version that wrote it. Nothing was changed"
            )
            return None
        if not generation or not NUMBER.fullmatch(n_parts):
            self._refuse(
                f"{self.where} holds a record ({key}) without the headers of a state; delete it (send one of the same "
                "key without a value), or bring back the headers. Nothing was changed"
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
        return Whole(name, generation, b"".join(found[i] for i in range(n)))

    def _refuse(self, why: str) -> None:
        """Log a record that cannot be read, or raise CheckpointError, as `lenient` says."""
        if not self.lenient:
            raise CheckpointError(why)
        log.error("left out: %s", why)
