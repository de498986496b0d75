"""Learning a sketch: the directions in which events vary most, out of the noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from importlib import import_module
from threading import Lock
from typing import ParamSpec, TypeVar

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.moments import Moments
from streamclust.sketch.compression import Compression, Rows, learn_compression
from streamclust.sketch.sketch import Sketch
from streamclust.sketch.spectrum import spectrum
from streamclust.sketch.tuning import TUNING
from streamclust.utils.late import csr_array, diags_array, eigh, issparse, threadpool_limits
from streamclust.utils.outliers import outlying

MAX_DIRECTIONS = TUNING.max_directions
BLAS = Lock()
"""Held while BLAS is limited to one thread: the limit is the whole process's, and whoever ends it ends it for all."""
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def with_one_thread(learn: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Limit BLAS to one thread: bits would depend on their number, and others would mostly wait, busily."""

    @wraps(learn)
    def limited(*args: Parameters.args, **options: Parameters.kwargs) -> Result:
        import_module(
            "scipy.linalg"
        )  # it has a BLAS of its own, and the limit holds for those that are there
        with BLAS, threadpool_limits(1, user_api="blas"):
            return learn(*args, **options)

    return limited


@with_one_thread
def learn_sketch(
    rows: Rows, weight: Floats | None = None, max_directions: int = MAX_DIRECTIONS, unit: bool = False
) -> Sketch:
    """The sketch of events: principal directions above the noise, at most `max_directions`.

    Features are compared in their deviations or, with `unit`, as they are, after each event was divided by its length.
    Without `unit` those of zeros and long tails are compressed before (see `Compression`).

    >>> learn_sketch(np.ones((10, 100)))
    Sketch(100 features in 1 directions)
    """
    rows, weight = without_outliers(rows, weight)
    share = shares(rows.shape[0], weight)
    compression = None if unit else learn_compression(rows, share)
    x = compared(rows, unit, compression)
    centre, scale = units(x, share, unit, compression)
    variance, directions = principal(x, share, centre, scale, max_directions)
    d = n_directions(variance, rows.shape[0], rows.shape[1], max_directions)

    def learn(part: Rows, share: Floats) -> Floats:
        return principal(part, share, centre, scale, d)[1]

    kept = np.ascontiguousarray(directions[:, :d])
    found = Sketch(centre, scale, kept, np.zeros(len(centre)), unit=unit, compression=compression)
    level, spread = residuals(x, share, centre, scale, learn)
    return replace(found, noise=left_out(found, rows, x, share), level=level, spread=spread)


@with_one_thread
def relearn_sketch(
    old: Sketch, past: Moments, rows: Rows, weight: Floats | None = None, max_directions: int = MAX_DIRECTIONS
) -> Sketch:
    """A sketch of the past and the present, which count alike: the events that `old` has seen, and new `rows`.

    `past` is one row: the moments of all events in the coordinates of `old`, whose centre and units are kept.
    """
    rows, weight = without_outliers(rows, weight)
    share = shares(rows.shape[0], weight)
    x = compared(rows, old.unit, old.compression)
    more = max(0, x.shape[1] - old.n_features)
    centre = np.concatenate([old.centre, np.zeros(more)])
    scale = np.concatenate([old.scale, np.full(more, np.median(old.scale))])
    known = np.pad(old.directions, ((0, more), (0, 0)))
    spread = past.covariance[0]
    if past.kind != "full":
        spread = np.diag(np.broadcast_to(spread, old.n_directions))
    before = known, spread + np.outer(past.mean[0], past.mean[0])

    def learn(part: Rows, share: Floats) -> Floats:
        variance, present = principal(part, share, centre, scale, max_directions)
        d = n_directions(variance, part.shape[0], part.shape[1], max_directions)
        return leading([before, (present[:, :d], np.diag(variance[:d]))], max_directions)

    compression = old.compression and old.compression.widened(more)
    zeros = np.zeros(len(centre))
    found = Sketch(
        centre, scale, learn(x, share), zeros,
        unit=old.unit, compression=compression, independent=old.independent,
    )  # fmt: skip
    level, deviation = residuals(x, share, centre, scale, learn)
    return replace(found, noise=left_out(found, rows, x, share), level=level, spread=deviation)


def leading(parts: Sequence[tuple[Floats, Floats]], most: int) -> Floats:
    """The `most` directions of largest second moment, of several spaces together, each counting alike.

    A space is given by orthonormal directions, and the second moments in their coordinates.
    """
    basis, _ = np.linalg.qr(np.concatenate([directions for directions, _ in parts], axis=1))
    within = [basis.T @ directions for directions, _ in parts]
    moments = [each @ second @ each.T for each, (_, second) in zip(within, parts, strict=True)]
    variance, found = eigh(np.sum(moments, axis=0))
    order = np.argsort(variance)[::-1][:most]
    order = order[variance[order] > 1e-12 * max(variance[order[0]], np.finfo(float).tiny)]
    return pointing_up(basis @ found[:, order])


def left_out(sketch: Sketch, rows: Rows, x: Rows, share: Floats) -> Floats:
    """The mean square of each feature, in its unit, outside the directions; `x` are the rows as they are compared."""
    z, kept = sketch.project(rows), sketch.directions
    inside = np.einsum("jk,kl,jl->j", kept, (z * share[:, None]).T @ z, kept, optimize=True)
    return np.asarray(np.maximum(second_moments(x, share, sketch.centre, sketch.scale) - inside, 0.0))


def second_moments(x: Rows, share: Floats, centre: Floats, scale: Floats) -> Floats:
    """The mean squared deviation of each feature from the centre, in its unit; what is missing has none."""
    if issparse(x):
        squares = np.asarray(share @ x.multiply(x)) - 2.0 * centre * np.asarray(share @ x) + centre**2
        return np.asarray(squares / scale**2)
    y = scaled(x, centre, scale)
    return np.asarray(share @ np.square(y, out=y))


def scaled(x: Floats, centre: Floats, scale: Floats) -> Floats:
    """Rows as deviations from the centre in the features' units, 0 where a value is missing; one copy of them."""
    y = np.subtract(x, centre, dtype=float)
    y /= scale
    return np.nan_to_num(y, copy=False)


def without_outliers(rows: Rows, weight: Floats | None) -> tuple[Rows, Floats | None]:
    """Events and weights without those of a value far from all others; sparse rows as they are."""
    if issparse(rows) or not (found := outlying(rows)).any():
        return rows, weight
    return rows[~found], weight if weight is None or not len(weight) else weight[~found]


def shares(n: int, weight: Floats | None) -> Floats:
    """The part of the weight that each event has."""
    return np.full(n, 1.0 / n) if weight is None or not len(weight) else weight / weight.sum()


def compared(rows: Rows, unit: bool, compression: Compression | None) -> Rows:
    """Events as they are compared: on the sphere, or compressed."""
    if unit:
        return on_sphere(rows)
    return rows.astype(float, copy=False) if compression is None else compression.of(rows)


def on_sphere(rows: Rows) -> Rows:
    """Events divided by their length."""
    if issparse(rows):
        length = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1), dtype=float)).ravel()
        return csr_array(diags_array(1.0 / np.where(length > 0, length, 1.0)) @ rows)
    squares = np.einsum("ij,ij->i", rows, rows, dtype=float)
    if np.isnan(squares).any():
        squares = np.nansum(np.square(rows, dtype=float), axis=1)
    length = np.sqrt(squares)
    return np.asarray(rows / np.where(length > 0, length, 1.0)[:, None], dtype=float)


def units(
    x: Rows, share: Floats, unit: bool, compression: Compression | None = None
) -> tuple[Floats, Floats]:
    """Mean and unit of each feature. One that does not vary has the typical unit of those that do.

    The unit is the deviation of the events that do not have the feature's most common value: in its plain deviation, a
    feature that is 0 in nearly all events would be as large as any other in all directions together. Of features with
    two values, and of compressed ones, whose other values are all about as large, it is the plain deviation.
    """
    if issparse(x):
        centre = np.asarray(share @ x, dtype=float)
        variance = np.asarray(share @ x.multiply(x), dtype=float) - centre**2
    else:
        known = ~np.isnan(x)
        mass = np.maximum(share @ known, np.finfo(float).tiny)
        # Taken from the first value: far from the origin a mean of all would lose digits.
        first = np.nan_to_num(x[known.argmax(axis=0), np.arange(x.shape[1])]).astype(float)
        gaps = np.subtract(x, first, dtype=float)
        np.copyto(gaps, 0.0, where=~known)
        shift = share @ gaps / mass
        gaps -= shift
        np.copyto(gaps, 0.0, where=~known)
        variance = share @ np.square(gaps, out=gaps) / mass
        centre = first + shift
    if unit:
        return centre, np.ones(len(centre))
    varied = varied_share_sparse(x) if issparse(x) else varied_share(x)
    if compression is not None:
        varied = np.where(compression.chosen, 1.0, varied)
    deviation = np.sqrt(np.maximum(variance, 0.0) / np.minimum(varied, 1.0))
    varies = deviation > 1e-12 * np.abs(centre)
    typical = float(np.median(deviation[varies])) if varies.any() else 1.0
    return centre, np.where(varies, deviation, typical)


def varied_share(x: Floats) -> Floats:
    """For each feature the share of events, of those that have it, without its most common value; 1 if all differ.

    Also 1 if a feature has two values, and both more than a few times.

    >>> varied_share(np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0], [7.0, np.nan]]))
    array([0.5, 1. ])
    """
    n, d = x.shape
    ordered = np.sort(x, axis=0)
    run = np.zeros((n, d), dtype=np.int64)
    run[1:] = np.cumsum(ordered[1:] != ordered[:-1], axis=0)
    longest = np.bincount((run + n * np.arange(d)).ravel(), minlength=n * d).reshape(d, n).max(axis=1)
    n_known = np.maximum(n - np.isnan(x).sum(axis=0), 1)
    return share_without(longest, n_known, run[n_known - 1, np.arange(d)] == 1)


def share_without(longest: Ints, n_known: Ints, two_valued: Bools) -> Floats:
    """`varied_share` from counts: of each feature's most common value, and of its known values."""
    other = n_known - longest
    share = np.minimum((other + 1.0) / n_known, 1.0)
    return np.where(two_valued & (np.minimum(other, longest) >= TUNING.min_judged_events), 1.0, share)


def varied_share_sparse(x: Rows) -> Floats:
    """`varied_share` of sparse rows; absent values are 0."""
    n, d = x.shape
    held = x.data != 0
    column, value = x.indices[held], x.data[held]
    order = np.lexsort((value, column))
    column, value = column[order], value[order]
    starts = np.flatnonzero(np.r_[True, (np.diff(column) != 0) | (np.diff(value) != 0)][: len(value)])
    zeros = n - np.bincount(column, minlength=d)
    longest = zeros.copy()
    np.maximum.at(longest, column[starts], np.diff(np.r_[starts, len(value)]))
    values = np.bincount(column[starts], minlength=d) + (zeros > 0)
    return share_without(longest, np.full(d, n), values == 2)


def principal(
    x: Rows, share: Floats, centre: Floats, scale: Floats, most: int | None = None
) -> tuple[Floats, Floats]:
    """Variances of scaled events, largest first, and the orthonormal directions of them, or of the `most` largest.

    From the smaller of the two Gram matrices.
    """
    n, d = x.shape
    root, base = np.sqrt(share), centre / scale
    if issparse(x):
        y = csr_array(diags_array(root) @ x @ diags_array(1.0 / scale))
        along = np.asarray(y @ base)
        gram = np.asarray((y @ y.T).todense()) - np.outer(along, root) - np.outer(root, along)
        gram += np.outer(root, root) * float(base @ base)
    else:
        y = scaled(x, centre, scale)
        y *= root[:, None]
        gram = y.T @ y if d <= n else y @ y.T
    variance, kept = spectrum(gram, min(len(gram), most or len(gram)))
    variance = variance[: max(1, n - 1)]
    if not variance[0] > 0.0:  # all events are equal: any direction does
        return np.zeros(1), np.eye(d, 1)
    variance = variance[variance > 1e-12 * variance[0]]
    kept = kept[:, : len(variance)]
    if issparse(x):
        kept = np.asarray(y.T @ kept - np.outer(base, root @ kept))
    elif d > n:
        kept = y.T @ kept
    directions, _ = np.linalg.qr(kept)
    return variance, pointing_up(directions)


def pointing_up(directions: Floats) -> Floats:
    """Directions with the sign that makes their largest entry positive."""
    largest = directions[np.abs(directions).argmax(axis=0), np.arange(directions.shape[1])]
    return np.ascontiguousarray(directions * np.where(largest < 0, -1.0, 1.0))


def n_directions(variance: Floats, n: int, n_features: int, most: int) -> int:
    """How many directions to keep: those of more variance than noise has, at most `most`."""
    above = variance > noise_edge(variance, n, n_features)
    return int(np.clip(above.sum(), 1, most))


def noise_edge(variance: Floats, n: int, n_features: int) -> float:
    """The largest variance that noise alone gives a direction of n events (Marchenko and Pastur).

    The noise of a feature is taken from the median of the variances.
    """
    full = np.zeros(min(n, n_features))
    full[: len(variance)] = variance[: len(full)]
    ratio = n_features / n
    return float(np.median(full) / median_of_noise(ratio) * (1.0 + np.sqrt(ratio)) ** 2)


def median_of_noise(ratio: float) -> float:
    """The median positive variance of noise of variance 1, with `ratio` features for each event."""
    low, high = (1.0 - np.sqrt(ratio)) ** 2, (1.0 + np.sqrt(ratio)) ** 2
    angle = (
        (np.arange(2000) + 0.5) / 2000 * np.pi
    )  # x = middle - half cos(angle): the ends' roots are smooth in it
    x = (low + high) / 2 - (high - low) / 2 * np.cos(angle)
    density = np.sqrt(np.maximum((high - x) * (x - low), 0.0)) / x * np.sin(angle)
    reached = np.cumsum(density)
    return float(x[np.searchsorted(reached, reached[-1] / 2)])


def residuals(
    x: Rows, share: Floats, centre: Floats, scale: Floats, learn: Callable[[Rows, Floats], Floats]
) -> tuple[float, float]:
    """Mean and deviation of the squared residuals of new events: of one half outside the directions of the other.

    `learn` finds directions from events and their shares of the weight.
    """
    n = x.shape[0]
    if n < TUNING.min_judged_events:
        return 0.0, 0.0
    half, other = np.arange(0, n, 2), np.arange(1, n, 2)
    directions = np.ascontiguousarray(learn(x[half], share[half] / share[half].sum()))
    z, squares = Sketch(centre, scale, directions, np.zeros(len(centre))).measure(x[other])
    weight = share[other] / share[other].sum()
    level = max(float(weight @ squares), TUNING.min_residual_share * float(weight @ (z**2).sum(axis=1)))
    spread = float(np.sqrt(weight @ (squares - level) ** 2))
    # no narrower than noise in as many dimensions as are left
    return level, max(spread, level * np.sqrt(2.0 / max(1, len(centre) - directions.shape[1])))
