"""Missing values and new features: rows become complete blocks, each ready for `Engine.learn_checked`.

A missing value (NaN) is 0 where the stream says so; else it is drawn from the model or, before the first refit and for
features that the model does not know, taken from the nearest leaf. So a block ends where the model may change, where a
row brings a feature, and at a row that the leaves fill: they must have learnt the row before it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine.engine import Engine
from streamclust.engine.event_rows import Row, fitting, widths, with_width
from streamclust.engine.tuning import TUNING
from streamclust.families import is_discrete
from streamclust.schema import table_of
from streamclust.utils.interrupts import HeldInterrupts


class CompleteRows(NamedTuple):
    """The arguments of `Engine.learn_checked`: rows with a number for each feature; `missing` were filled in."""

    rows: Floats
    weight: Floats
    time: Floats
    shard: Hashable
    missing: Bools | None = None


def completed(
    engine: Engine,
    rows: Floats | list[Row],
    weight: Floats,
    time: Floats,
    shard: Hashable,
    zeros: bool = False,
    complete: bool = False,
) -> Iterator[CompleteRows]:
    """Blocks of complete rows; learn each before asking for the next.

    `zeros`: a missing value is 0. `complete`: no value is missing.
    """
    if zeros:
        return with_zeros(engine, rows, weight, time, shard)
    assert not isinstance(rows, list)  # cells are for events whose missing values are 0
    if rows.shape[1] == engine.n_features and (complete or fitting(rows, engine.n_features).all()):
        return iter((CompleteRows(rows, weight, time, shard),))
    rows = with_width(rows, max(rows.shape[1], engine.n_features))
    return filled_in(engine, rows, weight, time, shard)


# -------------------------------------------------------------------- missing values are 0


def with_zeros(
    engine: Engine, rows: Floats | list[Row], weight: Floats, time: Floats, shard: Hashable
) -> Iterator[CompleteRows]:
    """Blocks in which missing values are 0. Features join with the event that brings them, however batched."""
    shards, width = engine.shards, widths(rows)
    for run in engine.runs(
        len(rows), lambda part: zero_filled(rows[part], max(int(width[-1]), engine.n_features))
    ):
        done = run.start
        while done < run.stop:
            with HeldInterrupts():
                shards.widen_by_zeros(int(width[done]))
                end = done + int(np.searchsorted(width[done : run.stop], shards.capacity, side="right"))
                end = min(end, done + until_features(engine, width[done:end]))
                shards.widen_by_zeros(int(width[end - 1]))
            block = zero_filled(rows[done:end], shards.n_features)
            yield CompleteRows(block, weight[done:end], time[done:end], shard)
            done = end


def until_features(engine: Engine, width: Ints) -> int:
    """Number of the next events, of these widths, before one whose features must be noticed when it comes."""
    if engine.features.awaits_features:
        return int(np.searchsorted(width, max(engine.n_features, int(width[0])), side="right"))
    early = TUNING.settled_events - engine.n_seen
    return early if early > 0 else len(width)


def zero_filled(rows: Floats | list[Row], width: int) -> Floats:
    """Rows of `width` columns, with 0 for missing values."""
    if isinstance(rows, list):
        return table_of(rows, width, 0.0)
    return with_width(np.nan_to_num(rows, nan=0.0), width, 0.0)


# -------------------------------------------------------------------- missing values are unknown


def filled_in(
    engine: Engine, rows: Floats, weight: Floats, time: Floats, shard: Hashable
) -> Iterator[CompleteRows]:
    """Blocks in which missing values are drawn from the model, as far as it stays the same, or come from a leaf."""
    done, width = 0, widths(rows)
    while done < len(rows):
        engine.do_due()  # steps left over from an interrupted call
        widen(engine, rows[done])
        same = int(np.searchsorted(width[done:], engine.n_features, side="right"))
        end = done + min(max(1, engine.until_due), same)
        block = engine.without_absent(rows[done:end, : engine.n_features])
        block = block[: engine.until_change(block)]
        missing = np.isnan(block)
        by_leaf = np.flatnonzero(missing[:, engine.imputer.n_imputable :].any(axis=1))
        if len(by_leaf) and by_leaf[0] == 0:
            end = done + 1
            block = nearest_filled(engine, engine.imputer.impute(block[:1], missing[:1]), shard)
        else:
            end = done + int(next(iter(by_leaf), len(block)))
            block = engine.imputer.impute(block[: end - done], missing[: end - done])
        missing = missing[: end - done]
        gaps = None if engine.settings.is_mixed and not missing.any() else missing
        yield CompleteRows(block, weight[done:end], time[done:end], shard, gaps)
        done = end


def widen(engine: Engine, row: Floats) -> None:
    """Add the new features of a row."""
    shards, width = engine.shards, int(np.flatnonzero(~np.isnan(row))[-1]) + 1
    if width <= shards.n_features:
        return
    with HeldInterrupts():
        if shards.n_features == 0:
            shards.begin(width)
        elif engine.layout:
            widen_mixed(engine, row[:width])
        else:
            shards.widen(np.nan_to_num(row[shards.n_features : width]))
            engine.features.begin()
        engine.name_columns()


def widen_mixed(engine: Engine, row: Floats) -> None:
    """Add the new features of a row: no event had the new categories, and other numbers are unknown."""
    shards = engine.shards
    while shards.n_features < len(row):
        column = shards.n_features
        if engine.is_number(column):
            shards.widen(np.nan_to_num(row[column : column + 1]))
            engine.features.begin()
        else:
            shards.widen(np.zeros(1), unknown=False)
            engine.counters.known_features += 1


def nearest_filled(engine: Engine, rows: Floats, shard: Hashable) -> Floats:
    """Rows with the missing values of the nearest leaf; whole numbers for counts."""
    found = np.array([engine.imputer.fill(row, shard) for row in rows])
    return np.abs(np.rint(found)) if is_discrete(engine.settings.family) else found  # a mean is no count
