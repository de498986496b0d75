"""Java archives that tests need, fetched by Maven once into the user's cache."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path


class Missing(Exception):  # noqa: N818
    """What this machine lacks."""


def cache_directory():
    """Where what was fetched is kept."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "streamclust"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def unpacked(artifact, name):
    """The directory of an archive of Maven Central, unpacked."""
    if not (shutil.which("java") and shutil.which("mvn")):
        raise Missing("java and mvn (openjdk 17 or newer, maven)")
    cache = cache_directory()
    where = cache / name
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not where.exists():
            part = Path(tempfile.mkdtemp(dir=cache))
            goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
            command = ["mvn", "-q", "-B", goal, f"-Dartifact={artifact}", f"-DoutputDirectory={part}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=part)
            if done.returncode:
                shutil.rmtree(part)
                raise Missing(f"{artifact}: maven said {done.stdout[-300:]}{done.stderr[-300:]}")
            (archive,) = part.iterdir()
            shutil.unpack_archive(archive, part / "content")
            archive.unlink()
            (part / "content").rename(where)
            part.rmdir()
    return where


def fetched(pom, name):
    """The directory of all that a pom asks for; its first version that begins with 4 is part of the name."""
    if not (shutil.which("java") and shutil.which("mvn")):
        raise Missing("java and mvn (openjdk 17 or newer, maven)")
    cache = cache_directory()
    version = next(line.strip()[9:-10] for line in pom.read_text().splitlines() if "<version>4" in line)
    where = cache / f"{name}-{version}"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not where.exists():
            part = Path(tempfile.mkdtemp(dir=cache))
            command = [
                "mvn",
                "-q",
                "-B",
                "-f",
                pom,
                "dependency:copy-dependencies",
                f"-DoutputDirectory={part}",
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                shutil.rmtree(part)
                raise Missing(f"the jars of {name}: maven said {done.stdout[-300:]}{done.stderr[-300:]}")
            part.rename(where)
    return where
