"""summarize: one tree for each partition of a data frame, merged by reducers; rows never leave their executors."""

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

from streamclust._kernels.types import Floats
from streamclust.checkpoint import State
from streamclust.checkpoint.files import decode, encode
from streamclust.engine.shards import shard_seed
from streamclust.families import family as family_named
from streamclust.refit.bkm import check_points
from streamclust.tree import SummaryTree, merge_all
from streamclust.tree.rows import check_rows
from streamclust_connectors.spark.rows import PREFIX, Columns, beyond, expressions, number, refusals, table

AT_ONCE = 16
"""So many trees are merged on the driver; more are first merged by reducers, about √p of the p at each."""
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
    """Some rows were not summarised, and nobody had asked for them."""


class Summary(NamedTuple):
    """What became of a data frame."""

    tree: SummaryTree
    n_rows: int
    """How many rows there were, with those refused."""
    n_refused: int
    partitions: int
    """How many of them held any rows."""
    bytes: int
    """The size of their trees: what was shuffled."""


def summarize(
    frame: DataFrame,
    columns: Columns,
    *,
    family: str = "gaussian",
    max_leaves: int = 512,
    weight: str | None = None,
    time: str | None = None,
    half_life: float | None = None,
    refused: Refused = None,
    seed: int = 0,
) -> SummaryTree:
    """One summary tree of a data frame of any size.

    Parameters
    ----------
    frame
        Any data frame; each of its partitions becomes a tree of about a megabyte, and those are merged.
    columns
        The features: names of numeric columns, or names and what to compute for each, {"x": col("x") / 2}.
    family
        What clusters will be; it decides which second moments are kept, and which rows are refused.
    max_leaves
        The bound on the size of every tree.
    weight, time
        Columns with each row's weight and, for trees that forget by time, its time.
    half_life
        A row's weight halves after so much time. Needs `time`: rows of a data frame have no other order.
    refused
        Where rows go that hold no usable numbers (missing, infinite, too large, negative counts): a path, for Parquet
        files with the whole rows and the reasons, or a function that is given such a data frame. They are counted
        with a warning where this is None.
    seed
        The same seed and partitions give the same tree.
    """
    made = summary(
        frame, columns, family=family, max_leaves=max_leaves, weight=weight, time=time, half_life=half_life,
        refused=refused, seed=seed,
    )  # fmt: skip
    if made.n_refused and refused is None:
        warnings.warn(
            f"{made.n_refused:,} of {made.n_rows:,} rows were refused: they hold no usable numbers. Give `refused` a "
            "path to keep them, with the reasons",
            RefusedRows,
            stacklevel=2,
        )
    return made.tree


def summary(
    frame: DataFrame,
    columns: Columns,
    *,
    family: str = "gaussian",
    max_leaves: int = 512,
    weight: str | None = None,
    time: str | None = None,
    half_life: float | None = None,
    leaf_size: int = 16,
    refused: Refused = None,
    seed: int = 0,
    salt: int = 0,
) -> Summary:
    """`summarize`, with what there is to tell of it. `salt` sets the random numbers of one batch of many apart."""
    if half_life is not None and time is None:
        raise ValueError("half_life needs `time`, the column of the rows' times: they have no other order")
    features = expressions(frame, columns)
    extra = {name: number(frame, name) for name in (weight, time) if name is not None}
    work = Work(
        names=tuple(features), family=family, max_leaves=max_leaves, half_life=half_life, leaf_size=leaf_size,
        weighted=weight is not None, timed=time is not None, seed=seed, salt=salt, whole=refused is not None,
    )  # fmt: skip
    work.empty_tree(0)  # settings that cannot be are refused here
    kept = [struct(*(col(f"`{name}`") for name in frame.columns)).alias("row")] if work.whole else []
    numbers = [column.alias(f"{PREFIX}{i}") for i, column in enumerate((*features.values(), *extra.values()))]
    row = [StructField("row", frame.schema)] if work.whole else []
    schema = StructType([*STATE.fields, StructField(REASON, StringType()), *row])
    made = frame.select(*numbers, *kept).mapInArrow(work.run, schema)
    # The trees and the refused rows come out of one pass over the data: both are small, and kept until both are read.
    made = made.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        states = made.where("state is not null")
        told = states.select("learnt", "refused", length("state").alias("size")).toArrow()
        learnt, n_refused, size = (sum(told.column(name).to_pylist()) for name in told.column_names)
        if n_refused and refused is not None:
            bad = made.where("state is null").select("row.*", REASON)
            (parquet_at(refused) if isinstance(refused, str) else refused)(bad)
        trees = merged_states(states, len(told))
    finally:
        made.unpersist()
    tree = merge_all(trees) if trees else work.empty_tree(0)
    return Summary(tree, learnt + n_refused, n_refused, len(told), size)


def parquet_at(path: str) -> Callable[[DataFrame], None]:
    """Writes a data frame, in the place of what is there."""
    return lambda frame: frame.write.mode("overwrite").parquet(path)


def merged_states(states: DataFrame, count: int) -> list[SummaryTree]:
    """The trees, in the order of their partitions; where they are many, reducers merge them to about √count first."""
    if count > AT_ONCE:
        reducers = math.ceil(math.sqrt(count))
        states = states.select(*STATE.names).repartition(reducers).mapInArrow(merge_states, STATE)
    found = states.select("part", "state").toArrow().sort_by("part")
    return [from_bytes(state) for state in found.column("state").to_pylist()]


# -------------------------------------------------------------------- on executors


@dataclass(frozen=True)
class Work:
    """What is done with the rows of one partition."""

    names: tuple[str, ...]
    family: str
    max_leaves: int
    half_life: float | None
    leaf_size: int
    weighted: bool
    timed: bool
    seed: int
    salt: int
    whole: bool
    """Whether refused rows are told whole."""

    def empty_tree(self, part: int) -> SummaryTree:
        """The tree of a partition, before its first row."""
        return SummaryTree(
            len(self.names), family_named(self.family).scatter, self.max_leaves, half_life=self.half_life,
            seed=shard_seed(self.seed, ("spark", self.salt, part)), leaf_size=self.leaf_size,
        )  # fmt: skip

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Summarise a partition: a row for each refused one, then one with the tree, if there were any."""
        part = partition()
        tree, refused = self.empty_tree(part), 0
        row: pa.RecordBatch | None = None
        for batch in batches:
            x, w, t, reasons = self.checked(batch)
            tree.insert_checked(x, w, t)
            refused += len(reasons)
            if self.whole:
                row = batch.column("row")
                if reasons:
                    yield told(row, reasons)
        if tree.n_events or refused:
            state: list[list[Any]] = [[part], [tree.n_events], [refused], [to_bytes(tree)], [None]]
            yield record(state, None if row is None else pa.nulls(1, row.type))

    def checked(self, batch: pa.RecordBatch) -> tuple[Floats, Floats, Floats, dict[int, str]]:
        """The rows that can be learnt, with weights and times, and why the others cannot."""
        d = len(self.names)
        values = table(batch, batch.schema.names[: d + self.weighted + self.timed])
        x = np.ascontiguousarray(values[:, :d])

        def check(rows: Any) -> tuple[Floats, Floats, Floats]:  # noqa: ANN401
            w = values[rows, d] if self.weighted else None
            t = values[rows, -1] if self.timed else None
            kept = check_rows(d, x[rows], w, t)
            check_points(self.family, kept[0])
            return kept

        try:
            return *check(slice(None)), {}
        except ValueError:
            reasons = beyond(x, self.names)
            reasons |= refusals(check, np.delete(np.arange(len(x)), list(reasons)))
            return *check(np.delete(np.arange(len(x)), list(reasons))), reasons


def partition() -> int:
    """The number of the partition that is being worked on."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def told(row: pa.Array, reasons: dict[int, str]) -> pa.RecordBatch:
    """The refused rows of a batch, with their reasons."""
    places = sorted(reasons)
    nothing = [[None] * len(places)] * len(STATE)
    return record([*nothing, [reasons[i] for i in places]], row.take(pa.array(places)))


def record(values: Sequence[Sequence[Any]], row: pa.Array | None = None) -> pa.RecordBatch:
    """Rows of the columns of STATE, with or without reasons and the rows that were refused."""
    types = (pa.int32(), pa.int64(), pa.int64(), pa.binary(), pa.string())
    arrays = [pa.array(column, kind) for column, kind in zip(values, types, strict=False)]
    names = [*STATE.names, REASON][: len(arrays)]
    if row is not None:
        arrays, names = [*arrays, row], [*names, "row"]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def merge_states(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A reducer: the trees of several partitions become one."""
    rows = sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["part"])
    if rows:
        tree = merge_all([from_bytes(row["state"]) for row in rows])
        yield record([[rows[0]["part"]], [tree.n_events], [0], [to_bytes(tree)]])


def to_bytes(tree: SummaryTree) -> bytes:
    """A tree as a checkpoint writes it: arrays, no pickles."""
    return encode(State(tree.to_arrays(), {}))


def from_bytes(state: bytes) -> SummaryTree:
    """The tree that `to_bytes` was given."""
    return SummaryTree.from_arrays(decode(state).arrays)
