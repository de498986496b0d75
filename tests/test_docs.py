"""The documentation is true: the site builds strictly, which runs every block of its pages; its links lead somewhere,
its commands exist, its table of papers points at functions that are there and say where they come from."""

import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import nbformat
import numpy as np
import pytest
from matplotlib.image import imread
from nbclient import NotebookClient
from typer.main import get_command

from streamclust_connectors.cli import app

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs" / "_site"))
import gallery  # noqa: E402
import render  # noqa: E402

DOCS = ROOT / "docs"
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text() for path in [ROOT / "README.md", *DOCS.rglob("*.md")]
}
ALL = "\n".join(PAGES.values())
TABLE = (
    PAGES["docs/papers/index.md"]
    .partition("| paper | equation | file | function |\n")[2]
    .partition("\n\n")[0]
)
ROWS = re.findall(r"^\| (.+?) \| (.+?) \| `(.+?\.py)` \| `(.+?)` \|$", TABLE, flags=re.MULTILINE)
PAPERS = {"Bayesian k-means", "Chunky greedy EM", "MAD-Bayes", "Relaxed BHC"}
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
SCRIPTS = sorted(
    path.stem for path in (ROOT / "benchmarks" / "papers").glob("*_*.py") if not path.stem.startswith("__")
)
WITHOUT_BLOCKS = {"docs/measured.md", "docs/limits.md"}
"""Pages of figures and sentences; reference pages have doctests."""
DECISIONS = {f"docs/concepts/{name}.md" for name in ("changes", "events", "kernels", "service", "shapes")}
"""Pages of decisions and their reasons."""
GALLERY = {f"docs/gallery/{name}.md" for name in EXAMPLES}


# -------------------------------------------------------------------- the site


@pytest.mark.compiled
def test_the_site(tmp_path):
    """Built once, as `make docs` does: a block that fails, a warning or a dead link ends the build."""
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "ignore::DeprecationWarning"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    links_lead_somewhere(tmp_path)
    blocks_show_what_they_did(tmp_path)
    reference_shows_doctests_as_code(tmp_path)


class Links(HTMLParser):
    """What a page links to, what it loads, and the anchors it has."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        elif tag in ("img", "script", "link", "source") and found.get("rel") != "canonical":
            self.loaded += [found[name] for name in ("src", "href") if found.get(name)]


def links_lead_somewhere(site):
    """Links and anchors lead somewhere within it; nothing is loaded from another host; the search knows every page."""
    pages = {path: Links(path.read_text()) for path in site.rglob("*.html")}
    assert len(pages) > 40
    dead = []
    for path, page in pages.items():
        for link in page.links + page.loaded:
            where, _, anchor = unquote(link).partition("#")
            if path.name == "404.html" or where.startswith(("http://", "https://", "data:")):
                continue
            target = (path.parent / where.partition("?")[0]).resolve() if where else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors):
                dead.append(f"{path.relative_to(site)}: {link}")
        assert not [link for link in page.loaded if link.startswith(("http:", "https:", "//"))], path
    assert dead == []
    index = json.loads((site / "search" / "search_index.json").read_text())
    known = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {path.relative_to(site).as_posix() for path in pages} - known <= {"404.html"}


def blocks_show_what_they_did(site):
    tutorial = (site / "tutorial.html").read_text()
    assert tutorial.count('class="output"') > 5
    assert len(re.findall(r'<img[^>]+src="pictures/tutorial-\d\.png"', tutorial)) == 3
    assert "True" in re.sub(r"<[^>]+>", "", tutorial).partition("Save it, and go on")[2]
    files = re.sub(r"<[^>]+>", "", (site / "how-to/files.html").read_text())
    assert "3 clusters of 3,000 events" in files
    assert "DoctestExamples" not in files


def reference_shows_doctests_as_code(site):
    page = (site / "reference/lineage.html").read_text()
    assert "Examples" in page
    assert "[(100, 0.1), (200, 0.5)]" in re.sub(r"<[^>]+>", "", page).replace("\xa0", " ")


def test_no_page_without_an_example():
    runs = re.compile(r"^```(python|console)$|^::: ", flags=re.MULTILINE)
    written = {
        name for name, text in PAGES.items() if "\nWritten by `python" in text
    }  # by scripts that were run
    without = {name for name, text in PAGES.items() if not runs.search(text)}
    assert without - written - GALLERY - DECISIONS == WITHOUT_BLOCKS


def markdown_links():
    """Page, and relative links of its prose."""
    for name, text in PAGES.items():
        prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        for link in re.findall(r"\]\((?!https?:|#|data:)([^)\s]+)\)", prose):
            yield name, link


def test_links_lead_somewhere_on_a_code_host_too():
    """As files of the repository, before any site is built; the changelog's page is made by the build."""
    dead = [
        f"{name}: {link}"
        for name, link in markdown_links()
        if not (ROOT / name).parent.joinpath(unquote(link.partition("#")[0])).exists()
        and link != "changelog.md"
    ]
    assert dead == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_gallerys_pages_are_those_of_the_examples(name):
    """`make gallery` writes them."""
    assert PAGES[f"docs/gallery/{name}.md"] == gallery.example_page(ROOT / "examples" / f"{name}.py")


@pytest.mark.compiled
@pytest.mark.parametrize("page", render.RENDERED)
def test_committed_results_are_what_blocks_print_and_draw(page, tmp_path):
    """`make rendered` writes them. Pictures may differ in details that depend on the version of matplotlib."""
    text, cells = render.rendered(page, tmp_path)
    committed = PAGES[f"docs/{page}.md"]
    assert text == committed
    assert "<!-- results -->" in committed
    pictures = (DOCS / page).parent / "pictures"
    for picture in tmp_path.glob("*.png"):
        made, kept = imread(picture), imread(pictures / picture.name)
        assert made.shape == kept.shape
        assert np.abs(made[..., :3] - kept[..., :3]).mean() < 0.02
    if page in render.NOTEBOOKS:
        notebook = json.loads(notebook_of(page).read_text())
        assert [without_images(cell) for cell in notebook["cells"]] == [
            without_images(cell) for cell in cells
        ]


def notebook_of(page):
    return ROOT / "examples" / "notebooks" / f"{Path(page).name}.ipynb"


def without_images(cell):
    texts = [output for output in cell.get("outputs", []) if output["output_type"] == "stream"]
    return cell | {"outputs": texts} if "outputs" in cell else cell


@pytest.mark.compiled
@pytest.mark.parametrize("page", render.NOTEBOOKS)
def test_a_notebook_runs(page, tmp_path):
    """In Jupyter's own kernel, from first to last cell; it is a valid notebook, and its links lead somewhere."""
    path = notebook_of(page)
    content = nbformat.read(path, as_version=4)
    nbformat.validate(content)
    prose = "".join(cell.source for cell in content.cells if cell.cell_type == "markdown")
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", prose)
    assert links
    assert [link for link in links if not (path.parent / link).exists()] == []
    environment = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "MPLBACKEND": "",
    }
    client = NotebookClient(
        content, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute(env=os.environ | environment)
    drawn = [
        output
        for cell in content.cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]
    assert drawn


def test_every_example_is_in_the_gallery():
    listed = re.findall(r"\]\((\w+)\.md\)", PAGES["docs/gallery/index.md"])
    assert sorted(listed) == EXAMPLES


def test_the_gallery_shows_what_every_example_did():
    """`make gallery` fills it: every example has pictures there, and what it printed."""
    made = DOCS / "gallery" / "pictures"
    assert sorted(path.stem for path in made.glob("*.txt")) == EXAMPLES
    pictures = [picture for picture in made.glob("*.png") if picture.stem != "index-1"]
    assert sorted({picture.stem.partition("-")[0] for picture in pictures}) == EXAMPLES
    for picture in made.glob("*.png"):
        assert picture.stat().st_size < 500_000


# -------------------------------------------------------------------- the table of papers


def test_the_table_is_read_to_its_end():
    assert len(ROWS) == len(TABLE.splitlines()) - 1  # but for the rule
    assert len(ROWS) >= 30
    assert {paper for paper, *_ in ROWS} == PAPERS
    assert len(set(ROWS)) == len(ROWS)


@pytest.mark.parametrize(("paper", "equation", "path", "name"), ROWS)
def test_papers_point_at_functions(paper, equation, path, name):
    """The file is there and defines the function, which says what it does; the file cites each equation."""
    source = (ROOT / path).read_text()
    found = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    for part in name.split("."):
        found = getattr(found, part)
    assert callable(found)
    plain = getattr(found, "py_func", found)
    assert plain.__doc__
    assert Path(inspect.getsourcefile(inspect.unwrap(plain))) == ROOT / path
    for number in re.findall(r"\d+(?:\.\d+)*", equation):
        assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d])", source), f"{path} does not cite {number}"


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_of_the_papers_has_its_page(name):
    page = PAGES.get(f"docs/papers/{name.replace('_', '-')}.md")
    if page is None:  # its run takes long: the index says so
        assert f"`{name}.py`, no page yet" in PAGES["docs/papers/index.md"]
        return
    assert f"Written by `python -m benchmarks.papers.{name}" in page
    assert f"]({name.replace('_', '-')}.md)" in PAGES["docs/papers/index.md"]
    pictures = re.findall(r"\]\((pictures/\S+\.png)\)", page)
    assert all((DOCS / "papers" / picture).exists() for picture in pictures)
    assert pictures or "\n|" in page


# -------------------------------------------------------------------- commands, files


def commands():
    """Lines of blocks that are no Python, and commands in the prose."""
    fences = re.findall(r"^```(\w*)\n(.*?)^```", ALL, flags=re.DOTALL | re.MULTILINE)
    return [
        line.removeprefix("$ ")
        for kind, text in fences
        if kind in ("", "console")
        for line in text.splitlines()
    ]


def test_commands_exist():
    known = get_command(app)
    used = [
        re.split(r"\s+#|\s{2,}", line)[0].split() for line in commands() if line.startswith("streamclust ")
    ]
    assert len(used) > 10
    for _, name, *rest in used:
        if name == "--help":
            continue
        assert name in known.commands, name
        command = known.commands[name]
        if hasattr(command, "commands") and rest:
            assert rest[0] in command.commands, f"{name} {rest[0]}"
            command = command.commands[rest[0]]
        options = {option for parameter in command.params for option in parameter.opts}
        given = {word.partition("=")[0] for word in rest if word.startswith("-") and word != "-"}
        assert given <= options | {"--help"}, f"{name} has no {given - options}"


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    used = {words[1] for line in commands() if len(words := line.split()) > 1 and words[0] == "make"}
    used |= set(re.findall(r"`make ([a-z]+)", ALL))
    assert {"demo", "test", "docs"} <= used <= targets


def test_files_that_are_named_exist():
    named = re.findall(
        r"\b((?:deploy|examples|benchmarks|docker|streamclust|tests)/[\w./-]+\.(?:py|md|toml|yaml))", ALL
    )
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_scripts_that_are_named_exist():
    """Tables name benchmarks without their folder."""
    named = set(re.findall(r"`([a-z_]+\.py)\b", PAGES["README.md"] + PAGES["docs/measured.md"]))
    assert named
    assert [name for name in named if not (ROOT / "benchmarks" / name).exists()] == []
