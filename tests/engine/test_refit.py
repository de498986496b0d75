"""When refits begin from nothing, and which of the clusters they find get a new id."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from streamclust import StreamClusterer
from streamclust.engine import schedule
from streamclust.engine.refit import events_needed, fed, heirs, keeping
from streamclust.engine.tuning import TUNING
from streamclust.refit.bkm.fit import fit_points


def test_refits_are_challenged_whenever_the_evidence_has_doubled():
    n, last, challenges = 100, 0.0, []
    while n < 10**7:
        if schedule.challenged(n, last):
            last = float(n)
            challenges.append(n)
        n = schedule.next_refit(n, evidence=n, warmup=100, every=20_000)
    assert challenges[0] == 100
    assert all(2 <= later / earlier < 3 for earlier, later in pairwise(challenges))


def test_settled_clusters_are_challenged_seldom():
    assert schedule.challenged(200.0, 100.0)
    assert not schedule.challenged(399.0, 100.0, quiet=True)
    assert schedule.challenged(400.0, 100.0, quiet=True)
    assert not schedule.challenged(799.0, 100.0, settled=True)
    assert schedule.challenged(800.0, 100.0, settled=True)
    assert schedule.challenged(1.0, 0.0, settled=True)  # the first, and `settle()`


@given(
    arrays(
        float, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=st.sampled_from([0.0, 1.0, 2.5, 7.0])
    )
)
def test_an_old_cluster_that_is_still_there_has_an_heir(shared):
    found = heirs(shared)
    for row in shared[shared.max(axis=1) > 0]:
        assert found[row == row.max()].any()
    assert found.sum() <= np.count_nonzero(shared.max(axis=1) > 0)


@pytest.fixture(scope="module")
def three():
    rng = np.random.default_rng(0)
    return fit_points("gaussian", rng.normal(size=(300, 2)) + np.repeat([0.0, 20.0, 40.0], 100)[:, None])


def test_clusters_without_events_of_late_are_left_out(three):
    rng = np.random.default_rng(1)
    late = np.concatenate(
        [rng.normal(size=(50, 2)), 20.0 + rng.normal(size=(TUNING.min_cluster_events - 1, 2))]
    )
    seen = fed(three, late)
    assert seen.sum() == 1
    assert not fed(three, late[:0]).any()
    left = keeping(three, seen)
    np.testing.assert_allclose(left.clusters.mean, three.clusters.mean[seen])
    np.testing.assert_allclose(left.clusters.weight.sum(), three.clusters.weight.sum())
    assert keeping(three, np.zeros(3, dtype=bool)) is three
    assert keeping(three, np.ones(3, dtype=bool)) is three


@given(arrays(float, st.integers(1, 600), elements=st.floats(0.1, 10.0)), st.integers(1, 5000))
def test_no_cluster_needs_more_events_than_its_weight_lets_expect(weight, n_watched):
    expected = weight / weight.sum() * n_watched
    needed = events_needed(weight, n_watched)
    assert (needed <= TUNING.min_cluster_events).all()
    assert (needed <= np.maximum(expected, 1.0)).all()


def test_heavy_weights_keep_event_counts_that_can_be_saved(tmp_path):
    model = StreamClusterer()
    model.learn_many(np.random.default_rng(0).normal(size=(300, 2)), weight=np.full(300, 1e28))
    model.save(tmp_path / "heavy")
    assert StreamClusterer.load(tmp_path / "heavy").n_seen == 300
