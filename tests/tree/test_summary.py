"""The summary tree by example and by statistics: samples, splits, ordered streams, forgetting, merging, cuts."""

import numpy as np
import pytest
from scipy import stats

from streamclust._kernels.tree import split as kernels
from streamclust._kernels.tree.arrays import descend_rows
from streamclust.moments import Moments
from streamclust.tree import SummaryTree, storage, summary
from tests.conftest import INTERPRETED
from tests.naive import moments as naive_moments
from tests.naive import tree as naive
from tests.parts import from_python
from tests.streams import KINDS, SPLITS, clustered

split_leaf = from_python(kernels.split_leaf)


def build(data, weight=None, time=None, **settings):
    tree = SummaryTree(data.shape[1], **settings)
    tree.insert(data, weight=weight, time=time)
    return tree


def assert_total(tree, data, weights, digits=1e-9):
    """The totals, each feature on the scale of its own spread."""
    weight, mean, scatter = (np.asarray(part, dtype=float) for part in naive.total(data, weights))
    size = np.sqrt(np.diagonal(scatter) / weight)
    assert abs(tree.total.weight[0] - weight) <= digits * weight
    assert np.all(np.abs(tree.total.mean[0] - mean) <= digits * size + 2 * np.spacing(np.abs(mean)))
    expected = Moments(np.ones(1), mean[None], scatter[None]).to(tree.scatter).scatter
    np.testing.assert_allclose(tree.total.scatter, expected, rtol=0, atol=digits * weight * np.max(size) ** 2)


def leaf_of(tree, data):
    """The slot of the leaf in whose cell each row falls."""
    a = tree.to_arrays()
    slots = np.empty(len(data), dtype=np.int64)
    x = np.ascontiguousarray(data - a["origin"])
    descend_rows(a["child"], a["axis"], a["direction"], a["threshold"], x, len(data), slots)
    return slots


def purity(tree, data, labels):
    """The part of the rows that belong to the commonest label of their leaf."""
    table = np.zeros((len(tree.to_arrays()["node"]), labels.max() + 1))
    np.add.at(table, (leaf_of(tree, data), labels), 1)
    return table.max(axis=1).sum() / len(data)


def within_leaves(tree):
    return float(tree.leaves().trace.sum())


# ------------------------------------------------------------------ the sample of a leaf

RUNS = 150 if INTERPRETED else 1500
SIZE = 8


def inclusion(make, n):
    """How often each of the events 0..n-1 (numbers in the only column) is in the sample, over many seeds."""
    counts = np.zeros(n)
    for seed in range(RUNS):
        points, _ = make(seed).sample()
        counts[points[:, 0].astype(int)] += 1
    return counts


def expected_inclusion(weights, runs=200_000):
    """The chance of being among SIZE events drawn one after another in proportion to weight, by simulation."""
    rng = np.random.default_rng(99)
    counts = np.zeros(len(weights))
    for _ in range(20):
        keys = rng.exponential(size=(runs // 20, len(weights))) / weights
        chosen = np.argpartition(keys, SIZE - 1, axis=1)[:, :SIZE]
        counts += np.bincount(chosen.ravel(), minlength=len(weights))
    return counts / runs


def assert_chances(counts, chances):
    """Each count is within five standard errors of what its chance says, and together they fit."""
    error = np.sqrt(RUNS * chances * (1 - chances)) + 1e-3 * RUNS
    z = (counts - RUNS * chances) / error
    assert np.abs(z).max() < 5
    assert (z**2).sum() < stats.chi2.isf(1e-5, len(counts))


def numbers(n):
    return np.arange(float(n))[:, None]


def test_the_sample_of_a_leaf_is_uniform():
    n = 40
    counts = inclusion(lambda seed: build(numbers(n), max_leaves=1, leaf_size=SIZE, seed=seed), n)
    chance = SIZE / n
    assert counts.sum() == RUNS * SIZE
    statistic = ((counts - RUNS * chance) ** 2).sum() / (RUNS * chance * (1 - chance)) * (n - 1) / n
    assert 1e-4 < stats.chi2.sf(statistic, n - 1) < 1 - 1e-4


@pytest.mark.compiled
def test_heavier_events_are_sampled_more_often():
    weights = np.tile([0.5, 1.0, 2.0, 6.0], 10)
    counts = inclusion(
        lambda seed: build(numbers(40), weight=weights, max_leaves=1, leaf_size=SIZE, seed=seed), 40
    )
    assert_chances(counts, expected_inclusion(weights))
    by_weight = counts.reshape(10, 4).sum(axis=0)
    assert np.all(np.diff(by_weight) > 0)


@pytest.mark.compiled
def test_sampled_weights_estimate_any_part_of_the_stream():
    weights = np.random.default_rng(1).gamma(0.7, size=200) + 0.01
    part = np.arange(200) % 3 == 0
    part[np.argsort(weights)[-20:]] = True  # not independent of the weight
    estimates = np.zeros(RUNS)
    for seed in range(RUNS):
        points, masses = build(numbers(200), weight=weights, max_leaves=1, seed=seed).sample()
        assert masses.sum() == pytest.approx(weights.sum(), rel=1e-12)
        estimates[seed] = masses[part[points[:, 0].astype(int)]].sum()
    truth = weights[part].sum()
    assert abs(estimates.mean() - truth) < 4 * estimates.std() / np.sqrt(RUNS) + 0.005 * truth


def test_every_event_sampled_stands_for_itself_until_the_leaf_is_full():
    weights = np.array([0.5, 3.0, 1.0])
    points, masses = build(numbers(3), weight=weights, max_leaves=1).sample()
    np.testing.assert_array_equal(masses[np.argsort(points[:, 0])], weights)


@pytest.mark.compiled
def test_a_forgetful_sample_favours_recent_events_as_decay_says():
    half_life = 6.0
    chances = expected_inclusion(2.0 ** (np.arange(40) / half_life))
    settings = {"max_leaves": 1, "leaf_size": SIZE, "half_life": half_life}
    counts = inclusion(lambda seed: build(numbers(40), seed=seed, **settings), 40)
    assert_chances(counts, chances)
    timed = inclusion(lambda seed: build(numbers(40), time=np.arange(40.0), seed=seed, **settings), 40)
    assert_chances(timed, chances)


@pytest.mark.compiled
def test_a_late_event_is_sampled_as_if_it_had_come_in_time():
    times = np.random.default_rng(0).permutation(40).astype(float)
    settings = {"max_leaves": 1, "leaf_size": SIZE, "half_life": 6.0}
    counts = inclusion(lambda seed: build(numbers(40), time=times, seed=seed, **settings), 40)
    assert_chances(counts, expected_inclusion(2.0 ** (times / 6.0)))


@pytest.mark.compiled
@pytest.mark.parametrize(("first", "half_life"), [(20, None), (36, None), (4, None), (20, 6.0)])
def test_merged_trees_sample_as_one_tree_of_both(first, half_life):
    times = None if half_life is None else np.random.default_rng(0).permutation(40).astype(float)
    settings = {"max_leaves": 1, "leaf_size": SIZE, "half_life": half_life}

    def merged(seed):
        parts = [slice(0, first), slice(first, 40)]
        a, b = (
            build(numbers(40)[p], time=None if times is None else times[p], seed=2 * seed + k, **settings)
            for k, p in enumerate(parts)
        )
        a.merge(b)
        return a

    weights = np.ones(40) if times is None else 2.0 ** (times / half_life)
    assert_chances(inclusion(merged, 40), expected_inclusion(weights))


# ------------------------------------------------------------------ splits


def stretched(n, d, seed=0):
    """Points along one dominant direction that is no axis."""
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return (rng.normal(size=(n, d)) * np.array([10.0, *np.ones(d - 1)])) @ rotation.T + 50.0


@pytest.mark.parametrize("kind", ["full", "scalar", "none"])
@pytest.mark.parametrize("d", [2, 5])
def test_a_principal_split_goes_through_the_mean_across_the_principal_direction(d, kind):
    data = stretched(16, d)
    tree = build(data, scatter=kind)
    a = tree.to_arrays()
    scale = data.std(axis=0) if kind == "full" else np.ones(d)
    principal = np.linalg.eigh(np.cov((data / scale).T))[1][:, -1]
    assert tree.n_leaves == 2
    assert abs((a["direction"][0] * scale) @ principal) == pytest.approx(1.0, abs=1e-9)
    through = a["direction"][0] @ (data.mean(axis=0) - a["origin"])
    assert a["threshold"][0] == pytest.approx(through, abs=1e-9)


def test_a_split_that_knows_only_variances_takes_the_axis_of_the_largest_in_deviations():
    data = np.random.default_rng(0).normal(size=(64, 3)) * [1.0, 9.0, 2.0]
    tree = build(data, scatter="diagonal", max_leaves=3)
    a, first = tree.to_arrays(), tree.moments(tree.cut(level=1)).scatter
    inner = int(a["child"][0]) + int(a["child"][a["child"][0]] < 0)
    assert a["axis"][inner] == (first[inner - a["child"][0]] / data.var(axis=0)).argmax()


@pytest.mark.parametrize("kind", KINDS)
def test_a_widest_split_goes_through_the_middle_of_the_widest_side(kind):
    data = np.random.default_rng(0).exponential(size=(16, 3)) * [1.0, 2.0, 9.0]
    a = build(data, scatter=kind, split="widest").to_arrays()
    scale = data.std(axis=0) if kind in ("full", "diagonal") else np.ones(3)
    axis = (np.ptp(data, axis=0) / scale).argmax()
    assert a["axis"][0] == axis
    middle = (data[:, axis].min() + data[:, axis].max()) / 2
    assert a["threshold"][0] + a["origin"][axis] == pytest.approx(middle, abs=1e-12)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("kind", KINDS)
def test_leaves_that_hold_all_their_events_have_their_exact_moments(kind, split):
    rng = np.random.default_rng(3)
    data, weights = rng.normal(size=(90, 3)), rng.exponential(size=90)
    tree = build(data, weight=weights, scatter=kind, split=split, max_leaves=None)
    weight_of = dict(zip(map(bytes, data), weights, strict=True))
    a, leaves = tree.to_arrays(), tree.leaves()
    held = 0
    for row, slot in enumerate(np.flatnonzero(a["node"] >= 0)):
        points = a["points"][slot, : a["count"][slot]]
        held += len(points)
        expected = naive_moments.moments(points, [weight_of[bytes(p)] for p in points], kind)
        np.testing.assert_allclose(leaves.weight[row], expected[0], rtol=1e-13)
        np.testing.assert_allclose(leaves.mean[row], expected[1], rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(leaves.scatter[row], expected[2], rtol=1e-11, atol=1e-12)
        np.testing.assert_array_equal(a["lo"][slot], points.min(axis=0))
        np.testing.assert_array_equal(a["hi"][slot], points.max(axis=0))
    assert held == 90


SHAPES = {
    "normal": lambda rng, n: rng.normal(size=(n, 3)) @ rng.normal(size=(3, 3)),
    "skewed": lambda rng, n: rng.lognormal(sigma=2.0, size=(n, 3)),
    "counts": lambda rng, n: rng.poisson(0.3, size=(n, 3)).astype(float),
    "far": lambda rng, n: rng.normal(size=(n, 3)) + 1e6,
    "flat": lambda rng, n: rng.normal(size=(n, 1)) * [1.0, -2.0, 0.0],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("kind", KINDS)
def test_apportioned_splits_lose_nothing_and_stay_possible(kind, split, shape):
    for seed in range(5):
        data = SHAPES[shape](np.random.default_rng(seed), 600)
        tree = build(data, scatter=kind, split=split, max_leaves=1, seed=seed)
        whole, box = tree.total, tree.boxes(np.zeros(1, dtype=int))
        tree._tree = storage.grow(tree._tree, 2)
        assert split_leaf(tree._tree, 0, split == "principal")
        tree._forget_sums()
        assert tree.n_leaves == 2
        naive.check_structure(tree.to_arrays())
        spread = np.abs(data - data.mean(axis=0)).max()
        np.testing.assert_allclose(tree.total.weight, whole.weight, rtol=1e-14)
        np.testing.assert_allclose(tree.total.mean, whole.mean, rtol=1e-15, atol=1e-13 * spread)
        size = np.abs(whole.scatter).max(initial=0.0)
        np.testing.assert_allclose(tree.total.scatter, whole.scatter, rtol=1e-12, atol=1e-12 * size)
        halves = tree.leaves()
        assert np.all(halves.weight > 0)
        if kind == "full":
            assert np.all(np.linalg.eigvalsh(halves.scatter) >= -1e-12 * size)
        else:
            assert np.all(halves.scatter >= 0)
        if kind in ("none", "scalar", "diagonal"):
            assert np.all((halves.mean >= box[0] - 1e-12 * spread) & (halves.mean <= box[1] + 1e-12 * spread))
        lo, hi = tree.boxes(tree.cut(level=1))
        assert np.all((halves.mean >= lo - 1e-12 * spread) & (halves.mean <= hi + 1e-12 * spread))


# ------------------------------------------------------------------ ordered and drifting streams


@pytest.mark.compiled
@pytest.mark.parametrize("split", SPLITS)
def test_a_stream_ordered_by_cluster_ends_with_leaves_for_every_cluster(split, monkeypatch):
    data, labels = clustered(50_000, 8, seed=1)
    order = np.argsort(labels, kind="stable")
    data, labels = data[order], labels[order]
    centres = np.array([data[labels == k].mean(axis=0) for k in range(10)])
    tree = build(data, max_leaves=64, split=split)
    owner = ((tree.leaves().mean[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    assert np.bincount(owner, minlength=10).min() >= 2
    assert purity(tree, data, labels) > 0.95
    monkeypatch.setattr(summary, "swap_leaves", lambda *args: 0)
    rigid = build(data, max_leaves=64, split=split)
    assert purity(rigid, data, labels) < 0.8
    assert within_leaves(tree) < within_leaves(rigid) / 4


@pytest.mark.compiled
def test_a_stream_ordered_by_cluster_costs_little_against_one_in_random_order():
    data, labels = clustered(50_000, 8, seed=1)
    ordered = data[np.argsort(labels, kind="stable")]
    assert within_leaves(build(ordered, max_leaves=128)) < 2.5 * within_leaves(build(data, max_leaves=128))


@pytest.mark.compiled
def test_leaves_gather_where_a_drifting_stream_is_now():
    n = 60_000
    data = np.random.default_rng(0).normal(size=(n, 2)) + np.linspace(0, 100, n)[:, None]
    tree = build(data, max_leaves=64, half_life=2000.0)
    leaves = tree.leaves()
    near = leaves.mean[:, 0] > 75
    assert near.sum() >= 48
    assert leaves.weight[near].sum() > 0.99 * leaves.weight.sum()
    points, masses = tree.sample()
    assert (points[:, 0] * masses).sum() / masses.sum() == pytest.approx(tree.total.mean[0, 0], abs=0.5)
    assert_total(tree, data, naive.forward_weights(np.ones(n), np.arange(n), 2000.0))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("max_leaves", [128, None])
@pytest.mark.parametrize("order", ["up", "down", "outward", "geometric"])
def test_sorted_streams_grow_a_tree_and_not_a_chain(order, max_leaves, split):
    n = 1500 if INTERPRETED else 50_000 if max_leaves or order == "up" else 15_000
    values = np.sort(np.random.default_rng(0).normal(size=n))
    values = {
        "up": values,
        "down": values[::-1],
        "outward": values[np.argsort(np.abs(values))],
        "geometric": np.exp(np.linspace(0, 100, n)),
    }[order]
    tree = build(values[:, None], max_leaves=max_leaves, split=split)
    depths = naive.check_structure(tree.to_arrays())
    assert max(depths.values()) <= 2 * np.log2(tree.n_leaves) + 7
    assert_total(tree, values[:, None], np.ones(n))
    if max_leaves is None:
        points, _ = tree.sample()
        np.testing.assert_array_equal(np.sort(points[:, 0]), np.sort(values))


@pytest.mark.parametrize("half_life", [None, 800])
def test_events_of_0_and_1_are_found_where_they_were_put(half_life):
    """Splits part the neighbours of a row that repeats one by one; subtrees rebuilt cut where means differ."""
    rng = np.random.default_rng(7)
    usual = np.arange(24) < 4
    data = (usual ^ (rng.random((600 if INTERPRETED else 2000, 24)) < 0.03)).astype(float)
    tree = build(data, scatter="none", half_life=half_life)
    mine = (data == usual).all(axis=1)
    age = np.arange(len(data))[::-1]
    weight = np.ones(len(data)) if half_life is None else 0.5 ** (age / half_life)
    held = tree.leaf_weights()[tree.shares(usual[None].astype(float)) > 0]
    assert held.sum() > 0.95 * weight[mine].sum()


# ------------------------------------------------------------------ duplicates

MANY = 2000 if INTERPRETED else 20_000


@pytest.mark.parametrize("max_leaves", [1, 64, None])
@pytest.mark.parametrize("kind", KINDS)
def test_equal_rows_are_one_leaf_and_one_point(kind, max_leaves):
    row = np.array([0.1, -3.0, 1e7])
    tree = build(np.tile(row, (MANY, 1)), scatter=kind, max_leaves=max_leaves)
    tree.insert(np.tile(row, (MANY, 1)), weight=0.5)
    points, masses = tree.sample()
    assert tree.n_leaves == 1
    assert tree.total.weight[0] == pytest.approx(1.5 * MANY, rel=1e-12)
    np.testing.assert_array_equal(tree.total.mean[0], row)
    assert not tree.total.scatter.any()
    assert np.all(points == row)
    assert masses.sum() == pytest.approx(1.5 * MANY, rel=1e-12)
    if max_leaves != 1:
        assert len(points) <= 16
    tree.insert(row[None] + 1.0)
    assert tree.total.weight[0] == pytest.approx(1.5 * MANY + 1, rel=1e-12)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("max_leaves", [64, None])
def test_two_distinct_values_are_two_leaves(max_leaves, split):
    rng = np.random.default_rng(0)
    data = np.array([[1.0, 2.0], [1.0, 5.0]])[rng.integers(2, size=MANY)]
    tree = build(data, max_leaves=max_leaves, split=split)
    points, masses = tree.sample()
    ones = float((data[:, 1] == 5.0).sum())
    assert tree.n_leaves == 2
    assert within_leaves(tree) == 0.0
    assert sorted(tree.leaves().weight) == pytest.approx(sorted([ones, MANY - ones]), rel=1e-12)
    assert masses[points[:, 1] == 5.0].sum() == pytest.approx(ones, rel=1e-12)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("max_leaves", [32, None])
def test_zero_inflated_data(max_leaves, split):
    rng = np.random.default_rng(0)
    data = rng.exponential(size=(MANY, 3)) * (rng.random((MANY, 1)) < 0.1)
    tree = build(data, max_leaves=max_leaves, split=split)
    points, masses = tree.sample()
    zeros = float((data[:, 0] == 0).sum())
    assert masses[points[:, 0] == 0].sum() == pytest.approx(zeros, rel=1e-12 if max_leaves is None else 0.02)
    naive.check_structure(tree.to_arrays())
    assert_total(tree, data, np.ones(MANY))


# ------------------------------------------------------------------ forgetting


@pytest.mark.parametrize("max_leaves", [4, 64, None])
@pytest.mark.parametrize("half_life", [0.5, 10.0, 1e4])
def test_forgetting_by_count(half_life, max_leaves):
    data = np.random.default_rng(0).normal(size=(1200, 2)) + np.linspace(0, 9, 1200)[:, None]
    tree = build(data, half_life=half_life, max_leaves=max_leaves)
    assert_total(tree, data, naive.forward_weights(np.ones(1200), np.arange(1200), half_life))


def test_after_one_half_life_an_event_counts_half():
    tree = SummaryTree(1, half_life=3.0)
    tree.insert([[0.0]], time=[100.0])
    tree.insert([[9.0]], time=[103.0])
    assert tree.total.weight[0] == 1.5
    assert tree.total.mean[0, 0] == 6.0
    tree.insert([[0.0]], time=[100.0])  # late: it weighs what it would have by now
    assert tree.total.weight[0] == 2.0
    assert tree.total.mean[0, 0] == 4.5


@pytest.mark.parametrize("max_leaves", [4, 64, None])
def test_forgetting_by_time_with_late_events(max_leaves):
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.exponential(size=1200)) - rng.exponential(20.0, size=1200)
    data = rng.normal(size=(1200, 2)) + times[:, None] / 100
    weights = rng.exponential(size=1200)
    tree = build(data, weight=weights, time=times, half_life=7.0, max_leaves=max_leaves)
    assert_total(tree, data, naive.forward_weights(weights, times, 7.0))


def finite(tree):
    points, masses = tree.sample()
    leaves, total = tree.leaves(), tree.total
    parts = [
        points,
        masses,
        leaves.weight,
        leaves.mean,
        leaves.scatter,
        total.weight,
        total.mean,
        total.scatter,
    ]
    return all(np.isfinite(part).all() for part in parts)


@pytest.mark.parametrize("max_leaves", [1, 8, None])
@pytest.mark.parametrize("gap", [70.0, 900.0, 1100.0, 1e4, 1e17, 1e22, 1e300])
def test_after_a_gap_of_many_half_lives_everything_before_is_forgotten(gap, max_leaves):
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(400, 2)), rng.normal(size=(50, 2)) + 100.0
    tree = build(before, time=np.linspace(0, 5, 400), half_life=1.0, max_leaves=max_leaves)
    tree.insert(after, time=gap)
    assert finite(tree)
    assert_total(tree, after, np.ones(50))
    points, masses = tree.sample()
    assert np.all(points[masses > 1e-12] > 50.0)
    if gap > 1000:
        assert np.all(points > 50.0)
        assert np.all(tree.leaves().mean > 50.0)
    tree.insert(before, time=0.0)  # so late that nothing is left of them
    assert finite(tree)
    assert_total(tree, after, np.ones(50))
    naive.check_structure(tree.to_arrays())


def test_an_exact_tree_keeps_every_event_that_follows_a_gap():
    rng = np.random.default_rng(0)
    tree = build(rng.normal(size=(300, 1)), time=0.0, half_life=1.0, max_leaves=None)
    after = np.concatenate([np.zeros((40, 1)), rng.normal(size=(40, 1)), np.zeros((40, 1))])
    tree.insert(after, time=2000.0)
    points, masses = tree.sample()
    assert set(points[:, 0]) == set(after[:, 0])
    assert masses[points[:, 0] == 0.0].sum() == pytest.approx(80.0, rel=1e-12)
    assert masses.sum() == pytest.approx(120.0, rel=1e-12)


@pytest.mark.compiled
def test_half_lives_far_too_short_forget_all_but_the_last_event():
    data = np.random.default_rng(0).normal(size=(500, 2))
    for half_life in (1e-3, 1e-20, 1e-300):
        tree = build(data, half_life=half_life, max_leaves=8)
        assert tree.total.weight[0] == 1.0
        np.testing.assert_allclose(tree.total.mean[0], data[-1], rtol=1e-12)
        assert finite(tree)


def test_moves_of_the_landmark_cannot_be_seen():
    rng = np.random.default_rng(0)
    data, times = rng.normal(size=(1500, 2)), np.linspace(0.0, 300.0, 1500)
    tree = SummaryTree(2, half_life=1.0, max_leaves=16)
    landmarks = set()
    for stop in range(50, 1501, 50):
        tree.insert(data[stop - 50 : stop], time=times[stop - 50 : stop])
        landmarks.add(float(tree.to_arrays()["clock"][0]))
        assert_total(tree, data[:stop], naive.forward_weights(np.ones(stop), times[:stop], 1.0))
        _, masses = tree.sample()
        assert masses.sum() == pytest.approx(tree.total.weight[0], rel=1e-12)
    assert len(landmarks) > 3


def test_what_is_forgotten_makes_room():
    rng = np.random.default_rng(0)
    tree = SummaryTree(2, half_life=50.0, max_leaves=16)
    for centre in (0.0, 100.0, 200.0):
        tree.insert(rng.normal(size=(6000 if not INTERPRETED else 2500, 2)) + centre)
    assert (tree.leaves().mean[:, 0] > 150).sum() >= 12


# ------------------------------------------------------------------ merging


def merge_shards(shards, pairwise, **settings):
    trees = [build(shard, seed=k, **settings) for k, shard in enumerate(shards)]
    while len(trees) > 1:
        if pairwise:
            for a, b in zip(trees[::2], trees[1::2], strict=True):
                a.merge(b)
            trees = trees[::2]
        else:
            trees[0].merge(trees.pop(1))
    return trees[0]


@pytest.mark.compiled
@pytest.mark.parametrize("pairwise", [False, True], ids=["in turn", "in pairs"])
@pytest.mark.parametrize("shards", ["random", "by cluster"])
@pytest.mark.parametrize(("d", "split"), [(2, "principal"), (8, "principal"), (8, "widest")])
def test_sixteen_merged_trees_are_nearly_as_good_as_one(d, split, shards, pairwise):
    data, labels = clustered(64_000, d)
    order = np.argsort(labels, kind="stable") if shards == "by cluster" else np.arange(len(data))
    settings = {"max_leaves": 128, "split": split}
    merged = merge_shards(np.array_split(data[order], 16), pairwise, **settings)
    one = build(data, **settings)
    assert merged.n_events == len(data)
    assert merged.n_leaves <= 128
    assert len(merged.to_arrays()["node"]) == 128
    assert_total(merged, data, np.ones(len(data)))
    naive.check_structure(merged.to_arrays())
    # in two dimensions leaves are small and those of two trees overlap: their unions are the wider for it
    assert within_leaves(merged) <= (1.9 if d == 2 else 1.5) * within_leaves(one)


@pytest.mark.parametrize("places", [(0.0, 100.0), (100.0, 0.0)])
def test_events_after_a_merge_find_the_leaves_of_both_trees(places):
    rng = np.random.default_rng(0)
    tree, other = (build(rng.normal(size=(300, 2)) + place, max_leaves=4, seed=1) for place in places)
    tree.merge(other)
    means = tree.leaves().mean
    assert {round(mean / 100) for mean in means[:, 0]} == {0, 1}
    np.testing.assert_array_equal(leaf_of(tree, means), np.flatnonzero(tree.to_arrays()["node"] >= 0))
    for place in places:
        tree.insert(rng.normal(size=(100, 2)) + place)
    assert within_leaves(tree) < 2 * 800


def test_merging_leaves_the_other_tree_as_it_was():
    rng = np.random.default_rng(0)
    tree, other = (build(rng.normal(size=(500, 2)), max_leaves=8, seed=seed) for seed in (1, 2))
    before = other.to_arrays()
    tree.merge(other)
    tree.insert(rng.normal(size=(100, 2)))
    for name, value in other.to_arrays().items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)


def test_merged_trees_go_on_learning():
    rng = np.random.default_rng(0)
    data = rng.normal(size=(1500, 3))
    for first, second in ((8, 8), (8, 100), (100, 8), (None, None), (8, None)):
        tree = build(data[:500], max_leaves=first, seed=1)
        tree.merge(build(data[500:1000], max_leaves=second, seed=2))
        tree.insert(data[1000:])
        assert tree.n_leaves <= (first or 1500)
        assert_total(tree, data, np.ones(1500))


def test_merging_by_time_keeps_both_clocks():
    data = np.random.default_rng(0).normal(size=(400, 2))
    times = np.concatenate([np.linspace(0, 100, 200), np.linspace(90, 500, 200)])
    weights = naive.forward_weights(np.ones(400), times, 10.0)
    for first, second in ((slice(0, 200), slice(200, 400)), (slice(200, 400), slice(0, 200))):
        tree = build(data[first], time=times[first], half_life=10.0, max_leaves=8)
        tree.merge(build(data[second], time=times[second], half_life=10.0, max_leaves=8, seed=1))
        assert_total(tree, data, weights)


def test_merging_by_count_takes_both_for_the_present():
    rng = np.random.default_rng(0)
    tree, other = (build(rng.normal(size=(n, 2)), half_life=10.0, max_leaves=8) for n in (300, 1000))
    both = tree.total.weight[0] + other.total.weight[0]
    tree.merge(other)
    assert tree.total.weight[0] == pytest.approx(both, rel=1e-12)


# ------------------------------------------------------------------ cuts


@pytest.fixture
def three_leaves():
    """{0, 2} | ({10, 12} | {20, 22})."""
    return build(np.array([[0.0], [2.0], [10.0], [12.0], [20.0], [22.0]]), leaf_size=4)


def values(moments):
    order = np.argsort(moments.mean[:, 0])
    parts = (moments.weight[order], moments.mean[order, 0], moments.scatter[order, 0, 0])
    return [part.tolist() for part in parts]


WHOLE = [[6.0], [11.0], [406.0]]
TWO = [[2.0, 4.0], [1.0, 16.0], [2.0, 104.0]]
THREE = [[2.0, 2.0, 2.0], [1.0, 11.0, 21.0], [2.0, 2.0, 2.0]]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"level": 0}, WHOLE), ({"level": 1}, TWO), ({"level": 2}, THREE), ({"level": 10**9}, THREE),
        ({"budget": 1}, WHOLE), ({"budget": 2}, TWO), ({"budget": 3}, THREE), ({"budget": 100}, THREE),
        ({"tolerance": 1.0}, WHOLE), ({"tolerance": 0.3}, TWO), ({"tolerance": 0.25}, THREE),
        ({"tolerance": 1e-9}, THREE),
    ],
)  # fmt: skip
def test_cuts_of_a_tiny_tree(three_leaves, rule, expected):
    assert values(three_leaves.moments(three_leaves.cut(**rule))) == expected


def test_refine_opens_the_nodes_it_is_given(three_leaves):
    root = three_leaves.cut(level=0)
    two = three_leaves.refine(root, root)
    assert values(three_leaves.moments(two)) == TWO
    wide = two[three_leaves.moments(two).weight == 4.0]
    leaf = two[three_leaves.moments(two).weight == 2.0]
    assert three_leaves.refine(two, leaf).tolist() == two.tolist()
    assert three_leaves.refine(two, np.empty(0, dtype=np.int64)).tolist() == two.tolist()
    assert values(three_leaves.moments(three_leaves.refine(two, wide))) == THREE
    assert values(three_leaves.moments(three_leaves.refine(two, two))) == THREE


def test_boxes_are_the_bounds_of_the_events(three_leaves):
    for rule, expected in (
        ({"level": 0}, [[0.0, 22.0]]),
        ({"level": 1}, [[0.0, 2.0], [10.0, 22.0]]),
        ({"level": 2}, [[0.0, 2.0], [10.0, 12.0], [20.0, 22.0]]),
    ):
        lo, hi = three_leaves.boxes(three_leaves.cut(**rule))
        assert sorted(np.column_stack([lo, hi]).tolist()) == expected


def test_leaves_and_sample_of_a_tiny_tree(three_leaves):
    assert values(three_leaves.leaves()) == THREE
    points, masses = three_leaves.sample()
    assert sorted(points[:, 0]) == [0.0, 2.0, 10.0, 12.0, 20.0, 22.0]
    assert masses.tolist() == [1.0] * 6


def test_a_cut_sees_what_was_inserted_since_the_last(three_leaves):
    assert three_leaves.moments(three_leaves.cut(level=0)).weight[0] == 6.0
    three_leaves.insert([[1.0]])
    assert three_leaves.moments(three_leaves.cut(level=0)).weight[0] == 7.0


def test_a_budget_opens_the_widest_first():
    data, _ = clustered(1500, 2, k=6)
    tree = build(data, max_leaves=32)
    spreads = [tree.moments(tree.cut(budget=budget)).trace.sum() for budget in range(1, 33)]
    assert all(len(tree.cut(budget=budget)) == budget for budget in range(1, 33))
    assert np.all(np.diff(spreads) <= 1e-9 * spreads[0])
    assert spreads[-1] == pytest.approx(within_leaves(tree), rel=1e-9)


# ------------------------------------------------------------------ a long stream


@pytest.mark.compiled
@pytest.mark.parametrize("half_life", [None, 10_000.0])
def test_a_million_events(half_life):
    n, d, step = 1_000_000, 8, 100_000
    rng = np.random.default_rng(0)
    data = rng.normal(size=(n, d)) + 1e4
    data += 20.0 * rng.integers(5, size=(n, 1))
    data[: n // 2] += np.linspace(0, 50, n // 2)[:, None]
    tree = SummaryTree(d, max_leaves=256, half_life=half_life)
    memory = []
    for start in range(0, n, step):
        tree.insert(data[start : start + step])
        memory.append(sum(value.nbytes for value in tree.to_arrays().values()))
    assert len(set(memory)) == 1
    weights = np.ones(n) if half_life is None else naive.forward_weights(np.ones(n), np.arange(n), half_life)
    recent = weights > 1e-20  # 66 half-lives: what is older is below the last digit
    assert tree.n_events == n
    assert tree.n_leaves == 256
    assert_total(tree, data[recent], weights[recent])
    naive.check_structure(tree.to_arrays())


# ------------------------------------------------------------------ for people


def test_repr():
    data = np.random.default_rng(0).normal(size=(200, 3))
    bounded = build(data, max_leaves=8, scatter="diagonal", half_life=1e5)
    told = "SummaryTree(200 events in 8 of at most 8 leaves, 3 features, diagonal scatter, half-life 100000)"
    assert repr(bounded) == told
    exact = SummaryTree(3, max_leaves=None)
    assert repr(exact) == "SummaryTree(0 events in 1 of unlimited leaves, 3 features, full scatter)"


def test_leaves_of_equal_events_are_worth_all_of_them():
    tree = SummaryTree(2, max_leaves=8)
    tree.insert(np.repeat([[0.0, 1.0], [5.0, 5.0]], 300, axis=0))
    assert tree.sample_size() == pytest.approx(600)
    spread = SummaryTree(2, max_leaves=8, seed=1)
    spread.insert(np.random.default_rng(0).normal(size=(600, 2)))
    weight = spread.sample()[1]
    assert spread.sample_size() == pytest.approx(weight.sum() ** 2 / (weight**2).sum())
