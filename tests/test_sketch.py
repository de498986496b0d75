"""Sketches: the map, how it is learnt, and what it does to bad input."""

import os
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from streamclust.moments import Moments
from streamclust.sketch import CoordinateMap, Sketch, check_sketch, identity, learn_sketch, relearn_sketch
from streamclust.sketch.learning import n_directions, noise_edge, principal, shares, units
from streamclust.sketch.spectrum import spectrum
from streamclust.tree import SummaryTree
from tests.naive import sketch as naive


def low_rank(n=300, d=90, rank=3, noise=0.05, seed=0, offset=0.0):
    """Events that vary in a few directions."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, d)) + noise * rng.normal(size=(n, d))
    return rows * rng.uniform(0.1, 10.0, d) + offset


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_the_map_is_that_of_its_slow_twin(unit, kind):
    rows = low_rank(d=12, offset=1.0).astype(kind)
    sketch = learn_sketch(rows.astype(float), max_directions=4, unit=unit)
    rows[3, 5] = rows[7, :4] = np.nan
    z, residual = sketch.measure(rows[:20])
    for i in range(20):
        there, left = naive.coordinates(rows[i], sketch.centre, sketch.scale, sketch.directions, unit)
        np.testing.assert_allclose(z[i], there, rtol=1e-9, atol=1e-9)
        assert residual[i] == pytest.approx(left, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize(("d", "directions"), [(65, 1), (90, 3), (101, 6), (384, 16)])
def test_a_row_has_the_same_bits_in_every_batch_and_precision(d, directions, unit):
    rows = np.random.default_rng(d).normal(size=(301, d)).astype(np.float32)
    rows[3, 5] = rows[7, :4] = np.nan
    sketch = learn_sketch(rows[10:], max_directions=directions, unit=unit)
    whole = sketch.measure(rows)
    for first, stop in ((0, 1), (1, 2), (2, 9), (7, 8), (3, 301)):
        for batch in (rows[first:stop], rows[first:stop].astype(float)):
            for one, other in zip(sketch.measure(batch), whole, strict=True):
                np.testing.assert_array_equal(one, other[first:stop])


@pytest.mark.parametrize("unit", [False, True])
def test_sparse_rows_have_the_coordinates_of_dense_ones(unit):
    rng = np.random.default_rng(1)
    rows = np.where(rng.random((200, 90)) < 0.1, rng.exponential(size=(200, 90)), 0.0)
    rows[:, 0] += 0.1
    dense, sparse = learn_sketch(rows, unit=unit), learn_sketch(csr_array(rows), unit=unit)
    np.testing.assert_allclose(dense.centre, sparse.centre, atol=1e-12)
    np.testing.assert_allclose(dense.directions, sparse.directions, atol=1e-6)
    for one, other in zip(dense.measure(rows), dense.measure(csr_array(rows)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


def test_the_map_is_linear_so_moments_stay_exact():
    rows = low_rank(offset=1e8)
    sketch = learn_sketch(rows)
    whole = Moments.of_points(sketch.project(rows))
    np.testing.assert_allclose(sketch.expand(whole.mean)[0], rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(
        sketch.directions.T @ sketch.directions, np.eye(sketch.n_directions), atol=1e-9
    )
    again = sketch.project(sketch.expand(sketch.project(rows)))
    np.testing.assert_allclose(again, sketch.project(rows), atol=1e-5)
    features = sketch.expand_moments(whole)
    np.testing.assert_allclose(features.covariance[0], rows.var(axis=0), rtol=1e-6)


def test_moments_of_every_kind_are_expanded():
    sketch = learn_sketch(low_rank())
    full = Moments.of_points(sketch.project(low_rank(seed=3)))
    for kind in ("diagonal", "scalar", "none"):
        found = sketch.expand_moments(full.to(kind))
        np.testing.assert_allclose(found.mean, sketch.expand(full.mean))
        assert found.kind == ("none" if kind == "none" else "diagonal")
    total = sketch.expand_moments(full.to("scalar")).covariance / sketch.scale**2
    assert total.sum() == pytest.approx((sketch.expand_moments(full).covariance / sketch.scale**2).sum())


@pytest.mark.parametrize(("n", "d"), [(300, 40), (30, 90)])
def test_variances_are_those_of_the_slow_twin(n, d):
    rows, weight = low_rank(n, d), np.random.default_rng(1).uniform(0.5, 2.0, n)
    share = shares(n, weight)
    centre, scale = units(rows, share, unit=False)
    for x in (rows, csr_array(rows)):
        variance, directions = principal(x, share, centre, scale)
        expected = naive.variances(rows, weight)[: len(variance)]
        np.testing.assert_allclose(variance, expected, rtol=1e-6, atol=1e-9 * expected[0])
        np.testing.assert_allclose(directions.T @ directions, np.eye(len(variance)), atol=1e-8)


@pytest.mark.parametrize(
    ("n", "rank", "most"), [(1, 1, 1), (2, 2, 1), (3, 1, 3), (70, 70, 5), (70, 9, 16), (200, 4, 200)]
)
def test_the_spectrum_is_that_of_numpy(n, rank, most):
    """Also where most eigenvalues are 0, so that their vectors may be any."""
    x = np.random.default_rng(n).normal(size=(n, rank))
    matrix = x @ x.T
    values, vectors = spectrum(matrix, most)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix)[::-1], atol=1e-9 * values[0])
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(most), atol=1e-9)
    np.testing.assert_allclose(matrix @ vectors, values[:most] * vectors, atol=1e-8 * values[0])


def test_directions_are_those_above_the_noise():
    noise = np.random.default_rng(0).normal(size=(1024, 200))
    variance, _ = principal(noise, shares(1024, None), np.zeros(200), np.ones(200))
    assert variance[0] == pytest.approx(noise_edge(variance, 1024, 200), rel=0.1)
    assert n_directions(np.r_[np.full(5, 9.0), variance], 1024, 200, 64) in (5, 6)
    assert n_directions(np.r_[np.full(5, 9.0), variance], 1024, 200, 3) == 3


def test_units_of_features_do_not_matter():
    rows = low_rank()
    factor = 10.0 ** np.random.default_rng(2).integers(-8, 9, rows.shape[1])
    one, other = learn_sketch(rows).project(rows), learn_sketch(rows * factor).project(rows * factor)
    np.testing.assert_allclose(one, other, atol=1e-6)
    length = np.random.default_rng(3).uniform(0.1, 10.0, (len(rows), 1))
    one, other = learn_sketch(rows, unit=True), learn_sketch(rows * length, unit=True)
    np.testing.assert_allclose(one.project(rows), other.project(rows * length), atol=1e-6)


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((5, 70)),
        np.full((50, 70), 1e8 + 0.3),
        np.ones((1, 70)),
        np.eye(3, 500),
        np.full((20, 70), 1e-8) * np.arange(20)[:, None],
        np.where(np.arange(70) < 5, np.nan, np.random.default_rng(0).normal(size=(40, 70))),
    ],
    ids=["zeros", "equal", "one", "fewer than features", "tiny", "missing columns"],
)
def test_odd_events_give_a_sketch_all_the_same(rows):
    for unit in (False, True):
        sketch = learn_sketch(rows, unit=unit)
        check_sketch(sketch)
        z, residual = sketch.measure(rows)
        assert np.isfinite(z).all()
        assert (residual >= 0).all()
        assert np.isfinite(sketch.surprise(residual)).all()
        assert not sketch.outside(residual).all() or len(rows) > 5


def test_residuals_are_told_and_average_ones_are_no_surprise():
    rows = low_rank(n=2048)
    sketch = learn_sketch(rows[:1024])
    _, fresh = sketch.measure(rows[1024:])
    assert abs(sketch.surprise(fresh).mean()) < 2.0
    assert sketch.outside(fresh).mean() < 0.02
    _, apart = sketch.measure(low_rank(seed=9))
    assert sketch.outside(apart).mean() > 0.9
    assert sketch.surprise(apart).min() > sketch.surprise(fresh).mean()


def test_features_that_come_later_count_in_the_residual_alone():
    sketch = learn_sketch(low_rank())
    rows = low_rank(n=5)
    more = np.c_[rows, np.full((5, 2), 3.0)]
    (z, left), (same, longer) = sketch.measure(rows), sketch.measure(more)
    np.testing.assert_array_equal(z, same)
    assert (longer > left).all()
    fewer, _ = sketch.measure(rows[:, :80])
    assert fewer.shape == z.shape


def test_damaged_sketches_are_refused():
    sketch = identity(3)
    check_sketch(sketch)
    for bad in (
        Sketch(np.zeros(2), np.ones(3), np.eye(3), np.zeros(3)),
        Sketch(np.zeros(3), np.zeros(3), np.eye(3), np.zeros(3)),
        Sketch(np.zeros(3), np.ones(3), np.full((3, 1), np.nan), np.zeros(3)),
        Sketch(np.zeros(3), np.ones(3), np.ones((3, 4)), np.zeros(3)),
    ):
        with pytest.raises(ValueError, match="not a sketch"):
            check_sketch(bad)
    assert not sketch.is_same(None)
    assert not sketch.is_same(identity(3, unit=True))
    assert sketch.is_same(identity(3))


@pytest.mark.parametrize("kind", ["full", "diagonal", "scalar"])
def test_what_was_learnt_through_one_sketch_is_carried_over_to_another(kind):
    rng = np.random.default_rng(0)
    basis = rng.normal(size=(4, 90))
    rows = rng.normal(size=(3000, 4)) @ basis * rng.uniform(0.1, 10.0, 90)
    old, new = learn_sketch(rows[:500], max_directions=4), learn_sketch(rows, max_directions=6)
    change = CoordinateMap.between(old, new)
    exact = new.project(rows)
    np.testing.assert_allclose(change.points(old.project(rows), rng), exact, atol=1e-6)
    whole = change.moments(Moments.of_points(old.project(rows)))
    np.testing.assert_allclose(whole.scatter, Moments.of_points(exact).scatter, atol=1e-5)
    tree = SummaryTree(old.n_directions, kind, max_leaves=32, seed=3)
    tree.insert(old.project(rows))
    carried = tree.carried(change)
    assert (carried.n_events, carried.n_features) == (3000, new.n_directions)
    assert carried.n_leaves <= 32
    np.testing.assert_allclose(carried.total.mean[0], exact.mean(axis=0), atol=1e-6)
    if kind == "full":
        np.testing.assert_allclose(carried.total.scatter, Moments.of_points(exact).scatter, atol=1e-4)
    low, high = carried.boxes(np.zeros(1, dtype=np.int64))
    points, weight = carried.sample()
    assert np.all((low <= points) & (points <= high))
    assert weight.sum() == pytest.approx(3000)
    carried.insert(exact[:100])  # it goes on as any tree
    assert carried.total.weight[0] == pytest.approx(3100)
    nothing = SummaryTree(old.n_directions, kind, max_leaves=32).carried(change)
    nothing.insert(exact[:50])
    assert nothing.total.weight[0] == 50


def test_residuals_have_their_variance_in_the_new_coordinates():
    rows = low_rank(n=4000, rank=2, noise=0.5)
    old = learn_sketch(rows, max_directions=2)
    anywhere, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(90, 5)))
    new = Sketch(old.centre, old.scale, np.ascontiguousarray(anywhere), old.noise)
    change = CoordinateMap.between(old, new)
    exact = Moments.of_points(new.project(rows)).covariance[0]
    carried = change.moments(Moments.of_points(old.project(rows))).covariance[0]
    assert np.trace(carried) == pytest.approx(np.trace(exact), rel=0.1)
    assert np.trace(carried - change.noise) < 0.9 * np.trace(exact)
    points = change.points(old.project(rows), np.random.default_rng(0))
    np.testing.assert_allclose(np.cov(points.T, bias=True), carried, atol=0.1 * np.trace(carried))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_a_sketch_learnt_anew_sees_the_past_and_the_present(sparse, unit):
    before, after = low_rank(n=600, rank=3), low_rank(n=600, rank=3, seed=5)
    form = csr_array if sparse else np.asarray
    old = learn_sketch(form(before), unit=unit)
    past = Moments.of_points(old.project(form(before)))
    new = relearn_sketch(old, past, form(after), max_directions=8)
    assert new.n_directions <= 8
    np.testing.assert_allclose(new.directions.T @ new.directions, np.eye(new.n_directions), atol=1e-9)
    for rows in (before, after):
        z, residual = new.measure(form(rows))
        assert residual.mean() < 0.1 * (residual + (z**2).sum(axis=1)).mean()
    assert old.measure(form(after))[1].mean() > 5 * new.measure(form(after))[1].mean()
    assert new.level == pytest.approx(new.measure(form(after))[1].mean(), rel=0.5)
    wider = relearn_sketch(old, past, form(np.c_[after, np.ones((600, 2))]), max_directions=8)
    assert (wider.n_features, wider.unit) == (92, unit)


def long_tails(n=1500, d=90, k=2, seed=0):
    """Events whose entries are mostly 0 and else log-normal; a quarter of the columns is each cluster's own."""
    rng = np.random.default_rng(seed)
    of = rng.integers(k, size=n)
    mine = rng.integers(4, size=d) == of[:, None]
    value = np.exp(rng.normal(size=(n, d)) + mine)
    return np.where(rng.random((n, d)) < np.where(mine, 0.7, 0.2), value, 0.0), of


def test_long_tails_are_compressed():
    rows, _ = long_tails()
    rows[:, 0], rows[:, 1] = (rows[:, 0] > 0), rows[:, 1] - 1.0  # two values; some negative
    sketch = learn_sketch(rows)
    knee = sketch.compression.knee
    assert (knee[:2] == 0).all()
    assert (knee[2:] > 0).mean() > 0.95
    x = rows.copy()
    x[:, knee > 0] = np.arcsinh(rows[:, knee > 0] / knee[knee > 0])
    for i in range(20):
        there, left = naive.coordinates(x[i], sketch.centre, sketch.scale, sketch.directions, False)
        z, residual = sketch.measure(rows[i : i + 1])
        np.testing.assert_allclose(z[0], there, rtol=1e-9, atol=1e-9)
        assert residual[0] == pytest.approx(left, rel=1e-6, abs=1e-9)
    assert learn_sketch(rows, unit=True).compression is None
    assert learn_sketch(np.maximum(np.random.default_rng(0).normal(size=(1500, 90)), 0.0)).compression is None
    assert learn_sketch((rows > 0) * 1.0).compression is None


def test_compression_is_the_same_for_sparse_rows_weights_and_units():
    rows, _ = long_tails(n=400)
    sketch = learn_sketch(rows)
    sparse = learn_sketch(csr_array(rows))
    np.testing.assert_allclose(sparse.compression.knee, sketch.compression.knee, rtol=1e-9)
    for one, other in zip(sketch.measure(rows), sketch.measure(csr_array(rows)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)
    twice = learn_sketch(np.repeat(rows, 2, axis=0))
    weighed = learn_sketch(np.vstack([rows, rows]), np.repeat([1.5, 0.5], len(rows)))
    np.testing.assert_allclose(twice.compression.knee, weighed.compression.knee, rtol=1e-9)
    factor = 10.0 ** np.random.default_rng(2).integers(-8, 9, rows.shape[1])
    np.testing.assert_allclose(
        sketch.project(rows), learn_sketch(rows * factor).project(rows * factor), atol=1e-6
    )
    larger = learn_sketch(rows * 1e100)
    np.testing.assert_allclose(sketch.project(rows), larger.project(rows * 1e100), atol=1e-6)


def test_compressed_features_are_told_right_on_average():
    rows, of = long_tails(n=4000)
    sketch = learn_sketch(rows)
    groups = Moments.rows_of_points(sketch.project(rows)).to_groups(of, kind="full")
    told = sketch.expand_moments(groups)
    total = np.average(told.mean, axis=0, weights=told.weight)
    np.testing.assert_allclose(total, rows.mean(axis=0), rtol=1e-6)
    truth = np.array([rows[of == j].mean(axis=0) for j in range(2)])
    assert np.corrcoef(told.mean.ravel(), truth.ravel())[0, 1] > 0.9
    deviation = np.sqrt(sketch.expand_moments(Moments.of_points(sketch.project(rows))).covariance[0])
    np.testing.assert_allclose(deviation, rows.std(axis=0), rtol=0.05)


def test_compression_is_kept_when_a_sketch_is_learnt_anew_and_carried_over():
    rows, _ = long_tails()
    old = learn_sketch(rows[:700], max_directions=8)
    new = relearn_sketch(old, Moments.of_points(old.project(rows)), np.pad(rows, ((0, 0), (0, 3))))
    np.testing.assert_array_equal(new.compression.knee, np.pad(old.compression.knee, (0, 3)))
    check_sketch(new)
    change = CoordinateMap.between(old, new)
    assert np.abs(change.matrix).max() > 0.5
    otherwise = replace(new, compression=new.compression._replace(knee=new.compression.knee * 2))
    assert not otherwise.is_same(new)
    assert not replace(new, compression=None).is_same(new)
    assert np.abs(CoordinateMap.between(old, otherwise).matrix).max() < 0.5  # only what neither compresses
    with pytest.raises(ValueError, match="compression"):
        check_sketch(replace(old, compression=new.compression))
    with pytest.raises(ValueError, match="compression"):
        check_sketch(replace(old, compression=old.compression._replace(knee=-old.compression.knee)))


def test_features_of_two_values_have_their_plain_deviation():
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.random(500) < 0.1, rng.integers(3, size=500), rng.random(500) < 0.002]) * 1.0
    for form in (rows, csr_array(rows)):
        _, scale = units(form, shares(500, None), False)
        assert scale[0] == pytest.approx(rows[:, 0].std())
        assert (scale[1:] > rows[:, 1:].std(axis=0) * 1.2).all()


LEARNING = """
    import hashlib
    import numpy as np
    from streamclust.sketch import learn_sketch, relearn_sketch
    from streamclust.moments import Moments
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1024, 4)) @ rng.normal(size=(4, 1500)) + 0.3 * rng.normal(size=(1024, 1500))
    first = learn_sketch(x)
    again = relearn_sketch(first, Moments.of_points(first.project(x[:500])), x[500:])
    parts = [part for each in (first, again) for part in (each.centre, each.scale, each.directions, each.noise)]
    print(hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest())
"""


def test_bits_do_not_depend_on_the_number_of_threads_of_blas():
    found = set()
    for n in "12":
        limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), n)
        command = [sys.executable, "-c", textwrap.dedent(LEARNING)]
        ran = subprocess.run(command, env=os.environ | limits, capture_output=True, text=True, check=True)
        found.add(ran.stdout)
    assert len(found) == 1
