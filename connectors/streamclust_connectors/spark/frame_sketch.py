"""Learns one sketch for a data frame of wide rows, from the first rows of some partitions."""

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
from streamclust_connectors.spark.rows import invalid_rows, table

SAMPLE_ROWS = 2048
"""Approximate number of rows from which a sketch is learnt."""
MAX_SAMPLED_PARTITIONS = 256
"""Approximate maximal number of partitions that these rows come from."""
MIN_ROWS_OF_PARTITION = 8
"""Minimal number of rows from each of these partitions."""


@dataclass(frozen=True)
class Sampler:
    """Task that returns the first valid rows of a partition, if the partition is sampled."""

    names: tuple[str, ...]
    n_partitions: int

    @property
    def n_rows(self) -> int:
        """Number of rows to take from a partition."""
        return max(MIN_ROWS_OF_PARTITION, SAMPLE_ROWS // max(1, self.n_partitions))

    def chosen(self, part: int) -> bool:
        """Whether a partition is sampled; a hash chooses if there are many."""
        return zlib.crc32(str(part).encode()) % max(1, self.n_partitions) < MAX_SAMPLED_PARTITIONS

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The valid rows, unchanged."""
        context = TaskContext.get()
        if not self.chosen(0 if context is None else context.partitionId()):
            return
        left = self.n_rows
        for batch in batches:
            bad = list(invalid_rows(table(batch, batch.schema.names), self.names))
            good = np.delete(np.arange(len(batch)), bad)[:left]
            yield batch.take(pa.array(good))
            left -= len(good)
            if left <= 0:
                return


def is_wide(n_features: int, family: FamilyName, max_directions: int | None, scale: ScaleName) -> bool:
    """Whether a stream clusterer with these parameters projects its events by a sketch."""
    return family in GAUSSIANS and (
        scale == "unit" or n_features > (max_directions or MAX_UNREDUCED_FEATURES)
    )


def sketch_of(
    numbers: DataFrame,
    names: Sequence[str],
    max_directions: int | None = None,
    scale: ScaleName = "deviation",
) -> Sketch:
    """Learn the sketch of a numeric data frame with these features; ValueError if no row is valid."""
    if len(names) <= (max_directions or MAX_UNREDUCED_FEATURES):
        return identity(len(names), unit=scale == "unit")
    sampler = Sampler(tuple(names), numbers.rdd.getNumPartitions())
    found = numbers.mapInArrow(sampler.run, numbers.schema).toArrow()
    if not len(found):
        raise ValueError("no row has numbers in all columns, so no sketch can be learnt; check `columns`")
    rows = np.stack([found.column(name).to_numpy() for name in found.column_names], axis=1)
    return learn_sketch(rows, None, max_directions or MAX_DIRECTIONS, scale == "unit")
