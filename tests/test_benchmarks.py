"""The benchmark of dependent events runs, and its streams are as dependent as it says."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import dependent

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "stream",
    [dependent.wander(1, 400_000, 2, 4, time) for time in (0, 3, 30)]
    + [dependent.repeats(1, 100_000, times) for times in (2, 20)],
    ids=["independent", "over 3", "over 30", "twice", "20 times"],
)
def test_block_means_of_a_source_vary_as_those_of_independent_events_of_its_worth(stream):
    size, found = 2000, []
    for source in np.unique(stream.labels):
        own = stream.rows[stream.labels == source]
        means = own[: len(own) // size * size].reshape(-1, size, own.shape[1]).mean(axis=1)
        found.append(size * means.var(axis=0, ddof=1) / own.var(axis=0))
    assert np.mean(found) == pytest.approx(1 / stream.worth, rel=0.35)


@pytest.mark.parametrize(("k", "d"), [(1, 2), (5, 2), (20, 2), (20, 16)])
def test_centres_are_apart(k, d):
    found = dependent.centres(k, d, 1)
    gaps = np.linalg.norm(found[:, None] - found, axis=2)[np.triu_indices(k, 1)]
    assert gaps.min(initial=np.inf) >= dependent.MIN_GAP


def test_equal_results_count_for_the_faster_setting(monkeypatch):
    results = {"slow": (1.0, 9, 50.0), "fast": (1.0, 5, 10.0), "worse": (0.5, 5, 1.0)}
    monkeypatch.setattr(dependent, "one_by_one", lambda model, stream, n: results[model])
    makers = [lambda name=name: name for name in results]
    assert dependent.best(makers, None, 0) == results["fast"]


@pytest.mark.compiled
def test_the_benchmark_tells_of_every_stream():
    options = ["--only", "repeats", "runs", "--seeds", "1", "--events", "6000", "--river-events", "400"]
    command = [sys.executable, ROOT / "benchmarks" / "dependent.py", "--quick", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"K \d+ .* late changes, ARI .* µs \(independent", done.stdout)) == 8
    assert (
        len(re.findall(r"ours ARI .* DBSTREAM ARI .* DenStream ARI .* KMeans told K ARI", done.stdout)) == 4
    )
