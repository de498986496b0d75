"""Free energies of a partition, and the mixing term of its labelling cost, for three priors on proportions.

A mixture says how clusters share the events; a family says what a cluster is. `scoring` pairs them by name,
and callers need not know which mixture it is:

    family, mixture = scoring("infinite", Gaussian.informed(points), points)
    F = mixture.free_energy(family, clusters)
    cost = mixture.labelling_cost(family, clusters, rows)

The free energies leave out the family's `log_base`, which depends on no partition: subtract its sum over the
points to report one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar, cast, get_args

import numpy as np

from streamclust._kernels.types import Bools, Floats
from streamclust.families.base import AnyFamily, Family, Parameters, Posterior, Summary, as_rows
from streamclust.families.gaussian import FlatGaussian, row_cost
from streamclust.moments import Moments
from streamclust.parameters import MixtureName
from streamclust.utils.late import digamma, gammaln

Weight = TypeVar("Weight", float, Floats)


@dataclass(frozen=True)
class Finite:
    """A symmetric Dirichlet(φ0) on K proportions [BKM eqs. 19, 39, 45].

    An empty cluster is allowed: it costs through K alone, so dropping it always lowers F.

    >>> from streamclust.families import Gaussian
    >>> points = np.array([[0.0], [0.1], [0.2], [7.0], [7.1], [7.2]])
    >>> rows, family = Moments.rows_of_points(points), Gaussian.informed(points)
    >>> one, two = rows.to_groups(None, kind="full"), rows.to_groups(np.arange(6) // 3, kind="full")
    >>> Finite().free_energy(family, two) < Finite().free_energy(family, one)
    True
    """

    name: ClassVar[MixtureName] = "finite"
    phi0: float = 2.0

    def __post_init__(self) -> None:
        if not self.phi0 > 0:
            raise ValueError(f"phi0 must be positive, got {self.phi0}")

    def viable(self, clusters: Moments) -> Bools:
        """Clusters to keep before scoring: all that have any weight."""
        return clusters.weight > 0

    def mixing(self, weight: Floats) -> Floats:
        """ψ(φ0 + N_c), subtracted from each point's cost (20); ψ(Σφ), which all share, is left out."""
        return cast(Floats, digamma(self.phi0 + weight))

    def cluster_terms(self, family: AnyFamily, clusters: Moments) -> Floats:
        """Term of each cluster in F: -log_marginal - log Γ(φ0+N_c) + log Γ(φ0)."""
        return cast(
            Floats, -family.log_marginal(clusters) - gammaln(self.phi0 + clusters.weight) + gammaln(self.phi0)
        )

    def normaliser(self, weight: Weight, n_clusters: int) -> Weight:
        """log Γ(N + Kφ0) - log Γ(Kφ0): once in all (the paper puts 1/K of it into every term)."""
        return cast(Weight, gammaln(weight + n_clusters * self.phi0) - gammaln(n_clusters * self.phi0))

    def free_energy(self, family: AnyFamily, clusters: Moments) -> float:
        """F of the partition whose clusters are the rows: -log p(X, z | K), without `log_base`."""
        terms = self.cluster_terms(family, clusters)
        return float(terms.sum() + self.normaliser(float(clusters.weight.sum()), len(clusters)))

    def labelling_cost(
        self,
        family: Family[Posterior, Parameters],
        clusters: Moments,
        rows: Floats | Moments,
        posterior: Posterior | None = None,
    ) -> Floats:
        """The whole cost (20), (24) or (34) of labelling each row with each cluster, mixing term included.

        A posterior computed before can be handed in.
        """
        posterior = family.posterior(clusters) if posterior is None else posterior
        cost = family.labelling_cost(posterior, rows)
        return row_cost(as_rows(rows, family.scatter).weight, -self.mixing(clusters.weight), cost)


@dataclass(frozen=True)
class Infinite(Finite):
    """A Dirichlet process of concentration φ0: clusters are a partition, without labels [BKM eqs. 23, 24].

    -log Γ(N_c) falls to -∞ as N_c goes to 0, so a decayed cluster would look infinitely good (erratum 5).
    Clusters below weight 1 are to be dissolved first; to score them is refused. A single cluster of all that there is
    cannot be dissolved: below weight 1 it is scored as one of weight 1.
    """

    name: ClassVar[MixtureName] = "infinite"

    def viable(self, clusters: Moments) -> Bools:
        """Clusters to keep before scoring: those of weight 1 or more (less what rounding may take)."""
        return clusters.weight >= 1 - 1e-9

    def mixing(self, weight: Floats) -> Floats:
        """ψ(N_c); an empty cluster attracts nothing."""
        return np.where(weight > 0, digamma(np.where(weight > 0, weight, 1.0)), -np.inf)

    def cluster_terms(self, family: AnyFamily, clusters: Moments) -> Floats:
        """Term of each cluster in F: -log_marginal - log Γ(N_c) - log φ0."""
        if len(clusters) > 1 and not np.all(self.viable(clusters)):
            raise ValueError(
                f"the infinite mixture cannot score a cluster of weight {clusters.weight.min()}, below 1; "
                "dissolve the clusters that are not viable() first and give their points to the others"
            )
        weight = np.maximum(clusters.weight, 1.0)
        return cast(Floats, -family.log_marginal(clusters) - gammaln(weight) - np.log(self.phi0))

    def normaliser(self, weight: Weight, n_clusters: int) -> Weight:
        """log Γ(N + φ0) - log Γ(φ0), whatever K is."""
        return cast(Weight, gammaln(weight + self.phi0) - gammaln(self.phi0))


@dataclass(frozen=True)
class Uninformative(Finite):
    """Flat proportions, φ0 = 1, for clusters under the uninformative prior (30) [BKM appendix A].

    To be used with `FlatGaussian`, which has the corrected (32) and (34): F is +∞ where a cluster has N_c
    <= D (erratum 6), and the mixing term is ψ(N_c + 1) (erratum 3).
    """

    name: ClassVar[MixtureName] = "uninformative"
    phi0: float = 1.0

    def viable(self, clusters: Moments) -> Bools:
        """Clusters to keep before scoring: those of weight above D. (Points in a plane still give F = +∞.)"""
        return clusters.weight > clusters.n_features


Mixture = Finite
"""Any of the three: they share one interface."""

MIXTURES: dict[str, type[Finite]] = {m.name: m for m in (Finite, Infinite, Uninformative)}


def scoring(
    mixture: MixtureName | Mixture, family: AnyFamily, data: Summary | Floats, phi0: float | None = None
) -> tuple[AnyFamily, Mixture]:
    """The family and the mixture that score a partition together.

    φ0 is, unless given, what the papers use with the family: 2 for Gaussians, 1 for counts. "uninformative"
    replaces a full Gaussian by its flat limit, with the volume of `data`; the other families have none.
    """
    if not isinstance(mixture, Finite):
        if mixture not in MIXTURES:
            raise ValueError(f"mixture must be one of {', '.join(get_args(MixtureName))}, got {mixture!r}")
        flat = mixture == "uninformative"
        default = 1.0 if flat else family.concentration
        mixture = MIXTURES[mixture](default if phi0 is None else phi0)
    if isinstance(mixture, Uninformative) and not isinstance(family, FlatGaussian):
        if family.name != "gaussian":
            raise ValueError(
                f"the uninformative mixture needs the gaussian family, got {family.name}; use finite"
            )
        return FlatGaussian.informed(data), mixture
    return family, mixture
