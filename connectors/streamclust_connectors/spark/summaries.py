"""Summarises a data frame: one tree per partition, merged by reducers; rows stay on their executors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel, TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, length, struct
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from streamclust.parameters import FamilyName, ScaleName
from streamclust.sketch import Sketch, check_lengths
from streamclust.summaries import (
    SummaryTree,
    checked_rows,
    empty_tree,
    merge_all,
    tree_from_bytes,
    tree_to_bytes,
)
from streamclust_connectors.spark.frame_sketch import is_wide, sketch_of
from streamclust_connectors.spark.rows import (
    PREFIX,
    Columns,
    Floats,
    Ints,
    expressions,
    invalid_rows,
    number,
    refusals,
    table,
)

MAX_LEAVES = 512
"""Default maximal number of leaves of a tree."""
MAX_TREES_ON_DRIVER = 16
"""Maximal number of trees merged on the driver; more trees are first merged by reducers, √p of p trees each."""
REASON = "refused_because"

Refused = str | Callable[[DataFrame], object] | None

STATE = StructType(
    [
        StructField("part", IntegerType()),
        StructField("learnt", LongType()),
        StructField("refused", LongType()),
        StructField("state", BinaryType()),
    ]
)


class RefusedRows(UserWarning):
    """Warning: rows were refused, and `refused` was not given."""


class FrameSummary(NamedTuple):
    """Summary tree of a data frame, and counts."""

    tree: SummaryTree
    n_rows: int
    """Number of rows, including refused ones."""
    n_refused: int
    partitions: int
    """Number of partitions that had rows."""
    bytes: int
    """Total size of their trees."""
    sketch: Sketch | None = None
    """For wide rows, the projection to the coordinates of the tree."""


def summarize(
    frame: DataFrame,
    columns: Columns,
    *,
    family: FamilyName = "gaussian",
    max_leaves: int = MAX_LEAVES,
    weight: str | None = None,
    time: str | None = None,
    half_life: float | None = None,
    refused: Refused = None,
    seed: int = 0,
    sketch: Sketch | None = None,
) -> SummaryTree:
    """Summarise a data frame of any size in one tree.

    Parameters
    ----------
    frame
        Any data frame. Each partition becomes a tree of about a megabyte; the trees are merged.
    columns
        The features: names of numeric columns, or a mapping of names to expressions, {"x": col("x") / 2}.
    family
        Family of the clusters; it determines which second moments are kept, and which rows are refused.
    max_leaves
        Maximal number of leaves of each tree.
    weight, time
        Columns of the rows' weights and, for a half-life, of their times.
    half_life
        Time after which a row's weight has halved. Needs `time`, since rows of a data frame have no order.
    refused
        Destination of rows without usable numbers (missing, infinite, too large, negative counts): a path for Parquet
        files with the rows and the reasons, or a function that takes such a data frame. If None, they are only counted,
        with a warning.
    seed
        Equal seeds and partitions give equal trees.
    sketch
        For wide rows, the projection to the coordinates of the tree, for example a clusterer's `sketch`. `summary`
        learns one if it is not given.
    """
    if sketch is None and is_wide(len(columns), family, None, "deviation"):
        raise ValueError(
            f"{len(columns)} features need a sketch; give `sketch`, or use `summary`, which learns one and returns it "
            "with the tree"
        )
    made = summary(
        frame, columns, family=family, max_leaves=max_leaves, weight=weight, time=time, half_life=half_life,
        refused=refused, seed=seed, sketch=sketch,
    )  # fmt: skip
    if made.n_refused and refused is None:
        warnings.warn(
            f"{made.n_refused:,} of {made.n_rows:,} rows refused for lack of usable numbers; pass a path as `refused` "
            "to keep them with the reasons",
            RefusedRows,
            stacklevel=2,
        )
    return made.tree


def summary(
    frame: DataFrame,
    columns: Columns,
    *,
    family: FamilyName = "gaussian",
    max_leaves: int = MAX_LEAVES,
    weight: str | None = None,
    time: str | None = None,
    half_life: float | None = None,
    leaf_size: int = 16,
    refused: Refused = None,
    seed: int = 0,
    salt: int = 0,
    sketch: Sketch | None = None,
    max_directions: int | None = None,
    scale: ScaleName = "deviation",
) -> FrameSummary:
    """Like `summarize`, but returns counts as well. `salt` gives each micro-batch other random numbers.

    If a `StreamClusterer` with this `max_directions` and `scale` would project the rows by a sketch, they are projected
    by `sketch` or, if it is None, by one learnt from the first rows of the partitions.
    """
    if half_life is not None and time is None:
        raise ValueError("half_life needs `time`, the column of the rows' times, since rows have no order")
    features = expressions(frame, columns)
    extra = {name: number(frame, name) for name in (weight, time) if name is not None}
    wide = [column.alias(f"{PREFIX}{i}") for i, column in enumerate(features.values())]
    if sketch is None and is_wide(len(features), family, max_directions, scale):
        sketch = sketch_of(frame.select(*wide), list(features), max_directions, scale)
    work = PartitionWork(
        names=tuple(features), family=family, max_leaves=max_leaves, half_life=half_life, leaf_size=leaf_size,
        weighted=weight is not None, timed=time is not None, seed=seed, salt=salt, whole=refused is not None,
        sketch=sketch,
    )  # fmt: skip
    work.empty_tree(0)  # raises for invalid settings
    kept = [struct(*(col(f"`{name}`") for name in frame.columns)).alias("row")] if work.whole else []
    numbers = [column.alias(f"{PREFIX}{i}") for i, column in enumerate((*features.values(), *extra.values()))]
    row = [StructField("row", frame.schema)] if work.whole else []
    schema = StructType([*STATE.fields, StructField(REASON, StringType()), *row])
    made = frame.select(*numbers, *kept).mapInArrow(work.run, schema)
    # One pass over the data gives both trees and refused rows; both are small, and cached until both are read.
    made = made.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        states = made.where("state is not null")
        counts = states.select("learnt", "refused", length("state").alias("size")).toArrow()
        learnt, n_refused, size = (sum(counts.column(name).to_pylist()) for name in counts.column_names)
        if n_refused and refused is not None:
            bad = made.where("state is null").select("row.*", REASON)
            (parquet_at(refused) if isinstance(refused, str) else refused)(bad)
        trees = merged_states(states, len(counts))
    finally:
        made.unpersist()
    tree = merge_all(trees) if trees else work.empty_tree(0)
    return FrameSummary(tree, learnt + n_refused, n_refused, len(counts), size, sketch)


def parquet_at(path: str) -> Callable[[DataFrame], None]:
    """A function that writes a data frame as Parquet, overwriting the path."""
    return lambda frame: frame.write.mode("overwrite").parquet(path)


def merged_states(states: DataFrame, count: int) -> list[SummaryTree]:
    """The trees in the order of their partitions; if there are many, reducers first merge them to about √count."""
    if count > MAX_TREES_ON_DRIVER:
        reducers = math.ceil(math.sqrt(count))
        states = states.select(*STATE.names).repartition(reducers).mapInArrow(merge_states, STATE)
    found = states.select("part", "state").toArrow().sort_by("part")
    return [tree_from_bytes(state) for state in found.column("state").to_pylist()]


# -------------------------------------------------------------------- on executors


@dataclass(frozen=True)
class PartitionWork:
    """The task that summarises one partition."""

    names: tuple[str, ...]
    family: FamilyName
    max_leaves: int
    half_life: float | None
    leaf_size: int
    weighted: bool
    timed: bool
    seed: int
    salt: int
    whole: bool
    """Whether refused rows are returned."""
    sketch: Sketch | None = None

    def empty_tree(self, part: int) -> SummaryTree:
        """Empty tree for a partition."""
        width = len(self.names) if self.sketch is None else self.sketch.n_directions
        independent = self.sketch is not None and self.sketch.independent
        return empty_tree(
            width, "diagonal" if independent else self.family, self.max_leaves, self.half_life, self.seed,
            ("spark", self.salt, part), self.leaf_size,
        )  # fmt: skip

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Summarise a partition; returns the refused rows, then one row with the tree if there were any rows."""
        part = partition()
        tree, refused = self.empty_tree(part), 0
        row: pa.RecordBatch | None = None
        for batch in batches:
            x, w, t, reasons = self.checked(batch)
            tree.insert_checked(x if self.sketch is None else self.sketch.project(x), w, t)
            refused += len(reasons)
            if self.whole:
                row = batch.column("row")
                if reasons:
                    yield refused_batch(row, reasons)
        if tree.n_events or refused:
            state: list[list[Any]] = [[part], [tree.n_events], [refused], [tree_to_bytes(tree)], [None]]
            yield record(state, None if row is None else pa.nulls(1, row.type))

    def checked(self, batch: pa.RecordBatch) -> tuple[Floats, Floats, Floats, dict[int, str]]:
        """Valid rows with weights and times, and the reasons to refuse the others."""
        d = len(self.names)
        values = table(batch, batch.schema.names[: d + self.weighted + self.timed])
        x = np.ascontiguousarray(values[:, :d])

        def check_rows(rows: Ints | slice) -> tuple[Floats, Floats, Floats]:
            w = values[rows, d] if self.weighted else None
            t = values[rows, -1] if self.timed else None
            if self.sketch is not None and self.sketch.unit:
                check_lengths(x[rows])
            return checked_rows(self.family, d, x[rows], w, t)

        try:
            return *check_rows(slice(None)), {}
        except ValueError:
            reasons = invalid_rows(x, self.names)
            reasons |= refusals(check_rows, np.delete(np.arange(len(x)), list(reasons)))
            return *check_rows(np.delete(np.arange(len(x)), list(reasons))), reasons


def partition() -> int:
    """Number of the current partition."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def refused_batch(row: pa.Array, reasons: dict[int, str]) -> pa.RecordBatch:
    """Refused rows of a batch, with their reasons."""
    indices = sorted(reasons)
    nothing = [[None] * len(indices)] * len(STATE)
    return record([*nothing, [reasons[i] for i in indices]], row.take(pa.array(indices)))


def record(values: Sequence[Sequence[Any]], row: pa.Array | None = None) -> pa.RecordBatch:
    """A batch with the columns of STATE and, if given, reasons and refused rows."""
    types = (pa.int32(), pa.int64(), pa.int64(), pa.binary(), pa.string())
    arrays = [pa.array(column, kind) for column, kind in zip(values, types, strict=False)]
    names = [*STATE.names, REASON][: len(arrays)]
    if row is not None:
        arrays, names = [*arrays, row], [*names, "row"]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def merge_states(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Reducer: merges the trees of several partitions."""
    rows = sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["part"])
    if rows:
        tree = merge_all([tree_from_bytes(row["state"]) for row in rows])
        yield record([[rows[0]["part"]], [tree.n_events], [0], [tree_to_bytes(tree)]])
