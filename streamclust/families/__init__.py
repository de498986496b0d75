"""Families of clusters: likelihoods with their conjugate priors."""

from __future__ import annotations

from streamclust.families.base import AnyFamily, Family, FamilyClass, Rule, Summary
from streamclust.families.discrete import BernoulliProduct, Multinomial, Poisson
from streamclust.families.free_energy import MIXTURES, Finite, Infinite, Mixture, Uninformative, scoring
from streamclust.families.gaussian import FlatGaussian, Gaussian
from streamclust.families.gaussian_simple import DiagonalGaussian, SphericalGaussian
from streamclust.families.mixed import Mixed, mixed
from streamclust.families.tied import TiedGaussian
from streamclust.parameters import FamilyName
from streamclust.utils.values import did_you_mean

FamilyLike = FamilyName | FamilyClass | AnyFamily
"""A family as users give it: its name, its class, or a family with its prior."""

FAMILIES: dict[str, FamilyClass] = {
    "gaussian": Gaussian,
    "diagonal": DiagonalGaussian,
    "spherical": SphericalGaussian,
    "multinomial": Multinomial,
    "bernoulli": BernoulliProduct,
    "poisson": Poisson,
}


def family(name_or_object: FamilyLike) -> FamilyClass | AnyFamily:
    """The family class of that name; a family class or object comes back as it is.

    A class has its prior still to be informed: `family("gaussian").informed(data)`. An object has its own.

    >>> family("poisson").__name__
    'Poisson'
    """
    if not isinstance(name_or_object, str):
        if not hasattr(name_or_object, "log_marginal"):
            raise TypeError(f"a family must be a name or a Family, got {name_or_object!r}")
        return name_or_object
    if name_or_object == "mixed":
        return Mixed
    if name_or_object not in FAMILIES:
        hint = did_you_mean(name_or_object, FAMILIES)
        raise ValueError(f"unknown family {name_or_object!r}; the families are {', '.join(FAMILIES)}{hint}")
    return FAMILIES[name_or_object]


def is_discrete(name_or_object: FamilyLike) -> bool:
    """Whether the family is one of counts or of yes and no.

    >>> is_discrete("poisson"), is_discrete("diagonal")
    (True, False)
    """
    named = family(name_or_object)
    kind = named if isinstance(named, type) else type(named)
    return issubclass(kind, (Multinomial, BernoulliProduct, Poisson))


__all__ = [
    "FAMILIES",
    "MIXTURES",
    "AnyFamily",
    "BernoulliProduct",
    "DiagonalGaussian",
    "Family",
    "FamilyClass",
    "FamilyLike",
    "Finite",
    "FlatGaussian",
    "Gaussian",
    "Infinite",
    "Mixed",
    "Mixture",
    "Multinomial",
    "Poisson",
    "Rule",
    "SphericalGaussian",
    "Summary",
    "TiedGaussian",
    "Uninformative",
    "family",
    "is_discrete",
    "mixed",
    "scoring",
]
