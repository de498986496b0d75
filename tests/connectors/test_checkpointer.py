"""Checkpoints that fail, and those that are not needed."""

import errno
import itertools
import os
import stat

import numpy as np
import pytest

from streamclust import StreamClusterer
from streamclust.checkpoint import CheckpointError, Checkpoints, read
from streamclust_connectors.interfaces import Assigned, Output, Revoked
from streamclust_connectors.service import Policy, Service
from streamclust_connectors.sinks import LinesSink, ListSink
from streamclust_connectors.sources import MemorySource
from streamclust_connectors.state_directory import StateDirectory
from tests.connectors.cluster import events
from tests.connectors.test_service import (
    EAGER,
    OPTIONS,
    Crash,
    Crashing,
    N,
    P,
    Q,
    bits,
    plain,
    serve,
)


class Scarce(StateDirectory):
    """A directory on a disk that is full whenever `full` says so."""

    def __init__(self, directory, full=lambda: True, **options):
        super().__init__(directory, **options)
        self.full = full
        self.refused = 0

    def save(self, state):
        self._check("checkpoint")
        return super().save(state)

    def hand_over(self, partition, place, summary):
        self._check("partition")
        super().hand_over(partition, place, summary)

    def _check(self, name):
        if self.full():
            self.refused += 1
            raise OSError(errno.ENOSPC, "No space left on device", str(self.directory / name))


# -------------------------------------------------------------------- failures


@pytest.mark.parametrize("exactly_once", [True, False])
def test_checkpoints_that_fail_break_nothing(tmp_path, exactly_once):
    """Crashes with checkpoints that lie far back: each event is learnt once, and told once where that is promised."""
    values, rows = events(N)
    rng = np.random.default_rng(5)
    sink, lives, refused = Crashing(0, False, exactly_once=exactly_once), 0, 0
    while True:
        sink.after, sink.before = int(rng.integers(8, 16)), bool(rng.integers(2))
        store = Scarce(tmp_path, lambda: rng.random() < 0.6)
        source = MemorySource({P: values}, size=int(rng.integers(N // 30, N // 12)))
        # A second passes whenever the service looks at its clock: it tries a checkpoint at each turn on any machine.
        ticks = itertools.count()
        policy = Policy(checkpoint_every=0.0, backoff=0.001, longest_backoff=1000.0)
        options = {"policy": policy, "clock": lambda ticks=ticks: next(ticks), "sleep": lambda seconds: None}
        service = Service(source, sink, StreamClusterer(**OPTIONS), store, **options)
        lives += 1
        try:
            service.run()
            break
        except Crash:
            store.close()
        finally:
            refused += store.refused
            assert service.stats.checkpoint_failures == store.refused
    assert lives > 1
    assert refused > lives
    assert bits(service.clusterer) == bits(plain(rows))
    ids = [one["id"] for one in sink.values("assignments")]
    assert set(ids) == {f"in-0-{i}" for i in range(N)}
    assert len(ids) == N or not exactly_once
    assert source.committed == ({} if exactly_once else {P: N})


def test_the_source_is_told_nothing_that_is_not_saved(tmp_path, caplog):
    source = MemorySource({P: events(200)[0]}, size=20, endless=True)
    service = Service(source, ListSink(), StreamClusterer(**OPTIONS), Scarce(tmp_path), policy=EAGER)
    for _ in range(15):
        service.run_once()
    assert service.stats.events == 200
    assert source.committed == {}
    assert service.stats.checkpoint_error == f"{tmp_path}/checkpoint: No space left on device"
    assert "this process has written none" in caplog.text
    assert service.stats.ready


def test_a_service_that_stops_without_a_checkpoint_says_so(tmp_path, caplog):
    source = MemorySource({P: events(50)[0]})
    policy = Policy(backoff=0.001, longest_backoff=0.05)
    with pytest.raises(OSError, match="No space left") as error:
        serve(source, store=(store := Scarce(tmp_path)), policy=policy)
    assert error.value.filename == str(tmp_path / "checkpoint")
    assert "stopping without a final checkpoint: no checkpoint can be written" in caplog.text
    assert source.closed
    assert store.refused > 1


def test_the_last_checkpoint_is_tried_more_than_once(tmp_path):
    left = [True] * 3
    store = Scarce(tmp_path, lambda: bool(left) and left.pop())
    service = serve(MemorySource({P: events(50)[0]}), store=store, policy=Policy(backoff=0.001))
    assert service.stats.checkpoint_failures == 3
    assert Checkpoints(tmp_path / "0").latest().values["n_seen"] == 50


def test_a_partition_that_cannot_be_handed_over_is_not_lost(tmp_path):
    """Whoever takes it over goes on from the last checkpoint that has it, and that one stays the latest until then."""
    (a, _), (b, rows_b) = events(N, 1), events(N, 2)
    full = [False]
    store = Scarce(tmp_path, lambda: full[0])
    half = {P: a[: N // 2], Q: b[: N // 2]}
    source = MemorySource(half, size=50, endless=True)
    service = Service(source, ListSink(), StreamClusterer(**OPTIONS), store, policy=EAGER)
    while service.stats.events < N // 2:
        service.run_once()
    full[0] = True
    while any(source.lag().values()):
        service.run_once()
    source.script.append(Revoked((Q,)))
    for _ in range(3):
        service.run_once()
    assert service.clusterer.shards.names == (P,)
    other = serve(MemorySource({Q: b}), store=StateDirectory(tmp_path))
    assert other.stats.events < N  # it began with what the first has left
    total = other.clusterer.shards.tree(Q).total
    assert total.weight[0] == N
    assert np.allclose(total.mean[0], rows_b.mean(axis=0))
    full[0] = False
    service.stop()
    service.run()
    assert service.clusterer.shards.names == (P,)
    assert Checkpoints(tmp_path / "0").latest().values["n_seen"] == service.clusterer.n_seen
    other.partitions.store.close()
    assert StateDirectory(tmp_path, slot=7).find(Q)[0].offset == N


def test_a_partition_that_comes_back_before_it_was_handed_over(tmp_path):
    values, rows = events(N)
    full = [False]
    store = Scarce(tmp_path, lambda: full[0])
    source = MemorySource({P: values}, size=100, endless=True)
    service = Service(source, ListSink(), StreamClusterer(**OPTIONS), store, policy=EAGER)
    while service.stats.events < N // 2:
        service.run_once()
    full[0] = True
    source.script.extend([None, Revoked((P,)), Assigned((P,))])
    while source.script or service.stats.events < N:
        service.run_once()
    full[0] = False
    service.stop()
    service.run()
    assert service.stats.events == N  # nothing was learnt again
    assert service.clusterer.n_seen == N
    total = service.clusterer.shards.tree(P).total
    assert np.allclose(total.mean[0], rows.mean(axis=0))


def test_without_file_handles_nothing_is_taken_for_missing(tmp_path, monkeypatch):
    """A state that cannot be opened for now is not a state that is damaged, or none."""
    values, _ = events(100)
    serve(MemorySource({P: values[:60]}), store=StateDirectory(tmp_path)).partitions.store.close()
    store = StateDirectory(tmp_path)
    left, listed = [1, 2, 3], Checkpoints.files

    def few(self):
        if left:
            raise OSError(errno.EMFILE, "Too many open files", str(left.pop()))
        return listed(self)

    monkeypatch.setattr(Checkpoints, "files", few)
    service = serve(MemorySource({P: values}), store=store, policy=EAGER)
    assert not left
    assert (service.stats.retries, service.stats.events) == (3, 40)
    assert service.clusterer.n_seen == 100


def test_files_of_others_in_the_state_directory_change_nothing(tmp_path):
    values, _ = events(100)
    (tmp_path / "0").mkdir()
    foreign = [
        tmp_path / name for name in ("0/backup.checkpoint", "0/notes.part", "backup.checkpoint", "7", "²")
    ]
    for path in foreign:
        path.write_bytes(b"mine")
    serve(MemorySource({P: values[:60]}), store=StateDirectory(tmp_path)).partitions.store.close()
    service = serve(MemorySource({P: values}), store=StateDirectory(tmp_path), policy=EAGER)
    assert (service.stats.events, service.clusterer.n_seen) == (40, 100)
    assert [path.read_bytes() for path in foreign] == [b"mine"] * len(foreign)


def test_a_file_that_cannot_be_opened_for_now(tmp_path, monkeypatch):
    path = Checkpoints(tmp_path).save(StreamClusterer().to_state())

    def fails(number):
        def read_bytes(_):
            raise OSError(number, "no", "x")

        return read_bytes

    monkeypatch.setattr(type(path), "read_bytes", fails(errno.EMFILE))
    with pytest.raises(OSError, match="no"):
        Checkpoints(tmp_path).latest()
    monkeypatch.setattr(type(path), "read_bytes", fails(errno.EIO))
    with pytest.raises(CheckpointError, match="cannot be read"):
        read(path)


def test_outputs_for_which_there_is_no_room_name_their_file():
    sink = LinesSink("/dev/full")
    sink.emit("assignments", [Output(b'{"id": "a"}')])
    with pytest.raises(OSError, match="No space left") as error:
        sink.commit({})
    assert error.value.filename == "/dev/full"
    with pytest.raises(OSError, match="No space left"):
        sink.close()
    assert sink._file.closed


# -------------------------------------------------------------------- nothing new


def test_an_idle_service_writes_nothing(tmp_path):
    source = MemorySource({P: events(100)[0]}, size=50, endless=True)
    service = Service(source, ListSink(), StreamClusterer(**OPTIONS), StateDirectory(tmp_path), policy=EAGER)
    for _ in range(10):
        service.run_once()
    written = service.stats.checkpoints
    files = [(path.name, path.stat().st_mtime_ns) for path in Checkpoints(tmp_path / "0").files()]
    age = service.stats.last_checkpoint
    for _ in range(10):
        service.run_once()
    assert service.stats.checkpoints == written
    assert [(p.name, p.stat().st_mtime_ns) for p in Checkpoints(tmp_path / "0").files()] == files
    assert service.stats.last_checkpoint > age  # everything is saved, as of now
    service.partitions.store.close()
    again = serve(MemorySource({P: events(100)[0]}), store=StateDirectory(tmp_path), policy=EAGER)
    assert again.stats.checkpoints == 0


@pytest.mark.parametrize("record", [b"oops", None, b'{"x0": 1, "x1": 2}'])
def test_whatever_is_read_brings_a_checkpoint(tmp_path, record):
    """So that a restart does not read it again."""
    serve(MemorySource({P: events(10)[0]}), store=StateDirectory(tmp_path)).partitions.store.close()
    values = [*events(10)[0], record]
    again = serve(MemorySource({P: values}), store=StateDirectory(tmp_path))
    assert again.stats.checkpoints == 1
    again.partitions.store.close()
    assert serve(MemorySource({P: values}), store=StateDirectory(tmp_path)).stats.messages == 0


def test_the_lock_of_a_slot_can_be_opened_by_its_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        state = StateDirectory(tmp_path)
    finally:
        os.umask(before)
    try:
        assert stat.S_IMODE((tmp_path / "0" / "lock").stat().st_mode) == 0o600
    finally:
        state.close()
