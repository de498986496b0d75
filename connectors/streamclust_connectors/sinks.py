"""Sinks other than Kafka: a list, a file of JSON lines, standard output."""

from __future__ import annotations

import base64
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, get_args

import msgspec

from streamclust_connectors.interfaces import Channel, Output, Partition

CHANNELS: tuple[Channel, ...] = get_args(Channel)


class ListSink:
    """Stores outputs in lists, by channel; for tests. With `exactly_once`, outputs appear when they are committed.

    The next commits raise `failures`, one after the other, and drop the outputs emitted since the last commit.
    """

    def __init__(
        self,
        channels: Collection[Channel] = CHANNELS,
        exactly_once: bool = False,
        failures: Sequence[Exception] = (),
    ) -> None:
        self.channels = channels
        self.exactly_once = exactly_once
        self.failures = list(failures)
        self.outputs: dict[Channel, list[Output]] = defaultdict(list)
        self.positions: dict[Partition, int] = {}
        self.full = False
        self.max_message_bytes: int | None = None
        self.dropped = 0
        self.closed = False
        self._open: list[tuple[Channel, Output]] = []

    def wants(self, channel: Channel) -> bool:
        """Whether this channel is enabled."""
        return channel in self.channels

    def emit(self, channel: Channel, outputs: Sequence[Output]) -> None:
        """Store outputs."""
        self._open += [(channel, output) for output in outputs]
        if not self.exactly_once:
            self._keep()

    def discard_uncommitted(self) -> None:
        """Drop uncommitted outputs."""
        self._open = []

    def _keep(self) -> None:
        for channel, output in self._open:
            self.outputs[channel].append(output)
        self._open = []

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Make emitted outputs visible."""
        if self.failures:
            self._open = []
            raise self.failures.pop(0)
        self._keep()
        self.positions.update(positions)

    def committed(self, partition: Partition) -> int | None:
        """Committed offset of a partition."""
        return self.positions.get(partition)

    def values(self, channel: Channel) -> list[Any]:
        """Parsed JSON of a channel's outputs."""
        return [msgspec.json.decode(output.value) for output in self.outputs[channel]]

    def close(self) -> None:
        """Record that the sink was closed."""
        self.closed = True


class LinesSink:
    """Writes outputs as JSON lines, each with its channel; dead letters as base64, with their headers."""

    exactly_once = False
    full = False
    max_message_bytes = None
    dropped = 0

    def __init__(
        self, file: str | Path | IO[bytes] | None = None, channels: Collection[Channel] = CHANNELS
    ) -> None:
        self.channels = channels
        self._own = isinstance(file, (str, Path))
        self._file: IO[bytes]
        if isinstance(file, (str, Path)):
            self._file = Path(file).open("ab")  # noqa: SIM115  # closed by close
        else:
            self._file = file or sys.stdout.buffer

    def wants(self, channel: Channel) -> bool:
        """Whether this channel is enabled."""
        return channel in self.channels

    def emit(self, channel: Channel, outputs: Sequence[Output]) -> None:
        """Write outputs."""
        with self._named():
            self._file.writelines(_line(channel, output) for output in outputs)

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Flush."""
        with self._named():
            self._file.flush()

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Add the path to an OSError that lacks one, such as that of a full disk."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._file.name) from error

    def discard_uncommitted(self) -> None:
        """Do nothing: written lines stay."""

    def committed(self, partition: Partition) -> int | None:
        """Unknown."""
        return None

    def close(self) -> None:
        """Flush, and close the file if it was opened here."""
        with self._named():
            if self._own:
                self._file.close()  # also if the buffer cannot be written
            else:
                self._file.flush()


def _line(channel: Channel, output: Output) -> bytes:
    if channel != "dead-letters":
        return b'{"channel":"%s",%s\n' % (channel.encode(), output.value.removeprefix(b"{"))
    letter = {
        "channel": channel,
        "value": base64.b64encode(output.value).decode(),
        "key": None if output.key is None else base64.b64encode(output.key).decode(),
        "headers": {name: value.decode("utf-8", "replace") for name, value in output.headers},
    }
    return msgspec.json.encode(letter) + b"\n"
