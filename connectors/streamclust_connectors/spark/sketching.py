"""One sketch for all partitions of a data frame of wide rows, learnt from the first rows of some of them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from streamclust.parameters import GAUSSIANS, MAX_UNREDUCED_FEATURES, FamilyName, ScaleName
from streamclust.sketch import MAX_DIRECTIONS, Sketch, identity, learn_sketch
from streamclust_connectors.spark.rows import beyond, table

SAMPLE_ROWS, MAX_SAMPLED_PARTITIONS, MIN_ROWS_OF_PARTITION = 2048, 256, 8
"""About how many rows a sketch is learnt from, from at most how many partitions, and at least how many of each."""


@dataclass(frozen=True)
class Sampler:
    """The task that gives the first usable rows of a partition, if it is one of those chosen."""

    names: tuple[str, ...]
    n_partitions: int

    @property
    def n_rows(self) -> int:
        """How many rows of a partition."""
        return max(MIN_ROWS_OF_PARTITION, SAMPLE_ROWS // max(1, self.n_partitions))

    def chosen(self, part: int) -> bool:
        """Whether a partition is read: a hash decides where they are many."""
        return zlib.crc32(str(part).encode()) % max(1, self.n_partitions) < MAX_SAMPLED_PARTITIONS

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows that can be learnt, as they are."""
        context = TaskContext.get()
        if not self.chosen(0 if context is None else context.partitionId()):
            return
        left = self.n_rows
        for batch in batches:
            bad = list(beyond(table(batch, batch.schema.names), self.names))
            good = np.delete(np.arange(len(batch)), bad)[:left]
            yield batch.take(pa.array(good))
            left -= len(good)
            if left <= 0:
                return


def is_wide(n_features: int, family: FamilyName, max_directions: int | None, scale: ScaleName) -> bool:
    """Whether a stream clusterer of these parameters takes such events through a sketch."""
    return family in GAUSSIANS and (
        scale == "unit" or n_features > (max_directions or MAX_UNREDUCED_FEATURES)
    )


def sketch_of(
    numbers: DataFrame,
    names: Sequence[str],
    max_directions: int | None = None,
    scale: ScaleName = "deviation",
) -> Sketch:
    """The sketch of a data frame of numbers, which has these features; ValueError if no row can be used."""
    if len(names) <= (max_directions or MAX_UNREDUCED_FEATURES):
        return identity(len(names), unit=scale == "unit")
    sampler = Sampler(tuple(names), numbers.rdd.getNumPartitions())
    found = numbers.mapInArrow(sampler.run, numbers.schema).toArrow()
    if not len(found):
        raise ValueError("no row holds numbers in all columns: there is nothing to learn directions from")
    rows = np.stack([found.column(name).to_numpy() for name in found.column_names], axis=1)
    return learn_sketch(rows, None, max_directions or MAX_DIRECTIONS, scale == "unit")
