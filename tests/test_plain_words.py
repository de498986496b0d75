"""Docstrings and comments say what a thing is: none begins with a riddle ("What ...", "The same ...")."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONNECTORS, LIBRARY = "connectors/streamclust_connectors", "streamclust"
RIDDLE = re.compile(r"(?:What|The same|Whether what|Those|That)\b|.*\bso many\b", re.DOTALL | re.IGNORECASE)
"""A text that begins with one of the words, or says "so many" anywhere."""


def docstrings(source):
    """Line and text of every docstring, and of strings below constants and attributes that describe them."""
    for node in ast.walk(ast.parse(source)):
        for statement in getattr(node, "body", []) if not isinstance(node, (ast.Lambda, ast.IfExp)) else []:
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield statement.lineno, value.value


def first_comment_lines(source):
    """Line and text of every comment, of several lines in a row the first."""
    last = (-1, -1)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start != (last[0] + 1, last[1]):
                yield token.start[0], token.string.lstrip("# ")
            last = token.start


def riddles(source):
    """Line and first words of each text that is a riddle."""
    texts = sorted([*docstrings(source), *first_comment_lines(source)])
    return [(line, text.strip().split("\n")[0]) for line, text in texts if RIDDLE.match(text.strip())]


def riddles_in(package):
    """Every riddle of a package, with its file and line."""
    files = sorted((ROOT / package).rglob("*.py"))
    assert len(files) > 50
    return [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in files
        for line, text in riddles(path.read_text())
    ]


@pytest.mark.parametrize("package", [CONNECTORS, LIBRARY])
def test_there_are_no_riddles(package):
    assert "\n".join(riddles_in(package)) == ""


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('"""What it is."""', [1]),
        ('"""A clock."""', []),
        ('x = 1\n"""The same, twice."""', [2]),
        ('def f():\n    """Take\n    so many."""', [2]),
        ("# What follows\n# That is a second line\nx = 1  # those", [1, 3]),
        ('x = "What a string"\n# whatever', []),
    ],
)
def test_a_riddle_is_found_where_it_is(source, lines):
    assert [line for line, _ in riddles(source)] == lines
