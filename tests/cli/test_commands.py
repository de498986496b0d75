"""Help, completion, versions, settings shown, and how failures are told."""

import json
import logging
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from kafka.errors import KafkaError
from typer.testing import CliRunner

from streamclust_connectors import interfaces
from streamclust_connectors.cli import app, errors, logs, service_commands
from streamclust_connectors.cli.errors import EXIT_CODE_MEANINGS, EXIT_CODES, ExitCode
from streamclust_connectors.extras import EXTRAS
from tests.cli.conftest import COMMAND

PACKAGES = {
    "google": "protobuf",
    "grpc_tools": "grpcio-tools",
    "kafka": "kafka-python",
    "pydantic": "pydantic-settings",
    "snappy": "python-snappy",
    "starlette": "fastapi",
}
SECRET = "hunter2-and-more"
COMMANDS = [
    *(["run"], ["demo"], ["fit"], ["predict"], ["inspect"], ["produce"], ["health"], ["version"], ["warm"]),
    *(["webhooks"], ["archive"]),
    *(["snapshot", "ls"], ["snapshot", "show"], ["snapshot", "export"]),
    *(["dlq", "ls"], ["dlq", "replay"], ["config", "check"], ["config", "show"], ["config", "schemas"]),
]
HEAVY = {"numba", "numpy", "scipy", "river", "sklearn", "kafka", "pyarrow", "matplotlib", "pydantic_settings"}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_says_what_a_command_does_and_gives_an_example(words, invoke):
    text = invoke(*words, "--help").stdout
    assert f"Usage: streamclust {' '.join(words)}" in text
    assert f"streamclust {' '.join(words)}" in text.split("Examples:")[1]


def test_every_command_is_listed_with_every_exit_code(invoke):
    text = invoke("--help").stdout
    assert all(f" {words[0]} " in text for words in COMMANDS)
    assert all(f"{code.value}  {meaning}" in text for code, meaning in EXIT_CODE_MEANINGS.items())
    assert set(EXIT_CODE_MEANINGS) == set(ExitCode)


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["version"]])
def test_help_imports_nothing_heavy(arguments):
    script = (
        "import sys; from typer.testing import CliRunner; from streamclust_connectors.cli import app;"
        f"done = CliRunner().invoke(app, {arguments!r}); assert done.exit_code == 0; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.split())


def test_version(invoke, command):
    assert invoke("version").stdout == command("version").stdout
    assert "numba " in invoke("version", "--full").stdout


def test_the_version_is_an_option_too(invoke):
    assert invoke("--version").stdout == invoke("version").stdout


@pytest.mark.parametrize(
    ("absent", "extra", "arguments"),
    [
        ("typer", "cli", ["fit", "a.jsonl"]),
        ("rich", "cli", ["fit", "a.jsonl"]),
        ("msgspec", "cli", ["fit", "a.jsonl"]),
        ("pydantic_settings", "cli", ["fit", "a.jsonl"]),
        ("fastapi", "http", ["run", "--source", "synthetic", "--http", "8080"]),
        ("uvicorn", "http", ["demo", "--events", "1000"]),
        ("kafka", "kafka", ["run", "--topic", "events", "--state", "state"]),
        ("kafka", "kafka", ["dlq", "ls", "--topic", "events"]),
        ("pyspark", "spark", ["spark-summarize", "lake"]),
    ],
)
def test_without_its_extra_a_command_says_which_to_install(absent, extra, arguments, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n')
    script = (
        f"import sys; sys.modules[{absent!r}] = None; sys.argv[1:] = {arguments};"
        "from streamclust_connectors.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"pip install 'streamclust[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("extra", ["cli", "http", "kafka", "registry", "spark"])
def test_an_extra_brings_all_that_its_package_imports(extra):
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    brought = {re.split(r"[>=<\[]", part)[0] for part in project["optional-dependencies"][extra]}
    others = {
        module
        for modules in EXTRAS.values()
        for module in modules
        if PACKAGES.get(module, module.replace("_", "-")) not in brought
    }
    package = f"streamclust_connectors.{extra}{'.server' if extra == 'http' else ''}"
    script = f"import sys; sys.modules.update(dict.fromkeys({others})); import {package}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_extras_are_those_of_the_distribution():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for extra, modules in EXTRAS.items():
        brought = {re.split(r"[>=<\[]", part)[0] for part in project["optional-dependencies"][extra]}
        assert {PACKAGES.get(module, module.replace("_", "-")) for module in modules} <= brought


def test_the_shell_completes(tmp_path):
    variables = {"_STREAMCLUST_COMPLETE": "complete_bash", "COMP_WORDS": "streamclust sn", "COMP_CWORD": "1"}
    done = subprocess.run([COMMAND], env=os.environ | variables, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["snapshot"]


# -------------------------------------------------------------------- settings


def test_config_show_and_check(tmp_path, invoke, monkeypatch):
    monkeypatch.setenv("STREAMCLUST_KAFKA__SASL_PLAIN_PASSWORD", SECRET)
    monkeypatch.setenv("STREAMCLUST_KAFKA__TOPIC", "events")
    shown = invoke("config", "show", "--set", "checkpoint.directory=state")
    (tmp_path / "service.toml").write_text(shown.stdout)
    monkeypatch.delenv("STREAMCLUST_KAFKA__TOPIC")
    checked = invoke("config", "check", "--config", tmp_path / "service.toml")
    assert "from kafka to kafka" in checked.stdout
    as_json = invoke("config", "show", "--json", "--config", tmp_path / "service.toml")
    assert json.loads(as_json.stdout)["kafka"]["topic"] == "events"
    assert SECRET not in shown.output + checked.output + as_json.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["config", "check"], "no source of events is set"),
        (["config", "check", "--set", "source.kind=cvs"], "source.kind"),
        (["config", "check", "--set", "engine.max_leaves"], "is not of the form KEY=VALUE"),
        (["config", "check", "--set", "kafka=1", "--set", "kafka.topic=x"], "already has a value"),
        (["config", "show", "--config", "nowhere.toml"], "nowhere.toml cannot be read"),
        (["run", "--topic", "events"], "checkpoint.directory is not set"),
        (["run", "--input", "nowhere.csv"], "there is no file nowhere.csv"),
        (["fit", "nowhere.csv"], "does not exist"),
        (["dlq", "ls"], "input topic of the dead letters"),
        (["produce"], "the topic to write to"),
        (["nonsense"], "No such command"),
    ],
)
def test_wrong_usage_is_2(arguments, sentence, invoke):
    assert sentence in invoke(*arguments, code=2).output


# -------------------------------------------------------------------- failures


def test_a_checkpoint_that_is_none_is_3(tmp_path, invoke):
    path = tmp_path / "x.checkpoint"
    path.write_bytes(b"rubbish")
    (tmp_path / "e.jsonl").write_text('{"x": 1}\n')
    for arguments in (["inspect", path], ["predict", path, tmp_path / "e.jsonl"], ["snapshot", "show", path]):
        done = invoke(*arguments, code=3)
        assert "error: " in done.stderr
        assert "not a streamclust checkpoint" in done.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (interfaces.DataLoss("gone"), ExitCode.DATA_LOSS),
        (interfaces.Transient("down"), ExitCode.UNREACHABLE),
        (interfaces.Fenced("replaced"), ExitCode.FENCED),
        (interfaces.StateInUse("taken"), ExitCode.IN_USE),
        (errors.BadData("bad"), ExitCode.BAD_DATA),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
        (RuntimeError("whatever"), ExitCode.FAILURE),
        (OSError(28, "No space left on device"), ExitCode.FAILURE),
    ],
    ids=lambda value: getattr(value, "name", type(value).__name__),
)
def test_each_kind_of_failure_has_its_code_and_a_sentence(error, code, monkeypatch):
    def fails(settings):
        raise error

    monkeypatch.setattr(service_commands, "run_with_monitor", fails)
    monkeypatch.setattr(logs, "set_up_logging", lambda *_: None)
    done = CliRunner().invoke(app, ["run", "--source", "synthetic"])
    assert done.exit_code == code
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1


def test_every_name_with_a_code_is_an_exception():
    from streamclust.checkpoint import CheckpointError
    from streamclust_connectors.settings import ConfigError

    known = (
        CheckpointError,
        ConfigError,
        interfaces.DataLoss,
        interfaces.MissingCodec,
        interfaces.Transient,
        interfaces.Fenced,
        interfaces.StateInUse,
        interfaces.UnfitSchema,
        interfaces.UnfitTopic,
        errors.BadData,
        KafkaError,
    )
    assert {kind.__name__ for kind in (*known, TimeoutError)} == set(EXIT_CODES)


def test_whoever_debugs_gets_the_traceback(monkeypatch):
    monkeypatch.setattr(service_commands, "run_with_monitor", lambda settings: 1 / 0)
    monkeypatch.setattr(logs, "set_up_logging", lambda *_: None)
    monkeypatch.setenv("STREAMCLUST_DEBUG", "1")
    done = CliRunner().invoke(app, ["run", "--source", "synthetic"])
    assert isinstance(done.exception, ZeroDivisionError)


# -------------------------------------------------------------------- logs


def test_a_log_line_is_one_json_object_without_payloads():
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 1, "it %s", ("failed\nbadly",), sys.exc_info())
    record.value, record.partition = b"payload", ("events", 0)
    line = logs.JsonFormatter().format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert found["message"] == "it failed\nbadly"
    assert found["exception"] == "ValueError"
    assert found["value"] == "7 bytes"
    assert found["partition"] == ["events", 0]


def test_libraries_that_quote_payloads_are_kept_quiet(monkeypatch):
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        logs.set_up_logging("debug", "json")
        assert root.level == logging.DEBUG
        assert not logging.getLogger("kafka.protocol").isEnabledFor(logging.INFO)
    finally:
        logging.captureWarnings(False)
        root.handlers[:] = before
        root.setLevel(level)
        for name in logs.VERBOSE_LIBRARIES:
            logging.getLogger(name).setLevel(logging.NOTSET)
