"""Ids are issued, never computed; every change of their set is reported by exactly one event."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from streamclust.lineage import Lineage

WEIGHTS = st.sampled_from([0.0, 0.0, 1.0, 2.0, 5.0, 40.0])


@st.composite
def histories(draw):
    """Tables of shared weight, with as many old clusters as the one before had new ones; who retires or returns."""
    tables = []
    k = draw(st.integers(1, 5))
    for _ in range(draw(st.integers(1, 6))):
        new = draw(st.integers(1, 5))
        shared = draw(arrays(float, (k, new), elements=WEIGHTS))
        tables.append((shared, draw(arrays(float, new, elements=WEIGHTS)), draw(st.integers(-4, new - 1))))
        k = new
    return tables


@given(histories())
def test_the_log_tells_every_change_of_the_ids_once(history):
    lineage = Lineage()
    ids = tuple(lineage.born(0, 0, 1.0) for _ in range(len(history[0][0])))
    shown, ever, told = set(ids), set(ids), len(lineage)
    for at, (shared, extra, retiring) in enumerate(history, start=1):
        ids = lineage.follow(at, at, ids, shared.sum(axis=1), shared.sum(axis=0) + extra, shared)
        if retiring >= 0 and ids[retiring] in lineage.retired:
            lineage.resume(at, at, ids[retiring], 1.0)
        elif retiring >= 0:
            lineage.retire(at, at, ids[retiring], 1.0)
        assert len(set(ids)) == len(ids)
        for change in list(lineage)[told:]:
            left, came = set(change.parents), set(change.children)
            assert left <= shown
            if change.kind == "returned":
                assert came <= ever - shown
                assert change.away >= 0
            else:
                assert not (came - left) & ever  # a new id is never an old one
            shown = (shown - left) | came
            ever |= came
        told = len(lineage)
        assert shown == set(ids) - lineage.retired.keys()


@given(histories())
def test_a_majority_of_both_sides_keeps_its_id(history):
    shared, extra, _ = history[0]
    lineage = Lineage()
    old = tuple(lineage.born(0, 0, 1.0) for _ in range(len(shared)))
    new_weight = shared.sum(axis=0) + extra
    ids = lineage.follow(1, 1, old, shared.sum(axis=1), new_weight, shared)
    for i, j in np.argwhere((shared > 0.5 * shared.sum(axis=1)[:, None]) & (shared > 0.5 * new_weight)):
        assert ids[j] == old[i]
