"""Engine: the whole flow on one screen. Events into trees, trees into models, models published by a swap."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from streamclust._kernels.types import Bools, Floats
from streamclust.engine import schedule
from streamclust.engine.births import newborn
from streamclust.engine.model import NOWHERE, Model, Result, joined
from streamclust.engine.refits import COVARIANCE, Recipe, Refit, Work
from streamclust.engine.settings import Settings
from streamclust.engine.shards import Shard, Shards
from streamclust.engine.watch import STRIDE
from streamclust.families import family as family_named
from streamclust.hierarchy.agglomerate import MethodName
from streamclust.hierarchy.dendrogram import Dendrogram
from streamclust.hierarchy.snapshot import snapshot
from streamclust.lineage import Change, Lineage
from streamclust.moments import Moments
from streamclust.refit.bkm import check_points, scored
from streamclust.refit.mixture import Mixture
from streamclust.refit.partition import Partition
from streamclust.tree import SummaryTree
from streamclust.tree.rows import check_rows

TOLERATED = 0.01
"""More of them than this outside every cluster, and the stream has changed."""
MORE_STRAYS = 1.5
"""Strays are searched for rare clusters where there are so many times as many as at the last search."""
EXPECTED, ENOUGH, BACK = 30.0, 8, 16
"""A cluster that should have been seen 30 times in the watched window is retired if it was seen fewer than 8
times, which chance does once in a million; one that is seen 16 times is back."""


class Engine:
    """Learns rows of numbers, keeps a published model of them, and says what changed."""

    def __init__(
        self,
        n_features: int,
        settings: Settings | None = None,
        on_event: Callable[[Change], object] | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.recipe = Recipe(
            self.settings.family, self.settings.refit, self.settings.mixture, self.settings.seed
        )
        self.shards = Shards(n_features, self.settings)
        self.model: Model | None = None
        self.lineage = Lineage(on_event)
        self.n_seen = 0
        self.n_refits = 0
        self.next_refit = 1
        self.last_refit = 0
        self.last_challenge = 0.0
        self.next_look = schedule.next_look(0)
        self.tolerated = TOLERATED
        self.refit: Refit | None = None
        self.strays_searched = 0
        self._clusters: tuple[tuple[int, int], Moments] | None = None
        self._calibration: tuple[tuple[int, int], Floats] | None = None

    # ---------------------------------------------------------------- learning

    def learn(
        self,
        rows: ArrayLike,
        weight: ArrayLike | None = None,
        time: ArrayLike | None = None,
        shard: Hashable = 0,
    ) -> None:
        """Learn complete rows, all of them or none, into the summary of their shard, and do what falls due."""
        x, w, t = check_rows(self.shards.n_features, rows, weight, time)
        check_points(self.settings.family, x)
        part = self.shards[shard]
        done = 0
        while done < len(x):
            end = min(len(x), done + self.until_due)
            part.tree.insert_checked(x[done:end], w[done:end], t[done:end])
            part.watch.see(x[done:end], part.n_seen, w[done:end] if len(w) else None)
            part.n_seen += end - done
            self.n_seen += end - done
            self._act()
            done = end

    def release(self, shard: Hashable) -> Shard:
        """Let a shard go, to be adopted elsewhere: refits no longer read it. The count of events goes on."""
        return self.shards.pop(shard)

    def adopt(self, shard: Hashable, part: Shard) -> None:
        """Take over a shard that was released elsewhere; the next event brings a refit that reads it."""
        if shard in self.shards:
            raise ValueError(f"shard {shard!r} is here already")
        self.shards[shard] = part
        self.next_refit = self.n_seen + 1

    def merge(self, other: Engine) -> None:
        """Learn everything another engine has learnt, and refit at once from the clusters of both."""
        if (self.shards.n_features, self.settings) != (other.shards.n_features, other.settings):
            raise ValueError(
                "only engines of the same settings and features can be merged: they differ in "
                f"{self.settings} of {self.shards.n_features} and {other.settings} of {other.shards.n_features}"
            )
        if other.model is None:
            return
        self.shards.merge(other.shards)
        self.n_seen += other.n_seen
        self.next_look = schedule.next_look(self.n_seen)
        self._start_refit(lag=0, more=other.model.result.clusters)
        self._note()

    @property
    def n_features(self) -> int:
        """How many features events have so far."""
        return self.shards.n_features

    def settle(self) -> None:
        """Refit at once, whatever the schedule says; it goes on from here."""
        if self.n_seen:
            if self.model is None:
                self._start_refit()
            self._start_refit(lag=0)
            self._note()

    @property
    def until_due(self) -> int:
        """How many more events until something falls due: until then the model stays as it is."""
        return (
            min(self.next_refit, self.next_look, self.refit.due if self.refit else sys.maxsize) - self.n_seen
        )

    def _act(self) -> None:
        """Do what falls due at this event count: publish, look, refit, in this order; note what that has changed."""
        before, looks = self.model, self.n_seen >= self.next_look
        if self.refit is not None and self.n_seen >= self.refit.due:
            self._publish(self.refit)
        if looks:
            self.next_look = schedule.next_look(self.n_seen)
            self._look()
        if self.n_seen >= self.next_refit:
            self._start_refit()
        if self.model is not before or (looks and self.lineage.history.due(self.n_seen)):
            self._note()

    # ---------------------------------------------------------------- refits

    def _start_refit(self, lag: int | None = None, more: Moments | None = None) -> None:
        """Refit from the clusters there are, and `more`; one on its way is no longer wanted."""
        self.refit = None
        tree, drifted = self.shards.present()
        s, first = self.settings, self.model is None
        evidence = float(tree.total.weight[0])
        self.last_refit = self.n_seen
        self.next_refit = schedule.next_refit(self.n_seen, evidence, s.warmup, s.refit_every)
        if self.model is None:
            self.model = self._first_model(tree)
        if first and more is None:
            return
        self.n_refits += 1
        start = self.model.result.clusters
        start = start if more is None else Moments.stack([start, more])
        lag = schedule.lag(self.n_seen, self.next_refit) if lag is None else lag
        cold = schedule.challenged(evidence, self.last_challenge)
        if cold:
            self.last_challenge = evidence
        more_strays = self.shards.strays.count >= MORE_STRAYS * self.strays_searched
        if more_strays:
            self.strays_searched = self.shards.strays.count
        work = Work(
            self.recipe,
            tree,
            self.model,
            start,
            self.shards.recent(),
            self._strays(drifted),
            more_strays,
            cold,
            self.n_refits,
        )
        self.refit = Refit.started(work, due=self.n_seen + lag, background=s.background and lag > 0)
        if lag == 0:
            self._publish(self.refit)

    def _strays(self, drifted: bool) -> Floats:
        """Events outside every large cluster: those of the longest time for which the stream has been what it is."""
        assert self.model is not None
        if not drifted:
            return self.shards.strays.latest()
        latest = self.shards.latest()
        return latest[self.model.large.outside(latest)]

    def _first_model(self, tree: SummaryTree) -> Model:
        """One cluster of everything, until there is enough to look closer."""
        born = self.lineage.born(self.n_seen, 0, float(tree.total.weight[0]))
        return Model(0, self.n_seen, single(self.settings, tree), (born,))

    def _publish(self, refit: Refit) -> None:
        """Swap the model for what a refit found; clusters keep their ids, and what became of them is told."""
        found = refit.result()
        self.refit = None
        assert (
            self.model is not None
        )  # with the clusters that the refit began from, though some may have new ids
        version = self.model.version + 1
        ids = self.lineage.follow(
            self.n_seen, version, self.model.ids, found.old_weight, found.new_weight, found.shared
        )
        self.model = Model(version, self.n_seen, found.result, ids, frozenset(self.lineage.retired))
        self._recall()
        self.tolerated = max(TOLERATED, 2 * found.outside)

    # ---------------------------------------------------------------- between refits

    def _look(self) -> None:
        """See whether the latest events fit the model. If they do not: births, and a refit at once."""
        assert self.model is not None
        thorough = schedule.thorough(self.n_seen)
        if thorough:
            self._recall()
        recent = self.shards.recent()
        self.shards.strays.see(recent[self.model.large.outside(recent)], first=0)
        outside = self.outside(recent)
        if outside.mean() <= self.tolerated:
            waited = self.n_seen >= self.last_refit + self.settings.refit_every
            if thorough and waited and self.shards.changing(self.shards.merged_tree()):
                self._start_refit(lag=schedule.LOOK)
            return
        born = newborn(self.model, recent[outside], self.settings.birth_penalty)
        for k in range(len(born)):
            self._open(born[k].scale(float(STRIDE)))
        # A refit on its way began before the change: its result is no longer wanted.
        self._start_refit(lag=schedule.LOOK)

    def _open(self, cluster: Moments) -> None:
        """Publish a new cluster, provisional until the next refit confirms or absorbs it."""
        assert self.model is not None
        version = self.model.version + 1
        born = self.lineage.born(self.n_seen, version, float(cluster.weight[0]))
        result = joined(self.model.result, cluster)
        self.model = replace(
            self.model, version=version, n_seen=self.n_seen, result=result, ids=(*self.model.ids, born)
        )

    def _recall(self) -> None:
        """Retire clusters that the stream no longer feeds, and name anew those that it has come back to."""
        assert self.model is not None
        latest = self.shards.latest()
        everyone = replace(self.model, hidden=frozenset())
        weight = everyone.result.clusters.weight
        seen = np.bincount(everyone.nearest(latest).cluster, minlength=len(weight))
        expected = len(latest) * weight / weight.sum()
        ids = list(self.model.ids)
        version = self.model.version + 1
        for k, cluster in enumerate(self.model.ids):
            if cluster in self.lineage.retired and seen[k] >= BACK:
                self.lineage.retired.remove(cluster)
                ids[k] = self.lineage.born(self.n_seen, version, float(weight[k]))
            elif cluster not in self.lineage.retired and expected[k] >= EXPECTED and seen[k] < ENOUGH:
                self.lineage.retire(self.n_seen, version, cluster, float(weight[k]))
        hidden = frozenset(self.lineage.retired)
        if hidden != self.model.hidden or tuple(ids) != self.model.ids:
            self.model = replace(
                self.model, version=version, n_seen=self.n_seen, ids=tuple(ids), hidden=hidden
            )

    def _note(self) -> None:
        """Keep in the history how the latest events share out among the clusters on show."""
        assert self.model is not None
        of, k = self.model.nearest(self.shards.recent()).cluster, len(self.model.names)
        weight = np.bincount(of, self.shards.recent_weights(), k)
        self.lineage.history.add(
            self.n_seen, dict(zip(self.model.names.tolist(), weight.tolist(), strict=True))
        )

    def outside(self, points: Floats) -> Bools:
        """Which points no cluster explains: beyond every ellipsoid or, with a birth penalty, farther than that."""
        assert self.model is not None
        if self.settings.birth_penalty is None:
            return self.model.outside(points)
        means = self.model.shown.clusters.mean
        known = points[:, : means.shape[1]]
        nearest = np.min([((known - mean) ** 2).sum(axis=1) for mean in means], axis=0)
        return np.asarray(nearest > self.settings.birth_penalty)

    # ---------------------------------------------------------------- reading

    def tail(self, scores: Floats) -> Floats:
        """For each novelty score the share of the watched events, and itself, that are at least as novel."""
        assert self.model is not None
        if self._calibration is None or self._calibration[0] != self._moment:
            self._calibration = self._moment, np.sort(self.model.novelty(self.shards.latest()))
        recent = self._calibration[1]
        return np.asarray((1 + len(recent) - np.searchsorted(recent, scores)) / (1 + len(recent)))

    def last_seen(self) -> dict[int, int]:
        """For each cluster on show the latest watched event that was its, or the model's own moment."""
        assert self.model is not None
        latest = dict.fromkeys(self.model.names.tolist(), 0)
        for part in self.shards.values():
            ids = self.model.predict(part.watch.latest())
            for name, number in zip(ids.tolist(), part.watch.numbers().tolist(), strict=True):
                latest[name] = max(latest[name], number + 1)
        return latest

    @property
    def _moment(self) -> tuple[int, int]:
        """Nothing that is read changes while this does not."""
        return self.n_seen, -1 if self.model is None else self.model.version

    def clusters(self) -> Moments:
        """The clusters on show as of now: what the trees have learnt until this event, labelled by the model."""
        if self.model is None:
            return Moments.empty(0, self.shards.n_features, family_named(self.settings.family).scatter)
        if self._clusters is None or self._clusters[0] != self._moment:
            tree = self.shards.present_tree()
            points, weight = tree.sample()
            rows = Moments.rows_of_points(points, weight)
            groups = self.model.nearest(points).cluster
            found = rows.to_groups(groups, len(self.model.rows), family_named(self.settings.family).scatter)
            published = self.model.shown.clusters.widen(tree.total.mean[0, self.model.n_features :])
            self._clusters = self._moment, filled(found, published)
        return self._clusters[1]

    def snapshot(self, method: MethodName = "rbhc", consistent: bool = True) -> Dendrogram:
        """The hierarchy of everything learnt until now; `consistent`: that passes through the clusters on show."""
        if self.model is None:
            raise ValueError("there is nothing to take a snapshot of: learn at least one event first")
        tree = self.shards.present_tree()
        labels = self.model.nearest(tree.leaves().mean).cluster
        sampled = self.model.nearest(tree.sample()[0]).cluster
        return snapshot(
            self.settings.family, tree, labels, self.model.names, method, consistent, sampled, self.clusters()
        )


def filled(found: Moments, published: Moments) -> Moments:
    """Clusters as found; those of which the sample holds no event, newborn ones say, as they were published."""
    both = Moments.stack([found, published.to(found.kind)])
    return both[np.arange(len(found)) + np.where(found.weight == 0, len(found), 0)]


def single(settings: Settings, tree: SummaryTree) -> Result:
    """One cluster of everything a tree has learnt."""
    family, mixture = scored(settings.family, settings.mixture, tree)
    total = tree.total
    whole = Partition(family, mixture, NOWHERE, total, 0.0, float(total.weight[0]))
    if settings.refit == "bkm":
        return whole
    spread = whole.family.parameters(whole.posterior)
    return Mixture(
        COVARIANCE[settings.family],
        np.ones(1),
        spread.mean,
        spread.covariance,
        NOWHERE,
        float(total.weight[0]),
        0.0,
    )
