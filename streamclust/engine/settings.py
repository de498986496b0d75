"""The engine's settings, and the checks of parameters, made from their declaration."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from numbers import Real
from types import NoneType
from typing import Any, Literal, Self, cast, get_args, get_origin

import numpy as np

from streamclust.families import Mixed, mixed
from streamclust.parameters import (
    GAUSSIANS,
    PARAMETERS,
    Detail,
    DriftChoice,
    FamilyName,
    MixtureName,
    NumberOfClusters,
    Parameter,
    RefitName,
    ShapeName,
    check_detail,
    check_n_clusters,
    check_together,
)
from streamclust.refit.chunky_em.covariance import Covariance
from streamclust.tree.rows import check_positive, whole_number
from streamclust.utils.values import check_choice, shown

Check = Callable[[str, Any], object]
"""Raises ValueError, with the parameter's name and the cure, for a value that it may not have."""

COVARIANCE: dict[str, Covariance] = {"gaussian": "full", "diagonal": "diagonal", "spherical": "spherical"}
"""The families that "chunky-em" and "dp-means" have, and their covariances."""


OLDER_SETTINGS: dict[str, Any] = {"shape": "ellipse", "detail": "fine"}
"""Settings that older checkpoints do not name, as they were then."""


@dataclass(frozen=True)
class EngineSettings:
    """Parameters of an engine (see `streamclust.parameters`); equal settings and events give equal bits.

    `family` may also be a Family; such an engine cannot be saved.
    """

    family: FamilyName = "gaussian"
    refit: RefitName = "bkm"
    mixture: MixtureName = "finite"
    max_leaves: int | None = None
    refit_every: int = 20_000
    warmup: int | None = None
    half_life: float | None = None
    drift: DriftChoice = "follow"
    birth_penalty: float | None = None
    shape: ShapeName | None = None
    detail: Detail = "auto"
    n_clusters: NumberOfClusters = None
    background: bool = True
    seed: int = 0
    leaf_size: int = 16

    def to_values(self) -> dict[str, Any]:
        """The settings by name; ValueError for a family without a name."""
        values = asdict(self)
        if isinstance(self.family, type) and issubclass(self.family, Mixed):
            values |= {"family": "mixed", "columns": list(self.family.layout.columns)}
        if not isinstance(values["family"], str):
            raise ValueError(
                f"only an engine with a named family can be saved, got {self.family!r}; name one of "
                f"{', '.join(get_args(FamilyName))}, or leave the prior to the data"
            )
        return values

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Self:
        """Settings from saved values."""
        known = OLDER_SETTINGS | dict(values)
        if known["family"] == "mixed":
            known["family"] = mixed(tuple(known.pop("columns", ())))
        wanted = known.get("n_clusters")
        return cls(**known | {"n_clusters": tuple(wanted) if isinstance(wanted, list) else wanted})

    def __post_init__(self) -> None:
        check_parameters({f.name: getattr(self, f.name) for f in fields(self)})

    @property
    def follows(self) -> bool:
        """Whether the clusters are those of late, or of everything learnt."""
        return self.drift == "follow"

    @property
    def is_mixed(self) -> bool:
        """Whether events have categories."""
        return self.family == "mixed" or (isinstance(self.family, type) and issubclass(self.family, Mixed))

    @property
    def family_name(self) -> FamilyName:
        """Name of the family."""
        return "mixed" if self.is_mixed else self.family

    @property
    def columns(self) -> tuple[int, ...]:
        """Of each column of a mixed table: a number, or which category it is a value of."""
        family: Any = self.family
        return family.layout.columns if self.is_mixed and not isinstance(family, str) else ()

    def of_columns(self, columns: tuple[int, ...]) -> Self:
        """These settings with the family of mixed tables of these columns."""
        return replace(self, family=cast(Any, mixed(columns)))

    @property
    def penalty(self) -> float | None:
        """`birth_penalty` as kernels take it."""
        return None if self.birth_penalty is None else float(self.birth_penalty)

    @property
    def shows_finest(self) -> bool:
        """Whether the finest clusters are asked for."""
        return self.detail == "fine" and self.n_clusters is None

    @property
    def joins(self) -> bool:
        """Whether components that are pieces of one shape are joined into one cluster."""
        if self.shape is not None:
            return self.shape == "any"
        return self.refit == "bkm" and isinstance(self.family, str) and self.family in GAUSSIANS


# -------------------------------------------------------------------- what is allowed


def check_of(name: str, parameter: Parameter) -> Check:
    """The check of a parameter's values, by its declared type and limits."""
    kinds = [kind for kind in get_args(parameter.type) if kind is not NoneType]
    optional = len(kinds) < len(get_args(parameter.type))
    kind = kinds[0] if optional else parameter.type
    if name == "family":
        check: Check = a_family
    elif name in BY_NAME:
        check = BY_NAME[name]
    elif get_origin(kind) is Literal:
        check = one_of(*get_args(kind))
    elif kind is int:
        check = at_least(parameter.least)
    else:
        check = CHECKS[get_origin(kind) or kind]
    return or_none(check, parameter.use_none_to) if optional else check


def one_of(*choices: str) -> Check:
    """One of some words."""
    return lambda name, value: check_choice(name, value, choices)


def at_least(least: int) -> Check:
    """A whole number of at least that."""
    return lambda name, value: whole_number(name, value, least)


def positive(name: str, value: object) -> None:
    """A positive, finite number, not a truth value."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{name} must be positive and finite, got {shown(value)}")
    check_positive(name, cast(float, value))


def a_share(name: str, value: object) -> None:
    """A number above 0 and below 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < 1:
        raise ValueError(f"{name} must be a share of events above 0 and below 1, got {shown(value)}")


def or_none(check: Check, meaning: str) -> Check:
    """A check that also allows None, which has a meaning of its own."""

    def checked(name: str, value: object) -> None:
        if value is None:
            return
        try:
            check(name, value)
        except ValueError as error:
            raise ValueError(f"{error}; use None to {meaning}") from None

    return checked


def a_family(name: str, value: object) -> None:
    """The name of a family, or a Family."""
    if isinstance(value, str) or not hasattr(value, "log_marginal"):
        check_choice(name, value, get_args(FamilyName))


def yes_or_no(name: str, value: object) -> None:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {shown(value)}")


def a_function(name: str, value: object) -> None:
    """Something to call."""
    if not callable(value):
        raise ValueError(f"{name} must be a function, got {shown(value)}")


def a_sequence(name: str, value: object) -> None:
    """Names in an order."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise ValueError(f"{name} must be a list of names, got {shown(value)}")


def categorical_columns(name: str, value: object) -> None:
    """Automatic, none, or names of columns."""
    named = isinstance(value, Collection) and not isinstance(value, (str, bytes))
    if not (value is False or value == "auto" or named):
        raise ValueError(f'{name} must be "auto", False or a list of names, got {shown(value)}')


def transforms(name: str, value: object) -> None:
    """Automatic, none, or how each of some features is transformed."""
    if isinstance(value, str) and value in ("auto", "none"):
        return
    if not isinstance(value, Mapping):
        raise ValueError(f'{name} must be "auto", "none" or a mapping of features, got {shown(value)}')
    for feature, wish in value.items():
        number = isinstance(wish, Real) and not isinstance(wish, bool) and 0 < float(wish) < float("inf")
        if not (number or (isinstance(wish, str) and wish in ("log", "none"))):
            raise ValueError(
                f'{name} of {feature!r} must be "log", "none" or a positive number, the knee, got {shown(wish)}'
            )


CHECKS: dict[Any, Check] = {float: positive, bool: yes_or_no, Sequence: a_sequence, Callable: a_function}
"""Checks by type."""
BY_NAME: dict[str, Check] = {
    "categorical": categorical_columns,
    "detail": lambda name, value: check_detail(value),
    "n_clusters": lambda name, value: check_n_clusters(value),
    "outliers": lambda name, value: a_share(name, value),
    "transforms": transforms,
}
"""Checks of parameters whose types do not say what is allowed."""
ALLOWED: dict[str, Check] = {name: check_of(name, parameter) for name, parameter in PARAMETERS.items()}
"""Check of each parameter."""


def check_parameters(given: Mapping[str, Any]) -> None:
    """Raise ValueError for the first parameter whose value is not allowed, and for two that do not go together.

    >>> check_parameters({"family": "gausian"})
    Traceback (most recent call last):
        ...
    ValueError: family must be 'gaussian', 'diagonal', 'spherical', 'multinomial', 'bernoulli', 'poisson' or 'mixed', \
got 'gausian'; did you mean 'gaussian'?
    >>> check_parameters({"half_life": -1})
    Traceback (most recent call last):
        ...
    ValueError: half_life must be positive and finite, got -1; use None to never forget
    """
    for name, value in given.items():
        ALLOWED[name](name, value)
    check_together(given)
