"""Spans and metrics, as a real receiver of OTLP gets them."""

import gzip
import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

try:
    import opentelemetry.exporter.otlp.proto.http
    import opentelemetry.sdk.trace  # noqa: F401  # perhaps only the API is here
except ImportError as error:
    pytest.skip(f"no {error.name}: pip install 'streamclust[otel]'", allow_module_level=True)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from streamclust import StreamClusterer
from streamclust_connectors.interfaces import Message
from streamclust_connectors.service import Policy, Service
from streamclust_connectors.service.latency import BOUNDS
from streamclust_connectors.sinks import ListSink
from streamclust_connectors.sources import MemorySource
from streamclust_connectors.telemetry import spans
from streamclust_connectors.telemetry.sending import sending

REQUESTS = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}
COMMAND = Path(sys.executable).with_name("streamclust")


class Collector:
    """A receiver of OTLP over HTTP; answers with `status`."""

    def __init__(self, status=200):
        self.requests, self.status = [], status
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.requests.append(REQUESTS[self.path].FromString(body))
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def spans(self):
        found = [r for r in self.requests if isinstance(r, ExportTraceServiceRequest)]
        return [
            s for r in found for each in r.resource_spans for scope in each.scope_spans for s in scope.spans
        ]

    @property
    def metrics(self):
        """The metrics of the last export, by name."""
        *_, last = (r for r in self.requests if isinstance(r, ExportMetricsServiceRequest))
        self.resource = {a.key: a.value.string_value for a in last.resource_metrics[0].resource.attributes}
        return {metric.name: metric for metric in last.resource_metrics[0].scope_metrics[0].metrics}

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def collector():
    found = Collector()
    yield found
    found.stop()


def records(n, parent=None):
    now = int(1000 * time.time())
    return [
        Message(
            i,
            json.dumps({"x": float(i % 7)}).encode(),
            None,
            [("traceparent", parent(i))] if parent else (),
            now,
        )
        for i in range(n)
    ]


def parent(i):
    return f"00-{i // 50 + 1:032x}-{i // 10 + 1:016x}-01".encode()


def service_of(found):
    return Service(
        MemorySource({("events", 3): found}), ListSink(), StreamClusterer(), policy=Policy(poll=0.0)
    )


def values(metric):
    """Each point's value, by its attributes."""
    points = getattr(metric, metric.WhichOneof("data")).data_points
    return {
        tuple((a.key, a.value.string_value) for a in p.attributes): p.as_double or float(p.as_int)
        for p in points
    }


def test_each_batch_is_a_span_linked_to_the_traces_of_its_records(collector):
    service = service_of(records(100, parent))
    with sending(service, "kafka", collector.url, "shop", 60.0, "a"):
        service.run()
    found = sorted(collector.spans, key=lambda span: span.start_time_unix_nano)
    attributes = [{a.key: a.value for a in span.attributes} for span in found]
    assert sum(each["messaging.batch.message_count"].int_value for each in attributes) == 100
    assert attributes[0]["messaging.kafka.offset"].int_value == 0
    assert {span.name for span in found} == {"process events"}
    assert {span.kind for span in found} == {5}  # consumer
    assert {each["messaging.destination.partition.id"].string_value for each in attributes} == {"3"}
    linked = {(link.trace_id.hex(), link.span_id.hex()) for span in found for link in span.links}
    assert linked == {tuple(parent(i).decode().split("-")[1:3]) for i in range(100)}


def test_metrics_are_those_of_the_service(collector):
    service = service_of([*records(90), Message(90, b"oops", None, (), int(1000 * time.time()))])
    with sending(service, "kafka", collector.url, "shop", 60.0, "pod-1"):
        service.run()
    found = collector.metrics
    assert collector.resource.items() >= {"service.name": "shop", "service.instance.id": "pod-1"}.items()
    assert values(found["streamclust_events"]) == {(): 90.0}
    assert values(found["streamclust_dead_letters"]) == {(): 1.0}
    assert found["streamclust_events"].sum.is_monotonic
    assert values(found["streamclust_clusters"]) == {(): float(service.clusterer.n_clusters)}
    assert found["streamclust_memory_bytes"].unit == "By"
    assert values(found["streamclust_lag_records"]).keys() <= {(("topic", "events"), ("partition", "3"))}
    stages = values(found["streamclust_stage_seconds"])
    assert stages[("stage", "learn"),] == pytest.approx(service.stats.seconds["learn"])
    (latency,) = found["streamclust_latency_seconds"].histogram.data_points
    assert latency.count == sum(latency.bucket_counts) == service.stats.latency.cumulative[-1] == 91
    assert tuple(latency.explicit_bounds) == BOUNDS
    assert len(latency.bucket_counts) == len(BOUNDS) + 1
    assert latency.sum == pytest.approx(service.stats.latency.total)


def test_links_are_few_and_valid():
    many = [
        Message(i, b"", headers=[("traceparent", f"00-{i + 1:032x}-{i + 1:016x}-00".encode())])
        for i in range(500)
    ]
    assert len(spans.links(many)) == spans.MAX_LINKS
    for header in (b"", b"oops", b"00-" + b"0" * 32 + b"-" + b"1" * 16 + b"-01", b"\xff-1-1-1", b"00-1-1"):
        assert spans.links([Message(0, b"", headers=[("traceparent", header)])]) == []


def test_a_collector_that_does_not_answer_delays_nothing(caplog):
    refusing = Collector(status=400)
    try:
        for url in (refusing.url, "http://127.0.0.1:9"):
            caplog.clear()
            service = service_of(records(50))
            begun = time.monotonic()
            with sending(service, "kafka", url, "shop", 60.0, "a"):
                service.run()
                assert service.stats.events == 50
            assert time.monotonic() - begun < 30
            assert len([r for r in caplog.records if r.levelname in ("WARNING", "ERROR")]) <= 1
    finally:
        refusing.stop()


@pytest.mark.compiled
def test_the_command_sends_them(collector, tmp_path):
    lines = [json.dumps({"x": float(i % 7), "y": 1.0 * i}) for i in range(200)]
    (tmp_path / "events.jsonl").write_text("\n".join(lines))
    flags = {"telemetry.enabled": "true", "telemetry.endpoint": collector.url, "output.kind": "none"}
    command = [COMMAND, "run", "--input", "events.jsonl"]
    command += [part for name, value in flags.items() for part in ("--set", f"{name}={value}")]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("STREAMCLUST_", "OTEL_"))
    }
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=240)
    assert values(collector.metrics["streamclust_events"]) == {(): 200.0}
    assert collector.resource["service.name"] == "streamclust"
    counts = [
        a.value.int_value
        for s in collector.spans
        for a in s.attributes
        if a.key == "messaging.batch.message_count"
    ]
    assert sum(counts) == 200


def test_a_missing_package_is_named(tmp_path):
    (tmp_path / "events.jsonl").write_text('{"x": 1.0}\n')
    script = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from streamclust_connectors.__main__ import main\n"
        "sys.argv = ['streamclust', 'run', '--input', 'events.jsonl', '--set', 'telemetry.enabled=true']\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "pip install 'streamclust[otel]'" in done.stderr
