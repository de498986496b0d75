"""Sends the metrics that Prometheus reads by OTLP."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric as Family

TOTAL = AggregationTemporality.CUMULATIVE
UNITS = {"seconds": "s", "bytes": "By", "records": "{record}"}
"""Units by the last word of a metric's name."""


def metrics_data(families: Iterable[Family], resource: Resource, start_ns: int) -> MetricsData:
    """The current values of Prometheus' metrics, counted since `start_ns`."""
    scope = InstrumentationScope("streamclust")
    metrics = [_metric(family, start_ns, time.time_ns()) for family in families]
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, metrics, "")], "")])


def _metric(family: Family, start: int, now: int) -> Metric:
    unit = UNITS.get(family.name.rpartition("_")[2], "1")
    return Metric(family.name, family.documentation, unit, _data(family, start, now))


def _data(family: Family, start: int, now: int) -> Sum | Gauge | Histogram:
    if family.type == "histogram":
        return Histogram([_histogram(family, start, now)], TOTAL)
    points = [NumberDataPoint(dict(s.labels), start, now, s.value) for s in _values(family)]
    return Sum(points, TOTAL, is_monotonic=True) if family.type == "counter" else Gauge(points)


def _values(family: Family) -> Iterator[Any]:
    """The samples of a family without the times of their creation."""
    return (sample for sample in family.samples if not sample.name.endswith("_created"))


def _histogram(family: Family, start: int, now: int) -> HistogramDataPoint:
    buckets = [(s.labels["le"], int(s.value)) for s in family.samples if s.name.endswith("_bucket")]
    (total,) = (s.value for s in family.samples if s.name.endswith("_sum"))
    cumulative = [0, *(count for _, count in buckets)]
    counts = [after - before for before, after in pairwise(cumulative)]
    bounds = [float(bound) for bound, _ in buckets[:-1]]
    return HistogramDataPoint({}, start, now, cumulative[-1], total, counts, bounds, 0.0, 0.0)
