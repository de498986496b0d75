"""Priors that can be learnt: one way to do it for each family, behind one protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from streamclust._kernels.types import Floats
from streamclust.families.base import AnyFamily, FamilyClass, Summary
from streamclust.families.discrete import AnyCounts, BernoulliProduct, Multinomial, Poisson
from streamclust.families.gaussian import Gaussian
from streamclust.families.gaussian_simple import AnyGaussian, DiagonalGaussian, SphericalGaussian
from streamclust.families.learnt import PriorLearner
from streamclust.families.learnt_discrete import (
    BetaLearner,
    CountLearner,
    DirichletLearner,
    GammaLearner,
)
from streamclust.families.learnt_mixed import MixedLearner
from streamclust.families.mixed import Mixed
from streamclust.families.tied import TiedGaussian, TiedLearner
from streamclust.moments import Moments

Given = TypeVar("Given", contravariant=True)
Learnt = TypeVar("Learnt", bound=AnyFamily, covariant=True)


class Learner(Protocol[Given, Learnt]):
    """Learns a family's prior θ from clusters, so that F(labels, θ) = -log p(X, labels | θ) - log p(θ) falls."""

    @property
    def kind(self) -> type[Learnt]:
        """The family class."""
        ...

    def start(self, clusters: Moments) -> Learnt:
        """The family with a prior to begin with."""
        ...

    def carried(self, family: Given) -> Learnt:
        """A start from a prior that was learnt from earlier data."""
        ...

    def improved(self, family: Given, clusters: Moments, rounds: int = 2) -> Learnt:
        """The family with a prior of no higher F; the same object where none is found."""
        ...

    def cost(self, family: Given) -> float:
        """-log p(θ), up to a constant."""
        ...


AnyLearner = Learner[Any, AnyFamily]
"""A learner of whatever family a problem has; it is given no other."""

LEARNERS: dict[FamilyClass, Callable[[Any, Summary | Floats], AnyLearner]] = {
    Gaussian: PriorLearner.of,
    DiagonalGaussian: PriorLearner.of,
    TiedGaussian: TiedLearner.of,
    SphericalGaussian: PriorLearner.of,
    Multinomial: DirichletLearner.of,
    BernoulliProduct: BetaLearner.of,
    Poisson: GammaLearner.of,
    Mixed: MixedLearner.of,
}
"""Constructors of the learner of each family's prior, from the family class and the data."""


def learner_of(kind: FamilyClass | AnyFamily, data: Summary | Floats) -> AnyLearner | None:
    """The learner of a family class's prior, for a tree or an array of points; None for a family object."""
    if not isinstance(kind, type):
        return None
    return next(LEARNERS[base] for base in kind.__mro__ if base in LEARNERS)(kind, data)


if TYPE_CHECKING:  # mypy holds them to the protocol
    _gaussians: Callable[..., Learner[AnyGaussian, AnyGaussian]] = PriorLearner
    _counts: Callable[..., Learner[AnyCounts, AnyCounts]] = CountLearner
