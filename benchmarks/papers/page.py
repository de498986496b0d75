"""A page of docs/papers: sentences, tables and pictures, written by the script that made them."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = Path(__file__).parents[2] / "docs" / "papers"


class Page:
    """One table or figure of a paper, theirs beside ours."""

    def __init__(self, title: str) -> None:
        arguments = argparse.ArgumentParser(description=title)
        arguments.add_argument("--quick", action="store_true", help="small sizes, few data sets")
        arguments.add_argument("--data", type=Path, help="folder with pendigits.tra and spambase.data")
        given = arguments.parse_args()
        self.quick, self.data = given.quick, given.data
        self.script = Path(sys.argv[0]).stem
        self.name = self.script.replace("_", "-")
        how = [
            f"python -m benchmarks.papers.{self.script}",
            *["--quick"] * given.quick,
            *["--data DIR"] * bool(given.data),
        ]
        self.parts = [f"# {title}\n\nWritten by `{' '.join(how)}`; do not edit.\n"]
        self.n_pictures, self._began = 0, process_time()
        warnings.simplefilter("ignore")

    def say(self, text: str) -> None:
        """Add a paragraph, or any Markdown."""
        self.parts.append(text.strip() + "\n")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Add a table."""
        lines = [header, ["---"] * len(header), *rows]
        self.parts.append("".join(f"| {' | '.join(map(str, line))} |\n" for line in lines))

    def picture(self, figure: Figure, title: str) -> None:
        """Add a figure."""
        self.n_pictures += 1
        (FOLDER / "pictures").mkdir(parents=True, exist_ok=True)
        name = f"{self.name}-{self.n_pictures}.png"
        figure.savefig(FOLDER / "pictures" / name, dpi=90, metadata={"Software": None})
        self.parts.append(f'<div class="picture" markdown>\n\n![{title}](pictures/{name})\n\n</div>\n')

    def write(self) -> None:
        """Write the page."""
        self.say(f"The whole took {process_time() - self._began:.0f} s of CPU time.")
        (FOLDER / f"{self.name}.md").write_text("\n".join(self.parts))
        print(f"docs/papers/{self.name}.md")


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """A result, and the CPU seconds it took."""
    start = process_time()
    result = call()
    return result, process_time() - start


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Mean ± deviation.

    >>> spread([1.0, 3.0], 1)
    '2.0±1.4'
    """
    return f"{np.mean(values):.{digits}f}±{np.std(values, ddof=1) if len(values) > 1 else 0.0:.{digits}f}"
