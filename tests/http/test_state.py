"""The state directory of a service: one process at a time, disks that are full, file handles that run out."""

import os
import resource
import shutil
import signal
import subprocess
from contextlib import contextmanager, suppress

import pytest

from streamclust_connectors.cli.errors import ExitCode
from streamclust_connectors.interfaces import StateInUse
from streamclust_connectors.state_directory import StateDirectory
from tests.http.conftest import objects, points, problem, until
from tests.http.processes import launched, ready
from tests.http.test_command import kept

SERVE = ("serve", "--http", "0", "--state", "state", "--set", "engine.warmup=50")


# -------------------------------------------------------------------- one process at a time


def test_a_second_service_waits_for_the_first_and_goes_on_from_its_state(tmp_path):
    rows = points(300)
    with (
        launched(tmp_path, *SERVE, name="first") as first,
        first.client() as client,
        launched(tmp_path, *SERVE, name="second") as second,
    ):
        client.post("/v1/learn", json=objects(rows[:200])).raise_for_status()
        assert second.until_said("in use by another process")["level"] == "warning"
        assert not second.said("listening")
        client.post("/v1/learn", json=objects(rows[200:])).raise_for_status()
        clusters = client.get("/v1/clusters").json()["clusters"]
        first.process.send_signal(signal.SIGTERM)
        assert first.process.wait(180) == 0
        with second.client() as client:
            assert client.get("/v1/status").json()["events"] == 300
            found = client.get("/v1/clusters").json()["clusters"]
            assert [(c["id"], c["weight"]) for c in found] == [(c["id"], c["weight"]) for c in clusters]
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(180) == 0
    assert [folder.name for folder in (tmp_path / "state").iterdir()] == ["0"]


def test_it_waits_no_longer_than_told_and_says_why_it_ends(tmp_path):
    with (
        launched(tmp_path, *SERVE, name="first") as first,
        first.client() as client,
        launched(tmp_path, *SERVE, "--set", "checkpoint.wait_seconds=0.2", name="second") as second,
    ):
        assert second.process.wait(180) == ExitCode.IN_USE
        last = second.log.read_text().splitlines()[-1]
        assert last.startswith("error: state is in use by another process")
        assert "checkpoint.wait_seconds" in last
        client.post("/v1/learn", json={"x": 1}).raise_for_status()
    assert [folder.name for folder in (tmp_path / "state").iterdir()] == ["0"]


def test_a_service_that_waits_can_be_stopped(tmp_path):
    taken = StateDirectory(tmp_path / "state", slot=0)
    with launched(tmp_path, *SERVE) as waiting:
        waiting.until_said("in use by another process")
        waiting.process.send_signal(signal.SIGTERM)
        assert waiting.process.wait(180) == 0
    taken.close()


def test_members_of_a_group_have_places_of_their_own(tmp_path):
    first, second = StateDirectory(tmp_path), StateDirectory(tmp_path)
    assert (first.slot, second.slot) == (0, 1)
    with pytest.raises(StateInUse, match=r"within 0 s; stop that process"):
        StateDirectory(tmp_path, slot=1)
    second.close()
    assert StateDirectory(tmp_path, slot=1).slot == 1


def test_what_a_killed_process_was_writing_does_not_stay(tmp_path):
    StateDirectory(tmp_path).close()
    (tmp_path / "0" / "000000000001.checkpointabc.part").write_bytes(b"half")
    StateDirectory(tmp_path).close()
    assert [path.name for path in (tmp_path / "0").iterdir()] == ["lock"]


# -------------------------------------------------------------------- checkpoints that cannot be written


@contextmanager
def limited(pid, kind, most):
    """Lower a limit of a running process."""
    before = resource.prlimit(pid, kind)
    resource.prlimit(pid, kind, (most, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, kind, before)


@contextmanager
def filled(folder):
    """Leave no room on the disk that holds a folder."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"o" * 4096):
            pass
    try:
        yield
    finally:
        filler.unlink()


@pytest.fixture
def small_disk(tmp_path):
    """A disk of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() or mount is None:
        pytest.skip("only root can mount a small disk; the limits below stand in for it")
    done = subprocess.run([mount, "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=False)
    if done.returncode:
        pytest.skip("no disk can be mounted here; the limits below stand in for it")
    yield folder
    subprocess.run(["umount", folder], check=True)


def goes_on_without_checkpoints(folder, state, scarcity, reason):
    """Serve, run out of something, serve on, have it again, and end in order."""
    rows = points(400)
    arguments = ("serve", "--http", "0", "--state", state, "--set", "checkpoint.every_seconds=0.1")
    with launched(folder, *arguments) as found, found.client() as client:
        client.post("/v1/learn", json=objects(rows[:200])).raise_for_status()
        client.get("/metrics").raise_for_status()
        until(lambda: kept(state) == 200)
        with scarcity(found.process.pid):
            client.post("/v1/learn", json=objects(rows[200:300])).raise_for_status()
            until(lambda: not ready(client))
            told = problem(client.get("/readyz"), 503)["detail"]
            assert reason in told
            assert str(state / "0") in told
            assert "s old" in told
            client.post("/v1/learn", json=objects(rows[300:])).raise_for_status()
            assert client.get("/v1/status").json()["events"] == 400
            assert client.get("/livez").status_code == 200
            failures = figure(client, "streamclust_checkpoint_failures_total")
            assert failures > 0
            until(lambda: figure(client, "streamclust_checkpoint_failures_total") > failures)
            assert figure(client, "streamclust_checkpoint_age_seconds") > 0
            assert kept(state) == 200
        until(lambda: ready(client))
        assert kept(state) == 400
        assert reason in found.said("no checkpoint can be written")[0]["message"]
        assert found.said("can be written again")
        found.process.send_signal(signal.SIGTERM)
        assert found.process.wait(180) == 0
    assert not list(state.rglob("*.part"))


def figure(client, name):
    """A metric."""
    lines = client.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith(name)).split()[-1])


def test_a_full_disk(tmp_path, small_disk):
    def full(_):
        return filled(small_disk)

    goes_on_without_checkpoints(tmp_path, small_disk / "state", full, "No space left on device")


def test_files_that_may_not_grow(tmp_path):
    def full(pid):
        return limited(pid, resource.RLIMIT_FSIZE, 30_000)  # the log fits, a checkpoint does not

    goes_on_without_checkpoints(tmp_path, tmp_path / "state", full, "File too large")


def test_no_file_handles(tmp_path):
    def few(pid):
        return limited(pid, resource.RLIMIT_NOFILE, 3)

    goes_on_without_checkpoints(tmp_path, tmp_path / "state", few, "Too many open files")
