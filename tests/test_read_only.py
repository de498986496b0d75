"""A package that nobody can write to, and a user without a home: every hardened container."""

import ctypes
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import streamclust

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1  # of Linux
USE = """
import numpy as np
from streamclust._kernels.check import all_within
assert all_within(np.ones(3), 1.0) and not all_within(np.ones(3), 0.5)
"""


def obey_permissions():
    """Take from root, in the child, what lets it write where permissions forbid it."""
    if os.getuid() == 0 and ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0):
        raise OSError("permissions cannot be enforced on root here")


def read_only_copy(place):
    """The kernels without their caches, in directories that cannot be written."""
    source = Path(streamclust.__file__).parent
    kernels = place / "site" / "streamclust" / "_kernels"
    shutil.copytree(source / "_kernels", kernels, ignore=shutil.ignore_patterns("__pycache__"))
    (kernels.parent / "__init__.py").touch()
    for directory in (kernels, kernels.parent, kernels.parent.parent):
        directory.chmod(0o555)
    return place / "site"


def run(place, temporary):
    """Use a kernel, as a user who cannot write to the copy."""
    site = read_only_copy(place)
    home = place / "home"
    home.mkdir(mode=0o555)
    wanted = {"PYTHONPATH": str(site), "TMPDIR": str(temporary), "HOME": str(home)}
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_CACHE", "XDG_", "HOME", "COV_"))}
    try:
        return subprocess.run(
            [sys.executable, "-c", USE], env=kept | wanted, cwd="/", capture_output=True, text=True, check=False,
            preexec_fn=obey_permissions,
        )  # fmt: skip
    finally:
        for directory in (site, *site.rglob("*")):
            if directory.is_dir():
                directory.chmod(0o755)


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="takes a right from root as Linux does")


def test_kernels_compile_where_nothing_beside_them_can_be_written(tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    done = run(tmp_path, temporary)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("NUMBA_CACHE_DIR") == 1
    if os.environ.get("NUMBA_DISABLE_JIT", "0") == "0":
        (kept,) = temporary.glob("streamclust-numba-*")
        assert list(kept.rglob("*.nbc"))
        assert stat.S_IMODE(kept.stat().st_mode) == 0o700


def test_no_compiled_code_is_taken_from_a_directory_that_others_can_write(tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    trap = temporary / f"streamclust-numba-{os.getuid()}"
    trap.mkdir()
    trap.chmod(0o777)
    done = run(tmp_path, temporary)
    assert done.returncode == 0, done.stderr
    assert "compiled anew at each start" in done.stderr
    assert not list(trap.iterdir())
