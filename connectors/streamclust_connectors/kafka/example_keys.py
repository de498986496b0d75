"""Keys of the examples of a group's clusters: the leader finds them, and publishes them with the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamclust.checkpoint import State
from streamclust.streaming import Example, StreamClusterer
from streamclust_connectors.event_keys import MAX_EXAMPLES, EventKeys, fingerprint
from streamclust_connectors.interfaces import EventKey

EXAMPLE_KEYS = "example_keys"
"""Value of a published model."""


def examples_of(clusterer: StreamClusterer) -> Iterator[Example]:
    """The events that are shown as examples of clusters, and as events between two."""
    found = clusterer.representatives()
    for cluster in clusterer.clusters:
        yield from found.typical(cluster.id, MAX_EXAMPLES)
        other = found.neighbour(cluster.id)
        if other is not None:
            yield from found.between(cluster.id, other, MAX_EXAMPLES)


def keys_of_examples(state: State, keys: EventKeys) -> list[Any]:
    """Fingerprint of each example of a saved clusterer, and its key where that is known."""
    known = keys.copy()
    if not known:
        return []
    shown = {fingerprint(one.values) for one in examples_of(StreamClusterer.from_state(state))}
    return [[one, *known[one]] for one in sorted(shown & known.keys())]


def example_keys(state: State | None) -> dict[int, EventKey]:
    """Keys by the fingerprints of examples, as a published model has them."""
    rows = () if state is None else state.values.get(EXAMPLE_KEYS, ())
    return {one: EventKey((*partition,), *rest) for one, partition, *rest in rows}
