"""What a release needs is there and agrees: versions, requirements, the files of the sdist, workflows."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()


def test_the_conda_recipe_requires_what_the_project_requires():
    recipe = yaml.safe_load((ROOT / ".ci/conda/recipe.yaml").read_text())
    assert recipe["context"]["version"] == PROJECT["version"]
    wanted = {f"python {PROJECT['requires-python']}"}
    wanted |= {re.sub(r"(?=[<>=])", " ", line, count=1) for line in PROJECT["dependencies"]}
    assert set(recipe["requirements"]["run"]) == wanted
    (script,) = recipe["build"]["python"]["entry_points"]
    assert script == f"streamclust = {PROJECT['scripts']['streamclust']}"


def test_workflows_call_scripts_that_are_there():
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        jobs = yaml.safe_load(path.read_text())["jobs"]
        commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
        assert commands
        for command in commands:
            script = ROOT / command.split()[0]
            assert os.access(script, os.X_OK), command


def test_every_python_that_is_named_gets_a_wheel():
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    named = [
        line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", line)
    ]
    assert jobs["wheels"]["strategy"]["matrix"]["python"] == named


@pytest.mark.compiled
def test_the_sdist_has_all_that_a_wheel_is_built_from(tmp_path):
    """Built in an environment of its own, and a wheel from it; `.ci/release` installs them, too."""
    files = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    copy = tmp_path / "source"
    for name in files:  # a clean checkout: nothing that lies about by chance gets into the build
        if name.startswith(("streamclust/", "connectors/")) or "/" not in name:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    run([sys.executable, "-m", "build", "--outdir", tmp_path / "dist", copy])
    (archive,) = (tmp_path / "dist").glob("*.tar.gz")
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    needed = {name for name in files if name.startswith(("streamclust/", "connectors/"))}
    assert needed <= names
    assert {"pyproject.toml", "README.md", "LICENSE"} <= names
    assert {name.removeprefix("connectors/") for name in needed} <= set(ZipFile(wheel).namelist())
    run([sys.executable, "-m", "twine", "check", "--strict", archive, wheel])


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
