"""Write the results of a page's blocks into the page, and the page as a notebook: `python docs/_site/render.py`.

A code host shows the pages of RENDERED as readers of the site see them: what a block printed and drew stands below it,
between comments, and pictures are files beside the page. The notebooks are in examples/notebooks, with their outputs.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import tempfile
import warnings
from contextlib import chdir
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from hooks import BLOCK, RESULTS, ROOT, Run

RENDERED = (
    "tutorial",
    "how-to/sensors",
    "how-to/customers",
    "how-to/what-a-cluster-is",
    "how-to/which-algorithm",
    "how-to/preparing-data",
    "comparison",
    "gallery/index",
)
NOTEBOOKS = ("tutorial", "how-to/sensors", "how-to/customers")
INSTALL = "Install it first, from a clone of the repository: `pip install '.[plots]'`."


class Rendering(Run):
    """The blocks of one page, with their results as plain Markdown; `cells` are those of its notebook."""

    def __init__(self, page: str, folder: Path) -> None:
        self.folder = folder
        self.cells: list[dict[str, Any]] = []
        super().__init__(f"{page}.md", self.save)

    def save(self, name: str, picture: bytes) -> str:
        """Write a picture into `folder`; its link."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / name).write_bytes(picture)
        return f"pictures/{name}"

    def shown(self, block: str, said: str, figures: list[tuple[str, str]]) -> str:
        """A block with its results between comments."""
        outputs: list[dict[str, Any]] = []
        if said:
            outputs.append({"output_type": "stream", "name": "stdout", "text": lines(said)})
        for _, link in figures:
            image = base64.b64encode((self.folder / Path(link).name).read_bytes()).decode()
            data = {"image/png": image, "text/plain": ["<Figure>"]}
            outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
        source = block.removeprefix("```python\n").removesuffix("```\n")
        self.cells.append(code_cell(source, outputs))
        if not outputs:
            return block
        text = f"```text\n{said}```\n" if said else ""
        pictures = "".join(f"\n![{title}]({link})\n" for title, link in figures)
        return f"{block}\n<!-- results -->\n{text}{pictures}<!-- end of results -->\n"


def rendered(page: str, folder: Path) -> tuple[str, list[dict[str, Any]]]:
    """A page with fresh results, and the cells of its notebook; pictures are written into `folder`."""
    source = RESULTS.sub("", (ROOT / "docs" / f"{page}.md").read_text())
    run = Rendering(page, folder)
    with tempfile.TemporaryDirectory() as place, chdir(place), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        text = BLOCK.sub(run.block, source)
    return text, notebook_cells(source, run.cells, page)


def notebook_cells(source: str, code: list[dict[str, Any]], page: str) -> list[dict[str, Any]]:
    """The prose between blocks as Markdown cells, the blocks as code cells."""
    cells: list[dict[str, Any]] = []
    place, ran = 0, iter(code)
    for match in [*BLOCK.finditer(source), None]:
        prose = source[place : match.start() if match else len(source)].strip()
        if prose:
            cells.append(prose_cell(prose, page))
        if match:
            if match["fence"] == "```" and match["kind"] == "python":
                cells.append(next(ran))
            place = match.end()
    cells.insert(1, prose_cell(INSTALL, page))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    return cells


def prose_cell(text: str, page: str) -> dict[str, Any]:
    """A Markdown cell; links lead to the pages, from examples/notebooks."""
    folder = Path("docs") / Path(page).parent
    text = re.sub(r"\]\((?!https?:|#)([^)]+)\)", lambda link: f"](../../{normal(folder, link[1])})", text)
    return {"cell_type": "markdown", "metadata": {}, "source": lines(text)}


def normal(folder: Path, link: str) -> str:
    """A relative link of a page as a path from the root of the repository."""
    path, hash_mark, anchor = link.partition("#")
    parts: list[str] = []
    for part in (folder / path).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts) + hash_mark + anchor


def code_cell(source: str, outputs: list[dict[str, Any]]) -> dict[str, Any]:
    """A code cell with its outputs."""
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": outputs,
        "source": lines(source.rstrip()),
    }


def lines(text: str) -> list[str]:
    """Text as notebooks keep it."""
    return text.splitlines(keepends=True)


def notebook(cells: list[dict[str, Any]]) -> str:
    """A notebook as JSON."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Render the pages that are named, or all of them."""
    for page in sys.argv[1:] or RENDERED:
        path = ROOT / "docs" / f"{page}.md"
        text, cells = rendered(page, path.parent / "pictures")
        path.write_text(text)
        if page in NOTEBOOKS:
            into = ROOT / "examples" / "notebooks"
            into.mkdir(exist_ok=True)
            (into / f"{path.stem}.ipynb").write_text(notebook(cells))
        print(page)


if __name__ == "__main__":
    main()
