"""Run the examples, keep what they print and draw (docs/gallery/pictures), and write their pages (docs/gallery).

Without arguments, every example that needs no broker; else those that are named, with the options that follow:
`python docs/_site/gallery.py kafka_end_to_end --bootstrap-servers localhost:9092`.
"""

from __future__ import annotations

import ast
import io
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.image
from matplotlib import pyplot

ROOT = Path(__file__).parents[2]
MADE = ROOT / "docs" / "gallery" / "pictures"
MAX_WIDTH = 1000
"""Pixels; wider pictures are made smaller."""
HEAD, TAIL = 30, 5
"""Lines of the output that are kept, where there are more."""
NEED_A_BROKER = ("kafka_end_to_end",)


def main() -> None:
    """Run the examples that are named, or all of them."""
    names = [
        word
        for word in sys.argv[1:]
        if not word.startswith("-") and (ROOT / "examples" / f"{word}.py").exists()
    ]
    options = sys.argv[1 + len(names) :]
    MADE.mkdir(parents=True, exist_ok=True)
    for path in sorted((ROOT / "examples").glob("*.py")):
        if path.stem in names or (not names and path.stem not in NEED_A_BROKER):
            run(path, options)
    write_pages()


def run(path: Path, options: list[str]) -> None:
    """Run one example; its pictures and its output take the place of those there were."""
    environment = os.environ | {"COLUMNS": "110", "NO_COLOR": "1", "TERM": "dumb"}
    with tempfile.TemporaryDirectory() as place:
        output = Path(place) / "demo-output"
        command = [sys.executable, str(path), "--output", str(output), *options]
        start = cpu_seconds()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        print(f"{path.stem}: {cpu_seconds() - start:.0f} s of CPU time", flush=True)
        for old in MADE.glob(f"{path.stem}-*.png"):
            old.unlink()
        for picture in sorted(output.glob("*.png")):
            (MADE / f"{path.stem}-{picture.stem}.png").write_bytes(smaller(picture))
        lines = [line.rstrip() for line in done.stdout.strip().splitlines()]
        if len(lines) > HEAD + TAIL:
            lines[HEAD:-TAIL] = [f"  ... {len(lines) - HEAD - TAIL} lines more"]
        said = "\n".join(lines)
        (MADE / f"{path.stem}.txt").write_text(re.sub(rf"{re.escape(place)}/", "", said) + "\n")


def cpu_seconds() -> float:
    """CPU time of the processes that were started and have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def smaller(path: Path) -> bytes:
    """A picture of at most MAX_WIDTH pixels across, every so many of them averaged."""
    image = matplotlib.image.imread(path)[:, :, :3]
    step = -(-image.shape[1] // MAX_WIDTH)
    rows, columns = (size // step * step for size in image.shape[:2])
    image = image[:rows, :columns].reshape(rows // step, step, columns // step, step, 3).mean(axis=(1, 3))
    content = io.BytesIO()
    pyplot.imsave(content, image, metadata={"Software": None})
    return content.getvalue()


def example_page(path: Path) -> str:
    """An example as a page: its docstring, its pictures, its output, its source."""
    source = path.read_text()
    title, _, rest = (ast.get_docstring(ast.parse(source)) or path.stem).partition("\n")
    pictures = sorted(MADE.glob(f"{path.stem}-*.png"))
    printed = MADE / f"{path.stem}.txt"
    links = [f"![{picture.stem}](pictures/{picture.name})\n" for picture in pictures]
    shown = f"```text\n{printed.read_text()}```\n" if printed.exists() else ""
    rest = re.sub(r"^Run it: (.+)$", r"Run it: `\1`", rest.strip(), flags=re.MULTILINE)
    return "\n".join(
        [
            f"# {title.rstrip('.')}\n",
            rest + "\n",
            *links,
            "## What it prints\n" if shown else "",
            shown,
            f"## `examples/{path.name}`\n",
            f"```python\n{source}```\n",
        ]
    )


def write_pages() -> None:
    """Write the page of every example."""
    for path in sorted((ROOT / "examples").glob("*.py")):
        (MADE.parent / f"{path.stem}.md").write_text(example_page(path))


if __name__ == "__main__":
    main()
