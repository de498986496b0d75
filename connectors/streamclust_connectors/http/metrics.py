"""Metrics for Prometheus, read off the service's own figures when asked for. Nothing is counted twice."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streamclust.streaming import StreamClusterer
from streamclust_connectors.http.backend import Backend, memory
from streamclust_connectors.ports import Group, StreamModel

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
    "checkpoint_failures": ("checkpoint_failures", "Checkpoints that could not be written."),
    "commits": ("commits", "Times that outputs were seen to have arrived."),
    "retries": ("retries", "Failures that passed."),
}
"""Counters of `Stats`: their Prometheus names and descriptions."""


class ServiceCollector(Collector):
    """The figures of a service, as they are when Prometheus asks."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def collect(self) -> Iterator[Metric]:
        """Every metric; none is labelled by cluster, of which there are ever new ones."""
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
            PREFIX + "lag_records", "Records still to be read.", labels=["topic", "partition"]
        )
        for (topic, number), behind in dict(stats.lag).items():
            lag.add_metric([topic, str(number)], behind)
        yield lag
        if backend.service.group is not None:
            yield from group_gauges(backend.service.group)
        for name, (meaning, value) in self._gauges().items():
            if value is not None:
                yield GaugeMetricFamily(PREFIX + name, meaning, value=float(value))

    @property
    def _learner(self) -> StreamModel:
        """The clusterer on show, or the learner of features."""
        service = self.backend.service
        return service.shown if isinstance(service.learner, StreamClusterer) else service.learner

    def _gauges(self) -> dict[str, tuple[str, float | None]]:
        """Figures of now, by name, with their descriptions."""
        stats, learner = self.backend.service.stats, self._learner
        model = learner.model
        if isinstance(learner, StreamClusterer):
            found = {"clusters": ("Clusters now.", learner.n_clusters)}
        else:
            found = {"found_features": ("Features found now (BP-means).", learner.n_features)}
        return found | {
            "features": ("Features known.", len(learner.feature_names)),
            "model_version": ("The version of the published model.", 0 if model is None else model.version),
            "memory_bytes": ("Memory that the process holds.", memory()),
            "ready": ("Whether state is loaded and partitions are assigned.", stats.ready),
            "stopped_partitions": ("Partitions that are held and not read.", len(stats.stopped)),
            "heartbeat_age_seconds": ("Since the loop last turned.", stats.age),
            "checkpoint_age_seconds": (
                "Since everything learnt was in a checkpoint.",
                self.backend.checkpoint_age,
            ),
        }


def group_gauges(group: Group) -> Iterator[Metric]:
    """Figures of a consumer group that has one model."""
    figures = {
        "group_members": ("Processes of the group.", len(group.present())),
        "group_leader": ("Whether this process makes the group's model.", group.leads),
        "model_staleness_seconds": ("Since all that was learnt was in the model.", group.staleness),
    }
    for name, (meaning, value) in figures.items():
        if value is not None:
            yield GaugeMetricFamily(PREFIX + name, meaning, value=float(value))


def registry(backend: Backend) -> CollectorRegistry:
    """A registry of our own: what other libraries count stays out."""
    found = CollectorRegistry()
    found.register(ServiceCollector(backend))
    return found
