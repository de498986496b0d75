"""An engine as arrays and JSON, and back, bit for bit."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamclust.checkpoint.sketches import State, pack_sketch, sketch_from_state, under
from streamclust.checkpoint.validation import check_engine
from streamclust.checkpoint.validation import whole as whole_number
from streamclust.engine import Engine, EngineSettings, Model
from streamclust.engine.background import Refit, RefitError
from streamclust.engine.event_ring import EventRing
from streamclust.engine.model import Result
from streamclust.engine.refit import Found
from streamclust.engine.shard import Shard
from streamclust.engine.shards import Shards
from streamclust.engine.stream import Counters, Stream
from streamclust.engine.watched_events import WatchedEvents
from streamclust.families import FAMILIES, MIXTURES, FamilyClass, FlatGaussian
from streamclust.lineage import Lineage
from streamclust.moments import Moments
from streamclust.refit.chunky_em.mixture import Mixture
from streamclust.refit.partition import Partition
from streamclust.tree import SummaryTree

Arrays = dict[str, NDArray[Any]]
Packed = TypeVar("Packed")
OLDER: dict[str, Any] = {"shape": "ellipse"}
"""Settings that older checkpoints do not name, as they were then."""
PRIORS: dict[str, FamilyClass] = {kind.__name__: kind for kind in (*FAMILIES.values(), FlatGaussian)}
"""Every family class that a partition may hold, by name."""


MERGED = "merged"
"""Name of the one shard of a state whose shards were merged."""


def engine_state(engine: Engine, merged: bool = False) -> State:
    """Complete state of an engine, or with its shards `merged` into one; waits for a running refit."""
    parts: Mapping[Hashable, Shard] = {MERGED: engine.shards.merged()} if merged else engine.shards
    arrays: Arrays = {}
    settings = asdict(engine.settings)
    if not isinstance(settings["family"], str):
        raise ValueError(
            f"only an engine with a named family can be saved, got {engine.settings.family!r}; name one of "
            f"{', '.join(FAMILIES)}, or leave the prior to the data"
        )
    values: dict[str, Any] = {
        "settings": settings,
        "n_features": engine.n_features,
        "capacity": engine.n_features if merged else engine.shards.capacity,
        **engine.counters.to_values(),
        "lineage": engine.lineage.to_dict(),
        "shards": [],
    }
    for i, (key, part) in enumerate(parts.items()):
        more, kept = shard_state(part)
        values["shards"].append({"key": key} | kept)
        arrays |= {f"shard{i}.{name}": value for name, value in more.items()}
    arrays |= ring_arrays(engine.shards.recent.ring, "whole.")
    values["whole"] = engine.shards.recent.ring.count
    values |= pack_sketch(engine.sketch, arrays)
    arrays["strays"] = engine.shards.recent.strays.rows.copy()
    values["strays"] = engine.shards.recent.strays.count
    if engine.model is not None:
        values["model"] = pack_model(engine.model, "model.", arrays)
    if engine.stream.pending_refit is not None:
        values["refit"] = pack_refit(engine.stream.pending_refit, arrays)
    return State(arrays, values)


def engine_from_state(state: State) -> Engine:
    """The engine that `engine_state` saved."""
    arrays, values = state
    settings, n_features = EngineSettings(**OLDER | values["settings"]), values["n_features"]
    whole_number("n_features", n_features)
    strays = WatchedEvents(0)
    strays.rows, strays.count = np.array(arrays["strays"]), values["strays"]
    parts = {
        key_of(part): shard_from_state(State(under(arrays, f"shard{i}."), part))
        for i, part in enumerate(values["shards"])
    }
    capacity = values.get("capacity", n_features)
    shards = Shards(n_features, settings)
    shards.capacity = capacity
    shards.update(parts)
    shards.recent.replace_strays(strays)
    if "whole" in values:  # older checkpoints have none
        fill_ring(shards.recent.ring, under(arrays, "whole."), values["whole"])
    refit = unpack_refit(values["refit"], under(arrays, "refit.")) if "refit" in values else None
    model = model_in(state)
    older = {"known_features": shards.n_features}  # older checkpoints do not tell
    counters = Counters.from_values(older | values)
    sketch = sketch_from_state(state) if model is None else model.sketch
    lineage = Lineage.from_dict(values["lineage"])
    engine = Engine.of(Stream(settings, shards, lineage, counters, sketch, model, refit))
    check_engine(engine)
    return engine


def pack_refit(refit: Refit, arrays: Arrays) -> dict[str, Any]:
    """A refit with what it has found, or why it failed; waits for it."""
    found = refit.outcome()
    if isinstance(found, str):
        return {"due": refit.due, "failed": found}
    for name in ("shared", "old_weight", "new_weight"):
        arrays[f"refit.{name}"] = getattr(found, name)
    return {
        "due": refit.due,
        "outside": found.outside,
        "owner": list(found.owner),
        "result": pack_result(found.result, "refit.", arrays),
    }


def unpack_refit(values: dict[str, Any], arrays: Arrays) -> Refit:
    """A refit that had ended, and was to take effect at a later event."""
    if "failed" in values:
        return Refit(values["due"], error=RefitError(values["failed"]))
    result = unpack_result(values["result"], arrays)
    tables = {name: arrays[name] for name in ("shared", "old_weight", "new_weight")}
    owner = tuple(values.get("owner", ()))  # older checkpoints have none
    return Refit(values["due"], Found(result, outside=values["outside"], owner=owner, **tables))


# -------------------------------------------------------------------- shards


def key_of(part: Mapping[str, Any]) -> Hashable:
    """The key of a saved shard; JSON turns tuples into lists."""
    return tuple(part["key"]) if isinstance(part["key"], list) else part["key"]


def shard_state(part: Shard) -> State:
    """State of one shard."""
    arrays = {f"tree.{name}": value for name, value in part.tree.to_arrays().items()}
    arrays |= ring_arrays(part.watch, "watch.")
    values = {"n_seen": part.n_seen, "watched": part.watch.count, "learnt_here": part.learnt_here}
    return State(arrays, values)


def shard_from_state(state: State) -> Shard:
    """The shard that `shard_state` saved."""
    tree = SummaryTree.from_arrays(under(state.arrays, "tree."))
    watch = WatchedEvents(tree.n_features)
    fill_ring(watch, under(state.arrays, "watch."), state.values["watched"])
    return Shard(tree, watch, state.values["n_seen"], state.values.get("learnt_here", False))


def ring_arrays(ring: EventRing, prefix: str) -> Arrays:
    """The arrays of a ring."""
    arrays = {prefix + name: getattr(ring, name).copy() for name in ("rows", "weight", "at")}
    return arrays if ring.missing is None else arrays | {f"{prefix}missing": ring.missing.copy()}


def fill_ring(ring: EventRing, arrays: Arrays, count: int) -> None:
    """Restore what `ring_arrays` gave; older checkpoints have no numbers of events, and no missing values."""
    ring.rows, ring.weight, ring.count = arrays["rows"].copy(), arrays["weight"].copy(), count
    ring.at = arrays["at"].copy() if "at" in arrays else ring.at
    ring.missing = arrays["missing"].copy() if "missing" in arrays else None


# -------------------------------------------------------------------- models


def model_state(model: Model) -> State:
    """A published model as arrays and JSON."""
    arrays: Arrays = {}
    values = pack_model(model, "", arrays)
    return State(arrays, values | pack_sketch(model.sketch, arrays))


def model_from_state(state: State) -> Model:
    """The model that `model_state` was given."""
    return replace(unpack_model(state.values, state.arrays), sketch=sketch_from_state(state))


def model_in(state: State) -> Model | None:
    """The published model of a saved clusterer; None if it has learnt nothing."""
    values = state.values.get("model")
    if values is None:
        return None
    return replace(unpack_model(values, under(state.arrays, "model.")), sketch=sketch_from_state(state))


def pack_model(model: Model, prefix: str, arrays: Arrays) -> dict[str, Any]:
    """A model: its arrays go into `arrays`, the rest comes back."""
    if model.running is not None:
        for name in ("weight", "mean", "scatter"):
            arrays[f"{prefix}running.{name}"] = getattr(model.running, name)
    return {
        "version": model.version,
        "n_seen": model.n_seen,
        "ids": list(model.ids),
        "hidden": sorted(model.hidden),
        "owner": list(model.owner),
        "moved": model.moved,
        "result": pack_result(model.result, prefix, arrays),
    }


def unpack_model(values: Mapping[str, Any], arrays: Arrays) -> Model:
    """What `pack_model` packed."""
    result = unpack_result(values["result"], arrays)
    running = under(arrays, "running.")  # older models have none of what follows
    return Model(
        values["version"],
        values["n_seen"],
        result,
        tuple(values["ids"]),
        frozenset(values["hidden"]),
        tuple(values.get("owner", ())),
        running=Moments(**running, kind=result.clusters.kind) if running else None,
        moved=values.get("moved", False),
    )


# -------------------------------------------------------------------- results


def pack_result(result: Result, prefix: str, arrays: Arrays) -> dict[str, Any]:
    """A partition or mixture: its arrays go into `arrays`, the rest comes back."""
    if isinstance(result, Mixture):
        return {"kind": "mixture"} | pack(result, prefix, arrays, skip=("notes",))
    clusters = result.clusters
    for name in ("weight", "mean", "scatter"):
        arrays[f"{prefix}clusters.{name}"] = getattr(clusters, name)
    return {
        "kind": "partition",
        "scatter": clusters.kind,
        "family": type(result.family).__name__,
        "prior": pack(result.family, f"{prefix}prior.", arrays),
        "mixture": result.mixture.name,
        "phi0": result.mixture.phi0,
    } | pack(result, prefix, arrays, skip=("family", "mixture", "clusters"))


def unpack_result(values: dict[str, Any], arrays: Arrays) -> Result:
    """What `pack_result` packed."""
    values = dict(values)
    if values.pop("kind") == "mixture":
        return unpack(Mixture, values, arrays)
    parts = under(arrays, "clusters.")
    clusters = Moments(parts["weight"], parts["mean"], parts["scatter"], values.pop("scatter"))
    family = unpack(PRIORS[values.pop("family")], values.pop("prior"), under(arrays, "prior."))
    mixture = MIXTURES[values.pop("mixture")](values.pop("phi0"))
    more = {"family": family, "mixture": mixture, "clusters": clusters}
    return unpack(Partition, values | more, arrays)


def pack(thing: object, prefix: str, arrays: Arrays, skip: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields of a dataclass: arrays into `arrays`, numbers and text into what comes back."""
    values: dict[str, Any] = {}
    assert is_dataclass(thing)
    for f in fields(thing):
        value = getattr(thing, f.name)
        if isinstance(value, np.ndarray):
            arrays[prefix + f.name] = value
        elif f.name not in skip:
            values[f.name] = value
    return values


def unpack(kind: type[Packed], values: dict[str, Any], arrays: Arrays) -> Packed:
    """A dataclass from its packed fields."""
    assert is_dataclass(kind)
    names = {f.name for f in fields(kind)}
    return kind(**values, **{name: value for name, value in arrays.items() if name in names})
