"""assign: the cluster of every row of a data frame, under a model that all executors share."""

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
from streamclust_connectors.spark.rows import PREFIX, Columns, Floats, beyond, expressions, refusals, table

ADDED = ("cluster", "probability", "novelty")


def assign(
    frame: DataFrame,
    model: StreamClusterer | Model,
    columns: Columns | None = None,
    into: Sequence[str] = ADDED,
) -> DataFrame:
    """The data frame with three columns more: the id of each row's cluster, its probability, and the row's novelty.

    Missing numbers are integrated out, as `StreamClusterer.predict_one` does. Rows that hold no point (infinite
    numbers, negative counts) have null in all three columns.

    Parameters
    ----------
    frame
        Any data frame, streaming ones too.
    model
        A clusterer, as it is now, or the model that one had published.
    columns
        The features, as in `summarize`, in the model's order. A clusterer knows their names.
    into
        The names of the columns that are added.
    """
    published = model.model if isinstance(model, StreamClusterer) else model
    if published is None:
        raise ValueError("the clusterer has learnt no events: there are no clusters to choose from")
    if columns is None:
        if not isinstance(model, StreamClusterer):
            raise ValueError("a model does not know the names of its features: give `columns`, in its order")
        columns = [str(name) for name in model.feature_names]
    features = expressions(frame, columns)
    if len(features) != published.n_features:
        raise ValueError(f"the model has {published.n_features} features, got {len(features)} columns")
    taken = [name for name in into if name in frame.columns]
    if taken or len(set(into)) != len(ADDED):
        raise ValueError(
            f"`into` must be three names that the data frame does not have yet, got {list(into)}"
            + (f", of which it has {taken}" if taken else "")
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
    """The function that executors map over batches: rows in, rows with three more columns out."""

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
    reasons = beyond(x, names, missing=True)
    filled = np.where(np.isnan(x), 0.0, x)  # no family refuses zero
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
