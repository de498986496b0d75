"""An engine as arrays and JSON, and back, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamclust.engine import Engine, Model, Settings
from streamclust.engine.model import Result
from streamclust.engine.refits import Found, Refit
from streamclust.engine.shards import Shard
from streamclust.engine.watch import Watch
from streamclust.families import FAMILIES, MIXTURES, FlatGaussian
from streamclust.lineage import Lineage
from streamclust.moments import Moments
from streamclust.refit.mixture import Mixture
from streamclust.refit.partition import Partition
from streamclust.tree import SummaryTree

Arrays = dict[str, NDArray[Any]]
PRIORS: dict[str, Any] = {kind.__name__: kind for kind in (*FAMILIES.values(), FlatGaussian)}
"""Every family class that a partition may hold, by name."""


class State(NamedTuple):
    """Arrays, by name, and what JSON holds."""

    arrays: Arrays
    values: dict[str, Any]


def engine_state(engine: Engine) -> State:
    """Everything an engine knows; waits for a refit that is on its way."""
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
        "n_seen": engine.n_seen,
        "n_refits": engine.n_refits,
        "next_refit": engine.next_refit,
        "next_look": engine.next_look,
        "last_refit": engine.last_refit,
        "last_challenge": engine.last_challenge,
        "strays_searched": engine.strays_searched,
        "tolerated": engine.tolerated,
        "lineage": engine.lineage.to_dict(),
        "shards": [],
    }
    for i, (key, part) in enumerate(engine.shards.items()):
        more, kept = shard_state(part)
        values["shards"].append({"key": key} | kept)
        arrays |= {f"shard{i}.{name}": value for name, value in more.items()}
    arrays["strays"] = engine.shards.strays.rows.copy()
    values["strays"] = engine.shards.strays.count
    if (model := engine.model) is not None:
        values["model"] = {
            "version": model.version,
            "n_seen": model.n_seen,
            "ids": list(model.ids),
            "hidden": sorted(model.hidden),
            "result": pack_result(model.result, "model.", arrays),
        }
    if engine.refit is not None:
        found = engine.refit.result()
        values["refit"] = {
            "due": engine.refit.due,
            "outside": found.outside,
            "result": pack_result(found.result, "refit.", arrays),
        }
        for name in ("shared", "old_weight", "new_weight"):
            arrays[f"refit.{name}"] = getattr(found, name)
    return State(arrays, values)


def engine_from_state(state: State) -> Engine:
    """The engine that `engine_state` was asked about."""
    arrays, values = state
    engine = Engine(values["n_features"], Settings(**values["settings"]))
    for name in (
        "n_seen",
        "n_refits",
        "next_refit",
        "next_look",
        "last_refit",
        "last_challenge",
        "strays_searched",
        "tolerated",
    ):
        setattr(engine, name, values[name])
    engine.lineage = Lineage.from_dict(values["lineage"])
    for i, part in enumerate(values["shards"]):
        key = tuple(part["key"]) if isinstance(part["key"], list) else part["key"]
        engine.shards[key] = shard_from_state(State(under(arrays, f"shard{i}."), part))
    engine.shards.strays.rows[:], engine.shards.strays.count = arrays["strays"], values["strays"]
    if "model" in values:
        model = values["model"]
        result = unpack_result(model["result"], under(arrays, "model."))
        engine.model = Model(
            model["version"], model["n_seen"], result, tuple(model["ids"]), frozenset(model["hidden"])
        )
    if "refit" in values:
        parts = under(arrays, "refit.")
        result = unpack_result(values["refit"]["result"], parts)
        tables = {name: parts[name] for name in ("shared", "old_weight", "new_weight")}
        found = Found(result, outside=values["refit"]["outside"], **tables)
        engine.refit = Refit(values["refit"]["due"], found)
    return engine


def shard_state(part: Shard) -> State:
    """What is kept of one part of the stream."""
    arrays = {f"tree.{name}": value for name, value in part.tree.to_arrays().items()}
    arrays |= {"watch.rows": part.watch.rows.copy(), "watch.weight": part.watch.weight.copy()}
    return State(arrays, {"n_seen": part.n_seen, "watched": part.watch.count})


def shard_from_state(state: State) -> Shard:
    """The part of the stream that `shard_state` was asked about."""
    tree = SummaryTree.from_arrays(under(state.arrays, "tree."))
    watch = Watch(tree.n_features)
    watch.rows[:], watch.weight[:] = state.arrays["watch.rows"], state.arrays["watch.weight"]
    watch.count = state.values["watched"]
    return Shard(tree, watch, state.values["n_seen"])


def under(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Arrays:
    """The arrays whose names begin with the prefix, without it."""
    return {name[len(prefix) :]: value for name, value in arrays.items() if name.startswith(prefix)}


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
        return unpack(Mixture, values, arrays)  # type: ignore[no-any-return]
    parts = under(arrays, "clusters.")
    clusters = Moments(parts["weight"], parts["mean"], parts["scatter"], values.pop("scatter"))
    family = unpack(PRIORS[values.pop("family")], values.pop("prior"), under(arrays, "prior."))
    mixture = MIXTURES[values.pop("mixture")](values.pop("phi0"))
    more = {"family": family, "mixture": mixture, "clusters": clusters}
    return unpack(Partition, values | more, arrays)  # type: ignore[no-any-return]


def pack(thing: Any, prefix: str, arrays: Arrays, skip: tuple[str, ...] = ()) -> dict[str, Any]:  # noqa: ANN401
    """The fields of a dataclass: arrays into `arrays`, numbers and text into what comes back."""
    values: dict[str, Any] = {}
    for f in fields(thing):
        value = getattr(thing, f.name)
        if isinstance(value, np.ndarray):
            arrays[prefix + f.name] = value
        elif f.name not in skip:
            values[f.name] = value
    return values


def unpack(kind: Any, values: dict[str, Any], arrays: Arrays) -> Any:  # noqa: ANN401
    """A dataclass from its packed fields."""
    names = {f.name for f in fields(kind)}
    return kind(**values, **{name: value for name, value in arrays.items() if name in names})
