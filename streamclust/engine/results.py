"""Results of refits, hard (partitions) or soft (mixtures): functions that treat both alike."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from streamclust._kernels.types import Floats, Ints
from streamclust.engine.tuning import TUNING
from streamclust.families import (
    FAMILIES,
    MIXTURES,
    AnyFamily,
    FamilyClass,
    FlatGaussian,
    Multinomial,
    TiedGaussian,
)
from streamclust.families.cost_form import CostForm, Quadratic
from streamclust.families.gaussian import Gaussian, GaussianParameters
from streamclust.families.linalg import cholesky, log_determinant, whitener
from streamclust.families.marginal import PointParameters
from streamclust.families.mixed import Mixed, of_columns
from streamclust.moments import Moments
from streamclust.refit.chunky_em.covariance import form_of
from streamclust.refit.chunky_em.mixture import Mixture
from streamclust.refit.partition import Partition
from streamclust.utils.late import gammaincinv
from streamclust.utils.state import Arrays, State, fields_state, from_fields, prefixed, under

Result = Partition | Mixture
NOWHERE: Ints = np.zeros(0, dtype=np.int64)
PRIORS: dict[str, FamilyClass] = {
    kind.__name__: kind for kind in (*FAMILIES.values(), FlatGaussian, TiedGaussian)
}
"""Every family class that a partition may hold, by name."""


def check_finite(clusters: Moments) -> None:
    """Raise FloatingPointError for clusters that no event could be assigned to."""
    if not all(np.isfinite(part).all() for part in (clusters.weight, clusters.mean, clusters.scatter)):
        raise FloatingPointError("clusters hold NaN or infinity")


def large_rows(weight: Floats) -> Ints:
    """The large ones of clusters of these weights.

    >>> large_rows(np.array([0.5, 0.495, 0.005]))
    array([0, 1])
    >>> len(large_rows(np.ones(300)))
    300
    """
    share = min(TUNING.large_share, TUNING.large_part_of_average / max(len(weight), 1))
    return np.flatnonzero(weight >= share * weight.sum())


@lru_cache(maxsize=64)
def reach(n_features: int, evidence: float = 1.0) -> float:
    """Half the squared Mahalanobis distance, a chi-squared, within which a Gaussian has `inside_mass` of its mass.

    Of events that count `evidence` it is that of a chi-squared whose variance is 1 / evidence times as large.
    """
    return float(gammaincinv(evidence * n_features / 2, TUNING.inside_mass) / evidence)


def event_evidence_of(result: Result) -> float:
    """Evidence of an event, less than 1 if its coordinates depend on each other."""
    return result.event_evidence if isinstance(result, Partition) else 1.0


def cost_form(result: Result) -> CostForm:
    """Cost of a point in each cluster; a component whose events have decayed to nothing owns none."""
    if isinstance(result, Partition):
        mixing = result.mixture.mixing(result.clusters.weight) if result.n_clusters > 1 else np.zeros(1)
        return result.family.cost_form(result.posterior, mixing)
    d = result.means.shape[1]
    covariance = full_covariances(result)
    empty = ~(np.einsum("kii->k", covariance) > 0) | ~(result.weights > 0)
    factor = cholesky(np.where(empty[:, None, None], np.eye(d), covariance) if empty.any() else covariance)
    offset = (d * np.log(2 * np.pi) + log_determinant(factor)) / 2 - np.log(
        np.where(empty, 1.0, result.weights)
    )
    offset = np.where(empty, np.inf, offset)
    return Quadratic(result.means, whitener(factor) / np.sqrt(2), offset)


def as_arrays(form: CostForm) -> tuple[Floats, Floats | None, Floats]:
    """The numbers of a cost form as kernels take them."""
    plain = np.ascontiguousarray
    if isinstance(form, Quadratic):
        return plain(form.centre), plain(form.root), plain(form.offset)
    return plain(form.slope), None, plain(form.offset)


def directions_of(form: CostForm) -> Floats:
    """Directions by which kernels find the clusters that may own a point; none for counts."""
    return form.directions() if isinstance(form, Quadratic) else np.zeros((0, form.slope.shape[1]))


def full_covariances(result: Mixture) -> Floats:
    """Covariances as matrices, whatever form they are kept in."""
    return matrices(result.covariances, result.means.shape[1])


def matrices(covariance: Floats, d: int) -> Floats:
    """Covariances of d features as matrices: kept whole, by their diagonals or as one number each."""
    return covariance if covariance.ndim == 3 else covariance.reshape(len(covariance), -1, 1) * np.eye(d)


def point_parameters(result: Result) -> PointParameters:
    """The clusters' parameters, as `family.log_density` reads them."""
    if isinstance(result, Partition):
        parameters: PointParameters = result.family.parameters(result.posterior)
        return parameters
    return GaussianParameters(result.means, result.covariances)


def log_density(result: Result, parameters: PointParameters, points: Floats) -> Floats:
    """log p(x|θ), rows x clusters."""
    if isinstance(result, Partition):
        return np.asarray(result.family.log_density(parameters, points))
    return np.asarray(FAMILIES[form_of(result.covariance).family].log_density(parameters, points))


def chosen(result: Result, rows: Ints) -> Result:
    """Some of the clusters alone; leaves are not labelled."""
    if isinstance(result, Partition):
        return replace(result, clusters=result.clusters[rows], labels=NOWHERE)
    share = result.weights[rows]
    return replace(
        result, weights=share / share.sum(), means=result.means[rows], covariances=result.covariances[rows],
        labels=NOWHERE, total=result.total * float(share.sum()),
    )  # fmt: skip


def joined(result: Result, more: Moments) -> Result:
    """The clusters and more of them; leaves are not labelled."""
    return having(result, Moments.stack([result.clusters, more.to(result.clusters.kind)]))


def having(result: Result, clusters: Moments) -> Result:
    """The clusters with other moments; leaves are not labelled."""
    if isinstance(result, Partition):
        return replace(result, clusters=clusters, labels=NOWHERE)
    return result.having(clusters)


def weighing(result: Result, total: float) -> Result:
    """The clusters with weights that add up to `total`."""
    if isinstance(result, Partition):
        return replace(result, clusters=result.clusters.scale(total / result.clusters.weight.sum()))
    return replace(result, total=total)


# -------------------------------------------------------------------- saved


def moments_arrays(rows: Moments) -> Arrays:
    """The arrays of moments; their kind is saved elsewhere."""
    return {"weight": rows.weight, "mean": rows.mean, "scatter": rows.scatter}


def result_state(result: Result) -> State:
    """State of a result."""
    if isinstance(result, Mixture):
        arrays, values = fields_state(result, skip=("notes",))
        return State(arrays, {"kind": "mixture"} | values)
    arrays, values = fields_state(result, skip=("family", "mixture", "clusters"))
    prior = prior_state(result.family)
    arrays |= prefixed("clusters.", moments_arrays(result.clusters)) | prefixed("prior.", prior.arrays)
    named = {
        "kind": "partition",
        "scatter": result.clusters.kind,
        "family": "Mixed" if isinstance(result.family, Mixed) else type(result.family).__name__,
        "prior": prior.values,
        "mixture": result.mixture.name,
        "phi0": result.mixture.phi0,
    }
    return State(arrays, named | values)


def result_from_state(state: State) -> Result:
    """The result that `result_state` saved."""
    arrays, values = state.arrays, dict(state.values)
    if values.pop("kind") == "mixture":
        return from_fields(Mixture, State(arrays, values))
    parts = under(arrays, "clusters.")
    clusters = Moments(parts["weight"], parts["mean"], parts["scatter"], values.pop("scatter"))
    prior = State(under(arrays, "prior."), values.pop("prior"))
    family = prior_from_state(values.pop("family"), prior)
    mixture = MIXTURES[values.pop("mixture")](values.pop("phi0"))
    return from_fields(Partition, State(arrays, values), family=family, mixture=mixture, clusters=clusters)


def prior_state(family: AnyFamily) -> State:
    """State of a family's prior."""
    if not isinstance(family, Mixed):
        return fields_state(family)
    arrays: Arrays = {}
    values: dict[str, Any] = {"columns": list(family.layout.columns), "categories": [], "numbers": None}
    for i, part in enumerate(family.categories):
        kept = fields_state(part)
        arrays |= prefixed(f"category{i}.", kept.arrays)
        values["categories"].append(kept.values)
    if family.numbers is not None:
        kept = fields_state(family.numbers)
        arrays |= prefixed("numbers.", kept.arrays)
        values["numbers"] = kept.values
    return State(arrays, values)


def prior_from_state(name: str, state: State) -> AnyFamily:
    """The prior that `prior_state` saved, of the family of this name."""
    if name != "Mixed":
        return from_fields(PRIORS[name], state)
    arrays, values = state
    numbers = None
    if values["numbers"] is not None:
        numbers = from_fields(Gaussian, State(under(arrays, "numbers."), values["numbers"]))
    categories = tuple(
        from_fields(Multinomial, State(under(arrays, f"category{i}."), kept))
        for i, kept in enumerate(values["categories"])
    )
    return of_columns(tuple(values["columns"]), numbers, categories)
