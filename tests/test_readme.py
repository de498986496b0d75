"""The README is true: its Python runs, its commands exist, its links lead somewhere, its table of papers points at
functions that are there and say where they come from."""

import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from streamclust_connectors.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
TABLE = README.partition("| paper | equation | file | function |\n")[2].partition("\n\n")[0]
ROWS = re.findall(r"^\| (.+?) \| (.+?) \| `(.+?\.py)` \| `(.+?)` \|$", TABLE, flags=re.MULTILINE)
FENCES = re.findall(r"^```(\w*)\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
COMMANDS = [line for language, text in FENCES if language != "python" for line in text.splitlines()]
PAPERS = {"Bayesian k-means", "Chunky greedy EM", "MAD-Bayes", "Relaxed BHC"}


@pytest.mark.compiled
def test_python_of_the_readme_runs(tmp_path):
    """In the order it stands there, in a process and a directory of its own; warnings are errors."""
    blocks = [text for language, text in FENCES if language == "python"]
    assert blocks
    script = tmp_path / "readme.py"
    script.write_text("\n".join(blocks))
    environment = os.environ | {"MPLBACKEND": "Agg", "PYTHONWARNINGS": "error::UserWarning"}
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


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


# -------------------------------------------------------------------- commands, links, files


def test_commands_of_the_readme_exist():
    known = get_command(app)
    used = [re.split(r"\s+#|\s{2,}", line)[0].split() for line in COMMANDS if line.startswith("streamclust ")]
    assert used
    for _, name, *rest in used:
        assert name in known.commands, name
        command = known.commands[name]
        if hasattr(command, "commands") and rest:
            assert rest[0] in command.commands, f"{name} {rest[0]}"
            command = command.commands[rest[0]]
        options = {option for parameter in command.params for option in parameter.opts}
        given = {word.partition("=")[0] for word in rest if word.startswith("-") and word != "-"}
        assert given <= options | {"--help"}, f"{name} has no {given - options}"


def test_make_targets_of_the_readme_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    used = {words[1] for line in COMMANDS if len(words := line.split()) > 1 and words[0] == "make"}
    used |= set(re.findall(r"`make ([a-z]+)", README))
    assert {"demo", "test"} <= used <= targets


def test_links_lead_somewhere():
    anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings()}
    links = re.findall(r"\]\(([^)\s]+)\)", README)
    for link in links:
        path, _, anchor = link.partition("#")
        assert link.startswith("https://") or not path or (ROOT / path).exists(), link
        assert not anchor or path or anchor in anchors, link


def headings():
    prose = re.sub(r"^```.*?^```", "", README, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"^#+ (.+)$", prose, flags=re.MULTILINE)


def test_files_that_are_named_exist():
    named = re.findall(r"\b((?:examples|benchmarks|docker|streamclust|tests)/[\w./-]+\.\w+)", README)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
