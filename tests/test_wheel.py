"""The wheel that brings compiled kernels: pip installs it, and it claims no more than numba's own does."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("platform_wheel", ROOT / ".ci" / "platform_wheel.py")
platform_wheel = importlib.util.module_from_spec(spec)
spec.loader.exec_module(platform_wheel)

ABOUT = "Wheel-Version: 1.0\nGenerator: setuptools\nRoot-Is-Purelib: true\nTag: py3-none-any\n\n"
METADATA = "Metadata-Version: 2.1\nName: streamclust\nVersion: 9.9\n"


@pytest.fixture
def pure(tmp_path):
    """A wheel of two files, one of them a kernel of an earlier build."""
    path = tmp_path / "streamclust-9.9-py3-none-any.whl"
    with ZipFile(path, "w") as wheel:
        wheel.writestr("streamclust/__init__.py", "")
        wheel.writestr("streamclust/_kernels/compiled/old.nbc", "old")
        wheel.writestr("streamclust-9.9.dist-info/METADATA", METADATA)
        wheel.writestr("streamclust-9.9.dist-info/WHEEL", ABOUT)
        wheel.writestr("streamclust-9.9.dist-info/RECORD", "streamclust/__init__.py,,\n")
    return path


def test_pip_installs_the_wheel_with_its_kernels_here(pure, tmp_path):
    kernels, into = tmp_path / "kernels", tmp_path / "dist"
    kernels.mkdir()
    into.mkdir()
    (kernels / "moments.group_rows-1.nbc").write_bytes(b"compiled")
    made = platform_wheel.with_kernels(pure, kernels, into, platform_wheel.numba_tags())
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*command, "--target", tmp_path / "site", made], check=True, capture_output=True)
    found = [path.name for path in (tmp_path / "site/streamclust/_kernels/compiled").iterdir()]
    assert found == ["moments.group_rows-1.nbc"]
    about = (tmp_path / "site/streamclust-9.9.dist-info/WHEEL").read_text()
    assert "Root-Is-Purelib: false\n" in about
    assert "none-any" not in about + made.name


def test_every_file_is_recorded_with_its_hash(pure, tmp_path):
    made = platform_wheel.with_kernels(
        pure, tmp_path, tmp_path, ["cp312-cp312-linux_1_x86_64", "cp312-cp312-linux_2_x86_64"]
    )
    assert made.name == "streamclust-9.9-cp312-cp312-linux_1_x86_64.linux_2_x86_64.whl"
    with ZipFile(made) as wheel:
        *lines, last = wheel.read("streamclust-9.9.dist-info/RECORD").decode().splitlines()
        assert last == "streamclust-9.9.dist-info/RECORD,,"
        expected = [platform_wheel.recorded(name, wheel.read(name)).strip() for name in wheel.namelist()[:-1]]
        assert lines == expected
        assert wheel.testzip() is None


def test_the_tags_are_those_of_numba():
    tags = platform_wheel.numba_tags()
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert tags
    assert all(tag.startswith(f"{version}-{version}") for tag in tags)
