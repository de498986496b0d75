"""Tables printed by several commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from streamclust import StreamClusterer, StreamFeatures

MAX_SHOWN_FEATURES = 6
"""Number of features shown of a mean."""


def table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table; numbers are right-aligned, and cells are plain text without markup."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    body = [list(row) for row in rows]
    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for i, name in enumerate(columns):
        numeric = bool(body) and all(isinstance(row[i], (int, float)) for row in body)
        made.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in body:
        made.add_row(*(Text(cell_text(value)) for value in row))
    return made


def cell_text(value: object) -> str:
    """Text of a cell.

    >>> cell_text(1234567), cell_text(12345.6), cell_text(0.123456), cell_text(None)
    ('1,234,567', '12,346', '0.1235', '')
    """
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
    return str(value)


def clusters(model: StreamClusterer) -> Table:
    """Table of a model's clusters; means in `feature_order`, even if the first rows lacked some features."""
    names = list(dict.fromkeys([*(model.feature_order or ()), *model.feature_names]))
    means = ({name: c.mean[name] for name in names if name in c.mean} for c in model.clusters)
    rows = [
        (c.id, f"{c.share:.1%}", c.weight, c.born, mean(values))
        for c, values in zip(model.clusters, means, strict=True)
    ]
    title = f"{counted(model.n_clusters, 'cluster')} of {counted(model.n_seen, 'event')}"
    return table(title, ("id", "share", "weight", "born at", "mean"), rows)


def features(model: StreamFeatures) -> Table:
    """Table of the features of a stream."""
    weights, born = model.weights, model.lineage.born_at
    rows = [(i, weights[i], born[i], mean(values)) for i, values in model.features.items()]
    title = f"{counted(model.n_features, 'feature')} of {counted(model.n_seen, 'event')}"
    return table(title, ("id", "weight", "born at", "mean"), rows)


def counted(n: int, noun: str) -> str:
    """A number and its noun, in the plural unless it is 1.

    >>> counted(1, "cluster"), counted(1200, "event")
    ('1 cluster', '1,200 events')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def mean(values: Mapping[Any, float]) -> str:
    """The first few features of a mean."""
    shown = ", ".join(f"{name}={value:.4g}" for name, value in list(values.items())[:MAX_SHOWN_FEATURES])
    return shown + (", …" if len(values) > MAX_SHOWN_FEATURES else "")


def facts(title: str, rows: Iterable[tuple[str, object]]) -> Table:
    """A table of names and values."""
    return table(title, ("", ""), [(name, cell_text(value)) for name, value in rows])
