"""Assigns every row of a data frame to a cluster, with a model broadcast to all executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame
from pyspark.sql.functions import col
from pyspark.sql.types import DoubleType, LongType, StructField, StructType

from streamclust.checkpoint import decode, encode, model_from_state, model_state
from streamclust.streaming import Model, StreamClusterer
from streamclust_connectors.spark.rows import (
    PREFIX,
    Columns,
    Floats,
    expressions,
    invalid_rows,
    refusals,
    table,
)

ADDED = ("cluster", "probability", "novelty")


def assign(
    frame: DataFrame,
    model: StreamClusterer | Model,
    columns: Columns | None = None,
    into: Sequence[str] = ADDED,
) -> DataFrame:
    """Add three columns to a data frame: the id of each row's cluster, its probability, and the row's novelty.

    Missing values are integrated out, as in `StreamClusterer.predict_one`. Invalid rows (infinite numbers, negative
    counts) have null in all three columns.

    Parameters
    ----------
    frame
        Any data frame, also a streaming one.
    model
        A clusterer, whose current model is used, or a model.
    columns
        The features, as in `summarize`, in the model's order. Default: the clusterer's feature names.
    into
        Names of the added columns.
    """
    published = model.model if isinstance(model, StreamClusterer) else model
    if published is None:
        raise ValueError("the clusterer has no clusters: it has learnt no events")
    if columns is None:
        if not isinstance(model, StreamClusterer):
            raise ValueError("a model has no feature names; give `columns` in its order")
        columns = [str(name) for name in model.feature_names]
    features = expressions(frame, columns)
    if len(features) != published.n_features:
        raise ValueError(
            f"the model has {published.n_features} features, got {len(features)} columns; give one column per feature"
        )
    taken = [name for name in into if name in frame.columns]
    if taken or len(set(into)) != len(ADDED):
        raise ValueError(
            f"`into` must be three distinct names of new columns, got {list(into)}"
            + (f"; the data frame already has {taken}" if taken else "")
        )
    work = frame.sparkSession.sparkContext.broadcast(encode(model_state(published)))
    numbers = [column.alias(f"{PREFIX}{i}") for i, column in enumerate(features.values())]
    types = (LongType(), DoubleType(), DoubleType())
    more = [StructField(name, kind) for name, kind in zip(into, types, strict=True)]
    schema = StructType([*frame.schema.fields, *more])
    run = assigner(work, tuple(features), tuple(frame.columns), tuple(into))
    return frame.select(*(col(f"`{name}`") for name in frame.columns), *numbers).mapInArrow(run, schema)


def assigner(
    shared: Broadcast[bytes],
    names: tuple[str, ...],
    kept: tuple[str, ...],
    into: tuple[str, ...],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that executors apply to batches: adds the three columns to the rows."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        model = model_from_state(decode(shared.value))
        for batch in batches:
            width = len(kept)
            x = table(batch, batch.schema.names[width:])
            found = columns_of(model, x, names)
            arrays = [*(batch.column(i) for i in range(width)), *found]
            yield pa.RecordBatch.from_arrays(arrays, names=[*kept, *into])

    return run


def columns_of(model: Model, x: Floats, names: tuple[str, ...]) -> list[pa.Array]:
    """Id, probability and novelty of each row; null for invalid rows."""
    reasons = invalid_rows(x, names, missing=True)
    filled = np.where(np.isnan(x), 0.0, x)  # zero is valid in every family
    good = np.delete(np.arange(len(x)), list(reasons)) if reasons else np.arange(len(x))
    if len(good):
        reasons |= refusals(lambda rows: model.check(filled[rows]), good)
    bad = np.zeros(len(x), dtype=bool)
    bad[list(reasons)] = True
    found = [np.zeros(len(x), dtype=kind) for kind in (np.int64, np.float64, np.float64)]
    if not bad.all():
        for column, values in zip(found, model.assign(x[~bad])[: len(found)], strict=True):
            column[~bad] = values
    return [pa.array(column, mask=bad) for column in found]
