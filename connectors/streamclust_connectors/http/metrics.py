"""Metrics for Prometheus, read off the service's own figures when asked for. Nothing is counted twice."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streamclust_connectors.http.backend import Backend, memory

PREFIX = "streamclust_"
COUNTERS = {
    "messages": ("messages", "Records that came, whatever was in them."),
    "events": ("events", "Events learnt."),
    "dead_letters": ("dead_letters", "Records that could not be read or learnt."),
    "refused": ("refused_events", "Events brought by request that could not be learnt."),
    "tombstones": ("tombstones", "Records without a value."),
    "skipped": ("skipped_records", "Records that came again and had been learnt before."),
    "replayed": ("replayed_events", "Events learnt again after a restart."),
    "assignments": ("assignments", "Assignments sent."),
    "snapshots": ("snapshots", "Snapshots sent."),
    "dropped": ("dropped_outputs", "Outputs that were too large to send."),
    "checkpoints": ("checkpoints", "Checkpoints written."),
    "commits": ("commits", "Times that outputs were seen to have arrived."),
    "retries": ("retries", "Failures that passed."),
}
"""Figures of `Stats`: what they are called outside, and what they mean."""


class ServiceCollector(Collector):
    """The figures of a service, as they are when Prometheus asks."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def collect(self) -> Iterator[Metric]:
        """Every metric; none is labelled by cluster, of which there are ever new ones."""
        backend, stats = self.backend, self.backend.service.stats
        clusterer = self.backend.service.clusterer
        model = clusterer.model
        for figure, (name, meaning) in COUNTERS.items():
            yield CounterMetricFamily(PREFIX + name, meaning, value=getattr(stats, figure))
        kinds = CounterMetricFamily(
            PREFIX + "lifecycle_events", "Clusters born, died, split and merged.", labels=["kind"]
        )
        for kind in ("born", "died", "split", "merged"):
            kinds.add_metric([kind], backend.journal.counts[kind])
        yield kinds
        stages = CounterMetricFamily(
            PREFIX + "stage_seconds", "Time spent in each stage of the loop.", labels=["stage"]
        )
        for stage, seconds in dict(stats.seconds).items():
            stages.add_metric([stage], seconds)
        yield stages
        lag = GaugeMetricFamily(
            PREFIX + "lag_records", "Records still to be read.", labels=["topic", "partition"]
        )
        for (topic, number), behind in dict(stats.lag).items():
            lag.add_metric([topic, str(number)], behind)
        yield lag
        gauges = {
            "clusters": ("Clusters now.", clusterer.n_clusters),
            "features": ("Features known.", len(clusterer.feature_names)),
            "model_version": ("The version of the published model.", 0 if model is None else model.version),
            "memory_bytes": ("Memory that the process holds.", memory()),
            "ready": ("Whether state is loaded and partitions are assigned.", stats.ready),
            "heartbeat_age_seconds": ("Since the loop last turned.", stats.age),
            "checkpoint_age_seconds": ("Since the last checkpoint.", backend.checkpoint_age),
        }
        for name, (meaning, value) in gauges.items():
            if value is not None:
                yield GaugeMetricFamily(PREFIX + name, meaning, value=float(value))


def registry(backend: Backend) -> CollectorRegistry:
    """A registry of our own: what other libraries count stays out."""
    found = CollectorRegistry()
    found.register(ServiceCollector(backend))
    return found
