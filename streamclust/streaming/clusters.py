"""Cluster: a cluster as it is now, with its features by name."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.engine import Model
from streamclust.lineage import labelled
from streamclust.moments import Moments
from streamclust.schema import Schema
from streamclust.schema.mixed_schema import categories_of
from streamclust.streaming.descriptions import FeatureMixture, mixture_of
from streamclust.streaming.posteriors import ClusterPosterior, posterior_of


@dataclass(frozen=True, eq=False, repr=False)
class Cluster:
    """A cluster as it is now."""

    id: int
    weight: float
    """How many events it holds (decayed, if forgetting)."""
    share: float
    mean: dict[Hashable, float]
    covariance: Floats | None
    """(D, D), (D,) or a number, as the family has it; (D,) where events are wide."""
    born: int
    """Number of events learnt before it was born."""
    last_seen: int
    """Number of the latest watched event assigned to it."""
    components: Moments
    """Moments of its components, the heaviest first; one row, unless shapes are joined (`shape="any"`)."""
    mixture: FeatureMixture
    """All clusters' features of the same moment, against which this one is described."""
    place: int
    """Row of this cluster in `mixture`."""
    name: str | None = None
    """Name that it was given."""
    posterior: ClusterPosterior | None = None
    """How well it is known; None before the first refit."""

    def words(self) -> str:
        """The features that set the cluster apart from all events, the most telling first."""
        return self.mixture.words(self.place)

    def summary(self) -> str:
        """One line: the features that set the cluster apart, and its share.

        >>> rng = np.random.default_rng(0)
        >>> from streamclust import StreamClusterer
        >>> model = StreamClusterer()
        >>> for kind in rng.integers(4, size=500):
        ...     model.learn_one({"length": rng.normal(9.0 * (kind == 0)), "noise": rng.normal()})
        >>> print(model.clusters[1].summary())
        length high (88th percentile); 23% of events
        """
        return f"{self.words()}; {self.share:.0%} of events"

    def __str__(self) -> str:
        return f"{self._label}: {self.summary()}"

    def __repr__(self) -> str:
        return f"<{self._label}, {self.share:.1%} of events, weight {self.weight:,.6g}>"

    @property
    def _label(self) -> str:
        return f"cluster {labelled(self.id, {} if self.name is None else {self.id: self.name})}"


def heaviest_rows_first(components: Moments) -> Moments:
    """Rows by falling weight."""
    return components[np.argsort(-components.weight, kind="stable")]


def clusters_of(
    model: Model,
    rows: Moments,
    parts: Moments,
    family: str,
    schema: Schema,
    born_at: Mapping[int, int],
    last_seen: Mapping[int, int],
    names: Mapping[int, str],
    compared: Moments | None = None,
) -> list[Cluster]:
    """The clusters of a model, the heaviest first; `rows` are their moments, `parts` those of their components.

    `compared` are their moments in the model's transformed values, if features are transformed.
    """
    kept = None if rows.kind == "none" else rows.covariance
    mixture = mixture_of(family, schema.names[: rows.n_features], rows if compared is None else compared)
    mixture = mixture._replace(categories=categories_of(schema))
    if compared is not None:
        mixture = mixture._replace(transform=model.transform)
    found = [
        Cluster(
            id=int(name),
            weight=float(rows.weight[k]),
            share=float(rows.weight[k] / rows.weight.sum()),
            mean=schema.mapping(rows.mean[k]),
            covariance=None if kept is None else kept[k],
            born=born_at.get(int(name), model.n_seen),  # missing while another thread publishes
            last_seen=last_seen[int(name)],
            components=heaviest_rows_first(parts[np.flatnonzero(model.place == k)]),
            mixture=mixture,
            place=k,
            name=names.get(int(name)),
            posterior=posterior_of(
                family,
                mixture.names,
                rows.mean[k],
                None if kept is None else kept[k],
                float(mixture.share[k]),
                model.path.n_events,
                float(model.path.separation[k]),
            ),
        )
        for k, name in enumerate(model.names)
    ]
    return sorted(found, key=lambda cluster: -cluster.weight)
