"""Spark sessions, with a clear error if Java is missing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession


class NoJava(RuntimeError):  # noqa: N818
    """Java, which Spark needs, was not found."""


def find_java() -> str:
    """Path of the Java that Spark will use; NoJava if there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if found is None:
        where = f"in JAVA_HOME, which is {home}" if home else "on the path"
        raise NoJava(
            f"Spark needs Java 17 or newer, but none was found {where}; install it (openjdk-17-jre-headless on "
            "Debian), or set JAVA_HOME to its directory"
        )
    return found


def session(
    master: str | None = None, name: str = "streamclust", options: Mapping[str, str] | None = None
) -> SparkSession:
    """The active session, or a new one whose Python workers use this interpreter."""
    find_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers run `python3`
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in (options or {}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
