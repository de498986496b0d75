"""Helm, as it is on the path, or built by Go once into the user's cache."""

import fcntl
import os
import shutil
import subprocess

from tests.jars import Missing, cache_directory

VERSION = "v3.17.3"


def find_helm():
    """Path of Helm's program."""
    if found := shutil.which("helm"):
        return found
    cache = cache_directory()
    where = cache / f"helm-{VERSION[1:]}"
    with (cache / "helm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (where / "helm").exists():
            if not shutil.which("go"):
                raise Missing("helm, nor go to build it")
            command = ["go", "install", f"helm.sh/helm/v3/cmd/helm@{VERSION}"]
            environment = os.environ | {"GOBIN": str(where)}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise Missing(f"helm: go said {done.stderr[-300:]}")
    return str(where / "helm")
