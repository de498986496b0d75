"""Rows that lack features, or bring new ones: completed, and learnt in as few runs as possible."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from streamclust._kernels.check import all_within
from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.engine.tuning import TUNING
from streamclust.families import is_discrete
from streamclust.interrupts import HeldInterrupts
from streamclust.schema import Cells, table_of

if TYPE_CHECKING:
    from streamclust.engine.engine import Engine

Row = Floats | Cells
"""An event as a dense row or, where it may have few of many features, as sparse cells."""


def learn_with_zeros(engine: Engine, rows: Floats | list[Row], w: Floats, t: Floats, shard: Hashable) -> None:
    """Learn rows whose missing values are 0. Features join with the event that brings them, however batched."""
    shards, width = engine.shards, widths(rows)
    for run in engine.runs(len(rows)):
        done = run.start
        while done < run.stop:
            with HeldInterrupts():
                shards.widen_by_zeros(int(width[done]))
                end = done + int(np.searchsorted(width[done : run.stop], shards.capacity, side="right"))
                end = min(end, done + until_features(engine, width[done:end]))
                shards.widen_by_zeros(int(width[end - 1]))
            block = zero_filled(rows[done:end], shards.n_features)
            engine.learn_checked(block, w[done:end], t[done:end], shard)
            done = end


def until_features(engine: Engine, width: Ints) -> int:
    """Number of the next events, of these widths, before one whose features must be noticed when it comes."""
    if engine.features.awaits_features:
        return int(np.searchsorted(width, max(engine.n_features, int(width[0])), side="right"))
    early = TUNING.settled_events - engine.n_seen
    return early if early > 0 else len(width)


def zero_filled(rows: Floats | list[Row], width: int) -> Floats:
    """Rows of so many columns, with 0 for what is missing."""
    if isinstance(rows, list):
        return table_of(rows, width, 0.0)
    return with_width(np.nan_to_num(rows, nan=0.0), width, 0.0)


def learn_filled(engine: Engine, rows: Floats, w: Floats, t: Floats, shard: Hashable) -> None:
    """Learn rows together as far as the model that completes them stays the same, and no new features come."""
    rows = with_width(rows, max(rows.shape[1], engine.n_features))
    if rows.shape[1] == engine.n_features and fitting(rows, engine.n_features).all():
        engine.learn_checked(rows, w, t, shard)
        return
    done, widened = 0, widths(rows)
    while done < len(rows):
        engine.do_due()  # what was due before, if that was interrupted
        widen(engine, rows[done])
        width = engine.n_features
        end = done + min(max(1, engine.until_due), int(np.searchsorted(widened[done:], width, side="right")))
        block = rows[done:end, :width]
        missing = np.isnan(block)
        alone = np.flatnonzero(missing[:, engine.imputer.n_imputable :].any(axis=1))
        if len(alone) and alone[0] == 0:  # filled by the leaves as they are at this event
            end = done + 1
            block = filled(engine, engine.imputer.impute(block[:1], missing[:1]), shard)
        else:
            end = done + int(next(iter(alone), len(block)))
            block = engine.imputer.impute(block[: end - done], missing[: end - done])
        missing = missing[: end - done]
        engine.features.count_filled(int(np.count_nonzero(missing.any(axis=1))))
        engine.learn_checked(block, w[done:end], t[done:end], shard, missing)
        done = end


def widen(engine: Engine, row: Floats) -> None:
    """Add the new features of a row."""
    shards, width = engine.shards, int(np.flatnonzero(~np.isnan(row))[-1]) + 1
    with HeldInterrupts():
        if shards.n_features == 0:
            shards.begin(width)
        elif width > shards.n_features:
            shards.widen(np.nan_to_num(row[shards.n_features : width]))
            engine.features.begin()


def filled(engine: Engine, rows: Floats, shard: Hashable) -> Floats:
    """Rows with the missing values of the nearest leaf."""
    found = np.array([engine.imputer.fill(row, shard) for row in rows])
    return np.abs(np.rint(found)) if is_discrete(engine.settings.family) else found  # a mean is no count


# -------------------------------------------------------------------- rows of different widths


def stacked(rows: Sequence[Row], least: int) -> Floats:
    """Rows under each other, in at least so many columns; NaN where one lacks a feature."""
    width = max(least, *map(width_of, rows))
    if all(isinstance(row, np.ndarray) and len(row) == width for row in rows):
        return np.array(rows)
    return table_of(rows, width)


def width_of(row: Row) -> int:
    """Number of columns that the row needs."""
    return max(row.at, default=-1) + 1 if isinstance(row, Cells) else len(row)


def widths(rows: Floats | list[Row]) -> Ints:
    """Number of features that have appeared up to each row."""
    if isinstance(rows, list):
        found = np.array([width_of(row) for row in rows], dtype=np.int64)
    else:
        found = rows.shape[1] - (~np.isnan(rows))[:, ::-1].argmax(axis=1)
    return np.asarray(np.maximum.accumulate(found), dtype=np.int64)


def with_width(rows: Floats, width: int, absent: float = math.nan) -> Floats:
    """Rows truncated to so many columns, or widened with `absent`."""
    short = width - rows.shape[1]
    return np.pad(rows, ((0, 0), (0, short)), constant_values=absent) if short > 0 else rows[:, :width]


def fitting(rows: Floats, width: int) -> Bools:
    """Rows that have a number for each of the first `width` features and for no other."""
    if rows.shape[1] == width and all_within(np.ascontiguousarray(rows).ravel(), np.inf):
        return np.ones(len(rows), dtype=bool)
    known = ~np.isnan(rows)
    return np.asarray(known[:, :width].all(axis=1) & ~known[:, width:].any(axis=1) & (width > 0))
