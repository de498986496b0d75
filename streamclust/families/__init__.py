"""What a cluster is: likelihoods with their conjugate priors."""

from __future__ import annotations

from typing import Any

from streamclust.families.base import Family, Rule, Summary
from streamclust.families.discrete import BernoulliProduct, Multinomial, Poisson
from streamclust.families.free_energy import MIXTURES, Finite, Infinite, Mixture, Uninformative, scoring
from streamclust.families.gaussian import FlatGaussian, Gaussian
from streamclust.families.gaussian_simple import DiagonalGaussian, SphericalGaussian

FAMILIES: dict[str, type[Family[Any, Any]]] = {
    "gaussian": Gaussian,
    "diagonal": DiagonalGaussian,
    "spherical": SphericalGaussian,
    "multinomial": Multinomial,
    "bernoulli": BernoulliProduct,
    "poisson": Poisson,
}


def family(name_or_object: str | type[Family[Any, Any]] | Family[Any, Any]) -> Any:  # noqa: ANN401
    """The family class of that name; a family class or object comes back as it is.

    A class has its prior still to be informed: `family("gaussian").informed(data)`. An object has its own.

    >>> family("poisson").__name__
    'Poisson'
    """
    if not isinstance(name_or_object, str):
        if not hasattr(name_or_object, "log_marginal"):
            raise TypeError(f"a family must be a name or a Family, got {name_or_object!r}")
        return name_or_object
    if name_or_object not in FAMILIES:
        raise ValueError(f"unknown family {name_or_object!r}; the families are {', '.join(FAMILIES)}")
    return FAMILIES[name_or_object]


__all__ = [
    "FAMILIES",
    "MIXTURES",
    "BernoulliProduct",
    "DiagonalGaussian",
    "Family",
    "Finite",
    "FlatGaussian",
    "Gaussian",
    "Infinite",
    "Mixture",
    "Multinomial",
    "Poisson",
    "Rule",
    "SphericalGaussian",
    "Summary",
    "Uninformative",
    "family",
    "scoring",
]
