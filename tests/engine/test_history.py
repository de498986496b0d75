"""What an engine keeps of the past, and clusters that its sample has not seen."""

import numpy as np
import pytest

from streamclust.engine import Engine, EngineSettings
from streamclust.engine.tuning import TUNING
from streamclust.moments import Moments
from streamclust.streaming import StreamClusterer


def learnt(n, share, weight=None):
    """An engine of two far clusters, the first having its share of the events."""
    rng = np.random.default_rng(0)
    engine = Engine(2, EngineSettings(background=False, max_leaves=16))
    first = rng.random(n) < share(np.arange(n))
    rows = rng.normal(size=(n, 2)) + np.where(first[:, None], 0.0, 50.0)
    engine.learn(rows, None if weight is None else np.where(first, *weight))
    return engine


@pytest.mark.compiled
def test_the_history_follows_the_shares_of_the_stream():
    engine = learnt(40 * TUNING.look_events, lambda i: np.where(i < 20 * TUNING.look_events, 0.8, 0.3))
    here = int(engine.model.predict(np.zeros((1, 2)))[0])
    early = [
        s.shares[here]
        for s in engine.lineage.history
        if 4 * TUNING.look_events < s.at < 19 * TUNING.look_events
    ]
    late = [s.shares[here] for s in engine.lineage.history if s.at > 22 * TUNING.look_events]
    assert len(early) >= 10
    assert len(late) >= 10
    np.testing.assert_allclose(np.mean(early), 0.8, atol=0.03)
    np.testing.assert_allclose(np.mean(late), 0.3, atol=0.03)


def test_the_history_begins_with_the_first_event_and_counts_weights():
    engine = learnt(300, lambda i: 0.5, weight=(3.0, 1.0))
    assert [step.at for step in engine.lineage.history] == [1, 20, 40, 80, 160]
    here = int(engine.model.predict(np.zeros((1, 2)))[0])
    last = list(engine.lineage.history)[-1]
    assert last.shares[here] == pytest.approx(0.75, abs=0.08)


@pytest.mark.compiled
def test_the_history_counts_every_look_though_its_steps_are_longer():
    """Blocks of two looks, and steps of more: looks between the steps must not be passed over."""
    n = 600 * TUNING.look_events
    engine = learnt(n, lambda i: (i // (2 * TUNING.look_events) % 2).astype(float))
    shares = np.array([list(step.shares.values()) for step in engine.lineage.history if step.at > n // 2])
    assert len(shares) > 100
    np.testing.assert_allclose(shares.mean(axis=0), 0.5, atol=0.03)


@pytest.mark.compiled
def test_a_cluster_has_its_share_from_the_event_it_is_born_at():
    engine = learnt(6 * TUNING.look_events, lambda i: np.where(i < 3 * TUNING.look_events, 1.0, 0.5))
    (newborn,) = [c for c in engine.lineage if c.at > 2 * TUNING.look_events]
    step = next(s for s in engine.lineage.history if s.at == newborn.at)
    (born,) = newborn.children
    assert 0.0 < step.shares[born] < 0.1  # it is born by its first events
    assert list(engine.lineage.history)[-1].shares[born] == pytest.approx(0.5, abs=0.15)


def test_the_history_goes_with_the_checkpoint(tmp_path):
    rng = np.random.default_rng(0)
    model = StreamClusterer(background=False)
    model.learn_many(rng.normal(size=(400, 2)) + 20.0 * rng.integers(2, size=(400, 1)))
    model.save(tmp_path / "state")
    again = StreamClusterer.load(tmp_path / "state")
    assert list(again.lineage.history) == list(model.lineage.history)
    assert len(again.lineage.history) == 6


def test_a_cluster_the_sample_has_not_seen_is_as_it_was_published():
    engine = learnt(300, lambda i: 0.5)
    far = Moments.of_points(np.random.default_rng(1).normal([-300.0, 70.0], size=(40, 2)))
    engine.monitor.births.open(far)
    newborn = engine.queries.clusters()[-1]
    np.testing.assert_allclose(newborn.mean, far.mean)
    np.testing.assert_allclose(newborn.covariance, far.covariance)
    assert (engine.queries.clusters().weight > 0).all()
    assert engine.queries.clusters().weight.sum() == pytest.approx(300.0)
    assert engine.model.result.clusters.weight.sum() == pytest.approx(300.0)
    tree = engine.queries.snapshot()
    assert set(tree.ids[tree.cut_nodes(k=len(engine.model.ids))].tolist()) == set(engine.model.ids)
