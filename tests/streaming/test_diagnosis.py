"""Findings about data and results, planted one at a time; and none where nothing is wrong."""

import warnings

import numpy as np
import pandas as pd
import pytest

from streamclust import StreamClusterer
from streamclust.streaming import DataHint
from streamclust.streaming.diagnosis import Inspected, diagnose

N = 3000


def groups(seed=0):
    """Two groups of three features, in which nothing is wrong."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(N, 3)) + 9.0 * rng.integers(2, size=(N, 1))
    return pd.DataFrame(rows, columns=["a", "b", "c"])


def learnt(table, **parameters):
    model = StreamClusterer(**parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.learn_many(table)
    return model


def kinds(table, **parameters):
    return {finding.kind: finding for finding in learnt(table, **parameters).diagnose()}


@pytest.mark.compiled
@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_found_where_nothing_is_wrong(seed):
    model = learnt(groups(seed))
    assert len(model.diagnose()) == 0
    assert str(model.diagnose()) == "nothing looks wrong"
    model.describe()  # and no warning


RNG = np.random.default_rng(7)
PLANTED = {
    "constant": lambda table: table.assign(d=3.5),
    "id": lambda table: table.assign(d=np.arange(N)),
    "skew": lambda table: table.assign(d=RNG.lognormal(sigma=1.5, size=N)),
    "copy": lambda table: table.assign(d=7.0 - 2.0 * table["a"]),
    "missing": lambda table: table.assign(d=np.where(RNG.random(N) < 0.7, np.nan, RNG.normal(size=N))),
}


@pytest.mark.compiled
@pytest.mark.parametrize("kind", PLANTED)
def test_a_feature_that_looks_wrong_is_found(kind):
    found = kinds(PLANTED[kind](groups()), transforms="none")
    assert found[kind].features == ("d",)
    assert ": d. " in str(found[kind])
    assert set(found) <= {kind, "one cluster", "many clusters"}


@pytest.mark.compiled
def test_ids_that_do_not_grow_are_found():
    table = groups().assign(d=np.random.default_rng(1).permutation(10**6)[:N])
    assert kinds(table)["id"].features == ("d",)


@pytest.mark.compiled
def test_one_cluster_of_everything_is_found():
    rows = np.random.default_rng(2).normal(size=(N, 2))
    assert set(kinds(rows)) == {"one cluster"}


@pytest.mark.parametrize(("effective", "found"), [(799.0, True), (800.0, False)])
def test_hardly_more_events_than_clusters_are_found(effective, found):
    nothing = np.empty((0, 1))
    seen = Inspected("gaussian", ("x",), nothing, np.full(40, 1 / 40), 800, effective, 0, "", 1)
    assert ("many clusters" in {finding.kind for finding in diagnose(seen)}) == found


@pytest.mark.compiled
def test_events_that_repeat_are_found():
    assert "dependence" in kinds(np.repeat(groups().to_numpy()[:300], 10, axis=0))


@pytest.mark.compiled
def test_refused_events_are_found():
    events = [{"a": "?" if i % 5 == 0 else float(i % 7)} for i in range(1000)]
    found = kinds(events)
    assert found["refused"].words.startswith("200 of 1,000 events were refused")


@pytest.mark.compiled
@pytest.mark.parametrize("family", ["multinomial", "poisson", "bernoulli"])
def test_counts_have_no_findings_of_measurements(family):
    rng = np.random.default_rng(4)
    rows = rng.poisson(np.array([[5.0, 1.0, 0.2], [0.2, 1.0, 5.0]])[rng.integers(2, size=N)])
    rows = np.minimum(rows, 1) if family == "bernoulli" else rows + (family == "multinomial")
    assert set(kinds(rows, family=family)) <= {"one cluster"}


@pytest.mark.compiled
def test_wide_events_are_diagnosed():
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(2000, 100)) + 9.0 * rng.integers(2, size=(2000, 1))
    rows[:, 3] = 1.0
    assert kinds(rows)["constant"].features == (3,)


def test_few_events_are_not_judged():
    model = learnt([{"x": 1.0}] * 10)
    assert len(model.diagnose()) == 0
    assert len(StreamClusterer().diagnose()) == 0


@pytest.mark.compiled
def test_a_finding_is_hinted_at_once():
    model = learnt(PLANTED["constant"](groups()))
    with pytest.warns(DataHint, match="the same value in all recent events: d"):
        model.describe()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.describe()
        print(model)


def test_values_of_a_category_are_no_copies_of_each_other():
    """Of yes and no one column is 1 minus the other, and a value that everyone has is constant."""
    rng, model = np.random.default_rng(0), StreamClusterer()
    for i, kind in enumerate(rng.integers(2, size=600)):
        x = float(rng.normal(9.0 * kind))
        model.learn_one({"x": x, "y": 2.0 * x, "paid": i % 2 == 0, "shop": "north"})
    (finding,) = model.diagnose()
    assert (finding.kind, finding.features) == ("copy", ("y",))
