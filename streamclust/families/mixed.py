"""Clusters of mixed tables: numbers by a Gaussian, each categorical column by its own categories, independent given the
cluster.

A categorical column stands in as many columns as it has values, one of which is 1 in each event: its mean in a cluster
is the share of each value, so that Moments hold all that is needed. A missing value is 0 in all of them, and counts for
nothing. The labelling cost of a category is linear in these columns; as x² = x there, it is written as a square, so
that kernels price mixed events as they price Gaussian ones.
"""

from __future__ import annotations

import copyreg
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np

from streamclust._kernels.types import Bools, Floats, Ints
from streamclust.families.base import Family, Rule, Summary, check_finite, complain
from streamclust.families.cost_form import Quadratic
from streamclust.families.discrete import Dirichlet, Multinomial, MultinomialParameters
from streamclust.families.gaussian import Gaussian, GaussianParameters, NormalWishart
from streamclust.families.marginal import marginal
from streamclust.families.priors import read_weighted
from streamclust.moments import Moments, Scatter

NUMBER = -1
"""In a layout: the column is a number."""


@dataclass(frozen=True)
class TableLayout:
    """Which columns are numbers, and which stand for the values of one categorical column.

    >>> layout = TableLayout((NUMBER, 0, 0, NUMBER, 1, 1, 1))
    >>> layout.numbers, layout.groups
    (array([0, 3]), (array([1, 2]), array([4, 5, 6])))
    """

    columns: tuple[int, ...]
    """Of each column: NUMBER, or the number of its categorical column."""

    @cached_property
    def numbers(self) -> Ints:
        """Columns that are numbers."""
        return np.flatnonzero(np.array(self.columns) == NUMBER)

    @cached_property
    def groups(self) -> tuple[Ints, ...]:
        """Columns of each categorical column."""
        column = np.array(self.columns)
        return tuple(np.flatnonzero(column == g) for g in range(max(self.columns, default=NUMBER) + 1))

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return len(self.columns)


class MixedPosterior(NamedTuple):
    """Posteriors of the numbers, if there are any, and of each categorical column."""

    numbers: NormalWishart | None
    groups: tuple[Dirichlet, ...]
    slope: Floats
    """(clusters, D): cost of a 1 in each column; 0 for numbers."""


class MixedParameters(NamedTuple):
    """Point parameters of the numbers, if there are any, and of each categorical column."""

    numbers: GaussianParameters | None
    groups: tuple[MultinomialParameters, ...]


class TableFamily(type):
    """Metaclass of the families that `mixed` makes: they are pickled by their columns."""


@dataclass(frozen=True, eq=False)
class Mixed(metaclass=TableFamily):
    """Numbers with a normal-Wishart prior, and categories with a Dirichlet prior for each categorical column.

    `mixed(columns)` makes the class for a table of these columns.

    >>> kind = mixed((NUMBER, 0, 0))
    >>> points = np.array([[0.0, 1, 0], [0.3, 1, 0], [0.1, 1, 0], [9.0, 0, 1], [9.5, 0, 1]])
    >>> family = kind.informed(points)
    >>> clusters = Moments.rows_of_points(points).to_groups(np.array([0, 0, 0, 1, 1]), kind="full")
    >>> family.labelling_cost(family.posterior(clusters), points).argmin(axis=1)
    array([0, 0, 0, 1, 1])
    """

    name: ClassVar[str] = "mixed"
    scatter: ClassVar[Scatter] = "full"
    concentration: ClassVar[float] = 2.0
    layout: ClassVar[TableLayout] = TableLayout(())

    numbers: Gaussian | None
    categories: tuple[Multinomial, ...]

    @classmethod
    def informed(cls, data: Summary | Floats, rule: Rule = "bkm") -> Self:
        """The Gaussian prior by `rule`, and half an event for each categorical column, spread over its values."""
        layout = cls.layout
        numbers = Gaussian.informed(Columns.of(data, layout.numbers), rule) if len(layout.numbers) else None
        return cls(numbers, tuple(Multinomial(0.5 / len(group)) for group in layout.groups))

    def __reduce__(self) -> tuple[object, ...]:
        return of_columns, (self.layout.columns, self.numbers, self.categories)

    @classmethod
    def check(cls, points: Floats) -> None:
        """Finite numbers; of the columns of a categorical column at most one is 1, all others are 0."""
        check_finite(points)
        for group in cls.layout.groups:
            part = points[:, group]
            complain(
                (part != 0) & (part != 1), part, "columns of categories must be 0 or 1", "encode it as 0 or 1"
            )
            if np.any(part.sum(axis=1) > 1):
                raise ValueError("an event has more than one value of a category; use a column for each")

    def log_base(self, points: Floats) -> Floats:
        """Zero: an event has one value of each category."""
        return np.zeros(len(points))

    # ---------------------------------------------------------------- conjugacy

    def _numbers(self, rows: Floats | Moments) -> Moments:
        return columns_of(rows, self.layout.numbers)

    def log_marginal(self, moments: Moments) -> Floats:
        """Sum over the numbers together and each categorical column."""
        total = np.zeros(len(moments))
        if self.numbers is not None:
            total += self.numbers.log_marginal(self._numbers(moments))
        for prior, group in zip(self.categories, self.layout.groups, strict=True):
            total += prior.log_marginal(shares_of(moments, group))
        return total

    def posterior(self, moments: Moments) -> MixedPosterior:
        """Posterior of each row; a row of weight 0 gives the prior."""
        numbers = None if self.numbers is None else self.numbers.posterior(self._numbers(moments))
        groups = tuple(
            prior.posterior(shares_of(moments, group))
            for prior, group in zip(self.categories, self.layout.groups, strict=True)
        )
        slope = np.zeros((len(moments), self.layout.n_features))
        for found, group in zip(groups, self.layout.groups, strict=True):
            slope[:, group] = found.slope
        return MixedPosterior(numbers, groups, slope)

    def parameters(self, posterior: MixedPosterior) -> MixedParameters:
        """Means, covariances, and mean probabilities of the values."""
        numbers = None
        if self.numbers is not None and posterior.numbers is not None:
            numbers = self.numbers.parameters(posterior.numbers)
        groups = zip(self.categories, posterior.groups, strict=True)
        return MixedParameters(numbers, tuple(prior.parameters(found) for prior, found in groups))

    # ---------------------------------------------------------------- costs and densities

    def labelling_cost(self, posterior: MixedPosterior, rows: Floats | Moments) -> Floats:
        """Cost of the numbers (20) and of each category (40), summed over each row's points."""
        moments = rows if isinstance(rows, Moments) else Moments.rows_of_points(rows)
        cost = moments.weight[:, None] * (moments.mean @ posterior.slope.T)
        if self.numbers is not None and posterior.numbers is not None:
            cost += self.numbers.labelling_cost(posterior.numbers, self._numbers(moments))
        return cost

    def cost_form(self, posterior: MixedPosterior, mixing: float | Floats = 0.0) -> Quadratic:
        """The labelling cost less its mixing term; s x is (x - c)² - c², c = (1 - s) / 2, where x is 0 or 1."""
        k, d = posterior.slope.shape
        numbers = self.layout.numbers
        centre = (1.0 - posterior.slope) / 2
        root = np.zeros((k, d, d))
        np.einsum("kii->ki", root)[:] = 1.0
        offset = np.zeros(k)
        if self.numbers is not None and posterior.numbers is not None:
            form = self.numbers.cost_form(posterior.numbers)
            centre[:, numbers] = form.centre
            root[:, numbers[:, None], numbers] = form.root
            offset += form.offset
        categories = np.setdiff1d(np.arange(d), numbers)
        return Quadratic(centre, root, offset - (centre[:, categories] ** 2).sum(axis=1) - mixing)

    def predictive(self, posterior: MixedPosterior, points: Floats) -> Floats:
        """Student-t of the numbers, times the mean probability of each category."""
        density = np.zeros((len(points), len(posterior.slope)))
        if self.numbers is not None and posterior.numbers is not None:
            density += self.numbers.predictive(posterior.numbers, points[:, self.layout.numbers])
        for found, group in zip(posterior.groups, self.layout.groups, strict=True):
            density += points[:, group] @ np.log(found.psi / found.psi.sum(axis=1, keepdims=True)).T
        return density

    @classmethod
    def log_density(cls, parameters: MixedParameters, rows: Floats | Moments) -> Floats:
        """Mean log density over each row's points."""
        moments = rows if isinstance(rows, Moments) else Moments.rows_of_points(rows)
        groups = zip(parameters.groups, cls.layout.groups, strict=True)
        parts = [Multinomial.log_density(found, shares_of(moments, group)) for found, group in groups]
        if parameters.numbers is not None:
            parts.append(Gaussian.log_density(parameters.numbers, columns_of(moments, cls.layout.numbers)))
        return sum(parts[1:], parts[0])

    @classmethod
    def log_density_of(cls, parameters: MixedParameters, points: Floats, known: Bools) -> Floats:
        """Mean log density of points with only the `known` columns, all of categories among them."""
        whole = np.zeros((len(points), cls.layout.n_features))
        whole[:, known] = points
        found = cls.log_density(parameters._replace(numbers=None), whole) if parameters.groups else 0.0
        numbers = cls.layout.numbers[known[cls.layout.numbers]]
        if parameters.numbers is None or not len(numbers):
            return np.asarray(found)
        part = marginal(parameters.numbers, known[cls.layout.numbers])
        assert isinstance(part, GaussianParameters)
        return np.asarray(found + Gaussian.log_density(part, whole[:, numbers]))

    def generator(self, moments: Moments) -> Floats:
        """Sum of the generators: Bregman information adds up over independent parts."""
        total = np.zeros(len(moments))
        if self.numbers is not None:
            total += self.numbers.generator(self._numbers(moments))
        for prior, group in zip(self.categories, self.layout.groups, strict=True):
            total += prior.generator(shares_of(moments, group))
        return total


@cache
def mixed(columns: tuple[int, ...]) -> type[Mixed]:
    """The family of tables of these columns, of each of which a TableLayout says what it is.

    >>> mixed((NUMBER, 0, 0)) is mixed((NUMBER, 0, 0)), issubclass(mixed((NUMBER,)), Mixed)
    (True, True)
    """
    return type("Mixed", (Mixed,), {"layout": TableLayout(columns)})


def reduced(kind: type[Mixed]) -> str | tuple[object, ...]:
    """How a family of tables is pickled."""
    return "Mixed" if kind is Mixed else (mixed, (kind.layout.columns,))


copyreg.pickle(TableFamily, reduced)  # type: ignore[arg-type]  # of classes, not of instances


def of_columns(
    columns: tuple[int, ...], numbers: Gaussian | None, categories: tuple[Multinomial, ...]
) -> Mixed:
    """The family of these columns with its prior."""
    return mixed(columns)(numbers, categories)


@dataclass(frozen=True)
class Columns:
    """Some columns of data, as a prior reads them."""

    total: Moments
    points: Floats
    weight: Floats

    @classmethod
    def of(cls, data: Summary | Floats, columns: Ints) -> Self:
        """From a tree, or from an array of points."""
        _, points, weight = read_weighted(data, "none")
        points = np.ascontiguousarray(points[:, columns])
        return cls(Moments.of_points(points, weight), points, weight)

    def sample(self) -> tuple[Floats, Floats]:
        """Every point with its weight."""
        return self.points, self.weight


def columns_of(rows: Floats | Moments, columns: Ints | Sequence[int]) -> Moments:
    """Some columns of points, or of Moments."""
    if not isinstance(rows, Moments):
        return Moments.rows_of_points(np.ascontiguousarray(rows[:, columns]))
    index = np.asarray(columns)
    scatter = rows.scatter[:, index[:, None], index] if rows.kind == "full" else rows.scatter
    return Moments(
        rows.weight, np.ascontiguousarray(rows.mean[:, index]), np.ascontiguousarray(scatter), rows.kind
    )


def shares_of(rows: Moments, group: Ints) -> Moments:
    """Shares of each value of a category, as rows without scatter."""
    return Moments(rows.weight, rows.mean[:, group], np.zeros((len(rows), 0)), "none")


if TYPE_CHECKING:  # mypy holds it to the protocol
    _mixed: type[Family[MixedPosterior, MixedParameters]] = Mixed
