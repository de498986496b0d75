"""Section [engine]: the clusterer's parameters, declared in `streamclust.parameters`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from streamclust.parameters import (
    PARAMETERS,
    Detail,
    DriftChoice,
    FamilyName,
    Missing,
    MixtureName,
    NumberOfClusters,
    RefitName,
    ScaleName,
    ShapeName,
    check_detail,
    check_n_clusters,
    check_together,
)
from streamclust_connectors.settings.base import Names, Positive, Section, plain

TransformNames = Annotated[
    Literal["auto", "none"] | dict[str, Literal["log", "none"] | Positive], BeforeValidator(plain)
]
"""Transforms of features by name."""
FieldDefault = Any
"""Type of pydantic's Field in place of a default; any type, so that it fits every field."""


def _declared(name: str) -> FieldDefault:
    """Default, limits and description of a parameter from `streamclust.parameters`."""
    parameter = PARAMETERS[name]
    limits: dict[str, Any] = {}
    if parameter.type in (int, int | None):
        limits = {"ge": parameter.least, "lt": 2**63}
    elif parameter.type in (float, float | None):
        limits = {"gt": 0, "allow_inf_nan": False}
    return Field(default=parameter.default, description=parameter.help, **limits)


class EngineSection(Section):
    """Parameters of `streamclust.StreamClusterer`."""

    family: FamilyName = _declared("family")
    refit: RefitName = _declared("refit")
    mixture: MixtureName = _declared("mixture")
    max_leaves: int | None = _declared("max_leaves")
    refit_every: int = _declared("refit_every")
    warmup: int | None = _declared("warmup")
    half_life: float | None = _declared("half_life")
    drift: DriftChoice = _declared("drift")
    birth_penalty: float | None = _declared("birth_penalty")
    shape: ShapeName | None = _declared("shape")
    detail: Detail = _declared("detail")
    n_clusters: NumberOfClusters = _declared("n_clusters")
    missing: Missing | None = _declared("missing")
    background: bool = _declared("background")
    feature_order: Names = _declared("feature_order")
    seed: int = _declared("seed")
    max_time_step: float | None = _declared("max_time_step")
    max_features: int | None = _declared("max_features")
    max_directions: int | None = _declared("max_directions")
    scale: ScaleName = _declared("scale")
    transforms: TransformNames = _declared("transforms")

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        check_detail(self.detail)
        check_n_clusters(self.n_clusters)
        check_together(self.model_dump())
        return self
