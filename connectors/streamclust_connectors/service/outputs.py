"""Output messages: assignments, lifecycle events, snapshots, dead letters. A replay gives them the same ids."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from streamclust import __version__
from streamclust.lineage import Change
from streamclust.streaming import Assignment, StreamClusterer
from streamclust_connectors.decode import Decoded, Failure
from streamclust_connectors.interfaces import Encode, Headers, Output, Partition, Record
from streamclust_connectors.output_records import (
    AssignmentOutput,
    FeaturesOutput,
    LifecycleOutput,
    RefusalOutput,
    SnapshotOutput,
)

ERROR_HEADER_PREFIX = "__streamclust.errors."
"""Prefix of the headers that are added to a dead letter."""
LEFT_OUT = "left_out"
"""Header that lists the parts of the record left out because of its size."""
MAX_REASON_CHARACTERS = 1000
"""Length to which reasons are cut; custom decoders may raise errors of any length."""

encode_json: Encode = msgspec.json.Encoder().encode


class ModelName(NamedTuple):
    """Names the model that decided an answer.

    The clusters of a version may move until the next: each time they have, the revision is larger.
    """

    version: int | None
    revision: int | None


class AssignmentForm(NamedTuple):
    """Form of the messages of assignments: one or several in each, and further content."""

    bundle: int = 1
    """Number of assignments per message; above 1 a message is a list, without key, headers and timestamp."""
    component: bool = False
    """Whether assignments name the event's component."""
    headers: Collection[str] = ()
    """Names of the input's headers to copy."""
    timestamps: bool = False
    """Whether the message has the input's timestamp."""
    levels: Collection[int | Literal["fine"]] = ()
    """Levels of which assignments name the event's cluster, too."""


PLAIN_FORM = AssignmentForm()
"""One assignment per message, without component, headers and timestamp of the input."""


def assignments(
    partition: Partition,
    events: Decoded,
    run: slice,
    found: Assignment | list[list[int]] | None,
    model: ModelName,
    left_out: Collection[int] = (),
    form: AssignmentForm = PLAIN_FORM,
    encode: Encode = encode_json,
    names: Mapping[int, str] = MappingProxyType({}),
    levels: Sequence[Sequence[int]] = (),
) -> list[Output]:
    """One output per event of a run or, if `form.bundle` is larger than 1, one output per `form.bundle` events.

    `found` holds clusters, or the feature ids of each event; None before the first model. Events whose index is in
    `left_out` get none. `names` are those of clusters that have one. `levels` has the ids of the events' clusters at
    each of some levels.
    """
    none: list[Any] = [None] * (run.stop - run.start)
    ids = events.ids(partition, run)
    keys = none if events.keys is None else events.keys[run]
    times = none if events.times is None else events.times[run]
    contents: list[AssignmentOutput] | list[FeaturesOutput]
    if isinstance(found, list):
        contents = [
            FeaturesOutput(i, features, model.version, key, moment)
            for i, features, key, moment in zip(ids, found, keys, times, strict=True)
        ]
    else:
        columns = [none] * 4 if found is None else [values.tolist() for values in found]
        if not form.component:
            columns[3] = none
        contents = [
            AssignmentOutput(
                i, cluster, probability, novelty, *model, key, moment, number, names.get(cluster), at_levels
            )
            for i, cluster, probability, novelty, number, key, moment, at_levels in zip(
                ids, *columns, keys, times, by_event(levels, len(ids)), strict=True
            )
        ]
    records = events.records[run]
    if left_out:
        kept = [i for i in range(len(contents)) if i + run.start not in left_out]
        records = [records[i] for i in kept]
        contents = [contents[i] for i in kept]  # type: ignore[assignment]  # all are of one type
    if form.bundle > 1:
        values = [encode(contents[i : i + form.bundle]) for i in range(0, len(contents), form.bundle)]
        return [Output(value, None, (), partition) for value in values]
    keys = [record.key for record in records]
    headers = copied_headers(records, form.headers) if form.headers else repeat(())
    timestamps = [record.timestamp for record in records] if form.timestamps else repeat(None)
    # not strict: `repeat` never ends
    fields = zip(map(encode, contents), keys, headers, repeat(partition), timestamps, strict=False)
    return list(map(tuple.__new__, repeat(Output), fields))


def by_event(levels: Sequence[Sequence[int]], n_events: int) -> list[list[int]]:
    """Ids at each level, for each event.

    >>> by_event([[3, 4], [0, 0]], 2)
    [[3, 0], [4, 0]]
    """
    return [list(ids) for ids in zip(*levels, strict=True)] if levels else [[]] * n_events


def ids_at_levels(
    clusterer: StreamClusterer, found: Assignment, levels: Collection[int | Literal["fine"]]
) -> list[list[int]]:
    """Ids of the events' clusters at each of some levels."""
    return [clusterer.ids_at(found.component, level).tolist() for level in levels]


def copied_headers(records: Sequence[Record], names: Collection[str]) -> Iterable[Headers]:
    """The headers of each record that have one of these names, or all for the name "*".

    >>> from streamclust_connectors.interfaces import Message
    >>> list(copied_headers([Message(0, b"", headers=[("traceparent", b"1"), ("b", b"2")])], ["traceparent"]))
    [[('traceparent', b'1')]]
    """
    found = [record.headers for record in records]
    if "*" in names or not any(found):
        return found
    return [[header for header in headers if header[0] in names] for headers in found]


def lifecycle(
    cause: str, changes: Sequence[Change], encode: Encode = encode_json, key: str | None = None
) -> list[Output]:
    """One output for each change; its id is made from the event or the model's version that caused it.

    The message's key is that of the model or, of one model for all, the id of a cluster.
    """
    own = {} if key is None else {"key": key}
    return [
        Output(
            encode(msgspec.convert({"id": f"{cause}-{i}"} | change.to_dict() | own, LifecycleOutput)),
            (str(min(change.children or change.parents)) if key is None else key).encode(),
        )
        for i, change in enumerate(changes)
    ]


def snapshot(
    tree: Mapping[str, Any],
    clusterer: StreamClusterer,
    positions: Mapping[Partition, int],
    max_bytes: int | None = None,
) -> Output:
    """Hierarchy of the records below these positions; without the leaves' scatter if it is too large."""
    model = clusterer.model
    offsets = [(topic, number, offset) for (topic, number), offset in sorted(positions.items())]
    content = SnapshotOutput(
        id="+".join(f"{topic}-{number}-{offset}" for topic, number, offset in offsets),
        positions=offsets,
        events=clusterer.n_seen,
        version=None if model is None else model.version,
        features=list(clusterer.feature_names),
        dendrogram=dict(tree),
    )
    whole = Output(encode_json(content))
    if max_bytes is None or whole.size <= max_bytes:
        return whole
    content.dendrogram["scatter"] = None
    return Output(encode_json(content))


def refusal(partition: Partition, failure: Failure, encode: Encode = encode_json) -> Output:
    """Origin and reason of a dead letter, as a record."""
    record, (topic, number) = failure.record, partition
    content = RefusalOutput(
        f"{topic}-{number}-{record.offset}", topic, number, record.offset, failure.stage, failure.exception,
        failure.reason[:MAX_REASON_CHARACTERS], record.timestamp,
    )  # fmt: skip
    return Output(encode(content), record.key, (), partition)


def dead_letter(partition: Partition, failure: Failure, max_bytes: int | None = None) -> Output:
    """The record unchanged, with its origin and the reason in added headers.

    A record that is too large is sent without its value and, if necessary, without its key and headers; length and
    hash in the headers identify the original.
    """
    record = failure.record
    value = record.value or b""
    why = {
        "topic": partition[0],
        "partition": str(partition[1]),
        "offset": str(record.offset),
        "stage": failure.stage,
        "exception": failure.exception,
        "message": failure.reason[:MAX_REASON_CHARACTERS],
        "timestamp": str(int(time.time() * 1000)),
        "version": __version__,
    }
    letter = Output(value, record.key, [*record.headers, *_error_headers(why)], partition)
    if max_bytes is None or letter.size <= max_bytes:
        return letter
    why |= {"value_bytes": str(len(value)), "value_sha256": hashlib.sha256(value).hexdigest()}
    letter = Output(b"", record.key, [*record.headers, *_error_headers(why | {LEFT_OUT: "value"})], partition)
    if letter.size <= max_bytes:
        return letter
    return Output(b"", None, _error_headers(why | {LEFT_OUT: "value, key, headers"}), partition)


def _error_headers(why: Mapping[str, str]) -> list[tuple[str, bytes]]:
    return [(ERROR_HEADER_PREFIX + name, text.encode("utf-8", "replace")) for name, text in why.items()]
