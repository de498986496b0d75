"""Checks of a loaded engine: sizes, types and ranges that go together.

Kernels follow indices without looking where they lead. So a state that is no engine's, though its checksum holds, is
refused before anything computes with it. The first thing that is wrong is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from streamclust.engine import Engine, Model
from streamclust.engine.background import Refit
from streamclust.engine.event_ring import EventRing
from streamclust.engine.outside_alarm import OutsideAlarm
from streamclust.engine.projection import Projection, Stage
from streamclust.engine.results import Result
from streamclust.engine.wide_events import RECENT_EVENTS, Block
from streamclust.families import family as family_named
from streamclust.levels import Path
from streamclust.moments import Moments
from streamclust.refit.partition import Partition
from streamclust.tree import SummaryTree
from streamclust.utils.late import issparse
from streamclust.utils.values import MAX_MAGNITUDE

LARGEST_COUNT = 2**63 - 1
PLAUSIBLE_LEAVES = 65_536
"""Number of leaves that any tree may have; more only if settings allow them, or its arrays hold a 64th of them."""


def check_engine(engine: Engine) -> None:
    """Raise ValueError, which names it, for what cannot be the state of an engine."""
    for name, value in engine.counters.to_values().items():
        check_counter(name, value)
    shards = engine.shards
    whole("n_features", shards.n_features)
    whole("capacity", shards.capacity, least=shards.n_features)
    for key, part in shards.items():
        whole(f"n_seen of shard {key!r}", part.n_seen)
        must(part.tree.n_features == shards.capacity, f"the tree of shard {key!r} has other features")
        check_tree(f"tree of shard {key!r}", part.tree, engine)
        check_ring(f"watch of shard {key!r}", part.watch, shards.capacity)
    check_ring("whole", shards.recent.ring, shards.capacity if shards.recent.ring.count else 0)
    check_ring("strays", shards.recent.strays, shards.n_features)
    born = engine.stream.lineage.born_at
    if engine.model is not None:
        check_model(engine.model, shards.n_features)
        must(engine.led or set(engine.model.ids) <= set(born), "the model has ids that were never issued")
    else:
        must(engine.counters.n_refits == 0, "the model is missing")
    if engine.sketch is not None:
        must(
            engine.sketch.n_directions == shards.n_features, "the sketch has other directions than the trees"
        )
    if engine.stream.pending_refit is not None:
        must(engine.model is not None, "a refit has no model that it began from")
        check_refit(engine.stream.pending_refit, engine)


def check_tree(name: str, tree: SummaryTree, engine: Engine) -> None:
    """A shard's tree, which must be like those of the other shards."""
    scatter = family_named(engine.settings.family).scatter
    must(tree.scatter == scatter, f"the {name} has no {scatter} scatter")
    first = next(iter(engine.shards.values())).tree
    must(tree.half_life == first.half_life, f"the {name} has another half_life than the first")
    most = max(engine.settings.max_leaves or 0, PLAUSIBLE_LEAVES, 64 * tree.n_leaves)
    must(
        (tree.max_leaves or 0) <= most,
        f"the {name} may have {tree.max_leaves} leaves, at most {most} are plausible",
    )


def check_counter(name: str, value: object) -> None:
    """A counter of an engine: a count, a share, a truth value or text."""
    if name in ("moving", "ids_changed"):
        must(isinstance(value, bool), f"{name} must be true or false, got {value!r}")
    elif name == "last_failure":
        must(isinstance(value, str), f"{name} must be text, got {value!r}")
    elif name in ("tolerated", "last_challenge", "known_time"):
        number(name, value, least=0.0)
    elif isinstance(value, OutsideAlarm):
        for part, found in value._asdict().items():
            (number if part in ("level", "bar") else whole)(f"{part} of the {name}", found)
    else:
        whole(name, value)


def check_ring(name: str, ring: EventRing, width: int) -> None:
    """The latest events, their weights and numbers."""
    whole(f"count of {name}", ring.count)
    room = len(ring.rows)
    must(len(ring) <= room <= ring.size, f"{name} has room for {room} events, of {ring.count}")
    check_array(f"rows of {name}", ring.rows, (room, width))
    must(
        bool((np.abs(ring.rows) <= MAX_MAGNITUDE).all()),
        f"rows of {name} hold numbers beyond {MAX_MAGNITUDE:g}",
    )
    check_array(f"weight of {name}", ring.weight, (room,))
    must(bool((ring.weight >= 0).all()), f"weights of {name} are negative")
    check_array(f"numbers of {name}", ring.at, (room,), kind="i")


def check_shown(model: Model, n_components: int) -> None:
    """Check the groups of clusters that are shown, and the pairs of components that are one plateau."""
    shown = model.shown_ids
    must(len(shown) in (0, len(model.ids)), "the clusters shown are not those of the model")
    must(all(type(name) is int and abs(name) < 2**62 for name in shown), "an id on show is no whole number")
    for pair in model.plateaus:
        places = len(pair) == 2 and all(type(c) is int and 0 <= c < n_components for c in pair)
        must(places, f"a plateau joins components that there are not: {pair!r}")
    for one in model.opened:
        whole("id of an opened cluster", one.cluster)
        whole("event at which a cluster was opened", one.at)
        number("weight of an event of an opened cluster", one.each, least=0.0)
    if model.kept_path is not None:
        check_path(model.kept_path, len(model.rows), len(model.names))


def check_path(path: Path, n_components: int, n_clusters: int) -> None:
    """Check the merges from the active clusters to one."""
    check_array("owner of the path", path.owner, (n_components,), kind="i")
    check_array("merges of the path", path.children, (n_clusters - 1, 2), kind="i")
    check_array("evidence of the path", path.zeta, (n_clusters - 1,))
    positive("events of the path", path.n_events)
    merged = np.sort(path.children, axis=None)
    must(bool((merged == np.arange(2 * n_clusters - 2)).all()), "the path does not merge each cluster once")
    made = n_clusters + np.arange(n_clusters - 1)[:, None]
    must(bool((path.children < made).all()), "the path merges clusters before they are made")
    must(
        bool((np.unique(path.owner) == np.arange(n_clusters)).all()), "the path's owners are not its clusters"
    )


def check_model(model: Model, n_features: int) -> None:
    """Check a published model of events that have at most `n_features` coordinates."""
    whole("version of the model", model.version)
    whole("n_seen of the model", model.n_seen)
    whole("revision of the model", model.revision)
    clusters = check_result("model", model.result, n_features)
    for name in (*model.ids, *model.hidden):
        whole("id of a cluster", name)
    must(len(set(model.ids)) == len(model.ids) > 0, "the model's ids are not different from each other")
    must(model.hidden <= set(model.ids), "a cluster is hidden that is not in the model")
    check_owner("model", model.owner, len(clusters), len(model.ids))
    check_shown(model, len(clusters))
    must(isinstance(model.moved, bool), f"moved must be true or false, got {model.moved!r}")
    if model.running is not None:
        check_moments("running clusters", model.running, n_features)
        same = model.running.mean.shape == clusters.mean.shape
        must(same, "the running clusters are not those of the refit")
    vector, root, offset = model.costs
    k, d = len(model.rows), model.n_coordinates
    check_array("cost of the clusters", vector, (k, d))
    check_array("cost of the clusters", offset, (k,))
    if root is not None:
        check_array("cost of the clusters", root, (k, d, d))


def check_owner(name: str, owner: tuple[int, ...], n_components: int, n_clusters: int) -> None:
    """The cluster of each component; none, if each is one."""
    if not owner:
        must(n_components == n_clusters, f"the {name} has {n_components} components and {n_clusters} ids")
        return
    for one in owner:
        whole(f"owner in the {name}", one)
    must(len(owner) == n_components, f"the {name} has {n_components} components and {len(owner)} owners")
    must(set(owner) == set(range(n_clusters)), f"the {name}'s owners are not its {n_clusters} clusters")


def check_result(name: str, result: Result, n_features: int) -> Moments:
    """Check the result of a refit; its clusters."""
    clusters = result.clusters
    check_moments(f"clusters of the {name}", clusters, n_features)
    must(len(clusters) > 0, f"the {name} has no clusters")
    number(f"free energy of the {name}", result.free_energy)
    if isinstance(result, Partition):
        positive(f"effective events of the {name}", result.n_effective)
    must(result.labels.dtype.kind == "i" and result.labels.ndim == 1, f"labels of the {name} are none")
    return clusters


def check_moments(name: str, rows: Moments, n_features: int) -> None:
    """Check rows of at most `n_features` features, of positive weight."""
    must(1 <= rows.n_features <= n_features, f"{name} have {rows.n_features} features, events {n_features}")
    check_array(f"weight of {name}", rows.weight, rows.weight.shape)
    check_array(f"mean of {name}", rows.mean, rows.mean.shape)
    check_array(f"scatter of {name}", rows.scatter, rows.scatter.shape)
    must(
        bool((rows.weight >= 0).all()) and rows.weight.sum() > 0, f"weights of {name} are negative, or all 0"
    )


def check_refit(refit: Refit, engine: Engine) -> None:
    """A refit that has ended, and is published later."""
    whole("due of the refit", refit.due)
    found = refit.outcome()
    if isinstance(found, str):
        return
    assert engine.model is not None
    components = len(check_result("refit", found.result, engine.n_features))
    n_new = len(found.new_weight)
    check_owner("refit", found.owner, components, n_new)
    n_old = len(engine.model.ids)
    check_array("shared weight", found.shared, (n_old, n_new))
    check_array("old weight", found.old_weight, (n_old,))
    check_array("new weight", found.new_weight, (n_new,))
    number("outside of the refit", found.outside, least=0.0)


def check_projection(door: Projection, n_names: int) -> None:
    """The events that wait, and those kept beside a sketch; `n_names` features have names."""
    must(
        door.stage in get_args(Stage),
        f"stage must be one of {', '.join(get_args(Stage))}, got {door.stage!r}",
    )
    for name in ("width", "n_learnt", "judged_from"):
        whole(name, getattr(door, name))
    must((door.sketch is None) or door.stage in ("sketched", "waiting"), "a sketch that is not used")
    must(door.sketch is not None or door.stage != "sketched", "the sketch is missing")
    must(n_names >= door.n_features, f"{n_names} features have names, events have {door.n_features}")
    if door.sketch is not None:
        must(door.width >= door.sketch.n_features, "the sketch has more features than events")
    whole("number of recent events", door.recent.count, least=len(door.recent.rows))
    must(len(door.recent.rows) <= RECENT_EVENTS, "more recent events than are kept")
    widest = max([0, *(part.shape[1] for part in (*door.recent.rows, *(b.rows for b in door.waiting)))])
    must(widest <= n_names, f"an event that waits has {widest} features, {n_names} have names")
    for block in door.waiting:
        check_block(block)


def check_block(block: Block) -> None:
    """Events of one shard that wait."""
    must(block.rows.ndim == 2, "events that wait are no table")
    n = block.rows.shape[0]
    values = block.rows.data if issparse(block.rows) else block.rows
    must(np.asarray(values).dtype.kind == "f", "events that wait are no numbers")
    must(not np.isinf(np.asarray(values)).any(), "events that wait hold infinite numbers")
    for name in ("weight", "time"):
        kept = getattr(block, name)
        check_array(f"{name} of events that wait", kept, (n,) if len(kept) else (0,))
    must(bool((block.weight >= 0).all()), "weights of events that wait are negative")


def check_refusals(n_refused: object, last_refusal: object, n_invalid: Iterable[object] = ()) -> None:
    """Check the number of refused events, the reason of the last refusal, and numbers of invalid values."""
    whole("n_refused", n_refused)
    for n in n_invalid:
        whole("n_invalid", n)
    must(isinstance(last_refusal, str), f"last_refusal must be text, got {str(last_refusal)[:80]}")


# -------------------------------------------------------------------- single values


def must(holds: bool, otherwise: str) -> None:
    """Raise ValueError if something does not hold."""
    if not holds:
        raise ValueError(otherwise)


def whole(name: str, value: object, least: int = 0) -> None:
    """A count."""
    is_one = isinstance(value, int) and not isinstance(value, bool) and least <= value <= LARGEST_COUNT
    must(is_one, f"{name} must be a whole number of at least {least}, got {str(value)[:80]}")


def number(name: str, value: object, least: float = -math.inf) -> None:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < 1e300:
        raise ValueError(f"{name} must be a number, at least {least}, got {str(value)[:80]}")


def positive(name: str, value: object) -> None:
    """A finite number above 0."""
    number(name, value, least=0.0)
    must(bool(value), f"{name} must be above 0, got {value}")


def check_array(name: str, array: NDArray[Any], shape: tuple[int, ...], kind: str = "f") -> None:
    """Finite numbers of 8 bytes, of this shape."""
    fits = array.shape == shape and array.dtype.kind == kind and array.dtype.itemsize == 8
    must(fits, f"{name} is {array.dtype} of shape {array.shape}, expected {kind}8 of shape {shape}")
    must(bool(np.isfinite(array).all()), f"{name} holds NaN or infinity")
