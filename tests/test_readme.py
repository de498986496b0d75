"""The README is true: its Python runs, its table of papers points at functions that exist."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
ROWS = re.findall(r"^\| .+? \| .+? \| `(.+?\.py)` \| `(.+?)` \|$", README, flags=re.MULTILINE)


@pytest.mark.compiled
def test_python_of_the_readme_runs():
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert blocks
    exec(compile("\n".join(blocks), "README.md", "exec"), {})


def test_the_table_of_papers_has_rows():
    assert len(ROWS) >= 10


@pytest.mark.parametrize(("path", "name"), ROWS)
def test_papers_point_at_functions(path, name):
    assert (ROOT / path).is_file()
    found = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    for part in name.split("."):
        found = getattr(found, part)
    assert callable(found)
    assert (found.py_func if hasattr(found, "py_func") else found).__doc__
