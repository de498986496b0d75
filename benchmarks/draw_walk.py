"""Draw the way of an event through the code, from a traced call: docs/drawings/event-walk.svg.

    python benchmarks/draw_walk.py

A test fails if the drawing differs from the code.
"""

from __future__ import annotations

import ast
import html
import textwrap
from pathlib import Path

from walks import ROOTS, TREE, Call, flush, learn_one

DRAWING = Path(__file__).parents[1] / "docs" / "drawings" / "event-walk.svg"
WIDTH, BOX_WIDTH, ROW_HEIGHT, TOP = 760, 360, 82, 44
TEXT_COLUMNS = 58
"""Characters of a line of a box."""


def summary(call: Call) -> str:
    """First sentence of a function's docstring."""
    tree = ast.parse((ROOTS[0].parent / call.file).read_text())
    node: ast.AST = tree
    for name in call.function.split("."):
        node = next(child for child in ast.iter_child_nodes(node) if getattr(child, "name", None) == name)
    assert isinstance(node, ast.FunctionDef)
    return " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())


def box(call: Call, x: int, y: int) -> list[str]:
    """A call: its function, its file and what its docstring says."""
    lines = textwrap.wrap(summary(call), TEXT_COLUMNS, max_lines=2, placeholder=" ...")
    return [
        f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{ROW_HEIGHT - 16}" rx="6" fill="none"/>',
        '<g fill="currentColor" stroke="none">',
        f'<text x="{x + 10}" y="{y + 18}" font-weight="bold">{call.function}</text>',
        f'<text x="{x + BOX_WIDTH - 10}" y="{y + 18}" font-size="10" opacity=".7" text-anchor="end">'
        f"{call.file.removeprefix('streamclust/')}</text>",
        *(
            f'<text x="{x + 10}" y="{y + 36 + 15 * i}" font-size="11">{html.escape(line, quote=False)}</text>'
            for i, line in enumerate(lines)
        ),
        "</g>",
    ]


def column(title: str, calls: list[Call], x: int) -> list[str]:
    """Calls below each other, each made by the one above it."""
    found = [f'<text x="{x}" y="24" fill="currentColor" stroke="none" font-weight="bold">{title}</text>']
    for i, call in enumerate(calls):
        y = TOP + i * ROW_HEIGHT
        found += box(call, x, y)
        if i + 1 < len(calls):
            middle, below = x + BOX_WIDTH // 2, y + ROW_HEIGHT
            found.append(f'<path d="M{middle} {below - 16}V{below - 2}" marker-end="url(#walk-arrow)"/>')
    return found


def drawing() -> str:
    """The picture: an event that is buffered, and the one that fills the buffer on its way into the tree."""
    buffered, learnt = learn_one().calls, flush().until(*TREE).stack().calls
    height = TOP + max(len(buffered), len(learnt)) * ROW_HEIGHT
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
            'font-size="13" fill="none" stroke="currentColor">',
            '<defs><marker id="walk-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto"><path d="M0 0L8 4L0 8z" fill="currentColor" stroke="none"/></marker></defs>',
            *column("most events: into the buffer", buffered, 10),
            *column("the event that fills it: all of them into the tree", learnt, WIDTH - BOX_WIDTH - 10),
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    DRAWING.write_text(drawing())
