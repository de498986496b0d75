"""What goes out: assignments, lifecycle events, snapshots, dead letters. Each has an id that a replay repeats."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from itertools import repeat
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
LEFT_OUT = "left_out"
"""The one that says what of the record was too large to come with it."""
LONGEST = 1000
"""Characters of a reason; a decoder of somebody else's may say anything."""

encode = msgspec.json.Encoder().encode


class Assigned(msgspec.Struct, gc=False):
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
        values = [encode(told[i : i + bundle]) for i in range(0, len(told), bundle)]
        return [Output(value, None, (), partition) for value in values]
    keyed = [record.key for record in events.records[run]]
    fields = zip(
        map(encode, told), keyed, repeat(()), repeat(partition), strict=False
    )  # what repeats has no end
    return list(map(tuple.__new__, repeat(Output), fields))


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


def snapshot(
    clusterer: StreamClusterer,
    method: Any,  # noqa: ANN401
    positions: Mapping[Partition, int],
    largest: int | None = None,
) -> Output:
    """The hierarchy of what was learnt until these positions; without the leaves' scatter, if it is too large."""
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
    whole = Output(encode(content))
    if largest is None or whole.size <= largest:
        return whole
    return Output(encode(content | {"dendrogram": tree | {"scatter": None}}))


def dead_letter(partition: Partition, failure: Failure, largest: int | None = None) -> Output:
    """The record as it came, and in its headers where from and why.

    What is too large goes without its value and, if need be, without its key and headers; where it came from it is
    whole, and can be told by its length and its hash.
    """
    record = failure.record
    value = record.value or b""
    why = {
        "topic": partition[0],
        "partition": str(partition[1]),
        "offset": str(record.offset),
        "stage": failure.stage,
        "exception": failure.exception,
        "message": failure.reason[:LONGEST],
        "timestamp": str(int(time.time() * 1000)),
        "version": __version__,
    }
    letter = Output(value, record.key, [*record.headers, *_told(why)], partition)
    if largest is None or letter.size <= largest:
        return letter
    why |= {"value_bytes": str(len(value)), "value_sha256": hashlib.sha256(value).hexdigest()}
    letter = Output(b"", record.key, [*record.headers, *_told(why | {LEFT_OUT: "value"})], partition)
    if letter.size <= largest:
        return letter
    return Output(b"", None, _told(why | {LEFT_OUT: "value, key, headers"}), partition)


def _told(why: Mapping[str, str]) -> list[tuple[str, bytes]]:
    return [(ERRORS + name, text.encode("utf-8", "replace")) for name, text in why.items()]
