"""The Family protocol: what a cluster is. A likelihood with its conjugate prior, over rows of Moments."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

import numpy as np

from streamclust._kernels.types import Bools, Floats
from streamclust.families.cost_form import CostForm
from streamclust.moments import Moments, Scatter

Rule = Literal["bkm", "agglomerative", "nearest"]
"""Which data-informed prior: of Bayesian k-means (21), of agglomeration (22), or of neighbour distances."""

Posterior = TypeVar("Posterior")
Parameters = TypeVar("Parameters")


class Summary(Protocol):
    """Data that a prior is informed by: the totals, and a weighted sample of real points. A tree is one."""

    @property
    def total(self) -> Moments:
        """One row: the moments of everything."""
        ...

    def sample(self) -> tuple[Floats, Floats]:
        """Points (rows, D) and the weight that each stands for."""
        ...


def as_rows(rows: Floats | Moments, kind: Scatter) -> Moments:
    """Rows as a family reads them: points become Moments of weight 1, Moments get scatter `kind`.

    Moments that keep no scatter are weighted points, and stay so.
    """
    if not isinstance(rows, Moments):
        return Moments.rows_of_points(rows)
    return rows if rows.kind == "none" else rows.to(kind)


def check_finite(points: Floats) -> None:
    """Raise ValueError naming the first value that is NaN or infinite."""
    complain(~np.isfinite(points), points, "data must be finite", "drop that row or fill the value in")


def complain(bad: Bools, points: Floats, rule: str, cure: str) -> None:
    """Raise ValueError for the first bad value: the rule it breaks, where it stands, and the cure."""
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(f"{rule}, got {points[row, column]} in row {row}, column {column}; {cure}")


class Family(Protocol[Posterior, Parameters]):
    """A likelihood with its conjugate prior, generic in its posterior and in its point parameters.

    `rows` is an array of points (each of weight 1), or Moments; Moments without scatter are weighted points.
    Results that pair rows with clusters have shape (rows, clusters).
    """

    name: ClassVar[str]
    scatter: ClassVar[Scatter]
    """The scatter that this family needs its Moments to keep."""
    concentration: ClassVar[float]
    """φ0, the Dirichlet prior on mixing proportions that the papers use with this family."""

    @classmethod
    def informed(cls, data: Summary | Floats, rule: Rule = "bkm") -> Self:
        """The family with its data-informed prior, from a tree or from an array of points."""
        ...

    @classmethod
    def check(cls, points: Floats) -> None:
        """Raise ValueError if this family cannot have produced such points (negative counts, say).

        Reads no prior, so a class answers as well as an object.
        """
        ...

    def log_base(self, points: Floats) -> Floats:
        """Per point, the part of log p(x|θ) that no parameter touches (multinomial coefficients, 1/x!).

        Moments cannot know it. Free energies leave it out, since no comparison needs it; add it to report
        one.
        """
        ...

    def log_marginal(self, moments: Moments) -> Floats:
        """log ∫ p(X|θ) p(θ) dθ for each row, without `log_base`."""
        ...

    def posterior(self, moments: Moments) -> Posterior:
        """p(θ|X) for each row; a row of weight 0 gives the prior."""
        ...

    def labelling_cost(self, posterior: Posterior, rows: Floats | Moments) -> Floats:
        """-E[log p(x|θ)] under the posterior, summed over each row's points, without constants that all
        clusters share and without the mixing term.
        """
        ...

    def cost_form(self, posterior: Posterior, mixing: float | Floats = 0.0) -> CostForm:
        """A point's labelling cost less `mixing`, in the form that loops over points understand."""
        ...

    def predictive(self, posterior: Posterior, points: Floats) -> Floats:
        """Log posterior predictive density of each point, `log_base` included."""
        ...

    def parameters(self, posterior: Posterior) -> Parameters:
        """The posterior's point parameters: what `log_density` takes."""
        ...

    @classmethod
    def log_density(cls, parameters: Parameters, rows: Floats | Moments) -> Floats:
        """Mean log p(x|θ) over each row's points, at point parameters, without `log_base`. Reads no prior."""
        ...

    def generator(self, moments: Moments) -> Floats:
        """The Bregman generator at each row's mean statistic, smoothed for single points [relaxed BHC]."""
        ...


AnyFamily = Family[Any, Any]
"""A family whose posterior and parameters are only handed from one of its methods to the next."""
FamilyClass = type[AnyFamily]
"""A family whose prior is still to be informed."""
