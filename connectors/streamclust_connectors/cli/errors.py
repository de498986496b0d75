"""Exit codes, and exceptions as one-line messages on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, Never

import typer
from typer.core import TyperGroup

from streamclust_connectors.extras import cure


class Code(IntEnum):
    """Exit codes."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    BAD_DATA = 3
    DATA_LOSS = 4
    UNREACHABLE = 5
    FENCED = 6
    IN_USE = 7
    INTERRUPTED = 130


MEANING = {
    Code.OK: "all went well",
    Code.FAILURE: "something failed",
    Code.USAGE: "wrong usage or settings",
    Code.BAD_DATA: "a file, a checkpoint or its events cannot be used",
    Code.DATA_LOSS: "the source no longer has events that were not yet learnt",
    Code.UNREACHABLE: "the broker cannot be reached",
    Code.FENCED: "another process has taken this one's place",
    Code.IN_USE: "another process uses the state directory",
    Code.INTERRUPTED: "interrupted",
}

CODES = {
    "ConfigError": Code.USAGE,
    "BadData": Code.BAD_DATA,
    "CheckpointError": Code.BAD_DATA,
    "DataLoss": Code.DATA_LOSS,
    "UnfitTopic": Code.USAGE,
    "Transient": Code.UNREACHABLE,
    "Fenced": Code.FENCED,
    "StateInUse": Code.IN_USE,
    "KafkaError": Code.UNREACHABLE,
    "TimeoutError": Code.UNREACHABLE,
}
"""Exit code by the name of an exception class or of a base class: importing them all would take a second."""


class BadData(Exception):  # noqa: N818
    """Input that cannot be used, with the reason."""


class Commands(TyperGroup):
    """Command group that turns exceptions into one-line messages."""

    def invoke(self, *args: Any, **options: Any) -> object:
        """Run a command."""
        with sentences():
            return super().invoke(*args, **options)


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
    """The message for an exception.

    >>> sentence(FileNotFoundError(2, "No such file or directory", "x.csv"))
    'x.csv: No such file or directory'
    """
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, ImportError) and (advice := cure(error)):
        return advice
    said = str(error)
    ours = isinstance(error, (ValueError, ImportError, BadData)) or type(error).__module__.startswith(
        "streamclust"
    )
    return said if ours and said else f"{type(error).__name__}: {said}"


def fail(message: str, code: Code = Code.FAILURE) -> Never:
    """Print an error and exit with a code."""
    typer.secho("error: ", fg="red", err=True, nl=False)
    typer.echo(message, err=True)
    raise typer.Exit(code)
