"""Reading a file of events, and learning it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from streamclust_connectors.cli.errors import BadData
from streamclust_connectors.cli.options import messages, results
from streamclust_connectors.cli.tables import counted

if TYPE_CHECKING:
    from streamclust import StreamClusterer
    from streamclust_connectors.cli.picture import EventSample
    from streamclust_connectors.cli.reading import Looked
    from streamclust_connectors.settings import Settings

MAX_SHOWN_REFUSALS = 3
"""Number of refused events that are listed with their reasons."""


def look(settings: Settings, predicting: bool = False, quiet: bool = False) -> Looked:
    """Read the first rows of a file, and print notes and warnings about how it is read."""
    from streamclust_connectors.cli.reading import look_at
    from streamclust_connectors.cli.wiring import decoder, file_source

    source = file_source(settings.source.path or Path(), settings.source_kind, settings)
    looked = look_at(source, decoder(settings), settings, predicting)
    for note in () if quiet else looked.notes:
        typer.echo(f"note: {note}", err=True)
    if looked.warning and not (quiet or predicting):
        typer.echo(f"warning: {looked.warning}", err=True)
    return looked


def fitted(settings: Settings, file: Path, target: Path) -> tuple[StreamClusterer, EventSample]:
    """Learn a file, write the checkpoint and print the clusters; the model, and a sample of the events."""
    from streamclust import StreamClusterer
    from streamclust.checkpoint import write
    from streamclust_connectors.cli.advice import remarks
    from streamclust_connectors.cli.tables import clusters

    looked = look(settings)
    whole = {"feature_order": looked.features, "drift": "ignore"}  # a file is no drifting stream
    model = StreamClusterer(**settings.engine.model_dump() | whole)
    refused, sample = learn(model, looked)
    check_learnt(model, looked, settings.decode.features or ())
    state = model.to_state({"files": [[str(file), model.n_seen + refused.count]]})
    state.values["decode"] = settings.decode.model_dump(mode="json")
    write(target, state)
    results().print(clusters(model))
    for remark in remarks(model, settings.engine.family, looked.vectors):
        typer.echo(f"note: {remark}", err=True)
    return model, sample


def check_known(model: StreamClusterer, looked: Looked, file: Path) -> None:
    """Refuse a table that has none of the model's features; warn about those it lacks."""
    columns, fields = looked.source.columns, looked.decoder.fields
    if columns is None or fields.vector is not None:
        return
    names = [str(name) for name in model.feature_names]
    lacking = [name for name in names if name not in columns]
    if len(lacking) == len(names):
        raise BadData(
            f"{file} has none of the features {', '.join(names)}; its columns are {', '.join(columns)}. "
            "See --delimiter, --header and --no-header if that is not what it has"
        )
    if lacking:
        typer.echo(f"warning: {file} has no {', '.join(lacking)}: taken as missing", err=True)


class Refused:
    """Counts refused events, and keeps the first reasons."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[str] = []

    def add(self, row: int, reason: str) -> None:
        """Count an event."""
        self.count += 1
        if len(self.first) < MAX_SHOWN_REFUSALS:
            self.first.append(f"row {row}: {reason}")

    def tell(self, what: str) -> None:
        """Print the number of refused events and the first reasons."""
        for reason in self.first:
            typer.echo(f"warning: {reason}", err=True)
        if self.count:
            typer.echo(f"warning: {counted(self.count, 'event')} {what}", err=True)


def learn(model: StreamClusterer, looked: Looked) -> tuple[Refused, EventSample]:
    """Learn a whole file; the events that could not be learnt, and a sample of the others."""
    from streamclust_connectors.cli.picture import EventSample
    from streamclust_connectors.cli.reading import progressed
    from streamclust_connectors.decode import check

    refused, sample = Refused(), EventSample()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # refused events are told about below
        for decoded in progressed("learning", looked.batches(model), looked.source, model):
            if model.half_life is None:
                decoded.times = None  # which only matter to a model that forgets
            events, checked, failures = check(model, decoded)
            for failure in failures:
                refused.add(failure.record.offset + 1, failure.reason)
            sample.add(events.vectors, model.feature_names)
            model.learn(checked)
    refused.tell("could not be learnt")
    with messages().status("the last refit"):
        model.settle()
    return refused, sample


def check_learnt(model: StreamClusterer, looked: Looked, asked: Iterable[str]) -> None:
    """Refuse a file of which nothing was learnt, and features that no event had."""
    from streamclust_connectors.cli.reading import bad_name, unknown

    if not model.n_seen and model.n_refused:
        raise BadData(f"none of the events of {looked.source.path} could be learnt: {model.last_refusal}")
    if not looked.first:
        raise BadData(f"{looked.source.path} has no events")
    if not model.n_seen:
        options = "--delimiter, --decimal, --encoding or --no-header" if looked.source.columns else "--vector"
        raise BadData(
            f"none of the events of {looked.source.path} could be learnt: it has no columns that are numbers, as it "
            f"was read. Say how it is written with {options}, or choose columns with --features"
        )
    if looked.source.columns is None and not looked.decoder.fields.vector:
        for name in asked:
            if name not in model.feature_names:
                raise bad_name("features", unknown(name, looked.members))
