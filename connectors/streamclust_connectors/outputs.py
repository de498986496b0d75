"""What goes out: assignments, lifecycle events, snapshots, dead letters. Each has an id that a replay repeats."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from streamclust import __version__
from streamclust.engine.model import Assignment
from streamclust.lineage import Change
from streamclust.streaming import StreamClusterer
from streamclust_connectors.decode import Decoded, Failure
from streamclust_connectors.ports import Output, Partition

ERRORS = "__streamclust.errors."
"""What the names of the headers begin with that a dead letter has besides its own."""
LARGEST = 900_000
"""Bytes of a snapshot that a broker takes by default; a larger one goes without the leaves' scatter."""

encode = msgspec.json.Encoder().encode


class Assigned(msgspec.Struct):
    """Which cluster an event belongs to, by the model it met."""

    id: str
    cluster: int | None
    probability: float | None
    novelty: float | None
    version: int | None
    key: Any
    time: float | None


def assignments(
    partition: Partition,
    events: Decoded,
    run: slice,
    found: Assignment | None,
    version: int | None,
    bundle: int = 1,
) -> list[Output]:
    """An output for each event of a run or, with a larger `bundle`, a list of so many in each.

    Before the first event there is no cluster to assign to.
    """
    none: list[Any] = [None] * (run.stop - run.start)
    columns = none, none, none
    if found is not None:
        columns = found.cluster.tolist(), found.probability.tolist(), found.novelty.tolist()
    keys = none if events.keys is None else events.keys[run]
    times = none if events.times is None else events.times[run]
    told = [
        Assigned(i, cluster, probability, novelty, version, key, moment)
        for i, cluster, probability, novelty, key, moment in zip(
            events.ids(partition, run), *columns, keys, times, strict=True
        )
    ]
    if bundle > 1:
        return [Output(encode(told[i : i + bundle])) for i in range(0, len(told), bundle)]
    return [Output(encode(one), record.key) for one, record in zip(told, events.records[run], strict=True)]


def lifecycle(partition: Partition, events: Decoded, last: int, changes: Sequence[Change]) -> list[Output]:
    """An output for each change; its id is that of the event that brought it."""
    (cause,) = events.ids(partition, slice(last, last + 1))
    return [
        Output(
            encode({"id": f"{cause}-{i}"} | change.to_dict()),
            str(min(change.children or change.parents)).encode(),
        )
        for i, change in enumerate(changes)
    ]


def snapshot(clusterer: StreamClusterer, method: Any, positions: Mapping[Partition, int]) -> Output:  # noqa: ANN401
    """The hierarchy of what was learnt until these positions."""
    tree = clusterer.snapshot(method).to_dict()
    model = clusterer.model
    places = [[topic, number, offset] for (topic, number), offset in sorted(positions.items())]
    content = {
        "id": "+".join(f"{topic}-{number}-{offset}" for topic, number, offset in places),
        "positions": places,
        "events": clusterer.n_seen,
        "version": None if model is None else model.version,
        "features": list(clusterer.feature_names),
        "dendrogram": tree,
    }
    value = encode(content)
    if len(value) > LARGEST:
        value = encode(content | {"dendrogram": tree | {"scatter": None}})
    return Output(value)


def dead_letter(partition: Partition, failure: Failure) -> Output:
    """The record as it came, and in its headers where from and why."""
    record = failure.record
    why = {
        "topic": partition[0],
        "partition": str(partition[1]),
        "offset": str(record.offset),
        "stage": failure.stage,
        "exception": failure.exception,
        "message": failure.reason,
        "timestamp": str(int(time.time() * 1000)),
        "version": __version__,
    }
    headers = [
        *record.headers,
        *((ERRORS + name, text.encode("utf-8", "replace")) for name, text in why.items()),
    ]
    return Output(record.value or b"", record.key, headers, partition)
