"""What the tree refuses, what it says, and that it is none the worse for it; degenerate data it takes."""

import numpy as np
import pytest

from streamclust._kernels.tree.learn import insert_rows
from streamclust.tree import SummaryTree, summary
from streamclust.tree.storage import LATER
from tests.naive import tree as naive
from tests.streams import KINDS, SPLITS


def rows(n=100, d=2, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def tree_of(data, **settings):
    tree = SummaryTree(**{"n_features": data.shape[1], "max_leaves": 8} | settings)
    tree.insert(data)
    return tree


def assert_same_bits(before, after):
    assert before.keys() == after.keys()
    for name in before:
        np.testing.assert_array_equal(before[name], after[name], err_msg=name)


def assert_refused(tree, told, *args, call="insert", **kwargs):
    """The call raises a ValueError that says `told`, and leaves every bit of the tree as it was."""
    before = tree.to_arrays()
    with pytest.raises(ValueError, match=told):
        getattr(tree, call)(*args, **kwargs)
    assert_same_bits(before, tree.to_arrays())
    tree.insert(rows(30, tree.n_features, seed=9), time=1e6 if tree._timed else None)
    assert np.isfinite(tree.total.weight[0])


def assert_moments(tree, data, weights=None):
    weight, mean, scatter = naive.total(data, np.ones(len(data)) if weights is None else weights)
    np.testing.assert_allclose(tree.total.weight[0], float(weight), rtol=1e-12)
    np.testing.assert_allclose(tree.total.mean[0], mean.astype(float), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(tree.total.scatter[0], scatter.astype(float), rtol=1e-9, atol=1e-9)


# ------------------------------------------------------------------ rows


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (np.nan, r"row 1, column 0 is nan: every value must be finite"),
        (np.inf, r"row 1, column 0 is inf: every value must be finite"),
        (-np.inf, r"row 1, column 0 is -inf: every value must be finite"),
        (1e151, r"row 1, column 0 is 1e\+151: every value must be finite and at most 1e\+120"),
        (-1e151, r"row 1, column 0 is -1e\+151.*drop or impute such rows first"),
    ],
)
def test_values_that_are_no_use_are_named_by_row_and_column(value, told):
    assert_refused(tree_of(rows()), told, [[1.0, 2.0], [value, 0.0], [np.nan, 4.0]])


def test_one_bad_row_at_the_end_keeps_the_whole_batch_out():
    bad = rows(5000)
    bad[4321, 1] = np.nan
    assert_refused(tree_of(rows()), "row 4321, column 1 is nan", bad)


def test_the_largest_values_survive_every_weight_and_every_half_life():
    tree = SummaryTree(2, max_leaves=4, half_life=1.0)
    for _ in range(3):
        tree.insert(rows(200, seed=1).clip(-1, 1) * 1e120, weight=1e30)
    assert np.isfinite(tree.total.scatter).all()
    assert np.isfinite(tree.leaves().scatter).all()
    assert np.isfinite(tree.leaves().mean).all()


@pytest.mark.parametrize("shape", [(3, 3), (3, 1), (4,), (), (2, 2, 2), (3, 0), (0, 3), (1, 0)])
def test_tables_of_another_width_are_refused_with_their_shape(shape):
    told = rf"expected a table of 2 columns, got shape \({', '.join(map(str, shape))},?\)"
    assert_refused(tree_of(rows()), told, np.ones(shape))


def test_a_single_row_is_told_how_to_become_a_table():
    assert_refused(tree_of(rows()), r"a single event is a table of one row, rows\[None, :\]", np.ones(2))


def test_rows_of_different_lengths_are_refused():
    assert_refused(tree_of(rows()), "rows must form a table", [[1.0, 2.0], [3.0]])


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (np.array([["red", "green"]]), "rows must be numbers, got the text red: encode text as numbers"),
        (np.array([["1", "2"]]), "rows must be numbers, got the text 1"),
        (np.array([[b"x", b"y"]]), "rows must be numbers, got the text b'x'"),
        (np.array([[1.0, "blue"]], dtype=object), "rows must be numbers, got the text blue"),
        (np.array([[1.0, "2"]], dtype=object), "rows must be numbers, got the text 2"),
        (np.array([[1.0, {}]], dtype=object), r"rows must be numbers, got \{\}"),
        (np.array([[1.0, 1j]], dtype=object), "rows must be numbers, got 1j"),
        (np.array([[1.0, None]], dtype=object), "row 0, column 1 is nan"),
        (np.array([[1.0, 10**400]], dtype=object), r"rows must be numbers below 1e\+120"),
        (np.ones((2, 2)) * 1j, "rows must be numbers, got complex128"),
        (
            np.array([["2024-01-01", "2024-01-02"]], dtype="M8[D]"),
            r"rows must be numbers, got datetime64\[D\]",
        ),
        (np.zeros(2, dtype=[("a", float), ("b", float)]), "rows must be numbers"),
        (np.ma.array([[1.0, 2.0]], mask=[[False, True]]), "row 0, column 1 is nan"),
        ({"a": 1.0}, "rows must be numbers"),
        (None, r"expected a table of 2 columns, got shape \(\)"),
    ],
)
def test_what_is_no_number_is_refused(data, told):
    assert_refused(tree_of(rows()), told, data)


@pytest.mark.parametrize("empty", [[], np.empty(0), np.empty((0, 2)), np.empty((0, 2), dtype=int)])
def test_an_empty_batch_changes_nothing(empty):
    for tree in (SummaryTree(2), tree_of(rows())):
        before = tree.to_arrays()
        tree.insert(empty)
        tree.insert(empty, weight=[])
        assert_same_bits(before, tree.to_arrays())


def test_an_empty_batch_does_not_decide_how_a_tree_forgets():
    tree = SummaryTree(2, half_life=5.0)
    tree.insert([])
    tree.insert([], time=[])
    tree.insert(rows(3), time=[1.0, 2.0, 3.0])
    assert tree.n_events == 3


# ------------------------------------------------------------------ weights and times


@pytest.mark.parametrize(
    ("weight", "told"),
    [
        (-1.0, r"weights must not be negative, got -1.0 for row 0"),
        ([1.0, 1.0, -0.5], r"weights must not be negative, got -0.5 for row 2"),
        ([1.0, np.nan, 1.0], r"every weight must be finite, got nan for row 1"),
        ([1.0, np.inf, 1.0], r"every weight must be finite, got inf for row 1"),
        ([1.0, 1e31, 1.0], r"weights must be 0 or between 1e-100 and 1e\+30, got 1e\+31 for row 1"),
        ([1.0, 1e-101, 1.0], r"weights must be 0 or between .*got 1e-101 for row 1; .*another unit"),
        ([1.0, 2.0], r"weight must be one number, or one for each of the 3 rows, got shape \(2,\)"),
        ([1.0], r"weight must be one number, or one for each of the 3 rows, got shape \(1,\)"),
        ([], r"weight must be one number, or one for each of the 3 rows, got shape \(0,\)"),
        (np.ones((3, 1)), r"weight must be one number, or one for each of the 3 rows, got shape \(3, 1\)"),
        (["a", "b", "c"], "weight must be numbers, got the text a"),
        (np.ones(3) * 1j, "weight must be numbers, got complex128"),
    ],
)
def test_weights_that_are_no_weights_are_refused(weight, told):
    assert_refused(tree_of(rows()), told, rows(3), weight=weight)


@pytest.mark.parametrize(
    ("time", "told"),
    [
        ([1.0, np.nan, 1.0], r"every time must be finite, got nan for row 1"),
        (np.inf, r"every time must be finite, got inf for row 0"),
        ([1.0, 2.0], r"time must be one number, or one for each of the 3 rows, got shape \(2,\)"),
        (["noon", "one", "two"], "time must be numbers, got the text noon"),
        (np.array(["2024-01-01"] * 3, dtype="M8[s]"), r"time must be numbers, got datetime64\[s\]"),
    ],
)
def test_times_that_are_no_times_are_refused(time, told):
    tree = SummaryTree(2, half_life=10.0)
    tree.insert(rows(), time=np.arange(100.0))
    assert_refused(tree, told, rows(3), time=time)


def test_rows_of_weight_zero_change_nothing():
    tree = tree_of(rows())
    before = tree.to_arrays()
    tree.insert(rows(5, seed=1), weight=0.0)
    tree.insert(rows(5, seed=1), weight=np.zeros(5))
    assert_same_bits(before, tree.to_arrays())
    some = tree_of(rows())
    weights = np.array([0.0, 2.0, 0.0, 3.0, 0.0])
    some.insert(rows(5, seed=1), weight=weights)
    tree.insert(rows(5, seed=1)[weights > 0], weight=weights[weights > 0])
    assert_same_bits(tree.to_arrays(), some.to_arrays())


def test_rows_of_weight_zero_do_not_move_the_clock():
    tree = SummaryTree(1, half_life=1.0)
    tree.insert([[1.0], [2.0]], weight=[1.0, 0.0], time=[0.0, 500.0])
    assert tree.total.weight[0] == 1.0


def test_a_single_weight_counts_for_every_row():
    tree = SummaryTree(2)
    tree.insert(rows(10), weight=2.5)
    assert tree.total.weight[0] == 25.0


def test_times_need_a_tree_that_forgets():
    assert_refused(
        tree_of(rows()), "times only matter to a tree that forgets: give it a half_life", rows(3), time=1.0
    )


def test_a_tree_forgets_by_time_or_by_count_but_not_by_both():
    by_count = tree_of(rows(), half_life=10.0)
    assert_refused(by_count, "forgets by event counts: give every batch a time, or none", rows(3), time=1.0)
    by_time = SummaryTree(2, half_life=10.0)
    by_time.insert(rows(), time=np.arange(100.0))
    assert_refused(by_time, "forgets by event times: give every batch a time, or none", rows(3))


# ------------------------------------------------------------------ degenerate data


@pytest.mark.parametrize("max_leaves", [1, 8, None])
@pytest.mark.parametrize("kind", KINDS)
def test_a_single_point(kind, max_leaves):
    tree = SummaryTree(3, scatter=kind, max_leaves=max_leaves)
    tree.insert([[1.0, -2.0, 3.0]], weight=[0.5])
    total = tree.total
    assert (total.weight[0], *total.mean[0]) == (0.5, 1.0, -2.0, 3.0)
    assert not total.scatter.any()
    points, weights = tree.sample()
    assert (points.tolist(), weights.tolist()) == ([[1.0, -2.0, 3.0]], [0.5])
    tree.insert(rows(50, 3))
    assert tree.n_events == 51


def test_an_empty_tree_can_be_read():
    tree = SummaryTree(3)
    assert tree.total.weight.tolist() == [0.0]
    assert len(tree.leaves()) == 0
    assert [len(part) for part in tree.sample()] == [0, 0]
    assert tree.cut(budget=5).tolist() == [0]
    assert tree.cut(tolerance=0.1).tolist() == tree.cut(level=3).tolist() == [0]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("kind", KINDS)
def test_constant_columns(kind, split):
    data = rows(600, 4)
    data[:, 1] = 7.0
    data[:, 3] = -1e9
    tree = tree_of(data, scatter=kind, split=split)
    assert tree.n_leaves == 8
    np.testing.assert_array_equal(tree.total.mean[0, [1, 3]], [7.0, -1e9])
    lo, hi = tree.boxes(tree.cut(level=8))
    np.testing.assert_array_equal(lo[:, [1, 3]], hi[:, [1, 3]])
    if kind == "full":
        assert_moments(tree, data)


@pytest.mark.compiled
@pytest.mark.parametrize("split", SPLITS)
def test_more_features_than_points(split):
    data = rows(40, 60)
    tree = tree_of(data, split=split)
    assert_moments(tree, data)
    tree.insert(data)
    assert tree.total.weight[0] == 80.0


@pytest.mark.parametrize(
    "data",
    [
        rows(300).astype(np.float32),
        (rows(300) * 10).astype(np.int64),
        (rows(300) * 10 + 100).astype(np.uint8),
        rows(300) > 0,
        rows(300).astype(np.float16),
        rows(300).astype(np.longdouble),
        rows(300).astype(object),
        rows(300).tolist(),
        np.asfortranarray(rows(300)),
        rows(600)[::-2],
        rows(300, 5)[:, 1:4:2],
        rows(300).astype(">f8"),
    ],
    ids=["float32", "int", "uint8", "bool", "float16", "longdouble", "object", "list",
         "fortran", "reversed", "columns", "big-endian"],
)  # fmt: skip
def test_every_kind_of_number_in_every_layout_is_the_same_table(data):
    plain = np.ascontiguousarray(np.array(data, dtype=float))
    expected, tree = tree_of(plain), SummaryTree(2, max_leaves=8)
    tree.insert(data)
    assert_same_bits(expected.to_arrays(), tree.to_arrays())
    assert_moments(tree, plain)


# ------------------------------------------------------------------ nothing is shared


def test_what_is_inserted_is_never_changed_nor_kept():
    data, weights, times = rows(200), np.random.default_rng(1).exponential(size=200), np.arange(200.0)
    given = [data, weights, times]
    copies = [part.copy() for part in given]
    tree = SummaryTree(2, max_leaves=8, half_life=20.0)
    tree.insert(data, weight=weights, time=times)
    for part, copy in zip(given, copies, strict=True):
        np.testing.assert_array_equal(part, copy)
    before = tree.to_arrays()
    for part in given:
        part[:] = 12345.0
    assert_same_bits(before, tree.to_arrays())


@pytest.mark.compiled
def test_every_layout_meets_the_same_compiled_kernel(monkeypatch):
    """A kernel is compiled for every kind of array it meets, which takes seconds: so they are all made one kind."""
    kinds = set()

    def watch(tree, *arguments):
        kinds.add(
            tuple((a.dtype, a.flags.c_contiguous, a.flags.writeable, a.flags.aligned) for a in arguments[:4])
        )
        kinds.add(tuple(type(a) for a in arguments[4:]))
        return insert_rows(tree, *arguments)

    monkeypatch.setattr(summary, "insert_rows", watch)
    frozen = rows()
    frozen.setflags(write=False)
    unaligned = np.frombuffer(b"-" + rows().tobytes(), dtype=np.uint8)[1:].view(float).reshape(100, 2)
    for data in (
        rows(),
        frozen,
        unaligned,
        rows()[::2],
        np.asfortranarray(rows()),
        rows().astype(np.float32),
    ):
        for weight in (None, 2.0, np.ones(len(data)), [1.0] * len(data)):
            for time in (None, 3.0, np.arange(len(data))):
                tree = SummaryTree(2, half_life=np.float32(9.0), max_leaves=np.int32(4))
                tree.insert(data, weight=weight, time=time)
                assert tree.n_events == len(data)
    assert len(kinds) == 2


def test_read_only_input_is_welcome():
    data = rows()
    data.setflags(write=False)
    assert tree_of(data).n_events == 100


def test_what_is_returned_is_the_callers_own():
    tree = tree_of(rows(500))
    before = tree.to_arrays()
    total, leaves, cut = tree.total, tree.leaves(), tree.cut(budget=4)
    moments = tree.moments(cut)
    returned = [*tree.sample(), cut, *tree.boxes(cut), *tree.to_arrays().values()]
    returned += [part for m in (total, leaves, moments) for part in (m.weight, m.mean, m.scatter)]
    sums = [np.array(part) for part in tree._sums]
    for part in returned:
        if part.dtype.kind in "if":
            part[...] = 77
    assert_same_bits(before, tree.to_arrays())
    for part, now in zip(sums, tree._sums, strict=True):
        np.testing.assert_array_equal(part, now)


def test_a_loaded_tree_does_not_share_the_arrays_it_came_from():
    arrays = tree_of(rows(500)).to_arrays()
    before = {name: value.copy() for name, value in arrays.items()}
    loaded = SummaryTree.from_arrays(arrays)
    loaded.insert(rows(500, seed=3))
    assert_same_bits(before, arrays)


# ------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"n_features": 0}, "n_features must be a whole number, at least 1, got 0"),
        ({"n_features": -3}, "n_features must be a whole number, at least 1, got -3"),
        ({"n_features": 2.5}, "n_features must be a whole number, at least 1, got 2.5"),
        ({"n_features": "2"}, "n_features must be a whole number, at least 1, got '2'"),
        ({"n_features": True}, "n_features must be a whole number, at least 1, got True"),
        ({"scatter": "round"}, "scatter must be one of full, diagonal, scalar, none, got 'round'"),
        ({"scatter": None}, "scatter must be one of full, diagonal, scalar, none, got None"),
        ({"max_leaves": 0}, "max_leaves must be a whole number, at least 1, got 0"),
        ({"max_leaves": -5}, "max_leaves must be a whole number, at least 1, got -5"),
        ({"max_leaves": 7.5}, "max_leaves must be a whole number, at least 1, got 7.5"),
        ({"max_leaves": np.nan}, "max_leaves must be a whole number, at least 1, got nan"),
        ({"split": "random"}, "split must be 'principal' or 'widest', got 'random'"),
        ({"split": None}, "split must be 'principal' or 'widest', got None"),
        ({"half_life": 0}, "half_life must be positive and finite, got 0; use None to never forget"),
        ({"half_life": -2.0}, "half_life must be positive and finite, got -2.0"),
        ({"half_life": np.nan}, "half_life must be positive and finite, got nan"),
        ({"half_life": np.inf}, "half_life must be positive and finite, got inf; use None to never forget"),
        ({"half_life": "1h"}, "half_life must be positive and finite, got '1h'"),
        ({"seed": -1}, "seed must be a whole number, at least 0, got -1"),
        ({"seed": 1.5}, "seed must be a whole number, at least 0, got 1.5"),
        ({"seed": None}, "seed must be a whole number, at least 0, got None"),
        ({"seed": 2**63}, r"seed must be a whole number, below 2\^63"),
        ({"leaf_size": 1}, "leaf_size must be a whole number, at least 2, got 1"),
        ({"leaf_size": 8.0}, "leaf_size must be a whole number, at least 2, got 8.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(setting, told):
    with pytest.raises(ValueError, match=told):
        SummaryTree(**{"n_features": 2} | setting)


def test_numpy_numbers_are_numbers():
    tree = SummaryTree(
        np.int64(2), max_leaves=np.int32(4), half_life=np.float32(8), seed=np.uint8(3), leaf_size=np.int16(4)
    )
    tree.insert(rows())
    assert_same_bits(SummaryTree.from_arrays(tree.to_arrays()).to_arrays(), tree.to_arrays())
    plain = SummaryTree(2, max_leaves=4, half_life=8.0, seed=3, leaf_size=4)
    plain.insert(rows())
    assert_same_bits(plain.to_arrays(), tree.to_arrays())


# ------------------------------------------------------------------ merging


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"n_features": 3}, "cannot merge trees of different n_features: 2 and 3"),
        ({"scatter": "diagonal"}, "cannot merge trees of different scatter: full and diagonal"),
        ({"half_life": 7.0}, "cannot merge trees of different half_life: None and 7.0"),
        ({"leaf_size": 4}, "cannot merge trees of different leaf_size: 16 and 4"),
    ],
)
def test_trees_that_do_not_fit_are_not_merged(settings, told):
    other = tree_of(rows(100, settings.get("n_features", 2)), **settings)
    before = other.to_arrays()
    assert_refused(tree_of(rows()), told, other, call="merge")
    assert_same_bits(before, other.to_arrays())


def test_clocks_that_do_not_fit_are_not_merged():
    timed = SummaryTree(2, half_life=7.0, max_leaves=8)
    timed.insert(rows(), time=np.arange(100.0))
    counted = tree_of(rows(), half_life=7.0)
    told = "cannot merge a tree that forgets by event times with one that counts events"
    assert_refused(timed, told, counted, call="merge")
    assert_refused(counted, told, timed, call="merge")


def test_a_tree_is_not_merged_with_itself():
    tree = tree_of(rows())
    assert_refused(tree, "cannot merge a tree with itself: its events would count twice", tree, call="merge")


def test_only_trees_are_merged():
    assert_refused(tree_of(rows()), "only a SummaryTree can be merged, got ndarray", rows(), call="merge")


def test_an_exact_tree_takes_no_tree_that_has_let_events_go():
    exact, bounded = tree_of(rows(), max_leaves=None), tree_of(rows(1000, seed=1))
    assert_refused(
        exact, "cannot take a tree that has let events go; merge the other way", bounded, call="merge"
    )
    total = bounded.n_events + exact.n_events
    bounded.merge(exact)
    assert bounded.total.weight[0] == bounded.n_events == total


def test_an_exact_tree_takes_a_bounded_one_that_still_holds_all_its_events():
    exact, bounded = tree_of(rows(200), max_leaves=None), tree_of(rows(40, seed=1), max_leaves=64)
    exact.merge(bounded)
    points, weights = exact.sample()
    assert sorted(points.tolist()) == sorted([*rows(200).tolist(), *rows(40, seed=1).tolist()])
    assert weights.tolist() == [1.0] * 240


@pytest.mark.parametrize("max_leaves", [8, None])
def test_merging_with_an_empty_tree(max_leaves):
    full, empty = tree_of(rows(500), max_leaves=max_leaves), SummaryTree(2, max_leaves=max_leaves)
    before = full.to_arrays()
    full.merge(empty)
    assert_same_bits(before, full.to_arrays())
    empty.merge(full)
    np.testing.assert_array_equal(empty.total.scatter, full.total.scatter)
    assert empty.n_events == 500
    empty.insert(rows(20))
    assert_same_bits(before, full.to_arrays())


# ------------------------------------------------------------------ loading


SAVED = {}


def saved():
    """The arrays of a tree, to be damaged."""
    if not SAVED:
        SAVED.update(tree_of(rows(300)).to_arrays())
    return {name: value.copy() for name, value in SAVED.items()}


def test_a_tree_saved_by_an_earlier_version_loads():
    arrays = saved()
    for name in LATER:
        del arrays[name]
    np.testing.assert_array_equal(
        SummaryTree.from_arrays(arrays).total.mean, SummaryTree.from_arrays(saved()).total.mean
    )


def test_every_missing_array_is_named():
    for name in set(saved()) - set(LATER):
        arrays = saved()
        del arrays[name]
        told = name.removeprefix("setting_")
        with pytest.raises(ValueError, match=rf"not a summary tree: .*\b{told}\b.* (is|are) missing"):
            SummaryTree.from_arrays(arrays)
    with pytest.raises(ValueError, match=r"not a summary tree: arrays child, parent, .* are missing"):
        SummaryTree.from_arrays({})


def test_every_misshapen_or_mistyped_array_is_named():
    for name, value in saved().items():
        if name.startswith("setting_"):
            continue
        shorter = value[:-1] if name != "key" else value[:, :-1]
        for wrong in (shorter, value[None], value.astype(np.float32), value.astype("U")):
            with pytest.raises(ValueError, match="not a summary tree: array"):
                SummaryTree.from_arrays(saved() | {name: wrong})
    with pytest.raises(ValueError, match=r"not a summary tree: array key has shape \(8,\)"):
        SummaryTree.from_arrays(saved() | {"key": np.zeros(8)})
    with pytest.raises(ValueError, match=r"not a summary tree: array key has shape \(0, 16\)"):
        SummaryTree.from_arrays(saved() | {"key": np.zeros((0, 16))})


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("scatter", "round", "scatter must be one of"),
        ("scatter", "diagonal", "do not hold a diagonal scatter"),
        ("max_leaves", 0, "max_leaves must be a whole number"),
        ("max_leaves", 4, "hold more than 4 leaves"),
        ("max_leaves", "many", "max_leaves must be a whole number"),
        ("split", "random", "split must be"),
        ("half_life", -1.0, "half_life must be positive"),
        ("half_life", "long", "half_life must be positive"),
        ("seed", -1, "seed must be a whole number"),
        ("draws", -1, "draws must be a whole number"),
        ("seed", [1, 2], "not a summary tree"),
    ],
)
def test_settings_that_make_no_sense_are_not_loaded(name, value, told):
    with pytest.raises(ValueError, match=f"not a summary tree: .*{told}|{told}"):
        SummaryTree.from_arrays(saved() | {f"setting_{name}": np.array(value)})


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("child", 0, 10**9),  # leads out of the arrays
        ("child", 0, 2),  # pairs start at odd nodes
        ("child", 1, -(10**9)),
        ("child", 1, 1),  # its own child
        ("parent", 1, 5),
        ("axis", 0, 2),
        ("axis", 0, -2),
        ("node", 0, 0),
        ("node", 0, -1),
        ("count", 0, 17),
        ("count", 0, -1),
        ("counts", 0, 7),
        ("counts", 0, 9),
        ("counts", 1, 1),
        ("counts", 2, -1),
        ("counts", 4, 99),
        ("weight", 0, np.nan),
        ("weight", 0, -1.0),
        ("mean", 0, np.inf),
        ("points", 0, np.nan),
        ("origin", 0, np.nan),
    ],
)
def test_arrays_that_are_no_tree_are_not_loaded(name, place, value):
    arrays = saved()
    arrays[name][place] = value
    with pytest.raises(ValueError, match="not a summary tree: it"):
        SummaryTree.from_arrays(arrays)


def test_random_damage_is_refused_or_harmless():
    rng = np.random.default_rng(5)
    for _ in range(300):
        arrays = saved()
        name = rng.choice(["child", "parent", "node", "axis", "count", "counts", "free_pair", "free_slot"])
        if not arrays[name].size:
            continue
        arrays[name][rng.integers(arrays[name].size)] = rng.integers(-20, 20)
        try:
            tree = SummaryTree.from_arrays(arrays)
        except ValueError:
            continue
        naive.check_structure(tree.to_arrays())
        tree.insert(rows(50))


# ------------------------------------------------------------------ reading


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({}, "give exactly one of level, budget and tolerance"),
        ({"level": 1, "budget": 2}, "give exactly one of level, budget and tolerance"),
        ({"level": -1}, "level must be a whole number, at least 0, got -1"),
        ({"level": 1.5}, "level must be a whole number, at least 0, got 1.5"),
        ({"budget": 0}, "budget must be a whole number, at least 1, got 0"),
        ({"budget": 2.5}, "budget must be a whole number, at least 1, got 2.5"),
        ({"tolerance": 0.0}, "tolerance must be positive and finite, got 0.0"),
        ({"tolerance": np.nan}, "tolerance must be positive and finite, got nan"),
    ],
)
def test_cuts_that_make_no_sense_are_refused(rule, told):
    assert_refused(tree_of(rows()), told, call="cut", **rule)
