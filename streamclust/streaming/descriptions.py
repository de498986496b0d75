"""Clusters in words: the features that set each apart, its share, whether it grows."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Literal, NamedTuple, overload

import numpy as np

from streamclust._kernels.types import Floats
from streamclust.families.hellinger import hellinger
from streamclust.lineage import HistoryStep, labelled
from streamclust.moments import Moments
from streamclust.sketch import Transform
from streamclust.utils.late import ndtr

Trend = Literal["growing", "steady", "shrinking"]

MAX_TOLD_FEATURES = 3
"""Features told of a cluster of measurements."""
MAX_TOLD_WORDS = 5
"""Words told of a cluster of counts or yes/no features."""
MIN_DISTANCE = 0.02
"""Squared Hellinger distance from all events below which a feature is not told."""
MIN_SHIFT = 0.5
"""Standard deviations of all events by which a cluster's mean is told as high or low."""
SURE_PROBABILITY = 0.99
"""Probability of a cluster from which nothing is said of it."""
DECILE = 1.2816
"""Standard deviations from the mean of a normal distribution to its first and last tenth."""
TREND_DEVIATES = 4.0
"""Standard deviations by which two shares must differ to be told as a trend."""


NO_TRANSFORM = Transform.none()


class FeatureMixture(NamedTuple):
    """Means and standard deviations of every cluster (clusters, D), and the clusters' shares.

    Deviations are NaN for families that keep none (counts and yes/no features).
    """

    family: str
    names: tuple[Hashable, ...]
    mean: Floats
    std: Floats
    share: Floats
    categories: frozenset[int] = frozenset()
    """Columns that are values of categories: their means are shares."""
    transform: Transform = NO_TRANSFORM
    """Of the features whose means and deviations are of transformed values."""

    def in_units(self) -> tuple[Floats, Floats]:
        """Means and standard deviations in the features' own units."""
        if self.transform.is_none:
            return self.mean, self.std
        rows = Moments(np.ones(len(self.mean)), self.mean, np.square(self.std), "diagonal")
        found = self.transform.expand_moments(rows)
        return found.mean, np.sqrt(found.covariance)

    def value(self, feature: int, transformed: float) -> float:
        """A value of a feature in its own unit."""
        row = np.zeros(self.mean.shape[1])
        row[feature] = transformed
        return float(self.transform.back(row)[feature])

    def overall(self) -> tuple[Floats, Floats]:
        """Mean and variance of each feature over all clusters."""
        mean = self.share @ self.mean
        within = self.share @ np.square(self.std)
        return mean, within + self.share @ np.square(self.mean - mean)

    def percentile(self, feature: int, value: float) -> float:
        """Share of all events below a value of a feature, if clusters are normal."""
        spread = np.where(self.std[:, feature] > 0, self.std[:, feature], 1e-300)
        with np.errstate(over="ignore"):  # far beyond a cluster of almost no width
            return float(self.share @ ndtr((value - self.mean[:, feature]) / spread))

    def words(self, cluster: int) -> str:
        """The features that set a cluster apart, the most telling first.

        >>> mean, std = np.array([[0.0, 5.0], [9.0, 5.0]]), np.ones((2, 2))
        >>> mixture = FeatureMixture("gaussian", ("length", "noise"), mean, std, np.array([0.9, 0.1]))
        >>> mixture.words(1), mixture.words(0)
        ('length high (95th percentile)', 'length middle (45th percentile), narrower')
        >>> baskets = FeatureMixture("poisson", ("tea", "nails"), np.array([[4.0, 0.0], [1.0, 3.0]]),
        ...     np.full((2, 2), np.nan), np.array([0.5, 0.5]))
        >>> baskets.words(0)
        'often tea (1.6 times the average)'
        """
        if self.family == "mixed":
            return ", ".join(self._mixed_words(cluster)) or "like all events"
        counts = np.isnan(self.std).all()
        mean, variance = self.overall()
        own = np.square(self.std[cluster])
        distance = hellinger(
            self.family, self.mean[cluster], np.where(np.isnan(own), variance, own), mean, variance
        )
        order = [int(d) for d in np.argsort(-distance, kind="stable") if distance[d] >= MIN_DISTANCE]
        if counts:
            there = [d for d in order if self.mean[cluster, d] > mean[d]][:MAX_TOLD_WORDS]
            told = [f"{self.names[d]} ({self._times(cluster, d, mean)})" for d in there]
            return "often " + ", ".join(told) if told else "like all events"
        found = [self._direction(cluster, d, mean[d], variance[d]) for d in order[:MAX_TOLD_FEATURES]]
        return ", ".join(found) or "like all events"

    def _mixed_words(self, cluster: int) -> list[str]:
        """Categories that come more often than in all events, and the middle 80% of numbers, the most telling first.

        >>> mean, std = np.array([[9.0, 0.8], [3.0, 0.2]]), np.array([[1.0, 0.4], [1.0, 0.4]])
        >>> table = FeatureMixture("mixed", ("amount", "channel=web"), mean, std, np.full(2, 0.5), frozenset({1}))
        >>> table.words(0)
        'amount 7.7 to 10 (2.2 to 9.8), channel=web 80% (50% overall)'
        """
        mean, variance = self.overall()
        own, whole = (self.mean[cluster], np.square(self.std[cluster])), (mean, variance)
        distance = hellinger("gaussian", *own, *whole)
        shares = sorted(self.categories)
        distance[shares] = hellinger("bernoulli", *own, *whole)[shares]
        rarer = [d for d in shares if own[0][d] <= mean[d]]
        distance[rarer] = 0.0
        order = np.argsort(-distance, kind="stable")[: 2 * MAX_TOLD_FEATURES].tolist()
        return [self._mixed_word(cluster, d, mean[d]) for d in order if distance[d] >= MIN_DISTANCE]

    def _mixed_word(self, cluster: int, feature: int, mean: float) -> str:
        name = self.names[feature]
        if feature in self.categories:
            return f"{name} {self.mean[cluster, feature]:.0%} ({mean:.0%} overall)"
        ends = [self.mean[cluster, feature] + z * self.std[cluster, feature] for z in (-DECILE, DECILE)]
        low, high = (self.value(feature, end) for end in ends)
        everyone = [self.value(feature, self.quantile(feature, p)) for p in (0.1, 0.9)]
        return f"{name} {low:.2g} to {high:.2g} ({everyone[0]:.2g} to {everyone[1]:.2g})"

    def quantile(self, feature: int, share: float) -> float:
        """Value of a feature below which a share of all events is, if clusters are normal."""
        reach = 10.0 * (self.std[:, feature] + 1e-300)
        low, high = float((self.mean[:, feature] - reach).min()), float((self.mean[:, feature] + reach).max())
        for _ in range(64):
            middle = (low + high) / 2
            low, high = (middle, high) if self.percentile(feature, middle) < share else (low, middle)
        return high

    def _times(self, cluster: int, feature: int, mean: Floats) -> str:
        value = self.mean[cluster, feature]
        if self.family == "bernoulli":
            return f"{value:.0%}, on average {mean[feature]:.0%}"
        return f"{value / mean[feature]:.2g} times the average"

    def _direction(self, cluster: int, feature: int, mean: float, variance: float) -> str:
        place = self.percentile(feature, self.mean[cluster, feature])
        shift = (self.mean[cluster, feature] - mean) / math.sqrt(variance) if variance > 0 else 0.0
        level = "low" if shift <= -MIN_SHIFT else "high" if shift >= MIN_SHIFT else "middle"
        width = (
            ""
            if level != "middle"
            else (", narrower" if self.std[cluster, feature] ** 2 < variance else ", wider")
        )
        return f"{self.names[feature]} {level} ({ordinal(100 * place)} percentile){width}"


def mixture_of(family: str, names: tuple[Hashable, ...], rows: Moments) -> FeatureMixture:
    """The mixture of clusters with these moments."""
    if rows.kind == "none":
        std = np.full(rows.mean.shape, np.nan)
    elif rows.kind == "scalar":
        std = np.broadcast_to(np.sqrt(rows.covariance)[:, None], rows.mean.shape)
    else:
        variance = (
            rows.covariance if rows.kind == "diagonal" else np.diagonal(rows.covariance, axis1=1, axis2=2)
        )
        std = np.sqrt(np.maximum(variance, 0.0))
    return FeatureMixture(family, names, rows.mean, std, rows.weight / rows.weight.sum())


def ordinal(number: float) -> str:
    """A number between 1 and 99 with its ending.

    >>> ordinal(1.2), ordinal(11), ordinal(52.0), ordinal(99.9)
    ('1st', '11th', '52nd', '99th')
    """
    n = min(max(round(number), 1), 99)
    return f"{n}{'th' if 11 <= n <= 13 else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"


def trend(steps: Sequence[HistoryStep], cluster: int) -> Trend:
    """Whether a cluster's share of the latest quarter of a history differs from that of the quarter before.

    >>> steps = [HistoryStep(100 * i, 100.0, {0: 100.0 - 10 * i, 1: 10.0 * i}) for i in range(1, 9)]
    >>> trend(steps, 1), trend(steps, 0), trend(steps[:2], 1)
    ('growing', 'shrinking', 'steady')
    """
    size = len(steps) // 4
    if not size:
        return "steady"
    shares, totals = [], []
    for part in (steps[-2 * size : -size], steps[-size:]):
        total = sum(step.total for step in part)
        shares.append(sum(step.weight.get(cluster, 0.0) for step in part) / max(total, 1e-300))
        totals.append(max(total, 1e-300))
    both = (shares[0] * totals[0] + shares[1] * totals[1]) / sum(totals)
    error = math.sqrt(max(both * (1 - both), 0.0) * (1 / totals[0] + 1 / totals[1]))
    if abs(shares[1] - shares[0]) <= TREND_DEVIATES * error:
        return "steady"
    return "growing" if shares[1] > shares[0] else "shrinking"


@dataclass(frozen=True)
class ClusterLine:
    """A cluster in one line."""

    id: int
    share: float
    weight: float
    born: int
    """Number of events learnt before it was born."""
    trend: Trend
    words: str
    """The features that set it apart."""
    name: str | None = None
    """Name that it was given."""
    share_error: float | None = None
    """Standard error of the share; None before the first refit."""
    probability: float = 1.0
    """Probability that it is a cluster of its own (see `ClusterPosterior`)."""

    def told(self) -> str:
        """The words, with the probability where there is doubt."""
        sure = self.probability >= SURE_PROBABILITY
        return self.words if sure else f"{self.words}; there with probability {self.probability:.0%}"

    def __str__(self) -> str:
        label = labelled(self.id, {} if self.name is None else {self.id: self.name})
        return f"cluster {label}: {self.told()}; {self.share:.0%} of events; {self.trend}"


class Descriptions(Sequence[ClusterLine]):
    """A line for each cluster, the heaviest first; prints as a table.

    >>> print(Descriptions([ClusterLine(7, 0.125, 250.0, 1, "growing", "visits low (8th percentile)")]))
    cluster  share      events  trend      what sets it apart
          7    12%         250  growing    visits low (8th percentile)
    """

    def __init__(self, lines: Iterable[ClusterLine]) -> None:
        self._lines = tuple(lines)

    @overload
    def __getitem__(self, place: int) -> ClusterLine: ...
    @overload
    def __getitem__(self, place: slice) -> Descriptions: ...
    def __getitem__(self, place: int | slice) -> ClusterLine | Descriptions:
        return Descriptions(self._lines[place]) if isinstance(place, slice) else self._lines[place]

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[ClusterLine]:
        return iter(self._lines)

    def to_dicts(self) -> list[dict[str, Any]]:
        """A dictionary for each line, as data frames are made of."""
        return [asdict(line) for line in self._lines]

    def __str__(self) -> str:
        names = in_column("name", [line.name or "" for line in self._lines])
        rows = [f"{'cluster':>7}{names[0]}  {'share':>5}  {'events':>10}  {'trend':9}  what sets it apart"]
        rows += [
            f"{line.id:>7}{name}  {line.share:>5.0%}  {line.weight:>10,.0f}  {line.trend:9}  {line.told()}"
            for line, name in zip(self._lines, names[1:], strict=True)
        ]
        return "\n".join(rows)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><td>{line.id}</td><td>{escape(line.name or '')}</td><td>{line.share:.0%}</td>"
            f"<td>{line.weight:,.0f}</td><td>{line.trend}</td><td>{escape(line.told())}</td></tr>"
            for line in self._lines
        )
        head = "<tr><th>cluster<th>name<th>share<th>events<th>trend<th>what sets it apart</tr>"
        return f"<table>{head}{cells}</table>"


def in_column(head: str, texts: Sequence[str]) -> list[str]:
    """A head and texts as the cells of a column of a table; empty if all texts are.

    >>> in_column("name", ["day", ""]), in_column("name", ["", ""])
    (['  name', '  day ', '      '], ['', '', ''])
    """
    cells = [head, *texts] if any(texts) else [""] * (1 + len(texts))
    width = max(map(len, cells))
    return [f"  {cell:{width}}" if width else "" for cell in cells]


def describe_all(clusters: Iterable[Any], steps: Iterable[HistoryStep]) -> Descriptions:
    """A line for each of these clusters, with the trend of its share."""
    history = list(steps)
    return Descriptions(
        ClusterLine(
            c.id, c.share, c.weight, c.born, trend(history, c.id), c.words(), c.name,
            *(() if c.posterior is None else (c.posterior.share_error, c.posterior.probability)),
        )
        for c in clusters
    )  # fmt: skip
