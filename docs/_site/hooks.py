"""What the build of the documentation adds to MkDocs: it runs every Python block of a page and shows what came out.

Blocks of a page run in order, in one namespace and an empty directory; an error or a warning to users ends the build.
So do the lines of `console` blocks that begin with `$`, and Python in comments (`<!-- python`), which is not shown.
Below a block stand what it printed, the value of its last expression (none if the line ends with `;`) and the figures
it drew; results that are committed in the page (`render.py`) are replaced by new ones. Drawings (`drawings/*.svg`) are
written into the page, where they take its colours. The changelog is a page made here.
"""

from __future__ import annotations

import ast
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

os.environ.setdefault("MPLBACKEND", "Agg")

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "connectors")]
BLOCK = re.compile(
    r"^(?P<fence>```|<!-- )(?P<kind>python|console)\n(?P<source>.*?)^(?:```|-->)\n",
    flags=re.DOTALL | re.MULTILINE,
)
RESULTS = re.compile(r"\n?<!-- results -->\n.*?<!-- end of results -->\n", flags=re.DOTALL)
"""Results that `render.py` has written below a block."""
DRAWING = re.compile(r"^!\[(.*?)\]\(\S*?drawings/(\S+\.svg)\)$", flags=re.MULTILINE)
FIRST = {
    "how-to": [
        *(
            "sensors",
            "customers",
            "preparing-data",
            "which-algorithm",
            "river",
            "scikit-learn",
            "choose",
            "drift",
            "hierarchy",
            "alerts",
        ),
        *("files", "http", "kafka", "schemas", "kubernetes", "spark"),
    ],
    "concepts": [
        "index",
        "events",
        "tree",
        "refits",
        "changes",
        "ids",
        "shapes",
        "exactly-once",
        "service",
        "kernels",
    ],
    "reference": ["index", "streaming", "batch"],
}
"""The order of a section's pages; those that are not named come after, by name."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of a folder where the navigation says `folder/*`."""
    for section in config.nav or []:
        for title, pages in section.items():
            if isinstance(pages, str) and pages.endswith("/*"):
                section[title] = pages_of(pages.removesuffix("/*"))
    return config


def pages_of(folder: str) -> list[str]:
    """A folder's pages, in order."""
    names = {path.stem for path in (ROOT / "docs" / folder).glob("*.md")}
    first = FIRST.get(folder, ["index"])
    order = [name for name in first if name in names] + sorted(names - set(first))
    return [f"{folder}/{name}.md" for name in order]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that have no source of their own."""
    files.append(File.generated(config, "changelog.md", content=(ROOT / "CHANGELOG.md").read_text()))
    for path in sorted((ROOT / "examples" / "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.name}", content=path.read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Run the page's blocks, and put drawings into it."""
    markdown = DRAWING.sub(inlined, RESULTS.sub("", markdown)).replace(
        "(../examples/notebooks/", "(notebooks/"
    )
    source = page.file.src_uri
    written = source.startswith("gallery/") and source != "gallery/index.md"
    if written or not BLOCK.search(markdown):
        return markdown

    def keep(name: str, picture: bytes) -> str:
        """Put a picture into the site; its link."""
        uri = str(Path(source).parent / "pictures" / name)
        if (committed := files.get_file_from_path(uri)) is not None:
            files.remove(committed)
        files.append(File.generated(config, uri, content=picture))
        return f"pictures/{name}"

    return Run(source, keep).page(markdown)


class Run:
    """The blocks of one page, as they run."""

    def __init__(self, source: str, keep: Callable[[str, bytes], str]) -> None:
        self.source, self.keep = source, keep
        self.names: dict[str, Any] = {"__name__": "__page__"}
        self.n_figures = 0

    def page(self, markdown: str) -> str:
        """The page with the results of its blocks."""
        with tempfile.TemporaryDirectory() as place, chdir(place), warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            return BLOCK.sub(self.block, markdown)

    def block(self, match: re.Match[str]) -> str:
        """One block, with its results below it."""
        line = match.string.count("\n", 0, match.start()) + 1
        try:
            if match["kind"] == "console":
                return self.console(match["source"])
            said = self.python(match["source"], line)
        except Exception as error:
            raise PluginError(f"{self.source}, line {line}: {error!r}") from error
        if match["fence"] != "```":
            return ""
        return self.shown(match[0], said, self.figures())

    def shown(self, block: str, said: str, figures: list[tuple[str, str]]) -> str:
        """A block with its results, for the site."""
        text = f'<div class="output" markdown>\n\n```text\n{said}```\n\n</div>\n' if said else ""
        pictures = "".join(
            f'<div class="picture" markdown>\n\n![{title}]({link}){{.made}}\n\n</div>\n'
            for title, link in figures
        )
        return f"{block}\n{text}\n{pictures}\n"

    def python(self, source: str, line: int) -> str:
        """Run a block; what it printed, and the value of its last expression, unless its line ends with a semicolon."""
        tree = ast.parse("\n" * line + source)
        last = tree.body[-1]
        silent = re.sub(r"\s+#.*$", "", source.rstrip().splitlines()[-1]).endswith(";")
        value = None
        printed = io.StringIO()
        with redirect_stdout(printed):
            if isinstance(last, ast.Expr) and not silent:
                tree.body.pop()
                exec(compile(tree, self.source, "exec"), self.names)
                value = eval(compile(ast.Expression(last.value), self.source, "eval"), self.names)
            else:
                exec(compile(tree, self.source, "exec"), self.names)
        drawn = type(value).__module__.startswith("matplotlib")
        return printed.getvalue() + ("" if value is None or drawn else f"{value!r}\n")

    def console(self, source: str) -> str:
        """Run the lines of a console block, each with what it prints below it."""
        shown = []
        for line in source.splitlines():
            words = shlex.split(line.removeprefix("$ "))
            said = (
                command(words[1:]) if words[0] == "streamclust" else subprocess.check_output(words, text=True)
            )
            shown += [line, *(printed.rstrip() for printed in said.strip().splitlines())]
        return "```console\n" + "\n".join(shown) + "\n```\n"

    def figures(self) -> list[tuple[str, str]]:
        """Title and link of each figure that the block drew."""
        if "matplotlib.pyplot" not in sys.modules:
            return []
        from matplotlib import pyplot

        links = []
        for number in pyplot.get_fignums():
            picture = io.BytesIO()
            figure = pyplot.figure(number)
            figure.savefig(picture, dpi=110, metadata={"Software": None})
            pyplot.close(figure)
            self.n_figures += 1
            name = f"{Path(self.source).stem}-{self.n_figures}.png"
            titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
            title = figure.get_suptitle() or " and ".join(titles) or "figure"
            links.append((title, self.keep(name, picture.getvalue())))
        return links


def command(words: list[str]) -> str:
    """Run the `streamclust` command in this process; what it printed."""
    from typer.testing import CliRunner

    from streamclust_connectors.cli import app

    plain = {"COLUMNS": "110", "NO_COLOR": "1", "TERM": "dumb"}
    done = CliRunner().invoke(app, words, prog_name="streamclust", env=plain, catch_exceptions=False)
    if done.exit_code:
        raise RuntimeError(f"streamclust {words} ended with {done.exit_code}: {done.output}")
    return done.stdout


def inlined(match: re.Match[str]) -> str:
    """A drawing as part of the page, with its description for readers who cannot see it."""
    svg = re.sub(
        r"<\?xml.*?\?>|<!--.*?-->", "", (ROOT / "docs" / "drawings" / match[2]).read_text(), flags=re.DOTALL
    )
    svg = svg.strip().replace("<svg ", f'<svg role="img" aria-label="{match[1]}" ', 1)
    return '<figure class="drawing">' + re.sub(r"\s*\n\s*", " ", svg) + "</figure>"
