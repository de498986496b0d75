"""Make a wheel that brings compiled kernels: `python .ci/platform_wheel.py PURE_WHEEL --into DIRECTORY`.

The kernels are compiled for this Python, this numba and any x86-64-v3 processor; elsewhere its users compile. The wheel
has the tags of numba's own wheel: kernels need no more of a system than numba does.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import tempfile
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from streamclust.warm import ship

PLACE = "streamclust/_kernels/compiled/"
"""Where the package looks for kernels that came with it."""


def numba_tags() -> list[str]:
    """The tags of the numba that is installed: Python, ABI and platform each."""
    lines = (distribution("numba").read_text("WHEEL") or "").splitlines()
    return [line.removeprefix("Tag: ") for line in lines if line.startswith("Tag: ")]


def with_kernels(pure: Path, kernels: Path, into: Path, tags: list[str]) -> Path:
    """The wheel with the compiled kernels of a directory, for these tags."""
    with ZipFile(pure) as wheel:
        files = {name: wheel.read(name) for name in wheel.namelist() if not name.startswith(PLACE)}
    files |= {PLACE + path.name: path.read_bytes() for path in sorted(kernels.glob("*.nbc"))}
    (about,) = (name for name in files if name.endswith(".dist-info/WHEEL"))
    files[about] = tagged(files[about].decode(), tags).encode()
    record = about.removesuffix("WHEEL") + "RECORD"
    del files[record]
    files[record] = "".join([*(recorded(*file) for file in files.items()), f"{record},,\n"]).encode()
    path = into / f"{'-'.join(pure.stem.split('-')[:2])}-{joined(tags)}.whl"
    with ZipFile(path, "w", ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            entry = ZipInfo(name)
            entry.compress_type, entry.external_attr = ZIP_DEFLATED, 0o644 << 16
            wheel.writestr(entry, content)
    return path


def tagged(about: str, tags: list[str]) -> str:
    """The file WHEEL for these tags."""
    kept = [line for line in about.splitlines() if line and not line.startswith(("Root-Is-Purelib", "Tag"))]
    return "\n".join([*kept, "Root-Is-Purelib: false", *(f"Tag: {tag}" for tag in tags)]) + "\n"


def recorded(name: str, content: bytes) -> str:
    """A line of the file RECORD."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def joined(tags: list[str]) -> str:
    """Tags as the name of a wheel has them: each part once, with dots between."""
    return "-".join(
        ".".join(dict.fromkeys(parts)) for parts in zip(*(tag.split("-") for tag in tags), strict=True)
    )


def main() -> None:
    """Compile the kernels and write the wheel."""
    parser = argparse.ArgumentParser(description="Make a wheel that brings compiled kernels.")
    parser.add_argument("pure", type=Path, help="the wheel without kernels, of the same sources")
    parser.add_argument("--into", type=Path, default=Path("dist"))
    given = parser.parse_args()
    given.into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as kernels:
        count = ship(Path(kernels))
        path = with_kernels(given.pure, Path(kernels), given.into, numba_tags())
    print(f"{path}: {count} compiled kernels, {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
