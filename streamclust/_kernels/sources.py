"""Hashes of kernel files: compiled code is used only if it comes from the same sources."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

KERNELS = Path(__file__).parent

IMPORT = re.compile(rb"^ *from streamclust\._kernels\.([\w.]+) import ", re.MULTILINE)
"""The one way in which kernel files import each other; a test looks for others."""


@cache
def read_source(path: Path) -> tuple[bytes, frozenset[Path]]:
    """A file, and the kernel files that it imports."""
    content = path.read_bytes()
    imported = (KERNELS.joinpath(*name.decode().split(".")) for name in IMPORT.findall(content))
    return content, frozenset(module.with_suffix(".py") for module in imported)


@cache
def source_stamp(path: Path) -> bytes:
    """A hash of a file and of all kernel files that it imports, directly or not."""
    found, waiting = set[Path](), {path}
    while waiting:
        found |= waiting
        waiting = {other for one in waiting for other in read_source(one)[1]} - found
    stamp = hashlib.sha256()
    for one in sorted(found):
        content = read_source(one)[0]
        stamp.update(f"{one.stem} {len(content)}\n".encode() + content)
    return stamp.digest()
