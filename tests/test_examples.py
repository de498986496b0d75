"""Every example runs, as a user would start it, on a short stream."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.compiled
def test_tree_of_a_million(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "examples/tree_of_a_million.py", "--events", "30000", "--output", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "million events a second" in done.stdout
    assert "12 found" in done.stdout
    assert (tmp_path / "tree.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.compiled
def test_drifting_stream(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "examples/drifting_stream.py", "--events", "60000", "--output", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "born 0 at event 1" in done.stdout
    assert "adjusted Rand index" in done.stdout
    for picture in ("clusters.png", "hierarchy.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
