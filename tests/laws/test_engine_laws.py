"""Batching, threads, restarts and predictions are invisible in what the engine knows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamclust.checkpoint.files import decode, encode
from streamclust.streaming import StreamClusterer
from streamclust_connectors.synthetic import Drift
from tests.conftest import INTERPRETED

EXAMPLES = 3 if INTERPRETED else 15
MAX_EVENTS = 1200 if INTERPRETED else 12_000


def stream(case, limit=MAX_EVENTS):
    """A drifting stream, so that looks, births and refits all happen. Refits by EM take ten times as long."""
    n = min(case["n"], limit, MAX_EVENTS // 3 if case["refit"] == "chunky-em" else MAX_EVENTS)
    drift = Drift(2, n_events=n, seed=case["seed"], distance=30.0)
    return np.concatenate([rows for rows, _ in drift.batches(n)])


def clusterer(case, background=True, **more):
    options = {"max_leaves": 48, "refit_every": 2000, "half_life": 5000.0} | more
    return StreamClusterer(refit=case["refit"], seed=case["seed"], background=background, **options)


def state(model):
    """Everything it knows but whether it used threads."""
    state = model.to_state()
    state.values["parameters"]["background"] = state.values["settings"]["background"] = None
    return encode(state)


cases = st.fixed_dictionaries(
    {
        "refit": st.sampled_from(["bkm", "bkm", "chunky-em", "dp-means"]),
        "seed": st.integers(0, 2**31),
        "n": st.integers(1, MAX_EVENTS),
        "cuts": st.lists(st.integers(1, MAX_EVENTS), max_size=6),
    }
)


def pieces(rows, cuts):
    return np.split(rows, sorted(c for c in cuts if c < len(rows)))


@settings(max_examples=EXAMPLES, deadline=None)
@given(cases)
def test_batching_and_threads_are_invisible(case):
    rows = stream(case)
    whole, parts = clusterer(case), clusterer(case, background=False)
    whole.learn_many(rows)
    for piece in pieces(rows, case["cuts"]):
        parts.learn_many(piece)
    assert state(whole) == state(parts)


@settings(max_examples=EXAMPLES, deadline=None)
@given(cases)
def test_one_event_at_a_time_leaves_the_same_bits(case):
    rows = stream(case, limit=6000)
    many, one = clusterer(case), clusterer(case)
    many.learn_many(rows)
    for row in rows.tolist():
        one.predict_one(dict(enumerate(row)))
        one.learn_one(dict(enumerate(row)))
    assert state(many) == state(one)


@settings(max_examples=EXAMPLES, deadline=None)
@given(cases)
def test_a_restart_from_a_checkpoint_is_invisible(case):
    rows = stream(case)
    whole, killed = clusterer(case), clusterer(case)
    whole.learn_many(rows)
    for piece in pieces(rows, case["cuts"]):
        killed = StreamClusterer.from_state(decode(encode(killed.to_state())))
        killed.learn_many(piece)
    assert state(whole) == state(killed)


@settings(max_examples=EXAMPLES, deadline=None)
@given(cases)
def test_asking_never_writes(case):
    rows = stream(case)
    model = clusterer(case)
    for piece in pieces(rows, case["cuts"]):
        model.learn_many(piece)
        before, published = state(model), model.model
        kept = encode(model.to_state())
        event = dict(enumerate(rows[0].tolist()))
        (
            model.predict_one(event),
            model.predict_proba_one(event),
            model.score_one(event),
            model.tail_one(event),
        )
        model.predict_many(rows[:50]), model.score_many(rows[:50]), model.predict_proba_many(rows[:50])
        assert len(model.clusters) == len(model.centers) == model.n_clusters
        assert model._repr_html_()
        assert state(model) == before
        assert model.model is published
        assert encode(model.to_state()) == kept


@settings(max_examples=EXAMPLES, deadline=None)
@given(cases)
def test_running_clusters_hold_everything_learnt(case):
    rows = stream(case)
    model = clusterer(case, half_life=None, drift="ignore")  # else they are those of the latest events
    model.learn_many(rows)
    clusters = model.clusters
    assert sum(cluster.weight for cluster in clusters) == pytest.approx(len(rows), rel=1e-9)
    points, weight = model.tree.sample()
    ids = model.model.predict(points)
    sampled = len(set(model.model.nearest(points).component.tolist()))
    # components too rare to be in the sample have some of the others' weight
    close = 1e-9 if sampled == len(model.model.rows) else 0.01
    for cluster in clusters:
        own = weight[ids == cluster.id].sum()
        assert cluster.weight == pytest.approx(own, rel=close, abs=close * len(rows))
