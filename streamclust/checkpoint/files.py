"""State <-> one safe file: arrays and JSON, no pickles, a checksum over all, written whole or not at all.

A file is a line of text (what it is, the format's version, the SHA-256 of the rest) and an npz archive.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import logging
import math
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
from streamclust.utils.state import State

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
"""Pieces of the sample, evenly spaced, and bytes of each."""
MAX_GROWTH, SMALL_BYTES = 64, 1 << 28
"""Limit of a decompressed content: MAX_GROWTH times the size of the file, or SMALL_BYTES if that is more: noise
hardly shrinks, so a state that shrinks further is small, or was made to fill the memory of whoever reads it."""
NUMBERS = "biuf"
"""Kinds of numpy types that arrays may have, beside text for the settings of a tree."""

log = logging.getLogger(__name__)


class CheckpointError(ValueError):
    """A checkpoint that cannot be used, and why."""


def reason_of(error: Exception) -> str:
    """Reason of an error in one line, with the error's name if its text does not tell."""
    if isinstance(error, KeyError):
        return f"{error} is missing"
    return str(error) if type(error) in (ValueError, CheckpointError) else f"{type(error).__name__}: {error}"


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
    """Decode a state that `encode` wrote; CheckpointError for anything else.

    No more memory is taken than the content fills, which the sizes that it declares must agree with.
    """
    try:
        return _decode(body)
    except CheckpointError:
        raise
    except Exception as error:  # of zipfile, zlib, json, ast and numpy, which name many
        raise CheckpointError(f"this is no checkpoint that can be read: {reason_of(error)}") from error


def _decode(body: bytes) -> State:
    arrays: dict[str, NDArray[Any]] = {}
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        check_sizes(archive, len(body))
        values = json.loads(archive.read(VALUES))
        if not isinstance(values, dict):
            raise CheckpointError(
                f"{VALUES} of a checkpoint must hold an object, not a {type(values).__name__}"
            )
        for name in archive.namelist():
            if name.endswith(".npy"):
                arrays[name[:-4]] = read_array(name, archive.read(name))
    return State(arrays, values)


def check_sizes(archive: zipfile.ZipFile, n_bytes: int) -> None:
    """Raise CheckpointError for members that would be much larger than the file that they are read from."""
    members = archive.infolist()
    limit = max(MAX_GROWTH * n_bytes, SMALL_BYTES)
    stored = [one for one in members if one.compress_type == zipfile.ZIP_STORED]
    if sum(one.file_size for one in members) > limit or any(one.file_size > n_bytes for one in stored):
        total = sum(one.file_size for one in members)
        raise CheckpointError(
            f"a checkpoint of {n_bytes:,} bytes declares a content of {total:,}, at most {limit:,} are read"
        )


def read_array(name: str, content: bytes) -> NDArray[Any]:
    """An array of numbers or text from a .npy file, which must be as long as its header says."""
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise CheckpointError(f"{name} is of version {version} of numpy's format, 1.0 and 2.0 are read")
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, in_columns, dtype = header(file)
    n, rest = math.prod(shape), len(content) - file.tell()
    if dtype.hasobject or dtype.kind not in NUMBERS + "U" or min(shape, default=0) < 0:
        raise CheckpointError(f"{name} holds no array of numbers, but {dtype} of shape {shape}")
    if dtype.itemsize == 0 or n * dtype.itemsize != rest:
        raise CheckpointError(f"{name} declares {dtype} of shape {shape}, and holds {rest:,} bytes")
    array = np.frombuffer(content, dtype, offset=file.tell()).reshape(shape, order="F" if in_columns else "C")
    return array.copy(order="K")


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
