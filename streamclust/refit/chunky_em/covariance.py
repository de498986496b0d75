"""Gaussian components with full, diagonal or spherical covariances, as chunky EM reads them.

A row of moments is lifted to (1, x̄, what is kept of ⟨x xᵀ⟩). Its mean log density under a component is then one
inner product with the component's natural parameters, and the sums of the M-step are another: both steps are
matrix products, and the kinds of covariance differ in the few pure functions below alone.

Products of lifted rows cancel far from the origin, so everything here lives in standard coordinates: the data's
mean is 0, and their variance 1 in every direction (full), in every feature (diagonal) or on average (spherical).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Literal, NamedTuple, cast, get_args

import numpy as np

from streamclust._kernels.refit.chunky_em import upper_products
from streamclust._kernels.types import Floats, Ints
from streamclust.moments import Moments, Scatter

Covariance = Literal["full", "diagonal", "spherical"]

MIN_EIGENVALUE = 1e-8
"""Directions with less than so much of the mean variance (of standardised features) count as having that much."""
MIN_MIXING_WEIGHT = 1e-300
"""Components weigh at least so much: a logarithm stays finite."""


class Components(NamedTuple):
    """Mixing weights (K,), means (K, D), covariances (K, D, D), (K, D) or (K,)."""

    weight: Floats
    mean: Floats
    covariance: Floats

    @property
    def n_components(self) -> int:
        """K."""
        return len(self.weight)


class Form(NamedTuple):
    """Operations of chunky EM on one kind of covariance."""

    family: str
    scatter: Scatter
    n_free: Callable[[int], int]
    """How many numbers a covariance of D features has."""
    standard: Callable[[Floats, int], Floats]
    """Covariance of all data, and D -> the matrix (or its diagonal) that maps deviations to standard ones."""
    second: Callable[[Floats, Floats | None], Floats]
    """Means and covariances of rows (None for points) -> what is kept of ⟨x xᵀ⟩, (rows, width)."""
    maximise: Callable[[Floats, Floats, float], Floats]
    """Means and ⟨x xᵀ⟩ of components, and the least variance -> covariances."""
    natural: Callable[[Floats, Floats], tuple[Floats, Floats, Floats]]
    """Means and covariances -> log density as constant (K,), linear (K, D) and quadratic (K, width) part."""
    at_least: Callable[[Floats, Floats], Floats]
    """Covariances, and the one (1, ...) that none may be below -> covariances that are not."""


# ---------------------------------------------------------------- full


def _scales(variance: Floats) -> Floats:
    """Deviations to divide by: what does not vary gets the average of what does, or 1 where nothing does."""
    varies = variance > 0
    usual = np.sqrt(variance[varies].mean()) if varies.any() else 1.0
    return np.where(varies, np.sqrt(np.maximum(variance, 0.0)), usual)


def _full_standard(covariance: Floats, d: int) -> Floats:
    scale = _scales(np.diagonal(covariance))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    return cast(Floats, vectors / np.sqrt(np.maximum(values, MIN_EIGENVALUE)) / scale[:, None])


@cache
def _upper(d: int) -> tuple[Ints, Ints]:
    """Where ⟨x xᵀ⟩ is kept: rows and columns of its upper triangle."""
    return np.triu_indices(d)


def _full_second(mean: Floats, covariance: Floats | None) -> Floats:
    products = upper_products(np.ascontiguousarray(mean))
    if covariance is not None:
        i, j = _upper(mean.shape[1])
        products += covariance[:, i, j]
    return products


MIN_VARIANCE_RATIO = 1e-13
"""Least variance of a full covariance over its largest: below it, the sum of the parts has no digit of it left."""


def _full_maximise(mean: Floats, second: Floats, least: float) -> Floats:
    """(3.17); of all covariances with no variance below `least`, the one with those eigenvalues raised is best."""
    k, d = mean.shape
    i, j = _upper(d)
    covariance = np.empty((k, d, d))
    covariance[:, i, j] = covariance[:, j, i] = second - mean[:, i] * mean[:, j]
    try:
        np.linalg.cholesky(covariance - least * np.eye(d))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        lowest = np.maximum(least, MIN_VARIANCE_RATIO * values[:, -1])
        low = values[:, 0] < lowest
        raised = np.maximum(values[low], lowest[low, None])
        covariance[low] = np.einsum("kij,kj,klj->kil", vectors[low], raised, vectors[low])
    return covariance


def _full_natural(mean: Floats, covariance: Floats) -> tuple[Floats, Floats, Floats]:
    d = mean.shape[1]
    i, j = _upper(d)
    precision = cast(Floats, np.linalg.inv(covariance))
    linear = np.einsum("kij,kj->ki", precision, mean)
    constant = -0.5 * (
        d * np.log(2 * np.pi) + np.linalg.slogdet(covariance)[1] + np.einsum("ki,ki->k", linear, mean)
    )
    quadratic: Floats = precision[:, i, j] * np.where(i == j, -0.5, -1.0)
    return constant, linear, quadratic


def _full_at_least(covariance: Floats, least: Floats) -> Floats:
    """Covariances; those below `least` in some direction have it added."""
    try:
        np.linalg.cholesky(covariance - least)
    except np.linalg.LinAlgError:
        narrow = np.linalg.eigvalsh(covariance - least)[:, 0] <= 0.0
        return np.where(narrow[:, None, None], covariance + least, covariance)
    return covariance


# ---------------------------------------------------------------- diagonal


def _diagonal_standard(covariance: Floats, d: int) -> Floats:
    return 1.0 / _scales(covariance)


def _diagonal_second(mean: Floats, covariance: Floats | None) -> Floats:
    return mean**2 if covariance is None else mean**2 + covariance


def _diagonal_maximise(mean: Floats, second: Floats, least: float) -> Floats:
    return np.maximum(second - mean**2, least)


def _diagonal_natural(mean: Floats, covariance: Floats) -> tuple[Floats, Floats, Floats]:
    linear = mean / covariance
    constant = -0.5 * (np.log(2 * np.pi * covariance) + linear * mean).sum(axis=1)
    return constant, linear, -0.5 / covariance


# ---------------------------------------------------------------- spherical


def _spherical_standard(covariance: Floats, d: int) -> Floats:
    return np.full(d, 1.0 / _scales(np.atleast_1d(covariance))[0])


def _spherical_second(mean: Floats, covariance: Floats | None) -> Floats:
    d = mean.shape[1]
    second = np.einsum("ri,ri->r", mean, mean)
    return np.asarray(second if covariance is None else second + d * covariance)[:, None]


def _spherical_maximise(mean: Floats, second: Floats, least: float) -> Floats:
    squared = np.einsum("ki,ki->k", mean, mean)
    return cast(Floats, np.maximum((second[:, 0] - squared) / mean.shape[1], least))


def _spherical_natural(mean: Floats, covariance: Floats) -> tuple[Floats, Floats, Floats]:
    linear = mean / covariance[:, None]
    squared = np.einsum("ki,ki->k", linear, mean)
    constant = -0.5 * (mean.shape[1] * np.log(2 * np.pi * covariance) + squared)
    return constant, linear, -0.5 / covariance[:, None]


FORMS: dict[Covariance, Form] = {
    "full": Form(
        "gaussian", "full", lambda d: d * (d + 1) // 2,
        _full_standard, _full_second, _full_maximise, _full_natural, _full_at_least,
    ),
    "diagonal": Form(
        "diagonal", "diagonal", lambda d: d,
        _diagonal_standard, _diagonal_second, _diagonal_maximise, _diagonal_natural, np.maximum,
    ),
    "spherical": Form(
        "spherical", "scalar", lambda d: 1,
        _spherical_standard, _spherical_second, _spherical_maximise, _spherical_natural, np.maximum,
    ),
}  # fmt: skip


def form_of(covariance: str) -> Form:
    """The form of that name."""
    if covariance not in get_args(Covariance):
        raise ValueError(f"covariance must be one of {', '.join(get_args(Covariance))}, got {covariance!r}")
    return FORMS[cast(Covariance, covariance)]


def count_free(form: Form, n_components: int, d: int) -> int:
    """How many free parameters a mixture has: what BIC charges for."""
    return n_components * (1 + d + form.n_free(d)) - 1


# ---------------------------------------------------------------- standard coordinates


class Space:
    """Standard coordinates of the data: where components are fitted, and how to come and go."""

    def __init__(self, form: Form, total: Moments, floor: float) -> None:
        self.form = form
        self.n_features = total.n_features
        self.centre = total.mean[0]
        self.least = floor**2
        self._to = form.standard(total.to(form.scatter).covariance[0], total.n_features)
        whole = self._to.ndim == 2
        self._back = cast(Floats, np.linalg.inv(self._to)) if whole else 1.0 / self._to
        self.log_volume = float(np.linalg.slogdet(self._to)[1] if whole else np.log(self._to).sum())
        """To be added to a log density in standard coordinates."""

    def lift(self, rows: Floats | Moments) -> Floats:
        """Points, or rows of moments, as (1, x̄, ⟨x xᵀ⟩)."""
        if not isinstance(rows, Moments):
            return self._lifted(_mapped(rows - self.centre, self._to), None)
        rows = rows if rows.kind == "none" else rows.to(self.form.scatter)
        covariance = None if rows.kind == "none" else _mapped_covariance(rows.covariance, self._to)
        return self._lifted(_mapped(rows.mean - self.centre, self._to), covariance)

    def _lifted(self, mean: Floats, covariance: Floats | None) -> Floats:
        second = self.form.second(mean, covariance)
        d = mean.shape[1]
        lifted = np.empty((len(mean), 1 + d + second.shape[1]))
        lifted[:, 0] = 1.0
        lifted[:, 1 : d + 1] = mean
        lifted[:, d + 1 :] = second
        return lifted

    def maximise(self, sums: Floats) -> Components:
        """The components of largest F, from summed lifted rows (K, width) [chunky EM eqs. 3.15-3.17]."""
        weight = sums[:, 0]
        averages = sums[:, 1:] / np.maximum(weight, MIN_MIXING_WEIGHT)[:, None]
        mean = averages[:, : self.n_features]
        covariance = self.form.maximise(mean, averages[:, self.n_features :], self.least)
        return Components(weight / weight.sum(), mean, covariance)

    def natural(self, components: Components) -> Floats:
        """(K, width): a lifted row times these is ⟨log p(x, s)⟩, which (3.14) exponentiates."""
        constant, linear, quadratic = self.form.natural(components.mean, components.covariance)
        constant = constant + np.log(np.maximum(components.weight, MIN_MIXING_WEIGHT)) + self.log_volume
        return np.concatenate([constant[:, None], linear, quadratic], axis=1)

    def n_collapsed(self, components: Components) -> int:
        """How many components are as narrow as they may be, in every direction."""
        k = components.n_components
        widths = (
            np.einsum("kii->ki", components.covariance)
            if components.covariance.ndim == 3
            else components.covariance.reshape(k, -1)
        )
        return int(np.sum(np.all(widths <= self.least * (1 + 1e-6), axis=1)))

    def entering(self, clusters: Moments) -> Components:
        """Components of clusters in the data's own coordinates."""
        sums = self.lift(clusters) * clusters.weight[:, None]
        return self.maximise(sums[clusters.weight > 0])

    @property
    def least_covariance(self) -> Floats:
        """The least covariance of a component in the data's own coordinates, as an array of one."""
        d = self.n_features
        one = {"full": np.eye(d)[None], "diagonal": np.ones((1, d)), "scalar": np.ones(1)}[self.form.scatter]
        return _mapped_covariance(self.least * one, self._back)

    def leaving(self, components: Components) -> Components:
        """Components in the data's own coordinates."""
        mean = _mapped(components.mean, self._back) + self.centre
        return Components(components.weight, mean, _mapped_covariance(components.covariance, self._back))


def _mapped(deviations: Floats, by: Floats) -> Floats:
    return deviations @ by if by.ndim == 2 else deviations * by


def _mapped_covariance(covariance: Floats, by: Floats) -> Floats:
    if by.ndim == 2:  # byᵀ C by, in two products for all rows together: C is symmetric
        d = len(by)
        half = (covariance.reshape(-1, d) @ by).reshape(-1, d, d)
        return cast(Floats, (half.swapaxes(1, 2).reshape(-1, d) @ by).reshape(-1, d, d))
    return cast(Floats, covariance * (by**2 if covariance.ndim == 2 else by[0] ** 2))
