"""Files to read, and two ways of running a command: in this process, and as a user would."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from streamclust_connectors.cli import app

COMMAND = Path(sys.executable).with_name("streamclust")
N, CENTRES = 600, np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]])


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch):
    for name in [name for name in os.environ if name.startswith("STREAMCLUST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def invoke():
    """Run a command in this process."""

    def run(*arguments, code=0):
        done = CliRunner().invoke(app, [str(a) for a in arguments], prog_name="streamclust")
        assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
        return done

    return run


@pytest.fixture
def command(tmp_path):
    """Run a command in a process of its own."""

    def run(*arguments, code=0, **options):
        done = subprocess.run(
            [COMMAND, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            **options,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run


@pytest.fixture(scope="session")
def points():
    """Three clusters, and which event is of which."""
    rng = np.random.default_rng(7)
    labels = rng.integers(3, size=N)
    return (CENTRES[labels] + rng.normal(size=(N, 2))).round(6), labels


@pytest.fixture
def files(tmp_path, points):
    """The same events as CSV, as JSON lines (nested, with two bad lines), as Parquet."""
    rows, _ = points
    with (tmp_path / "events.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["name", "x", "y"])
        table.writerows([f"event {i}", *row] for i, row in enumerate(rows.tolist()))
    with (tmp_path / "events.jsonl").open("w") as file:
        for i, (x, y) in enumerate(rows.tolist()):
            file.write(json.dumps({"id": i, "payload": {"vector": {"x": x, "y": y}}}) + "\n")
        file.write('{"id": 1, "payl\n{"id": 2, "payload": {"vector": {"x": "east", "y": ""}}}\n')
    return tmp_path
