"""Learns a file of events and writes its checkpoint."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from streamclust_connectors.cli.errors import BadData
from streamclust_connectors.cli.options import messages, results
from streamclust_connectors.cli.tables import counted

if TYPE_CHECKING:
    from streamclust import StreamClusterer
    from streamclust_connectors.cli.cluster_plot import EventSample
    from streamclust_connectors.cli.file_preview import FilePreview
    from streamclust_connectors.settings import Settings

MAX_SHOWN_REFUSALS = 3
"""Number of refused events that are listed with their reasons."""


def open_file(settings: Settings, predicting: bool = False, quiet: bool = False) -> FilePreview:
    """Read the first rows of a file, and print notes and warnings about its dialect and columns."""
    from streamclust_connectors.cli.file_preview import preview_file
    from streamclust_connectors.cli.service_factory import decoder, file_source

    source = file_source(settings.source.path or Path(), settings.source_kind, settings)
    preview = preview_file(source, decoder(settings), settings, predicting)
    for note in () if quiet else preview.notes:
        typer.echo(f"note: {note}", err=True)
    if preview.warning and not (quiet or predicting):
        typer.echo(f"warning: {preview.warning}", err=True)
    return preview


def fit_checkpoint(settings: Settings, file: Path, target: Path) -> tuple[StreamClusterer, EventSample]:
    """Learn a file, write its checkpoint, and print the clusters; returns the model and a sample of the events."""
    from streamclust import StreamClusterer
    from streamclust.checkpoint import write
    from streamclust_connectors.cli.advice import remarks
    from streamclust_connectors.cli.tables import clusters

    preview = open_file(settings)
    whole = {"feature_order": preview.features, "drift": "ignore"}  # a file does not drift
    model = StreamClusterer(**settings.engine.model_dump() | whole)
    refused, sample = learn(model, preview)
    check_learnt(model, preview, settings.decode.features or ())
    state = model.to_state({"files": [[str(file), model.n_seen + refused.count]]})
    state.values["decode"] = settings.decode.model_dump(mode="json")
    write(target, state)
    results().print(clusters(model))
    for remark in remarks(model, settings.engine.family, preview.vectors):
        typer.echo(f"note: {remark}", err=True)
    return model, sample


def field_names(model: StreamClusterer) -> list[Hashable]:
    """Names of the fields that events have: numbers, then categories."""
    values = {f"{name}={value}" for name, found in model.categories.items() for value in found}
    return [*(name for name in model.feature_names if name not in values), *model.categories]


def check_known(model: StreamClusterer, preview: FilePreview, file: Path) -> None:
    """Refuse a table that has none of the model's features; warn if some are missing."""
    columns, fields = preview.source.columns, preview.decoder.fields
    if columns is None or fields.vector is not None:
        return
    names = [str(name) for name in field_names(model)]
    lacking = [name for name in names if name not in columns]
    if len(lacking) == len(names):
        raise BadData(
            f"{file} has none of the features {', '.join(names)}; its columns are {', '.join(columns)}. "
            "If these columns are wrong, see --delimiter, --header and --no-header"
        )
    if lacking:
        typer.echo(f"warning: {file} has no {', '.join(lacking)}; treated as missing values", err=True)


class RefusalLog:
    """Counts refused events, and remembers the first reasons."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[str] = []

    def add(self, row: int, reason: str) -> None:
        """Count an event."""
        self.count += 1
        if len(self.first) < MAX_SHOWN_REFUSALS:
            self.first.append(f"row {row}: {reason}")

    def print(self, what: str) -> None:
        """Print the number of refused events and the first reasons."""
        for reason in self.first:
            typer.echo(f"warning: {reason}", err=True)
        if self.count:
            typer.echo(f"warning: {counted(self.count, 'event')} {what}", err=True)


def learn(model: StreamClusterer, preview: FilePreview) -> tuple[RefusalLog, EventSample]:
    """Learn a whole file; returns the refused events, and a sample of the others."""
    from streamclust_connectors.cli.cluster_plot import EventSample
    from streamclust_connectors.cli.file_preview import with_progress
    from streamclust_connectors.decode import learnable_events

    refused, sample = RefusalLog(), EventSample()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # refused events are printed below
        for decoded in with_progress("learning", preview.batches(model), preview.source, model):
            if model.half_life is None:
                decoded.times = None  # only used with a half-life
            events, checked, failures = learnable_events(model, decoded)
            for failure in failures:
                refused.add(failure.record.offset + 1, failure.reason)
            sample.add(events.vectors, model.feature_names)
            model.learn(checked)
    refused.print("could not be learnt")
    for feature, n in model.n_invalid.items():
        typer.echo(f"warning: {counted(n, 'value')} of {feature} could not be read: missing", err=True)
    with messages().status("final refit"):
        model.settle()
    return refused, sample


def check_learnt(model: StreamClusterer, preview: FilePreview, asked: Iterable[str]) -> None:
    """Refuse a file without learnable events, and features that no event had."""
    from streamclust_connectors.cli.file_preview import bad_name, unknown

    if not model.n_seen and model.n_refused:
        raise BadData(f"none of the events of {preview.source.path} could be learnt: {model.last_refusal}")
    if not preview.first:
        raise BadData(f"{preview.source.path} has no events")
    if not model.n_seen:
        options = (
            "--delimiter, --decimal, --encoding or --no-header" if preview.source.columns else "--vector"
        )
        raise BadData(
            f"none of the events of {preview.source.path} could be learnt: no numeric columns were found. "
            f"Give the format with {options}, or choose columns with --features"
        )
    if preview.source.columns is None and not preview.decoder.fields.vector:
        for name in asked:
            if name not in field_names(model):
                raise bad_name("features", unknown(name, preview.members))
