"""Alert rules and the dashboard: PromQL that parses, of metrics that the service has."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from streamclust import StreamClusterer
from streamclust_connectors.http.backend import Backend
from streamclust_connectors.http.metrics import group_gauges, registry
from streamclust_connectors.service import Service
from streamclust_connectors.sinks import ListSink
from streamclust_connectors.sources import MemorySource

promql_parser = pytest.importorskip("promql_parser", reason="no promql-parser: pip install it")
ROOT = Path(__file__).parents[2]
RULES = yaml.safe_load((ROOT / "deploy/helm/streamclust/files/alerts.yaml").read_text())
BOARD = json.loads((ROOT / "docker/grafana/dashboards/streamclust.json").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
QUERIES = [rule["expr"] for rule in ALERTS] + [
    target["expr"] for p in BOARD["panels"] for target in p["targets"]
]
DURATION = re.compile(r"\d+(ms|[smhdwy])")


@pytest.fixture(scope="module")
def metrics():
    """Type of each series by name, as the service exposes them; those of a group too."""
    service = Service(MemorySource({("events", 0): [b'{"x": 1.0}'] * 20}), ListSink(), StreamClusterer())
    service.run()
    service.stats.last_checkpoint = service.stats.clock()
    text = generate_latest(registry(Backend(service))).decode()
    found = {
        sample.name: family.type
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    group = SimpleNamespace(active_members=lambda: [1], leads=True, staleness=1.0)
    return found | {family.name: family.type for family in group_gauges(group)}


def series(query):
    return set(re.findall(r"\b(?:streamclust|process)_\w+", query))


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_parses_and_asks_for_metrics_that_there_are(metrics, query):
    promql_parser.parse(query)
    assert series(query)
    for name in series(query):
        assert name in metrics, f"{name} is none of {sorted(metrics)}"
        counted = metrics[name] in ("counter", "histogram")
        assert counted == bool(re.search(rf"(rate|increase)\({name}", query)), (
            "counters have rates, gauges none"
        )


def test_rules_are_as_prometheus_takes_them():
    assert RULES.keys() == {"groups"}
    assert len({rule["alert"] for rule in ALERTS}) == len(ALERTS) >= 8
    for group in RULES["groups"]:
        assert group.keys() == {"name", "rules"}
    for rule in ALERTS:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"[A-Z]\w+", rule["alert"])
        assert DURATION.fullmatch(rule.get("for", "1m"))
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        for text in rule["annotations"].values():
            assert text.count("{{") == text.count("}}")
            assert set(re.findall(r"\{\{ ([^ }]+)", text)) <= {"$value", "$labels.instance"}


def test_alerts_tell_of_lag_staleness_refusals_and_checkpoints():
    asked = set().union(*(series(rule["expr"]) for rule in ALERTS))
    assert asked >= {
        "streamclust_lag_records", "streamclust_model_staleness_seconds", "streamclust_dead_letters_total",
        "streamclust_checkpoint_age_seconds", "streamclust_ready", "streamclust_waiting_partitions",
    }  # fmt: skip


def test_prometheus_of_the_compose_file_has_the_rules():
    told = yaml.safe_load((ROOT / "docker/prometheus.yml").read_text())["rule_files"]
    compose = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())
    mounted = {
        volume.split(":")[1]: volume.split(":")[0] for volume in compose["services"]["prometheus"]["volumes"]
    }
    (rules,) = told
    assert (ROOT / "docker" / mounted[rules]).resolve() == (
        ROOT / "deploy/helm/streamclust/files/alerts.yaml"
    )
