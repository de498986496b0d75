"""The README is short and true: its Python runs and prints what stands there, its links lead somewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
FENCES = re.findall(r"^```(\w*)\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
MAX_LINES = 200


def test_it_is_short():
    assert len(README.splitlines()) <= MAX_LINES
    assert "pip install streamclust" in README


@pytest.mark.compiled
def test_python_of_the_readme_runs(tmp_path):
    """In the order it stands there, in a process and a directory of its own; warnings are errors."""
    blocks = [text for language, text in FENCES if language == "python"]
    (printed,) = (text for language, text in FENCES if language == "text")
    assert blocks
    script = tmp_path / "readme.py"
    script.write_text("\n".join(blocks))
    environment = os.environ | {"MPLBACKEND": "Agg", "PYTHONWARNINGS": "error::UserWarning"}
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", README)
    links = [markdown or picture for markdown, picture in links]
    assert len(links) > 20
    assert [
        link
        for link in links
        if not link.startswith("https://") and not (ROOT / link.partition("#")[0]).exists()
    ] == []
