"""Doctests of docstrings, which stand there as plain paragraphs, as sections of examples."""

from __future__ import annotations

import re
from typing import Any

import griffe

PARAGRAPH = re.compile(r"(?:\A|(?<=\n\n))(?=>>> )")
"""Where a paragraph begins that is a doctest."""


class DoctestExamples(griffe.Extension):
    """Puts the heading of a section before each doctest."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change an object's docstring, in memory."""
        if obj.docstring is not None and ">>> " in obj.docstring.value:
            obj.docstring.value = PARAGRAPH.sub("Examples\n--------\n", obj.docstring.value)
