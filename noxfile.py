"""Tests in environments of their own: every supported Python, and the oldest versions that the bounds allow.

`nox -s tests-3.13 -- tests/tree` runs a part of the tests on one Python, `nox -s oldest` what CI runs.
"""

from __future__ import annotations

import nox

nox.options.default_venv_backend = "uv"
nox.options.sessions = ["tests", "oldest"]

DEV = nox.project.load_toml("pyproject.toml")["project"]["optional-dependencies"]["dev"]
FRAMES = [requirement for requirement in DEV if requirement.startswith(("networkx", "pandas", "polars"))]
"""Libraries that the package works with and does not require; their oldest versions are tested too."""
TOOLS = ("httpx", "hypothesis", "pytest", "pytest-xdist")
SAMPLE = (
    "tests/schema/test_frames.py",
    "tests/test_plain_numba.py",
    "tests/test_settings.py",
    "tests/connectors/test_sources.py",
    "tests/connectors/test_table_reader.py",
    "tests/hierarchy/test_dendrogram.py",
    "tests/http/test_dashboard.py",
    "tests/plots/test_clusters.py",
)
"""Tests that use every dependency but Spark and a broker, and compile few kernels."""


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
def tests(session: nox.Session) -> None:
    """Run every test on a version of Python."""
    session.install("--editable", ".[dev]")
    session.run("python", "-m", "pytest", "-n", "auto", *session.posargs, env=kernel_cache(session))


@nox.session
def oldest(session: nox.Session) -> None:
    """Run a sample of the tests with the oldest versions of all direct dependencies, on the Python that runs nox."""
    session.install("--resolution", "lowest-direct", "--editable", ".[cli,http,kafka,plots]", *FRAMES)
    session.install(*TOOLS)
    ignored = (
        "ignore::DeprecationWarning"  # old versions use what newer ones of their own dependencies deprecate
    )
    quick = kernel_cache(session) | {"NUMBA_OPT": "1"}  # most of the time goes into compiling
    session.run("python", "-m", "pytest", "-W", ignored, *(session.posargs or SAMPLE), env=quick)


def kernel_cache(session: nox.Session) -> dict[str, str]:
    """Environment with a cache of compiled kernels per session: numba discards those of another version of it."""
    return {"NUMBA_CACHE_DIR": f"{session.virtualenv.location}/kernels"}
