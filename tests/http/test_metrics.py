"""Metrics, by the rules of Prometheus and of this project."""

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from streamclust_connectors.sources import MemorySource
from tests.http.conftest import N, made, until

GRAFANA = Path(__file__).parents[2] / "docker" / "grafana" / "dashboards" / "streamclust.json"
UNITS = ("_seconds", "_bytes", "_records")
PLAIN = {
    f"streamclust_{name}"
    for name in ("clusters", "features", "model_version", "ready", "stopped_partitions", "waiting_partitions")
}


def families(answer):
    return {family.name: family for family in text_string_to_metric_families(answer.text)}


def test_figures_are_those_of_the_service(api):
    answer = api.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    found = families(answer)
    assert found["streamclust_events"].samples[0].value == N
    assert found["streamclust_clusters"].samples[0].value == api.service.clusterer.n_clusters
    assert found["streamclust_ready"].samples[0].value == 1
    stages = {sample.labels["stage"]: sample.value for sample in found["streamclust_stage_seconds"].samples}
    assert stages["learn"] > 0
    api.client.get("/v1/events")
    found = families(api.client.get("/metrics"))
    kinds = {sample.labels["kind"]: sample.value for sample in found["streamclust_lifecycle_events"].samples}
    assert sum(kinds.values()) == len(api.service.clusterer.events)


def test_the_newer_format_for_whoever_asks_for_it(api):
    answer = api.client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_names_units_and_labels(start):
    records = [b'{"x": %d}' % i for i in range(100)]
    api = start(made(MemorySource({("t", 0): records, ("t", 1): []}, endless=True)))
    until(lambda: api.service.stats.events == 100)
    found = families(api.client.get("/metrics"))
    for name, family in found.items():
        assert name.startswith("streamclust_")
        assert family.documentation.endswith(".")
        if family.type == "counter":
            assert all(sample.name == name + "_total" for sample in family.samples)
        else:
            assert name in PLAIN or name.endswith(UNITS)
        labels = {label for sample in family.samples for label in sample.labels}
        assert labels <= {"topic", "partition", "stage", "kind", "le"}, "nothing is labelled by cluster"
    lag = {
        (s.labels["topic"], s.labels["partition"]): s.value for s in found["streamclust_lag_records"].samples
    }
    assert lag == {("t", "0"): 0, ("t", "1"): 0}


def test_grafana_asks_for_what_there_is(api):
    api.service.stats.last_checkpoint = api.service.stats.clock()
    asked = set(re.findall(r"streamclust_[a-z_]+", GRAFANA.read_text()))
    there = {
        sample.name for family in families(api.client.get("/metrics")).values() for sample in family.samples
    }
    others = {
        "streamclust_lag_records",
        "streamclust_model_staleness_seconds",
    }  # of a source that tells; of a group
    assert asked - there <= others
    assert asked
