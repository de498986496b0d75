"""The Family protocol: what a cluster is. A likelihood with its conjugate prior, vectorised over rows of Moments."""

from __future__ import annotations

from typing import Any, Protocol, Self, TypeVar

from streamclust._kernels.types import Floats
from streamclust.moments import Moments, Scatter

Posterior = TypeVar("Posterior")
Parameters = TypeVar("Parameters")


class Summary(Protocol):
    """What a data-informed prior reads: the totals, and a weighted sample of real points. A tree is one."""

    @property
    def total(self) -> Moments:
        """One row: the moments of everything."""
        ...

    def sample(self) -> tuple[Floats, Floats]:
        """Points (rows, D) and the weight that each stands for."""
        ...


class Family(Protocol[Posterior, Parameters]):
    """A likelihood with its conjugate prior.

    `rows` is an array of points (each of weight 1), or Moments; Moments without scatter are weighted points.
    Results that pair rows with clusters have shape (rows, clusters).
    """

    name: str
    scatter: Scatter
    """The scatter that this family needs its Moments to keep."""

    @classmethod
    def informed(cls, data: Summary | Floats, **options: Any) -> Self:  # noqa: ANN401
        """The family with its data-informed prior, from a tree or from an array of points."""
        ...

    def check(self, points: Floats) -> None:
        """Raise ValueError if this family cannot have produced such points (negative counts, say)."""
        ...

    def log_base(self, points: Floats) -> Floats:
        """Per point, the part of log p(x|θ) that no parameter touches (log of multinomial coefficients, 1/x!).

        Moments cannot know it. Free energies leave it out, since no comparison needs it; add it to report one.
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

    def cost_bounds(self, posterior: Posterior, lo: Floats, hi: Floats) -> tuple[Floats, Floats]:
        """Lower and upper bounds of a point's labelling cost over each box lo..hi."""
        ...

    def predictive(self, posterior: Posterior, points: Floats) -> Floats:
        """Log posterior predictive density of each point, `log_base` included."""
        ...

    def parameters(self, posterior: Posterior) -> Parameters:
        """The posterior's point parameters: what `log_density` takes."""
        ...

    def log_density(self, parameters: Parameters, rows: Floats | Moments) -> Floats:
        """Mean log p(x|θ) over each row's points, at point parameters, without `log_base`."""
        ...

    def generator(self, moments: Moments) -> Floats:
        """The Bregman generator at each row's mean statistic, smoothed so that single points stay finite [relaxed BHC]."""
        ...
