"""The Helm chart: rendered by Helm, checked against Kubernetes' schemas, its settings read by the service."""

import itertools
import json
import os
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from streamclust_connectors.settings import load
from tests.deploy.helm import find_helm
from tests.jars import Missing

kubernetes_validate = pytest.importorskip(
    "kubernetes_validate", reason="no kubernetes-validate: pip install it"
)
ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "streamclust"
KUBERNETES = "1.30.0"
CUSTOM = {"ServiceMonitor", "PrometheusRule", "ScaledObject"}
"""Kinds that Kubernetes itself does not know."""
RICH = {
    "config": {
        "kafka": {
            "topic": "events", "bootstrap_servers": ["a:9092", "b:9092"], "group_id": "shop",
            "security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "me",
            "session_timeout_ms": 30000,
        },
        "engine": {"half_life": 50000.5, "max_leaves": 300},
        "checkpoint": {"every_seconds": 5},
        "http": {"port": 1, "max_streams": 4},
    },
    "secrets": {"STREAMCLUST_KAFKA__SASL_PLAIN_PASSWORD": {"name": "kafka", "key": "password"}},
    "secretFiles": {"kafka-ca": "/run/secrets/kafka"},
    "environment": {"NUMBA_NUM_THREADS": 1},
    "image": {"repository": "example.com/streamclust", "tag": "1.2.3", "pullSecrets": [{"name": "pull"}]},
    "port": 9000,
    "podLabels": {"team": "data"},
    "podAnnotations": {"note": "x"},
    "serviceAccount": {"create": True, "name": "cluster", "annotations": {"a": "b"}},
    "service": {"annotations": {"a": "b"}},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
    ],
    "monitoring": {"serviceMonitor": True, "prometheusRule": True, "labels": {"release": "prom"},
                   "tokenSecret": {"name": "http", "key": "token"}},
}  # fmt: skip


@pytest.fixture(scope="module")
def helm():
    try:
        return find_helm()
    except Missing as error:
        if os.environ.get("STREAMCLUST_REQUIRE_HELM"):
            pytest.fail(f"STREAMCLUST_REQUIRE_HELM is set, but there is no {error}", pytrace=False)
        pytest.skip(f"no {error}")


@pytest.fixture
def render(helm, tmp_path):
    def run(values=None, fails=False, **flags):
        path = tmp_path / "values.yaml"
        path.write_text(yaml.safe_dump(values or {}))
        command = [helm, "template", "mine", CHART, "--kube-version", KUBERNETES, "--values", path]
        command += itertools.chain.from_iterable(
            ("--set", f"{name}={value}") for name, value in flags.items()
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if fails:
            assert done.returncode != 0
            return done.stderr
        assert done.returncode == 0, done.stderr
        objects = [content for content in yaml.safe_load_all(done.stdout) if content]
        return {content["kind"]: content for content in objects}

    return run


def check_kubernetes(objects):
    for kind, content in objects.items():
        if kind not in CUSTOM:
            kubernetes_validate.validate(content, KUBERNETES, strict=True)


@pytest.mark.parametrize("kind", ["none", "keda", "hpa"])
@pytest.mark.parametrize("values", [{}, RICH], ids=["defaults", "everything"])
def test_what_it_renders_is_what_kubernetes_takes(render, values, kind):
    objects = render(values, **{"autoscaling.kind": kind})
    check_kubernetes(objects)
    wanted = {"ConfigMap", "Deployment", "Service", "ServiceAccount", "PodDisruptionBudget"}
    wanted |= {"none": set(), "keda": {"ScaledObject"}, "hpa": {"HorizontalPodAutoscaler"}}[kind]
    assert objects.keys() == wanted | ({"ServiceMonitor", "PrometheusRule"} if values else set())
    assert ("replicas" in objects["Deployment"]["spec"]) == (kind == "none")
    names = {content["metadata"]["name"] for content in objects.values()}
    assert names == {"mine-streamclust"} | ({"cluster"} if values else set())
    pods = objects["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    for selector in (
        objects["Deployment"]["spec"]["selector"]["matchLabels"],
        objects["Service"]["spec"]["selector"],
    ):
        assert selector.items() <= pods


def test_the_service_takes_its_settings(render, tmp_path):
    objects = render(RICH)
    text = objects["ConfigMap"]["data"]["service.toml"]
    assert tomllib.loads(text)
    path = tmp_path / "service.toml"
    path.write_text(text)
    secret = tmp_path / "password"
    secret.write_text("x")
    settings = load(path, {"kafka": {"sasl_plain_password_file": str(secret)}})
    settings.check()
    assert (settings.state, settings.http.enabled, settings.http.host) == ("kafka", True, "0.0.0.0")
    assert (settings.http.port, settings.http.max_streams) == (9000, 4)
    assert settings.kafka.bootstrap_servers == ("a:9092", "b:9092")
    assert (settings.engine.half_life, settings.engine.max_leaves) == (50000.5, 300)
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["ports"] == [{"name": "http", "containerPort": 9000}]
    assert container["image"] == "example.com/streamclust:1.2.3"
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts["settings"] == "/etc/streamclust"
    assert container["args"][-1] == "/etc/streamclust/service.toml"
    assert mounts["secret-kafka-ca"] == "/run/secrets/kafka"
    volumes = {volume["name"] for volume in objects["Deployment"]["spec"]["template"]["spec"]["volumes"]}
    assert volumes == mounts.keys()
    (variable,) = [one for one in container["env"] if "valueFrom" in one]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "kafka", "key": "password"}
    assert "password" not in json.dumps(objects["ConfigMap"])


def test_probes_ask_for_readiness_and_life(render):
    (container,) = render()["Deployment"]["spec"]["template"]["spec"]["containers"]
    paths = {
        name: container[name]["httpGet"]["path"]
        for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert paths == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] == 300
    assert container["securityContext"]["readOnlyRootFilesystem"]


def test_a_change_of_settings_restarts_the_pods(render):
    def checksum(values):
        return render(values)["Deployment"]["spec"]["template"]["metadata"]["annotations"][
            "checksum/settings"
        ]

    assert checksum({}) != checksum(
        {"config": {"kafka": {"topic": "others", "bootstrap_servers": "kafka:9092"}}}
    )
    assert checksum({}) == checksum({"replicas": 3})


def test_scaling_follows_the_lag_of_the_group(render):
    spec = render(RICH, **{"autoscaling.kind": "keda", "autoscaling.authenticationRef": "login"})[
        "ScaledObject"
    ]["spec"]
    (trigger,) = spec["triggers"]
    assert trigger["metadata"] == {
        "bootstrapServers": "a:9092,b:9092", "topic": "events", "consumerGroup": "shop", "lagThreshold": "50000",
        "offsetResetPolicy": "earliest",
    }  # fmt: skip
    assert trigger["authenticationRef"] == {"name": "login"}
    assert spec["scaleTargetRef"]["name"] == "mine-streamclust"


def test_prometheus_finds_the_pods_and_the_rules(render):
    objects = render(RICH)
    monitor = objects["ServiceMonitor"]
    assert monitor["metadata"]["labels"]["release"] == "prom"
    assert (
        monitor["spec"]["selector"]["matchLabels"].items() <= objects["Service"]["metadata"]["labels"].items()
    )
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in objects["Service"]["spec"]["ports"]}
    assert endpoint["authorization"]["credentials"] == {"name": "http", "key": "token"}
    rules = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    assert objects["PrometheusRule"]["spec"] == rules


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"replica": 3}, "replica"),
        ({"autoscaling": {"kind": "magic"}}, "kind"),
        ({"config": {"kafka": {"topic": ""}}}, "topic"),
        ({"config": {"state": "directory"}}, "state"),
        ({"secrets": {"lower": {"name": "a", "key": "b"}}}, "lower"),
        ({"terminationGracePeriodSeconds": 1}, "terminationGracePeriodSeconds"),
    ],
)
def test_values_that_cannot_work_are_refused(render, values, why):
    assert why in render(values, fails=True)


def test_the_chart_is_of_this_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (chart["version"], chart["appVersion"]) == (version, version)
