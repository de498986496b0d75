"""Prior of mixed tables that is learnt: that of the numbers, and that of each categorical column, each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.families.base import Summary
from streamclust.families.discrete import AnyCounts, Multinomial
from streamclust.families.gaussian import Gaussian
from streamclust.families.gaussian_simple import AnyGaussian
from streamclust.families.learnt import PriorLearner
from streamclust.families.learnt_discrete import DirichletLearner, row
from streamclust.families.mixed import Columns, Mixed, columns_of, shares_of
from streamclust.families.priors import read_weighted
from streamclust.moments import Moments


@dataclass(frozen=True, eq=False)
class MixedLearner:
    """Learns the prior of a mixed table from clusters; its parts are independent, and so are their priors."""

    kind: type[Mixed]
    numbers: PriorLearner | None
    categories: tuple[DirichletLearner, ...]

    @classmethod
    def of(cls, kind: type[Mixed], data: Summary | Floats) -> Self:
        """From a tree, or from an array of points."""
        layout = kind.layout
        numbers = PriorLearner.of(Gaussian, Columns.of(data, layout.numbers)) if len(layout.numbers) else None
        total, _, _ = read_weighted(data, "none")
        categories = tuple(
            DirichletLearner(
                row(np.full(len(g), 1 / len(g))), float(total.weight[0] * total.mean[0, g].sum())
            )
            for g in layout.groups
        )
        return cls(kind, numbers, categories)

    def start(self, clusters: Moments) -> Mixed:
        """A prior to begin with."""
        groups = zip(self.categories, self.kind.layout.groups, strict=True)
        return self._family(
            None
            if self.numbers is None
            else self.numbers.start(columns_of(clusters, self.kind.layout.numbers)),
            [learner.start(shares_of(clusters, group)) for learner, group in groups],
        )

    def carried(self, family: Mixed) -> Mixed:
        """A start from a prior that was learnt from earlier data."""
        known = family.numbers
        numbers = None if self.numbers is None or known is None else self.numbers.carried(known)
        parts = zip(self.categories, family.categories, strict=True)
        return self._family(numbers, [learner.carried(part) for learner, part in parts])

    def improved(self, family: Mixed, clusters: Moments, rounds: int = 2) -> Mixed:
        """A prior of no higher F; the same object if none is found."""
        layout = self.kind.layout
        numbers: AnyGaussian | None = family.numbers
        if self.numbers is not None and numbers is not None:
            numbers = self.numbers.improved(numbers, columns_of(clusters, layout.numbers), rounds)
        parts = zip(self.categories, family.categories, layout.groups, strict=True)
        categories = [
            learner.improved(part, shares_of(clusters, group), rounds) for learner, part, group in parts
        ]
        same = numbers is family.numbers and all(
            new is old for new, old in zip(categories, family.categories, strict=True)
        )
        return family if same else self._family(numbers, categories)

    def cost(self, family: Mixed) -> float:
        """-log p(θ), up to a constant."""
        cost = 0.0 if self.numbers is None or family.numbers is None else self.numbers.cost(family.numbers)
        parts = zip(self.categories, family.categories, strict=True)
        return cost + sum(learner.cost(part) for learner, part in parts)

    def _family(self, numbers: AnyGaussian | None, categories: Sequence[AnyCounts]) -> Mixed:
        assert numbers is None or isinstance(numbers, Gaussian)
        return self.kind(numbers, tuple(part for part in categories if isinstance(part, Multinomial)))
