"""Compression: features of zeros and long tails, such as counts of words, are compared by logarithm, about."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamclust._kernels.sketch import compress_cells, compress_rows
from streamclust._kernels.types import Bools, Floats
from streamclust.sketch.tuning import TUNING
from streamclust.utils.late import csr_array, issparse

Rows = Any
"""Dense rows (an array), NaN where a value is missing; or sparse rows (a csr_array), whose absent values are 0."""

EXPONENTIAL_NATS = 0.33
"""Nats by which one exponential value is likelier as log-normal than as normal. Nothing is compressed unless the
features that could be have longer tails, by all their values: the pixels of images, mostly 0 at the edges, do not."""
KNEE_DEVIATIONS = 1.28
"""The knee, in deviations of the logarithm below its mean: a tenth of a log-normal's values are smaller."""


class Compression(NamedTuple):
    """The compressed value of x is asinh(x / knee): x / knee for small ones, and their logarithm, about, for large.

    knee       (D,)  0 for features that are left as they are
    gain       (D,)  mean of the feature, as a multiple of that of its compressed values; else 1
    stretch    (D,)  the same of standard deviations
    """

    knee: Floats
    gain: Floats
    stretch: Floats

    @property
    def chosen(self) -> Bools:
        """Which features are compressed."""
        return np.asarray(self.knee > 0.0)

    def of(self, rows: Rows) -> Rows:
        """Rows with the features compressed; columns past those that are known are left as they are."""
        if issparse(rows):
            data = rows.data.astype(float)
            compress_cells(rows.indices.astype(np.int64), data, self.knee)
            return csr_array((data, rows.indices, rows.indptr), shape=rows.shape)
        found = np.array(rows, dtype=float, order="C")
        compress_rows(found, self.knee)
        return found

    def widened(self, more: int) -> Compression:
        """The compression for `more` further features, which stay as they are."""
        return Compression(
            np.pad(self.knee, (0, more)),
            np.pad(self.gain, (0, more), constant_values=1.0),
            np.pad(self.stretch, (0, more), constant_values=1.0),
        )


def is_same(one: Compression | None, other: Compression | None) -> bool:
    """Whether both compress alike, or nothing."""
    return one is other or (one is not None and other is not None and np.array_equal(one.knee, other.knee))


def learn_compression(rows: Rows, share: Floats) -> Compression | None:
    """How to compress the features of events whose shares of the weight are given; None if none is to be.

    >>> rng = np.random.default_rng(0)
    >>> rows = np.where(rng.random((500, 2)) < 0.3, np.exp(rng.normal(size=(500, 2))), 0.0)
    >>> rows[:, 1] = rng.normal(size=500)
    >>> learn_compression(rows, np.full(500, 1 / 500)).chosen
    array([ True, False])
    """
    knee = knees(rows, share)
    if not knee.any():
        return None
    plain = Compression(knee, np.ones(len(knee)), np.ones(len(knee)))
    before, after = mean_and_deviation(rows, share), mean_and_deviation(plain.of(rows), share)
    gain, stretch = (
        np.where(knee > 0, x / np.where(y > 0, y, 1.0), 1.0) for x, y in zip(before, after, strict=True)
    )
    return Compression(knee, gain, stretch)


def knees(rows: Rows, share: Floats) -> Floats:
    """The knee of each feature; 0 for those that are left as they are."""
    value, each, column, zeros, least = cells(rows, share)
    d = rows.shape[1]
    mass = np.bincount(column, each, d)
    n = np.bincount(column, minlength=d)
    most = np.zeros(d)
    np.maximum.at(most, column, value)
    unit = value / most[column]  # so that no square overflows
    log = np.log(np.maximum(unit, np.finfo(float).tiny))
    some = np.maximum(mass, np.finfo(float).tiny)

    def moments(x: Floats) -> tuple[Floats, Floats]:
        mean = np.bincount(column, each * x, d) / some
        return mean, np.bincount(column, each * (x - mean[column]) ** 2, d) / some

    (_, variance), (mean_log, variance_log) = moments(unit), moments(log)
    varies = (variance > 1e-12) & (variance_log > 1e-12)
    per_value = np.log(np.where(varies, variance, 1.0) / np.where(varies, variance_log, 1.0)) / 2 - mean_log
    could_be = varies & (zeros >= TUNING.min_zero_share) & (least >= 0.0)
    long = np.sum((n * (per_value - EXPONENTIAL_NATS))[could_be]) > TUNING.compression_nats
    chosen = could_be & (n * per_value > TUNING.compression_nats) & long
    return np.where(chosen, most * np.exp(mean_log - KNEE_DEVIATIONS * np.sqrt(variance_log)), 0.0)


def cells(rows: Rows, share: Floats) -> tuple[Floats, Floats, Any, Floats, Floats]:
    """The positive values, their shares of the weight and columns; of each column the share of zeros, and the least."""
    d = rows.shape[1]
    if issparse(rows):
        row, column, value = (
            np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)),
            rows.indices,
            rows.data,
        )
        held = value != 0
        zeros = 1.0 - np.bincount(column[held], share[row[held]], d)
        least = np.zeros(d)
        np.minimum.at(least, column, value)
    else:
        with np.errstate(invalid="ignore"):
            row, column = np.nonzero(rows > 0)
            value, zeros = rows[row, column], share @ (rows == 0)
            least = np.where((rows < 0).any(axis=0), -1.0, 0.0)
    positive = value > 0
    row, column = row[positive], column[positive].astype(np.int64)
    return value[positive].astype(float), share[row], column, np.asarray(zeros, dtype=float), least


def mean_and_deviation(rows: Rows, share: Floats) -> tuple[Floats, Floats]:
    """Of each feature; a missing value counts as 0."""
    x = rows if issparse(rows) else np.nan_to_num(rows)
    squares = x.multiply(x) if issparse(x) else x**2
    mean = np.asarray(share @ x, dtype=float)
    return mean, np.sqrt(np.maximum(np.asarray(share @ squares, dtype=float) - mean**2, 0.0))
