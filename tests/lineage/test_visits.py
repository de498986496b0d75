"""Records of visits: how long clusters stay away."""

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamclust.lineage.visits import PATIENCE, Visits

labels = st.lists(st.integers(-1, 3), min_size=1, max_size=60)


def after(visits, first, part):
    return visits.after(np.arange(first, first + len(part)), np.array(part), dict.fromkeys(range(4), 1e-9))


@given(labels, labels)
def test_records_are_those_of_the_definition(one, two):
    both = one + two
    visits = after(after(Visits(), 0, one), len(one), two)
    for name, record in visits.records.items():
        at = [i for i, label in enumerate(both) if label == name]
        if not at:
            continue
        assert record.last == at[-1]
        runs, inside, start = [0], [(i, label) for i, label in enumerate(both) if label >= 0], None
        for (i, label), (_, before) in zip(inside, [(0, None), *inside], strict=False):
            if label == name:
                start = i if before != name else start
                runs.append(i - start)
        assert record.run == max(runs)


@given(labels)
def test_they_are_saved(part):
    visits = after(Visits(), 0, part)
    assert Visits.from_list(json.loads(json.dumps(visits.to_list()))) == visits


def test_a_cluster_is_patient_for_as_long_as_it_was_away():
    visits = after(Visits(), 0, [0, 1] * 10)
    visits = after(visits, 20, [1] * 100)
    visits = after(visits, 120, [0, 1] * 10)
    share = np.array([0.5, 0.5])
    assert visits.patience([0], share[:1]) == PATIENCE * (120 - 18)
    assert visits.patience([1], share[1:]) == PATIENCE * 100 / 0.5  # its run alone
    assert visits.absence([0, 1, 7], 200).tolist() == [62, 61, 0]
    assert visits.returned(0, 300).records[0].absence == 300 - 138
    assert visits.restarted(1000).absence([0], 1000) == [0]


def test_few_events_at_another_clusters_place_are_no_visit():
    visits = Visits().after(np.arange(100), np.repeat([0, 1], 50), {0: 0.5, 1: 0.5})
    stray = np.where(np.arange(100) == 50, 0, 1)
    assert visits.after(np.arange(100, 200), stray, {0: 0.5, 1: 0.5}).records[0].last == 49
