"""Sends spans and metrics while a service runs. A collector that does not answer delays nothing."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from streamclust import __version__
from streamclust_connectors.http.backend import Backend
from streamclust_connectors.http.metrics import ServiceCollector
from streamclust_connectors.incidents import Incident
from streamclust_connectors.telemetry.metrics import metrics_data
from streamclust_connectors.telemetry.spans import batch_tracer

if TYPE_CHECKING:
    from streamclust_connectors.service import Service

log = logging.getLogger(__name__)
TIMEOUT_SECONDS = 5.0
"""Time limit of a request to the collector."""
FLUSH_SECONDS = 2.0
"""Time for the last spans and metrics, each, when the service stops."""
BY_KIND = "streamclust_lifecycle_events"
"""Metric that only the HTTP server counts."""


@contextmanager
def sending(
    service: Service, source: str, endpoint: str | None, name: str, every_seconds: float, instance: str
) -> Iterator[None]:
    """Send spans and metrics to a collector; `endpoint` is its URL without path, by default that of OTEL_*."""
    logging.getLogger("opentelemetry").setLevel(
        logging.CRITICAL
    )  # it logs every failure; here one line tells
    resource = Resource.create(
        {"service.name": name, "service.version": __version__, "service.instance.id": instance}
    )
    provider = TracerProvider(resource=resource)
    spans = OTLPSpanExporter(endpoint=_url(endpoint, "traces"), timeout=TIMEOUT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(spans))
    service.trace = batch_tracer(provider, source)
    metrics = OTLPMetricExporter(endpoint=_url(endpoint, "metrics"), timeout=TIMEOUT_SECONDS)
    over = threading.Event()
    sender = threading.Thread(
        target=_send_metrics, args=(service, metrics, resource, every_seconds, over), daemon=True
    )
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join(FLUSH_SECONDS)
        closing = threading.Thread(target=provider.shutdown, daemon=True)
        closing.start()
        closing.join(FLUSH_SECONDS)


def _url(endpoint: str | None, signal: str) -> str | None:
    return None if endpoint is None else f"{endpoint.rstrip('/')}/v1/{signal}"


def _send_metrics(
    service: Service,
    exporter: MetricExporter,
    resource: Resource,
    every_seconds: float,
    over: threading.Event,
) -> None:
    """Send the metrics periodically, and once more at the end."""
    collector, start = ServiceCollector(Backend(service)), time.time_ns()
    trouble = Incident(log, "metrics are not sent to the collector")
    last = False
    while not last:
        last = over.wait(every_seconds)
        families = [family for family in collector.collect() if family.name != BY_KIND]
        result = exporter.export(metrics_data(families, resource, start))
        if result is MetricExportResult.SUCCESS:
            trouble.end()
        else:
            trouble.note("it does not answer, or refuses them")
