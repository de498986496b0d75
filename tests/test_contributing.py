"""CONTRIBUTING.md is true of the code: its layers are those of the import contract; a class name is used once."""

import ast
import re
import textwrap
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("streamclust", "connectors/streamclust_connectors")


def layers():
    """The layers of the import contract, as CONTRIBUTING.md writes them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = next(c for c in project["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    names = [
        re.sub(r"[()]|streamclust_connectors\.|streamclust\.", "", layer) for layer in contract["layers"]
    ]
    return textwrap.fill(" > ".join(names), 110, initial_indent="    ", subsequent_indent="    ")


def test_the_layers_are_those_of_the_contract():
    assert f"\n\n{layers()}\n\n" in (ROOT / "CONTRIBUTING.md").read_text()


def test_a_class_name_is_used_once():
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    nodes = [node for path in files for node in ast.parse(path.read_text()).body]
    names = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    assert len(names) > 100
    assert [name for name, count in names.items() if count > 1] == []


def test_an_ignored_type_error_says_why():
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    lines = [line for path in files for line in path.read_text().splitlines() if "# type: ignore" in line]
    assert [line.strip() for line in lines if not re.search(r"# type: ignore\[[\w-]+\]  # \w", line)] == []
