"""State <-> one safe file: arrays and JSON, no pickles, a checksum over all, written whole or not at all.

A file is a line of text (what it is, the format's version, the SHA-256 of the rest) and an npz archive.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import logging
import os
import re
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import streamclust
from streamclust.checkpoint.sketches import State

FORMAT = 1
MAGIC = b"streamclust checkpoint"
VALUES = "values.json"
SUFFIX = ".checkpoint"
NUMBERED = re.compile(rf"([0-9]{{12,}}){re.escape(SUFFIX)}")
"""Names of the files of `Checkpoints`; files of other names are somebody else's."""
UNFINISHED = re.compile(rf"{NUMBERED.pattern}\w+\.part")
"""Names of the temporary files of `write` for such files."""
NO_FILE_HANDLES = (errno.EMFILE, errno.ENFILE)
COMPRESSION_LEVEL = 1
WORTH_COMPRESSING = 0.6
"""An array is compressed if a sample of it shrinks to less than this share: measured events are noise to a compressor,
which needs ten times as long for them as all else and takes a sixth off."""
SAMPLE_PIECES, PIECE_BYTES = 16, 256
"""What the sample is made of, evenly spaced."""

log = logging.getLogger(__name__)


class CheckpointError(ValueError):
    """A checkpoint that cannot be used, and why."""


def write(path: str | os.PathLike[str], state: State) -> None:
    """Write a state: to a temporary file beside, flushed to the disk, renamed, the directory flushed too.

    An OSError names the path, whatever failed.
    """
    path = Path(path)
    try:
        _write(path, state)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _write(path: Path, state: State) -> None:
    body = encode(state)
    digest = hashlib.sha256(body).hexdigest().encode()
    handle, temporary = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(b"%s %d %s\n" % (MAGIC, FORMAT, digest))
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read(path: str | os.PathLike[str]) -> State:
    """Read a state; CheckpointError says what is wrong with a file that is not whole, not ours or not this format."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        if error.errno in NO_FILE_HANDLES:
            raise  # which says nothing about the file
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    head, newline, body = content.partition(b"\n")
    words = head.removeprefix(MAGIC).split()
    if not head.startswith(MAGIC) or not newline or len(words) != 2:
        raise CheckpointError(f"{path} is not a streamclust checkpoint")
    if words[0] != b"%d" % FORMAT:
        raise CheckpointError(
            f"{path} is a checkpoint of format {words[0].decode(errors='replace')}, this version of streamclust "
            f"({streamclust.__version__}) reads format {FORMAT}; load it with the version that wrote it"
        )
    if hashlib.sha256(body).hexdigest().encode() != words[1]:
        raise CheckpointError(f"{path} is damaged: its checksum does not hold; it was cut short or changed")
    return decode(body)


def encode(state: State, compress: bool = False) -> bytes:
    """An npz archive of the arrays, with the JSON beside them; `compress` deflates what that makes much smaller."""
    values = state.values | {"library": streamclust.__version__}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        _put(archive, VALUES, json.dumps(values).encode(), compress)
        for name, array in state.arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, np.asanyarray(array), allow_pickle=False)
            _put(archive, f"{name}.npy", content.getvalue(), compress)
    return buffer.getvalue()


def _put(archive: zipfile.ZipFile, name: str, content: bytes, compress: bool) -> None:
    method = zipfile.ZIP_DEFLATED if compress and _worth_compressing(content) else zipfile.ZIP_STORED
    member = zipfile.ZipInfo(name)  # without the time: the same state gives the same bytes
    archive.writestr(member, content, method, COMPRESSION_LEVEL)


def _worth_compressing(content: bytes) -> bool:
    step = max(PIECE_BYTES, len(content) // SAMPLE_PIECES)
    sample = b"".join(content[at : at + PIECE_BYTES] for at in range(0, len(content), step))
    return len(zlib.compress(sample, COMPRESSION_LEVEL)) < WORTH_COMPRESSING * len(sample)


def decode(body: bytes) -> State:
    """What `encode` wrote."""
    arrays: dict[str, NDArray[Any]] = {}
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        values = json.loads(archive.read(VALUES))
        for name in archive.namelist():
            if name.endswith(".npy"):
                content = io.BytesIO(archive.read(name))
                arrays[name[:-4]] = np.lib.format.read_array(content, allow_pickle=False)
    return State(arrays, values)


class Checkpoints:
    """The latest few checkpoints in a directory, numbered upwards."""

    def __init__(self, directory: str | os.PathLike[str], keep: int = 3) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}")
        self.directory = Path(directory)
        self.keep = keep
        self.directory.mkdir(parents=True, exist_ok=True)

    def files(self) -> list[Path]:
        """The checkpoints there are, the newest first; files of other names are left alone."""
        found = self._numbered()
        return [found[number] for number in sorted(found, reverse=True) if not found[number].is_dir()]

    def _numbered(self) -> dict[int, Path]:
        """Everything in the directory that has the name of a checkpoint, by number."""
        # Not glob, which in some versions of Python finds nothing where it may not look.
        named = ((NUMBERED.fullmatch(path.name), path) for path in self.directory.iterdir())
        return {int(match[1]): path for match, path in named if match}

    def save(self, state: State) -> Path:
        """Write a checkpoint and delete the oldest ones."""
        number = max(self._numbered(), default=0) + 1
        path = self.directory / f"{number:012d}{SUFFIX}"
        write(path, state)
        for old in self.files()[self.keep :]:
            old.unlink()
        return path

    def remove_unfinished(self) -> None:
        """Delete the temporary files of a process that was killed while it wrote; no other process may be writing."""
        for path in self.directory.iterdir():
            if UNFINISHED.fullmatch(path.name) and not path.is_dir():
                path.unlink()

    def latest(self) -> State | None:
        """The newest intact checkpoint, or None; logs an error for newer ones that are damaged."""
        damaged: list[str] = []
        for path in self.files():
            try:
                state = read(path)
            except CheckpointError as error:
                log.error("%s; trying the one before", error)
                damaged.append(str(error))
                continue
            return state
        if damaged:
            raise CheckpointError("no checkpoint can be used: " + "; ".join(damaged))
        return None
