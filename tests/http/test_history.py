"""Samples that thin out with age, the journal of lifecycle events, cached values, the fair lock."""

import threading
import time

import msgspec
import pytest

from streamclust import StreamClusterer
from streamclust.lineage import MAX_EVENTS, Change
from streamclust_connectors.http.backend import Backend
from streamclust_connectors.http.cached_value import CACHED_PER_COMPUTING, MIN_CACHED_SECONDS, CachedValue
from streamclust_connectors.http.history import MAX_SAMPLES, TREND_SECONDS, Journal, Sample, SampleHistory
from streamclust_connectors.service import Service
from streamclust_connectors.service.fair_lock import FairLock, LockTimeout
from streamclust_connectors.sinks import ListSink
from streamclust_connectors.sources import MemorySource
from streamclust_connectors.state_directory import StateDirectory
from tests.http.conftest import QUICK, objects, points


def sample(at, **shares):
    return Sample(at, 0, 0.0, None, 0, None, None, {int(k[1:]): v for k, v in shares.items()})


def test_older_samples_thin_out_and_the_latest_are_all_there():
    history = SampleHistory()
    for second in range(50 * MAX_SAMPLES):
        history.add(sample(float(second)))
    at = history.since()["at"]
    assert len(at) <= MAX_SAMPLES
    assert at == sorted(set(at))
    assert at[0] == 0.0
    latest = at[-MAX_SAMPLES // 2 :]
    assert latest == [float(50 * MAX_SAMPLES - MAX_SAMPLES // 2 + i) for i in range(MAX_SAMPLES // 2)]


def test_shares_as_they_were():
    history = SampleHistory()
    assert history.shares_before(0.0) == {}
    for second in range(200):
        history.add(sample(float(second), c1=second / 200))
    assert history.shares_before(199.0) == {1: (199 - TREND_SECONDS) / 200}
    assert history.shares_before(10.0) == {1: 0.0}


def test_moments_before_there_were_clusters_are_no_trend():
    history = SampleHistory()
    history.add(sample(0.0))
    history.add(sample(1.0, c1=0.5))
    assert history.shares_before(2.0) == {1: 0.5}


def change(at, kind="born", child=1):
    return Change(kind, at, 0, {}, {child: 1.0})


def test_the_journal_numbers_what_is_new():
    journal, log = Journal(), [change(1), change(5, child=2)]
    journal.update(log)
    journal.update(log)
    log.append(change(5, child=3))
    journal.update(log)
    assert [event["seq"] for event in journal.after(0)] == [1, 2, 3]
    assert [event["children"] for event in journal.after(1)] == [[[2, 1.0]], [[3, 1.0]]]
    assert journal.after(0, limit=1)[0]["at"] == 1
    assert journal.counts == {"born": 3}


def test_what_happens_again_after_a_return_to_a_checkpoint_is_told_once():
    journal, log = Journal(), [change(1), change(5, child=2), change(9, child=3)]
    journal.update(log)
    journal.update(log[:1])
    journal.update(log[:2])
    journal.update([*log, change(12, "died")])
    assert [event["at"] for event in journal.after(0)] == [1, 5, 9, 12]


def test_the_journal_is_bounded():
    journal = Journal()
    for start in range(0, MAX_EVENTS + 100, 100):
        journal.update([change(at) for at in range(start, start + 100)])
    assert len(journal.after(0)) == MAX_EVENTS
    assert journal.last == MAX_EVENTS + 100


# -------------------------------------------------------------------- cached values


def test_what_is_costly_is_made_seldom():
    now, made = [0.0], []

    def make():
        made.append(now[0])
        now[0] += 0.1
        return len(made)

    kept = CachedValue(FairLock(), make, clock=lambda: now[0])
    assert [kept(), kept()] == [1, 1]
    now[0] = 0.1 + CACHED_PER_COMPUTING * 0.1 - 0.01
    assert kept() == 1
    now[0] = 0.1 + CACHED_PER_COMPUTING * 0.1 + 0.01
    assert kept() == 2
    kept.clear()
    assert kept() == 3


def test_what_costs_nothing_is_kept_for_a_second():
    now = [0.0]
    kept = CachedValue(FairLock(), lambda: now[0], clock=lambda: now[0])
    assert kept() == 0.0
    now[0] = MIN_CACHED_SECONDS - 0.01
    assert kept() == 0.0
    now[0] = MIN_CACHED_SECONDS + 0.01
    assert kept() == now[0]


def test_what_was_restored_is_seen_at_once(tmp_path):
    """Though the page, or the history, asked a moment before the state was loaded."""
    store = StateDirectory(tmp_path)

    def begun():
        values = [msgspec.json.encode(event) for event in objects(points(200))]
        clusterer = StreamClusterer(warmup=50)
        return Service(MemorySource({("events", 0): values}), ListSink(), clusterer, store, policy=QUICK)

    begun().run()
    again = begun()
    backend = Backend(again)
    assert backend.clusters()["clusters"] == []
    again.run_once()
    again.run_once()
    assert again.stats.ready
    assert sum(cluster["weight"] for cluster in backend.clusters()["clusters"]) == 200
    store.close()


# -------------------------------------------------------------------- the lock


def test_whoever_waits_comes_next():
    """Though the one who has it wants it again at once."""
    lock, over, turns = FairLock(), threading.Event(), 0

    def loop():
        nonlocal turns
        while not over.is_set():
            with lock:
                turns += 1
                time.sleep(0.002)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        for _ in range(20):
            with lock.within(10):
                before = turns
            with lock.within(10):
                assert turns - before <= 3
    finally:
        over.set()
        thread.join()


def test_patience_ends():
    lock = FairLock()
    with lock, pytest.raises(LockTimeout), lock.within(0.01):
        pass
    with lock.within(0.01), pytest.raises(LockTimeout), lock.within(0.01):
        pass
    with lock:
        pass
