"""Carrying an engine over to another sketch: trees, watched events and clusters are mapped, and ids stay."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from streamclust.engine.model import NOWHERE, Model, Result, having
from streamclust.moments import Moments
from streamclust.refit.bkm.fit import scored
from streamclust.refit.partition import Partition
from streamclust.sketch import CoordinateMap, Sketch
from streamclust.tree import SummaryTree

if TYPE_CHECKING:
    from streamclust.engine.engine import Engine


def carry_over(engine: Engine, sketch: Sketch) -> None:
    """Have everything that an engine has learnt in the coordinates of another sketch."""
    assert engine.sketch is not None
    change = CoordinateMap.between(engine.sketch, sketch)
    engine.shards.carry(change)
    engine.sketch = sketch
    if engine.model is not None:
        engine.model = carried_model(engine, engine.model, change)


def carried_model(engine: Engine, model: Model, change: CoordinateMap) -> Model:
    """The same clusters, mapped, under the prior of all events until a refit has learnt its own."""
    tree = engine.shards.merged_tree()
    result = carried_result(engine, model.result, change.moments(model.result.clusters), tree)
    running = None if model.running is None else change.moments(model.running)
    return replace(model, result=result, running=running, sketch=engine.sketch)


def carried_result(engine: Engine, result: Result, clusters: Moments, tree: SummaryTree) -> Result:
    """The result of a refit with its clusters in other coordinates."""
    if not isinstance(result, Partition):
        return having(result, clusters)
    family, mixture = scored(engine.settings.family, engine.settings.mixture, tree)
    return replace(result, family=family, mixture=mixture, clusters=clusters, labels=NOWHERE, radius=None)
