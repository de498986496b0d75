"""Prometheus metrics, read from the statistics of the service at each request."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from streamclust.streaming import StreamClusterer
from streamclust_connectors.http.backend import Backend, memory
from streamclust_connectors.interfaces import Group
from streamclust_connectors.service.key_models import KeyModels, Learner
from streamclust_connectors.service.latency import BOUNDS

PREFIX = "streamclust_"
COUNTERS = {
    "messages": ("messages", "Records received."),
    "events": ("events", "Events learnt."),
    "dead_letters": ("dead_letters", "Records that could not be decoded or learnt."),
    "refused": ("refused_events", "Events sent by HTTP that could not be learnt."),
    "tombstones": ("tombstones", "Records without a value."),
    "skipped": ("skipped_records", "Records received again after they had been learnt."),
    "replayed": ("replayed_events", "Events learnt again after a restart."),
    "assignments": ("assignments", "Assignments sent."),
    "snapshots": ("snapshots", "Snapshots sent."),
    "dropped": ("dropped_outputs", "Outputs that were too large to send."),
    "checkpoints": ("checkpoints", "Checkpoints written."),
    "checkpoint_failures": ("checkpoint_failures", "Checkpoints that could not be written."),
    "commits": ("commits", "Commits of outputs."),
    "retries": ("retries", "Failures that were retried."),
}
"""Counters of `Stats`: their Prometheus names and descriptions."""


class ServiceCollector(Collector):
    """Collects the metrics of a service at each request."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def collect(self) -> Iterator[Metric]:
        """All metrics. None is labelled by cluster: new clusters would add labels without bound."""
        backend, stats = self.backend, self.backend.service.stats
        for figure, (name, meaning) in COUNTERS.items():
            yield CounterMetricFamily(PREFIX + name, meaning, value=getattr(stats, figure))
        yield CounterMetricFamily(
            PREFIX + "failed_refits",
            "Refits that failed; the last good model stays.",
            value=self._learner.n_failed_refits,
        )
        kinds = CounterMetricFamily(
            PREFIX + "lifecycle_events",
            "Clusters or features born, died, returned, split and merged.",
            labels=["kind"],
        )
        for kind, n in backend.lifecycle_counts().items():
            kinds.add_metric([kind], n)
        yield kinds
        stages = CounterMetricFamily(
            PREFIX + "stage_seconds", "Time spent in each stage of the loop.", labels=["stage"]
        )
        for stage, seconds in dict(stats.seconds).items():
            stages.add_metric([stage], seconds)
        yield stages
        lag = GaugeMetricFamily(
            PREFIX + "lag_records", "Records not learnt yet.", labels=["topic", "partition"]
        )
        for (topic, number), behind in dict(stats.lag).items():
            lag.add_metric([topic, str(number)], behind)
        yield lag
        latency, bounds = stats.latency, [*map(str, BOUNDS), "+Inf"]
        yield HistogramMetricFamily(
            PREFIX + "latency_seconds",
            "Time from the timestamp of a record to its outputs.",
            buckets=list(zip(bounds, latency.cumulative, strict=True)),
            sum_value=latency.total,
        )
        if isinstance(self._learner, KeyModels):
            yield from key_counters(self._learner)
        if backend.service.group is not None:
            yield from group_gauges(backend.service.group)
        for name, (meaning, value) in self._gauges().items():
            if value is not None:
                yield GaugeMetricFamily(PREFIX + name, meaning, value=float(value))

    @property
    def _learner(self) -> Learner:
        """The displayed clusterer, the learner of features, or the models of keys."""
        service = self.backend.service
        return (
            service.displayed_clusterer if isinstance(service.learner, StreamClusterer) else service.learner
        )

    def _gauges(self) -> dict[str, tuple[str, float | None]]:
        """Current values by name, with their descriptions."""
        stats, learner = self.backend.service.stats, self._learner
        model = learner.model
        if isinstance(learner, StreamClusterer):
            found = {"clusters": ("Current number of clusters.", learner.n_clusters)}
        elif isinstance(learner, KeyModels):
            found = {
                "keys": ("Keys with a model.", learner.n_keys),
                "keys_in_memory": ("Models of keys that are in memory.", learner.n_live),
            }
        else:
            found = {"found_features": ("Current number of features found (BP-means).", learner.n_features)}
        return found | {
            "features": ("Number of known input features.", len(learner.feature_names)),
            "model_version": ("Version of the published model.", 0 if model is None else model.version),
            "memory_bytes": ("Resident memory of the process.", memory()),
            "ready": ("Whether every assigned partition is read, and there is a model.", stats.ready),
            "waiting_partitions": ("Assigned partitions that are not read yet.", len(stats.waiting)),
            "stopped_partitions": ("Assigned partitions that are not read.", len(stats.stopped)),
            "heartbeat_age_seconds": ("Seconds since the last iteration of the loop.", stats.heartbeat_age),
            "checkpoint_age_seconds": (
                "Seconds since a checkpoint held everything learnt.",
                self.backend.checkpoint_age,
            ),
        }


def key_counters(models: KeyModels) -> Iterator[Metric]:
    """Counters of a service with a model for each key."""
    yield CounterMetricFamily(PREFIX + "loaded_keys", "Models of keys read from disk.", value=models.n_loaded)
    yield CounterMetricFamily(
        PREFIX + "evicted_keys", "Models of keys dropped from memory.", value=models.n_evicted
    )


def group_gauges(group: Group) -> Iterator[Metric]:
    """Metrics of a consumer group with one model."""
    figures = {
        "group_members": ("Active members of the group.", len(group.active_members())),
        "group_leader": ("Whether this process is the group's leader.", group.leads),
        "model_staleness_seconds": ("Seconds since the model included everything learnt.", group.staleness),
    }
    for name, (meaning, value) in figures.items():
        if value is not None:
            yield GaugeMetricFamily(PREFIX + name, meaning, value=float(value))


def registry(backend: Backend) -> CollectorRegistry:
    """A separate registry, without the metrics of other libraries."""
    found = CollectorRegistry()
    found.register(ServiceCollector(backend))
    return found
