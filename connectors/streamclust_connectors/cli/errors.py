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

from streamclust_connectors.extras import install_hint


class ExitCode(IntEnum):
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


EXIT_CODE_MEANINGS = {
    ExitCode.OK: "success",
    ExitCode.FAILURE: "failure",
    ExitCode.USAGE: "wrong usage or settings",
    ExitCode.BAD_DATA: "invalid file, checkpoint or events",
    ExitCode.DATA_LOSS: "records were deleted from the source before they were learnt",
    ExitCode.UNREACHABLE: "the broker cannot be reached",
    ExitCode.FENCED: "another process uses the same transactional or group instance id",
    ExitCode.IN_USE: "another process uses the state directory",
    ExitCode.INTERRUPTED: "interrupted",
}

EXIT_CODES = {
    "ConfigError": ExitCode.USAGE,
    "BadData": ExitCode.BAD_DATA,
    "CheckpointError": ExitCode.BAD_DATA,
    "DataLoss": ExitCode.DATA_LOSS,
    "MissingCodec": ExitCode.USAGE,
    "UnfitSchema": ExitCode.USAGE,
    "UnfitTopic": ExitCode.USAGE,
    "Transient": ExitCode.UNREACHABLE,
    "Fenced": ExitCode.FENCED,
    "StateInUse": ExitCode.IN_USE,
    "KafkaError": ExitCode.UNREACHABLE,
    "TimeoutError": ExitCode.UNREACHABLE,
}
"""Exit code by the name of an exception class or of a base class: importing them all would take a second."""


class BadData(Exception):  # noqa: N818
    """Invalid input; the message says why."""


class CommandGroup(TyperGroup):
    """Command group that turns exceptions into one-line messages."""

    def invoke(self, *args: Any, **options: Any) -> object:
        """Run a command."""
        with errors_as_messages():
            return super().invoke(*args, **options)


@contextmanager
def errors_as_messages() -> Iterator[None]:
    """Turn exceptions into a one-line message and an exit code; with STREAMCLUST_DEBUG=1 they keep their tracebacks."""
    try:
        yield
    except (SystemExit, typer.Exit, typer.Abort):
        raise
    except BrokenPipeError:  # the reader of the output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(ExitCode.FAILURE) from None
    except KeyboardInterrupt:
        fail("interrupted", ExitCode.INTERRUPTED)
    except Exception as error:
        names = [kind.__name__ for kind in type(error).__mro__]
        if "ClickException" in names or os.environ.get("STREAMCLUST_DEBUG") == "1":
            raise
        code = next((EXIT_CODES[name] for name in names if name in EXIT_CODES), ExitCode.FAILURE)
        fail(error_message(error), code)


def error_message(error: Exception) -> str:
    """The message for an exception.

    >>> error_message(FileNotFoundError(2, "No such file or directory", "x.csv"))
    'x.csv: No such file or directory'
    """
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, ImportError) and (advice := install_hint(error)):
        return advice
    text = str(error)
    ours = isinstance(error, (ValueError, ImportError, BadData)) or type(error).__module__.startswith(
        "streamclust"
    )
    return text if ours and text else f"{type(error).__name__}: {text}"


def fail(message: str, code: ExitCode = ExitCode.FAILURE) -> Never:
    """Print an error and exit with a code."""
    typer.secho("error: ", fg="red", err=True, nl=False)
    typer.echo(message, err=True)
    raise typer.Exit(code)
