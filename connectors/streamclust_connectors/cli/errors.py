"""How a command ends: with 0, or with a sentence on standard error and a code that says what kind of failure it was."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, Never

import typer
from typer.core import TyperGroup


class Code(IntEnum):
    """Exit codes."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    BAD_DATA = 3
    DATA_LOSS = 4
    UNREACHABLE = 5
    FENCED = 6
    INTERRUPTED = 130


MEANING = {
    Code.OK: "all went well",
    Code.FAILURE: "something failed",
    Code.USAGE: "wrong usage or settings",
    Code.BAD_DATA: "a file, a checkpoint or its events cannot be used",
    Code.DATA_LOSS: "the source no longer has events that were not yet learnt",
    Code.UNREACHABLE: "the broker cannot be reached",
    Code.FENCED: "another process has taken this one's place",
    Code.INTERRUPTED: "interrupted",
}

CODES = {
    "ConfigError": Code.USAGE,
    "BadData": Code.BAD_DATA,
    "CheckpointError": Code.BAD_DATA,
    "DataLoss": Code.DATA_LOSS,
    "Transient": Code.UNREACHABLE,
    "Fenced": Code.FENCED,
    "KafkaError": Code.UNREACHABLE,
    "TimeoutError": Code.UNREACHABLE,
}
"""By the name of an exception's class or of one it derives from: to import them all would take a second."""


class BadData(Exception):  # noqa: N818
    """What was given cannot be used, and why."""


class Commands(TyperGroup):
    """The commands, whose failures are told in a sentence."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        """Run a command."""
        with sentences():
            return super().invoke(ctx)


@contextmanager
def sentences() -> Iterator[None]:
    """Turn exceptions into a sentence and a code; STREAMCLUST_DEBUG=1 lets them through with their tracebacks."""
    try:
        yield
    except (SystemExit, typer.Exit, typer.Abort):
        raise
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(Code.FAILURE) from None
    except KeyboardInterrupt:
        fail("interrupted", Code.INTERRUPTED)
    except Exception as error:
        names = [kind.__name__ for kind in type(error).__mro__]
        if "ClickException" in names or os.environ.get("STREAMCLUST_DEBUG") == "1":
            raise
        code = next((CODES[name] for name in names if name in CODES), Code.FAILURE)
        fail(sentence(error), code)


def sentence(error: Exception) -> str:
    """What to say of an exception.

    >>> sentence(FileNotFoundError(2, "No such file or directory", "x.csv"))
    'x.csv: No such file or directory'
    """
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    said = str(error)
    ours = isinstance(error, (ValueError, ImportError, BadData)) or type(error).__module__.startswith(
        "streamclust"
    )
    return said if ours and said else f"{type(error).__name__}: {said}"


def fail(message: str, code: Code = Code.FAILURE) -> Never:
    """Say why, and end."""
    typer.secho("error: ", fg="red", err=True, nl=False)
    typer.echo(message, err=True)
    raise typer.Exit(code)
