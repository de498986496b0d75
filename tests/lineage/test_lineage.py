import json

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from streamclust.lineage import MAX_EVENTS, Change, History, Lineage
from streamclust.lineage.history import MAX_CLUSTERS_PER_STEP, MAX_STEPS
from streamclust.lineage.matching import best_pairs


def follow(lineage, old, shared, at=10, new_weight=None):
    shared = np.array(shared, dtype=float)
    new_weight = shared.sum(axis=0) if new_weight is None else np.array(new_weight, dtype=float)
    return lineage.follow(at, 1, old, shared.sum(axis=1), new_weight, shared)


def started(n):
    lineage = Lineage()
    return lineage, tuple(lineage.born(1, 0, 1.0) for _ in range(n))


def kinds(lineage, after):
    return [(c.kind, tuple(c.parents), tuple(c.children)) for c in list(lineage)[after:]]


def test_clusters_that_stay_keep_their_ids_in_silence():
    lineage, ids = started(3)
    assert follow(lineage, ids, np.eye(3)[[2, 0, 1]] * 5) == (1, 2, 0)
    assert len(lineage) == 3


def test_the_child_that_shares_most_keeps_the_parent_s_id():
    lineage, ids = started(1)
    assert follow(lineage, ids, [[3.0, 7.0]]) == (1, 0)
    assert kinds(lineage, 1) == [("split", (0,), (0, 1))]


def test_the_parent_that_shares_most_gives_the_child_its_id():
    lineage, ids = started(2)
    assert follow(lineage, ids, [[3.0], [7.0]]) == (1,)
    assert kinds(lineage, 2) == [("merged", (1, 0), (1,))]


def test_what_shares_nothing_is_born_and_what_no_one_shares_has_died():
    lineage, ids = started(1)
    assert follow(lineage, ids, [[0.0]], new_weight=[4.0]) == (1,)
    assert kinds(lineage, 1) == [("born", (), (1,)), ("died", (0,), ())]


def test_a_retired_cluster_is_followed_without_a_word():
    lineage, ids = started(2)
    lineage.retire(5, 1, 0, 1.0)
    assert kinds(lineage, 2) == [("died", (0,), ())]
    first, second, third = follow(lineage, ids, [[6.0, 4.0, 0.0], [0.0, 0.0, 10.0]])
    assert (first, third) == (0, 1)
    assert set(lineage.retired) == {0, second}
    assert len(lineage) == 3


def test_a_cluster_that_returns_has_its_id_and_tells_how_long_it_was_away():
    lineage, _ = started(2)
    for at in range(100, 1100, 100):
        lineage.history.add(at, {0: 50.0, 1: 50.0} if at <= 400 else {0: 1.0, 1: 99.0})
    lineage.retire(1000, 1, 0, 50.0)
    lineage.resume(1700, 2, 0, 50.0)
    back = list(lineage)[-1]
    assert (back.kind, back.children, back.away) == ("returned", {0: 50.0}, 1300)  # since event 400
    assert Change.from_dict(json.loads(json.dumps(back.to_dict()))) == back
    assert lineage.retired == {}


def test_a_part_of_a_retired_cluster_is_new_to_all_when_it_returns():
    lineage, ids = started(1)
    lineage.retire(5, 1, 0, 1.0)
    _, part = follow(lineage, ids, [[6.0, 4.0]])
    lineage.resume(20, 2, part, 4.0)
    lineage.resume(20, 2, 0, 6.0)
    assert kinds(lineage, 2) == [("born", (), (part,)), ("returned", (), (0,))]


def test_retired_clusters_are_saved_and_older_files_say_when_they_died():
    lineage, _ = started(2)
    lineage.retire(5, 1, 0, 1.0)
    state = json.loads(json.dumps(lineage.to_dict()))
    assert Lineage.from_dict(state).retired == lineage.retired == {0: 5}
    assert Lineage.from_dict(state | {"retired": [0]}).retired == {0: 5}


def test_a_live_cluster_s_claim_comes_before_a_retired_one_s():
    lineage, ids = started(2)
    lineage.retire(5, 1, 0, 1.0)
    assert follow(lineage, ids, [[90.0], [10.0]]) == (1,)
    assert lineage.retired == {}


def test_listeners_hear_every_change_once():
    heard = []
    lineage = Lineage(heard.append)
    ids = (lineage.born(1, 0, 1.0),)
    follow(lineage, ids, [[3.0, 7.0]])
    assert heard == []  # not before the change can be seen
    lineage.deliver()
    lineage.deliver()
    assert heard == list(lineage)


def test_a_listener_that_raises_is_logged_and_the_others_hear_on(caplog):
    heard = []

    def listen(change):
        heard.append(change)
        raise RuntimeError("no such table")

    lineage = Lineage(listen)
    lineage.born(1, 0, 1.0)
    lineage.born(2, 0, 1.0)
    lineage.deliver()
    assert heard == list(lineage)
    assert "no such table" in caplog.text


def test_a_lineage_is_restored_to_a_mark():
    lineage = Lineage()
    ids = (lineage.born(1, 0, 1.0), lineage.born(1, 0, 1.0))
    lineage.history.add(1, {0: 1.0})
    lineage.deliver()
    before, mark = lineage.to_dict(), lineage.mark()
    lineage.retire(5, 1, 0, 1.0)
    follow(lineage, ids, [[3.0, 7.0], [0.0, 1.0]])
    lineage.history.add(5, {0: 1.0})
    lineage.restore(mark)
    assert lineage.to_dict() == before


def test_the_log_is_bounded_and_the_ids_go_on():
    lineage = Lineage()
    for _ in range(MAX_EVENTS + 7):
        last = lineage.born(1, 0, 1.0)
    assert len(lineage) == MAX_EVENTS
    assert last == MAX_EVENTS + 6


def test_saved_and_loaded_it_goes_on_with_new_ids():
    lineage, ids = started(2)
    follow(lineage, ids, [[3.0, 7.0, 0.0], [0.0, 0.0, 5.0]])
    again = Lineage.from_dict(json.loads(json.dumps(lineage.to_dict())))
    assert list(again) == list(lineage)
    assert again.born_at == lineage.born_at
    assert again.issue(20) == lineage.issue(20)


def test_a_change_of_no_known_kind_is_refused():
    state = Change("born", 1, 0, {}, {3: 1.0}).to_dict() | {"kind": "raptured"}
    with pytest.raises(ValueError, match="raptured"):
        Change.from_dict(state)


def test_a_history_keeps_every_step_until_it_is_full():
    history = History()
    for at in range(1000, 1000 * (MAX_STEPS + 1), 1000):
        history.add(at, {0: 3.0, at: 1.0})
    assert [step.at for step in history] == list(range(1000, 1000 * (MAX_STEPS + 1), 1000))
    assert all(step.shares == {0: 0.75, step.at: 0.25} for step in history)


@pytest.mark.parametrize("looks", [MAX_STEPS + 1, 5 * MAX_STEPS, 100 * MAX_STEPS])
def test_a_full_history_covers_the_whole_stream_evenly_and_counts_everything(looks):
    history = History()
    for look in range(1, looks + 1):
        history.add(2048 * look, {look % 3: 1.0})
    ends = np.array([0, *(step.at for step in history)])
    assert MAX_STEPS / 4 <= len(history) <= MAX_STEPS
    assert ends[-1] == 2048 * looks
    assert np.diff(ends).max() <= 5 * ends[-1] / MAX_STEPS
    assert sum(step.total for step in history) == looks
    assert sum(step.weight.get(0, 0.0) for step in history) == looks // 3


def test_steps_fall_due_ever_less_often():
    history, noted = History(), []
    for at in range(1, 10_000):
        if history.due(at):
            history.add(at, {0: 1.0})
            noted.append(at)
    assert noted[:100] == list(range(1, 101))
    gaps = np.diff(noted)
    assert (np.diff(gaps) >= 0).all()
    assert gaps[-1] == np.ceil(2 * noted[-1] / MAX_STEPS)
    assert len(history) <= MAX_STEPS


def test_a_step_tells_the_heaviest_clusters_apart():
    history = History()
    history.add(10, {i: float(i + 1) for i in range(3 * MAX_CLUSTERS_PER_STEP)})
    (step,) = history
    assert set(step.weight) == set(range(2 * MAX_CLUSTERS_PER_STEP, 3 * MAX_CLUSTERS_PER_STEP))
    assert step.total == sum(range(1, 3 * MAX_CLUSTERS_PER_STEP + 1))


def test_what_is_counted_at_the_same_event_is_one_step():
    history = History()
    history.add(10, {0: 2.0})
    history.add(10, {0: 1.0, 1: 1.0})
    assert [(step.at, step.weight) for step in history] == [(10, {0: 3.0, 1: 1.0})]


def test_a_history_survives_json_and_older_lineages_have_none():
    lineage, _ = started(2)
    lineage.history.add(7, {0: 1.0, 1: 0.1})
    state = json.loads(json.dumps(lineage.to_dict()))
    assert list(Lineage.from_dict(state).history) == list(lineage.history)
    del state["history"]
    assert len(Lineage.from_dict(state).history) == 0


def test_pairs_have_the_largest_sum_where_claims_conflict_and_where_not():
    rng = np.random.default_rng(0)
    for _ in range(500):
        shape = tuple(rng.integers(0, 6, size=2).tolist())
        claim = np.where(rng.random(shape) < rng.random(), rng.random(shape), 0.0)
        rows, columns = best_pairs(claim)
        paired = claim[rows, columns] > 0
        assert len(set(rows[paired])) == len(set(columns[paired])) == paired.sum()
        assert claim[rows, columns].sum() == pytest.approx(
            claim[linear_sum_assignment(claim, maximize=True)].sum()
        )
