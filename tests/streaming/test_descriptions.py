"""Clusters in words, against what was planted; many tails and novelties against the methods for one."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from river import compose, preprocessing

from streamclust import StreamClusterer
from streamclust.lineage import HistoryStep
from streamclust.streaming import Descriptions, FeatureMixture
from streamclust.streaming.descriptions import ordinal, trend

CENTRES = np.array([[0.0, 0.0, 3.0], [30.0, 0.0, 3.0], [0.0, 200.0, 3.0], [30.0, 200.0, 3.0]])
NAMES = ("speed", "visits", "noise")


def planted(n=3000, seed=0, p=(0.4, 0.3, 0.2, 0.1)):
    rng = np.random.default_rng(seed)
    kind = rng.choice(4, size=n, p=p)
    rows = CENTRES[kind] + rng.normal(size=(n, 3)) * [1.0, 5.0, 1.0]
    return [dict(zip(NAMES, row, strict=True)) for row in rows.tolist()]


@pytest.fixture(scope="module")
def model():
    found = StreamClusterer()
    found.learn_many(planted())
    assert found.n_clusters == 4
    return found


@pytest.mark.compiled
def test_a_summary_names_what_was_planted(model):
    for centre in CENTRES:
        cluster = model.predict_one(dict(zip(NAMES, centre.tolist(), strict=True)))
        (found,) = (c for c in model.clusters if c.id == cluster)
        told = found.summary()
        assert ("speed high" if centre[0] else "speed low") in told
        assert ("visits high" if centre[1] else "visits low") in told
        assert "noise" not in told  # the same in all
        assert told.endswith(f"; {found.share:.0%} of events")
        assert str(found) == f"cluster {cluster}: {told}"
        assert len(repr(found)) < 80


@pytest.mark.compiled
def test_percentiles_are_those_of_the_events(model):
    rows = np.array([list(event.values()) for event in planted()])
    for cluster in model.clusters:
        for name, percentile in re.findall(
            r"(\w+) (?:high|low|middle) \((\d+)\w\w percentile\)", cluster.words()
        ):
            value = cluster.mean[name]
            assert float(percentile) == pytest.approx(
                100 * (rows[:, NAMES.index(name)] < value).mean(), abs=3.0
            )


@pytest.mark.compiled
def test_a_table_of_all_clusters(model):
    table = model.describe()
    assert isinstance(table, Descriptions)
    assert [line.id for line in table] == [cluster.id for cluster in model.clusters]
    lines = str(table).splitlines()
    assert len(lines) == 5
    assert all(line.words in text for line, text in zip(table, lines[1:], strict=True))
    assert [row["share"] for row in table.to_dicts()] == [cluster.share for cluster in model.clusters]
    assert len(table[:2]) == 2
    assert table._repr_html_().count("<tr>") == 5
    assert repr(table) == str(table)


@pytest.mark.compiled
def test_a_model_prints_its_clusters_and_names_its_step_in_a_pipeline(model):
    text = str(model)
    assert text.startswith("StreamClusterer: 4 clusters of 3,000 events\n")
    assert str(model.describe()) in text
    assert str(StreamClusterer()) == "StreamClusterer"
    assert list(compose.Pipeline(preprocessing.StandardScaler(), StreamClusterer()).steps) == [
        "StandardScaler",
        "StreamClusterer",
    ]
    assert len(StreamClusterer().describe()) == 0


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::streamclust.streaming.DataHint")
def test_names_of_features_are_text_in_html():
    model = StreamClusterer()
    model.learn_many([{"<b>x</b>": float(i % 2) * 50} for i in range(400)])
    assert "<b>" not in model.describe()._repr_html_()


@pytest.mark.compiled
@pytest.mark.parametrize("family", ["multinomial", "poisson", "bernoulli"])
def test_of_counts_the_words_that_are_there_are_told(family):
    rng = np.random.default_rng(1)
    kind = rng.integers(2, size=3000)
    rates = np.array([[6.0, 5.0, 0.1, 0.1, 2.0], [0.1, 0.1, 6.0, 5.0, 2.0]])
    if family == "bernoulli":
        rows = (rng.random((3000, 5)) < (rates / 7.0)[kind]).astype(float)
    else:
        rows = rng.poisson(rates[kind]).astype(float)
        rows[:, 4] += 1.0  # no document without a word
    words = ("socket", "port", "filter", "phase", "common")
    model = StreamClusterer(family=family)
    model.learn_many(pd.DataFrame(rows, columns=words))
    assert model.n_clusters == 2
    for there, absent in ((words[:2], words[2:4]), (words[2:4], words[:2])):
        event = {word: float(word in there) * (1 if family == "bernoulli" else 5) for word in words}
        (found,) = (c for c in model.clusters if c.id == model.predict_one(event))
        told = found.words()
        assert told.startswith("often ")
        assert all(word in told for word in there)
        assert not any(word in told for word in (*absent, "common"))
        assert ("on average" if family == "bernoulli" else "times the average") in told


@pytest.mark.compiled
def test_a_share_that_changes_is_a_trend():
    model = StreamClusterer()
    model.learn_many(planted(8000, p=(0.4, 0.3, 0.2, 0.1)))
    assert {line.trend for line in model.describe()} == {"steady"}
    for part in np.linspace(0.1, 0.6, 10):
        model.learn_many(planted(800, seed=int(100 * part), p=(0.7 - part, 0.1, 0.2, part)))
    rising = model.predict_one(dict(zip(NAMES, CENTRES[3].tolist(), strict=True)))
    assert {line.id: line.trend for line in model.describe()}[rising] == "growing"


@given(st.lists(st.floats(1.0, 1e6), min_size=0, max_size=40), st.floats(0.0, 1.0))
def test_a_constant_share_has_no_trend(totals, share):
    steps = [
        HistoryStep(i, total, {0: share * total, 1: (1 - share) * total}) for i, total in enumerate(totals)
    ]
    assert trend(steps, 0) == trend(steps, 1) == "steady"


@given(
    st.integers(1, 5).flatmap(
        lambda k: st.tuples(
            st.lists(st.floats(-1e6, 1e6), min_size=k, max_size=k),
            st.lists(st.floats(0.0, 1e3), min_size=k, max_size=k),
            st.lists(st.floats(0.01, 1.0), min_size=k, max_size=k),
        )
    ),
    st.floats(-1e6, 1e6),
)
def test_percentiles_are_shares_and_words_are_never_empty(parts, value):
    mean, std, weight = (np.array(part) for part in parts)
    mixture = FeatureMixture("gaussian", ("x",), mean[:, None], std[:, None], weight / weight.sum())
    assert 0.0 <= mixture.percentile(0, value) <= 1.0 + 1e-12
    assert all(mixture.words(k) for k in range(len(mean)))


@given(st.floats(0.0, 100.0))
def test_ordinals(number):
    text = ordinal(number)
    assert re.fullmatch(r"\d{1,2}(st|nd|rd|th)", text)
    assert 1 <= int(text[:-2]) <= 99
    assert (text.endswith("st"), text.endswith("th")) == (
        int(text[:-2]) % 10 == 1 and int(text[:-2]) != 11,
        int(text[:-2]) in (11, 12, 13) or int(text[:-2]) % 10 not in (1, 2, 3),
    )


# -------------------------------------------------------------------- many at once


@pytest.mark.compiled
def test_many_tails_and_novelties_are_those_of_each(model):
    events = [*planted(20, seed=5), {"speed": 900.0}, {"visits": 3.0}, {}]
    assert model.tail_many(events).tolist() == [model.tail_one(event) for event in events]
    assert model.novelty_many(events).tolist() == [model.score_one(event) for event in events]
    frame = pd.DataFrame(events[:20])
    series = model.tail_many(frame)
    assert isinstance(series, pd.Series)
    assert series.tolist() == [model.tail_one(event) for event in events[:20]]
    assert isinstance(model.novelty_many(pl.DataFrame(events[:20])), pl.Series)


def test_before_the_first_event_nothing_is_novel():
    model = StreamClusterer()
    assert model.tail_many([{"x": 1.0}, {"x": 2.0}]).tolist() == [1.0, 1.0]
    assert model.novelty_many([{"x": 1.0}]).tolist() == [0.0]


# -------------------------------------------------------------------- while it happens


@pytest.mark.compiled
def test_on_event_sees_the_change_and_what_it_raises_is_logged(caplog):
    told = []

    def look(change):
        told.append([feature.name for i in change.children for feature in model.describe(i)])
        raise RuntimeError("out of paper")

    model = StreamClusterer(on_event=look)
    for event in planted(600):
        model.learn_one(event)
    assert model.n_seen == 600
    assert len(told) == len(model.events) > 1
    assert all(set(names) == set(NAMES) for names in told)
    logged = [record for record in caplog.records if "on_event failed" in record.getMessage()]
    assert len(logged) == len(told)
    assert "out of paper" in caplog.text
