"""The image and what stands beside it, as far as files tell; no Docker engine is needed."""

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from streamclust_connectors.cli import app
from streamclust_connectors.settings import load

DOCKER = Path(__file__).parent.parent / "docker"
PINNED = re.compile(r"[\w./-]+:v?\d+\.\d+\.\d+[\w.-]*")


def instructions():
    """The Dockerfile as (instruction, rest), lines joined."""
    text = re.sub(r"^#.*\n", "", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [tuple(line.split(maxsplit=1)) for line in lines]


def last_stage():
    found = instructions()
    start = max(i for i, (name, _) in enumerate(found) if name == "FROM")
    return found[start:]


def environment():
    return dict(
        word.split("=", 1) for name, rest in last_stage() if name == "ENV" for word in shlex.split(rest)
    )


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((DOCKER / "compose.yaml").read_text())


@pytest.fixture
def settings_of(monkeypatch):
    """Settings as a container with these variables would have them."""

    def read(variables):
        for name, value in variables.items():
            if name.startswith("STREAMCLUST_"):
                monkeypatch.setenv(name, value)
        return load()

    return read


# -------------------------------------------------------------------- the image


def test_base_images_are_pinned_and_the_compiler_stays_behind():
    images = [rest.split()[0] for name, rest in instructions() if name == "FROM"]
    assert len(images) == 2
    assert all(PINNED.fullmatch(image) and "slim" in image for image in images)
    assert [rest for name, rest in last_stage() if name == "COPY"] == [
        "--from=build /opt/streamclust /opt/streamclust"
    ]


def test_nothing_runs_as_root():
    stage = last_stage()
    (user,) = [i for i, (name, _) in enumerate(stage) if name == "USER"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", stage[user][1])
    for name in ("ENTRYPOINT", "CMD", "HEALTHCHECK", "VOLUME"):
        assert user < next(i for i, (other, _) in enumerate(stage) if other == name)
    number = stage[user][1].split(":")[0]
    made = next(rest for name, rest in stage[:user] if name == "RUN")
    assert f"--uid {number}" in made
    assert f"--owner {number}" in made


def test_state_and_compiled_code_lie_where_that_user_may_write(settings_of):
    found = environment()
    made = next(rest for name, rest in last_stage() if name == "RUN").split()
    assert str(settings_of(found).checkpoint.directory) in made
    assert found["NUMBA_CACHE_DIR"] in made
    assert next(rest for name, rest in last_stage() if name == "VOLUME") == "/state"


def commands():
    """Every call of streamclust in the image: while it is built, to see if it is well, and when it runs."""
    stage = dict(last_stage())
    own = "/opt/streamclust/bin/streamclust "
    calls = [shlex.split(rest)[1:] for name, rest in instructions() if name == "RUN" and rest.startswith(own)]
    assert [call[0] for call in calls] == ["warm"], "kernels are compiled while the image is built"
    entry, usual = json.loads(stage["ENTRYPOINT"]), json.loads(stage["CMD"])
    health = json.loads(stage["HEALTHCHECK"].split("CMD", 1)[1])
    assert entry == [health[0]] == ["streamclust"]
    return [*calls, usual, health[1:]]


@pytest.mark.parametrize("arguments", commands(), ids=" ".join)
def test_every_command_of_the_image_is_one(arguments):
    """Options are read before help is shown: a wrong one is told."""
    done = CliRunner().invoke(app, [*arguments, "--help"], prog_name="streamclust")
    assert done.exit_code == 0, done.output
    flags = [word for word in arguments if word.startswith("--")]
    assert all(flag in done.output for flag in flags)
    given = [after for word, after in pairwise(arguments) if word == "--set"]
    for setting in given:
        section, _, rest = setting.partition(".")
        load(overrides={section: dict([rest.split("=")])})


def test_the_image_gets_the_package_and_nothing_else():
    ignored = (DOCKER / "Dockerfile.dockerignore").read_text().split()
    assert ignored[0] == "*"
    copied = {
        word
        for name, rest in instructions()
        if name == "COPY" and "--from" not in rest
        for word in rest.split()[:-1]
    }
    assert copied == {word[1:] for word in ignored if word.startswith("!")}
    assert all((DOCKER.parent / name).exists() for name in copied)


# -------------------------------------------------------------------- what stands beside it


def test_images_are_pinned(compose):
    assert all(PINNED.fullmatch(service["image"]) for service in compose["services"].values())


def test_ports_are_open_to_this_machine_alone(compose):
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_nobody_gains_privileges(compose):
    for service in compose["services"].values():
        assert "no-new-privileges:true" in service["security_opt"]
        assert not service.get("privileged")
        assert "user" not in service


def test_metrics_stand_aside_until_asked_for(compose):
    aside = {name for name, service in compose["services"].items() if service.get("profiles") == ["metrics"]}
    assert aside == {"prometheus", "grafana"}


def test_the_service_could_run_with_its_settings(compose, settings_of):
    service = compose["services"]["streamclust"]
    settings = settings_of(environment() | service["environment"])
    settings.check()
    assert (settings.source_kind, settings.output_kind) == ("kafka", "kafka")
    assert settings.state == "kafka"
    assert "volumes" not in service
    assert int(service["stop_grace_period"].removesuffix("s")) > 20  # what a shutdown may take


def test_each_of_three_processes_has_a_port_and_a_share_of_the_partitions(compose):
    service, kafka = compose["services"]["streamclust"], compose["services"]["kafka"]
    first, last = map(int, service["ports"][0].split(":")[1].split("-"))
    assert last - first + 1 == service["deploy"]["replicas"] == 3
    assert kafka["environment"]["KAFKA_NUM_PARTITIONS"] % 3 == 0


def test_the_producer_writes_where_the_service_reads(compose):
    producer, service = compose["services"]["producer"], compose["services"]["streamclust"]
    assert (
        producer["environment"]["STREAMCLUST_KAFKA__TOPIC"]
        == service["environment"]["STREAMCLUST_KAFKA__TOPIC"]
    )
    assert CliRunner().invoke(app, [*producer["command"], "--help"]).exit_code == 0


def test_the_broker_is_where_its_clients_look(compose):
    kafka = compose["services"]["kafka"]["environment"]
    listeners = dict(part.split("://") for part in kafka["KAFKA_LISTENERS"].split(","))
    advertised = dict(part.split("://") for part in kafka["KAFKA_ADVERTISED_LISTENERS"].split(","))
    protocols = dict(part.split(":") for part in kafka["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
    assert set(listeners) == set(protocols) == {*advertised, kafka["KAFKA_CONTROLLER_LISTENER_NAMES"]}
    for name, address in advertised.items():
        assert address.endswith(listeners[name])
    servers = compose["services"]["streamclust"]["environment"]["STREAMCLUST_KAFKA__BOOTSTRAP_SERVERS"]
    assert servers == advertised[kafka["KAFKA_INTER_BROKER_LISTENER_NAME"]]
    published = compose["services"]["kafka"]["ports"][0].split(":")[1]
    assert f"localhost:{published}" in advertised.values()


def test_what_is_mounted_is_there(compose):
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            place = volume.split(":")[0]
            assert (DOCKER / place).exists() if place.startswith(".") else place in compose["volumes"]


# -------------------------------------------------------------------- metrics


def test_prometheus_reads_the_service_and_grafana_reads_prometheus(compose):
    jobs = yaml.safe_load((DOCKER / "prometheus.yml").read_text())["scrape_configs"]
    found = [each for job in jobs for each in job["dns_sd_configs"]]
    assert [(each["names"], each["port"]) for each in found] == [(["streamclust"], 8080)]
    assert "streamclust" in compose["services"]
    provisioned = DOCKER / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioned / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((provisioned / "dashboards" / "streamclust.yaml").read_text())["providers"]
    mounted = dict(volume.split(":")[:2] for volume in compose["services"]["grafana"]["volumes"])
    assert mounted["./grafana/dashboards"] == provider["options"]["path"]


def test_the_dashboard_asks_for_metrics_by_the_rules():
    board = json.loads((DOCKER / "grafana" / "dashboards" / "streamclust.json").read_text())
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    source = "prometheus"
    for panel in panels:
        assert panel["datasource"]["uid"] == source
        for target in panel["targets"]:
            names = set(re.findall(r"\b(?:streamclust|process)_\w+", target["expr"]))
            assert names
            for name in names:
                counted = name.endswith(("_total", "_bucket"))
                assert counted == ("rate(" in target["expr"]), "counters have rates, gauges have none"
            assert "cluster=" not in target["expr"]
            assert "{{cluster" not in target["legendFormat"]
