"""Answers: the part of a clusterer that says what its clusters are, for people: names, examples, comparisons."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, cast

import numpy as np

from streamclust._kernels.types import Ints
from streamclust.engine.representatives import recent_sample
from streamclust.schema.mixed_schema import categories_of
from streamclust.streaming.checked_events import Checked
from streamclust.streaming.cluster_queries import ClusterQueries
from streamclust.streaming.comparison import ClusterComparison, compare, compare_snapshots
from streamclust.streaming.diagnosis import DataHint, Diagnosis, Inspected, diagnose
from streamclust.streaming.examples import Example, Representatives
from streamclust.streaming.fixed_parameters import FixedParameters
from streamclust.streaming.portraits import MAX_EVENTS, Portrait, portrait_of_model, portrait_of_snapshot
from streamclust.streaming.predictions import Predictions
from streamclust.utils.late import issparse

if TYPE_CHECKING:
    from streamclust.hierarchy.dendrogram import Dendrogram


class Answers(FixedParameters, Predictions, ClusterQueries):
    """Names and examples of clusters, and what became of them."""

    # ---------------------------------------------------------------- names

    @property
    def names(self) -> dict[int, str]:
        """Names of clusters by id, as `name` gave them."""
        return dict(self._pipeline.engine.lineage.names)

    def name(self, cluster: int, name: str | None) -> None:
        """Give a name to a cluster of the level on show; None takes it away.

        The name stays with the id: in checkpoints, tables, pictures and lifecycle events, also while the cluster is
        away. After a split the part that keeps the id keeps the name. After a merge the id that stays keeps its own
        name or, if it has none, takes that of the heaviest that merged into it. Lifecycle events say so.

        >>> from streamclust import StreamClusterer
        >>> model = StreamClusterer()
        >>> model.learn_many([{"x": 1.0}, {"x": 2.0}])
        >>> model.name(0, "night shift")
        >>> model.names, model.clusters[0]
        ({0: 'night shift'}, <cluster 0 "night shift", 100.0% of events, weight 2>)
        """
        with self._turn, self._lock:
            self._pipeline.flush()
            self._pipeline.engine.lineage.name(cluster, name)

    # ---------------------------------------------------------------- examples

    def examples(self, cluster: int, k: int = 5) -> list[Example]:
        """The k most typical recent events of a cluster, the most typical first; fewer if it has fewer.

        They are chosen from the latest 4,096 events of each shard or, later on, from one in eight of the latest 32,768
        (1,024 and 8,192 if events are wide), and differ. A missing value counts as far off as values are on average.

        >>> from streamclust import StreamClusterer
        >>> model = StreamClusterer()
        >>> model.learn_many([{"x": float(i % 7), "y": float(i % 5)} for i in range(500)])
        >>> [example.values for example in model.examples(0, k=2)]
        [{'x': 3.0, 'y': 2.0}, {'x': 2.0, 'y': 2.0}]
        """
        return self.representatives().typical(cluster, k)

    def border(self, one: int, other: int, k: int = 5) -> list[Example]:
        """The k recent events of two clusters that are hardest to tell apart, the hardest first.

        Their probabilities tell whether anything lies between: where all are near 1, nothing does.
        """
        return self.representatives().between(one, other, k)

    def representatives(self) -> Representatives:
        """The recent events that `examples` and `border` choose from, which later learning does not change."""
        with self._turn, self._lock:
            self._pipeline.flush()
            sample = recent_sample(self._pipeline.projection)
            return Representatives(sample, self._pipeline.schema.names, self._pipeline.zeros)

    def sampled(self, checked: Checked) -> Ints:
        """Places of the events that `examples` may show once `checked` is learnt next.

        For whoever keeps something of them beside the model, keys for instance, by their numbers: `n_seen` + place.
        """
        with self._turn, self._lock:
            return self._pipeline.sampled(checked)

    # ---------------------------------------------------------------- diagnosing

    def diagnose(self) -> Diagnosis:
        """Everything in the data or the result that looks wrong, each with advice; prints as lines.

        One cluster of almost everything, hardly more events than clusters, constant features, ids and times, skewed
        features, copies, missing values, events that depend on each other, refused events.

        >>> from streamclust import StreamClusterer
        >>> model, rng = StreamClusterer(), np.random.default_rng(0)
        >>> for i, kind in enumerate(rng.integers(2, size=500)):
        ...     model.learn_one({"id": i, "x": rng.normal(9.0 * kind)})
        >>> [finding.kind for finding in model.diagnose()]
        ['id']
        """
        with self._turn, self._lock:
            self._pipeline.flush()
            sample = recent_sample(self._pipeline.projection)
            dense = sample is not None and not issparse(sample.rows)
            share = np.array([cluster.share for cluster in self.clusters])
            return diagnose(
                Inspected(
                    family=self._pipeline.engine.settings.family_name,
                    names=self.feature_names,
                    rows=np.asarray(sample.rows, dtype=float)
                    if sample is not None and dense
                    else np.empty((0, 0)),
                    share=share,
                    n_seen=self.n_seen,
                    effective=self.effective_events,
                    n_refused=self._pipeline.refusals.count,
                    last_refusal=self._pipeline.refusals.latest,
                    n_shards=len(self._pipeline.engine.shards),
                    categories=categories_of(self._pipeline.schema),
                    transformed=frozenset(self._pipeline.engine.transform.columns.tolist()),
                )
            )

    def _hint(self) -> None:
        """Warn of each kind of finding once."""
        told = self._pipeline.hinted
        new = [finding for finding in self.diagnose() if finding.kind not in told]
        for finding in new:
            told.add(finding.kind)
            warnings.warn(f"{finding} (all: `model.diagnose()`)", DataHint, stacklevel=3)

    # ---------------------------------------------------------------- comparing

    def compare(
        self,
        earlier: Answers | Dendrogram | str | os.PathLike[str],
        later: Answers | Dendrogram | str | os.PathLike[str] | None = None,
    ) -> ClusterComparison:
        """Changes of the clusters since an earlier state: gone, new, grown, shrunk, moved; prints as a table.

        earlier: a copy of this clusterer, the path of a file that `save` wrote, or a snapshot. later: the same; None
        for now. Clusters are the same if their ids are; of another stream, those with most recent events in common.
        `plot()` draws where recent events of then would be now.

        >>> from copy import deepcopy
        >>> from streamclust import StreamClusterer
        >>> model, rng = StreamClusterer(), np.random.default_rng(0)
        >>> model.learn_many(rng.normal(size=(500, 2)) + 30.0 * rng.integers(2, size=(500, 1)))
        >>> before = deepcopy(model)
        >>> model.learn_many(rng.normal(size=(500, 2)) + 90.0)
        >>> print(model.compare(before))
        before    now  share    now  what became of it
             0      0    52%    26%  shrunk
                    2           50%  new: there were no such events
             1      1    48%    24%  shrunk
        """
        if later is not None and not hasattr(later, "leaves"):
            return self._loaded(later).compare(earlier)
        before = self._portrait(earlier)  # first: whoever holds both locks might wait for one who has one
        if later is not None:
            return compare_snapshots(before, self._portrait(later))
        with self._turn, self._lock:
            self._pipeline.flush()
            now, model = portrait_of_model(self), self._pipeline.engine.shown
            assert model is not None
            rows = self._wide(before.seen_with(self.feature_names), model)
            return compare(before, now, model.predict(rows))

    def _portrait(self, state: object) -> Portrait:
        """The clusters of a state."""
        if hasattr(state, "leaves"):
            return portrait_of_snapshot(
                cast("Dendrogram", state), self._pipeline.engine.settings.family_name, self.feature_names
            )
        return portrait_of_model(self._loaded(state), MAX_EVENTS)

    def _loaded(self, state: object) -> Answers:
        """A clusterer, or the one that a file holds."""
        if isinstance(state, (str, os.PathLike)):
            return type(self).load(state)
        if isinstance(state, Answers):
            return state
        raise TypeError(
            f"a state to compare is a clusterer, a snapshot or the path of a file, got {type(state).__name__}"
        )
