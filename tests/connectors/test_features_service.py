"""model = "features": a stream's features through the service: outputs, dead letters, checkpoints, metrics."""

import inspect
import json

import httpx
import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from streamclust import StreamClusterer, StreamFeatures
from streamclust.checkpoint import CheckpointError, encode
from streamclust_connectors.cli import app
from streamclust_connectors.cli.service_factory import create_service
from streamclust_connectors.http.server import serving
from streamclust_connectors.interfaces import Revoked
from streamclust_connectors.service import Policy, Service
from streamclust_connectors.settings import ConfigError, load
from streamclust_connectors.settings.features import FeaturesSection
from streamclust_connectors.sinks import ListSink
from streamclust_connectors.sources import MemorySource
from streamclust_connectors.state_directory import StateDirectory

pytestmark = pytest.mark.compiled

P, Q = ("in", 0), ("in", 1)
PARTS = np.array([[5.0, 5, 0, 0, 0, 0, 0, 0], [0, 0, 5, 5, 5, 0, 0, 0], [0, 0, 0, 0, 0, -5, 5, 5]])
OPTIONS = {"warmup": 64, "reservoir": 200, "refit_every": 256, "restarts": 2}


def events(n, seed=0):
    """Sums of planted features, as JSON, and their rows."""
    rng = np.random.default_rng(seed)
    rows = ((rng.random((n, 3)) < 0.5) @ PARTS + 0.5 * rng.normal(size=(n, 8))).round(6)
    names = [f"c{i}" for i in range(8)]
    return [msgspec.json.encode(dict(zip(names, row, strict=True))) for row in rows.tolist()], rows


def serve(source, sink=None, store=None, **more):
    service = Service(source, sink or ListSink(), StreamFeatures(**OPTIONS), store, **more)
    service.run()
    return service


def bits(model):
    return encode(model.to_state())


def plain(rows):
    """What an uninterrupted run without the service leaves."""
    model = StreamFeatures(**OPTIONS)
    names = [f"c{i}" for i in range(8)]
    model.learn_many([dict(zip(names, row, strict=True)) for row in rows.tolist()], shard=P)
    return model


def test_events_are_assigned_their_features_and_lives_of_features_are_told():
    values, rows = events(900)
    sinks = [ListSink(), ListSink()]
    for sink, size in zip(sinks, (900, 61), strict=True):
        service = serve(MemorySource({P: values}, size=size), sink)
        assert bits(service.learner) == bits(plain(rows))
    assert sinks[0].outputs == sinks[1].outputs
    told = sinks[0].values("assignments")
    assert [one["id"] for one in told] == [f"in-0-{i}" for i in range(900)]
    assert told[0]["features"] == []
    assert told[0]["version"] is None
    last = told[-1]
    assert last["version"] == service.learner.model.version > 0
    assert set(last["features"]) <= set(service.learner.features)
    assert (
        len({tuple(one["features"]) for one in told[-300:]}) >= 8
    )  # three planted features, in any combination
    lives = sinks[0].values("lifecycle")
    assert [one["kind"] for one in lives] == [change.kind for change in service.learner.events]
    assert {i for one in lives for i, _ in one["children"]} >= set(service.learner.features)
    assert service.stats.assignments == 900
    assert service.stats.lifecycle == len(lives) > 0


def test_planted_features_come_out_of_the_service():
    values, rows = events(2000)
    sink = ListSink()
    model = serve(MemorySource({P: values}), sink).learner
    late = sink.values("assignments")[-500:]
    rebuilt = [list(model.inverse_transform_one(set(one["features"])).values()) for one in late]
    assert np.mean((rows[-500:] - rebuilt) ** 2) < 0.5


def test_bad_messages_go_to_the_dead_letters_and_change_nothing():
    values, rows = events(400)
    bad = [b'{"c0": 1', b'{"c0": "a"}', b'{"c0": 1e200, "c1": 2}', b"{}", b"[1, 2", b'{"c0": null}']
    dirty = []
    for i, value in enumerate(values):
        dirty += [value] + ([bad[i % len(bad)]] if i % 3 == 0 else [])
    sink = ListSink()
    service = serve(MemorySource({P: dirty}, size=83), sink)
    assert bits(service.learner) == bits(plain(rows))
    assert [letter.value for letter in sink.outputs["dead-letters"]] == [v for v in dirty if v in bad]
    assert service.stats.dead_letters == sum(v in bad for v in dirty)


@pytest.mark.parametrize("stop", [1, 130, 500])
def test_a_restart_is_invisible(tmp_path, stop):
    values, rows = events(700)
    first = serve(MemorySource({P: values[:stop]}, size=50), store=StateDirectory(tmp_path))
    first.partitions.store.close()
    sink = ListSink()
    again = serve(MemorySource({P: values}, size=90), sink, StateDirectory(tmp_path))
    assert again.stats.events == 700 - stop
    assert [one["id"] for one in sink.values("assignments")] == [f"in-0-{i}" for i in range(stop, 700)]
    assert bits(again.learner) == bits(plain(rows))


def test_a_partition_that_moves_is_learnt_once_by_someone(tmp_path):
    """What one process has learnt of it stays there; the next goes on where that one stopped."""
    values, _ = events(600)

    class Moving(MemorySource):
        moved = False

        def poll(self, seconds):
            if self.finished and not self.moved:
                self.moved = True
                return [Revoked([Q])]
            return super().poll(seconds)

    store = StateDirectory(tmp_path)
    one = Service(Moving({P: values[:300], Q: values[300:400]}), ListSink(), StreamFeatures(**OPTIONS), store)
    while not one.source.moved:
        one.run_once()
    one.checkpoint()
    assert one.learner.shards.names == (P,)
    assert one.learner.n_seen == 400
    other = serve(MemorySource({Q: values[300:]}), store=StateDirectory(tmp_path))
    assert other.stats.events == 200
    assert other.learner.n_seen == 200
    assert other.learner.shards.n_seen == {Q: 300}


def test_checkpoints_of_something_else_are_refused(tmp_path):
    store = StateDirectory(tmp_path / "clusters")
    Service(MemorySource({P: [b'{"x": 1}']}), ListSink(), StreamClusterer(), store).run()
    store.close()
    with pytest.raises(CheckpointError, match="holds no features"):
        serve(MemorySource({P: []}), store=StateDirectory(tmp_path / "clusters"))
    serve(
        MemorySource({P: events(70)[0]}), store=StateDirectory(tmp_path / "features")
    ).partitions.store.close()
    with pytest.raises(CheckpointError, match="holds no clusterer"):
        Service(
            MemorySource({P: []}), ListSink(), StreamClusterer(), StateDirectory(tmp_path / "features")
        ).run()


def test_a_service_of_features_takes_no_snapshots():
    service = Service(MemorySource({P: events(100)[0]}), ListSink(), StreamFeatures(**OPTIONS))
    service.request_snapshot()
    service.run()
    assert service.stats.snapshots == 0
    with pytest.raises(TypeError, match="no clusters"):
        _ = service.clusterer


def test_from_topic_to_topic(cluster, tmp_path):
    """A real broker, a process that is stopped and another that goes on."""
    values, _ = events(600)
    topic = cluster.topic()
    out = {channel: cluster.topic(channel) for channel in ("assignments", "lifecycle")}
    cluster.write(topic, [*values[:400], b'{"c0": "a"}'])
    stats = {}
    for n in (400, 600):
        service = cluster.serve(topic, tmp_path / "state", topics=out, features=OPTIONS)
        service.until_learnt(n)
        stats = service.stop()
        cluster.write(topic, values[400:] if n == 400 else [])
    assert stats["events"] == 200
    told = {one["id"]: one["features"] for one in cluster.values(out["assignments"])}
    assert sorted(told) == sorted(f"{topic}-0-{i}" for i in range(601) if i != 400)
    assert any(told.values())
    assert {one["kind"] for one in cluster.values(out["lifecycle"])} >= {"born"}
    assert [letter.value for letter in cluster.read(f"{topic}.dlq")] == [b'{"c0": "a"}']


# ---------------------------------------------------------------- settings and commands


def test_the_section_has_the_estimator_s_parameters():
    taken = {name: p.default for name, p in inspect.signature(StreamFeatures).parameters.items()}
    del taken["on_event"]  # the service sends lifecycle events to its outputs
    assert FeaturesSection().model_dump() == taken


def test_settings_name_the_model(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"\n".join(events(300)[0]) + b"\n")
    out = tmp_path / "found.jsonl"
    settings = load(
        overrides={
            "model": "features",
            "features": {"warmup": "64", "reservoir": 100},
            "source": {"path": str(path)},
            "output": {"path": str(out)},
        }
    )
    service = create_service(settings)
    assert isinstance(service.learner, StreamFeatures)
    assert (service.learner.warmup, service.learner.reservoir) == (64, 100)
    service.run()
    told = [json.loads(line) for line in out.read_text().splitlines()]
    assert sum("features" in one for one in told) == 300
    unfit = {
        "decode": {"weight": "n"},
        "snapshot": {"every_seconds": 5},
    }
    for section, values in unfit.items():
        wrong = load(overrides={"model": "features", "source": {"path": str(path)}, section: values})
        with pytest.raises(ConfigError, match='model "features"'):
            wrong.check()
    with pytest.raises(ConfigError, match="model"):
        load(overrides={"model": "mixtures"})


def test_the_command_runs_features_and_inspects_their_checkpoint(tmp_path):
    path, state = tmp_path / "events.jsonl", tmp_path / "state"
    path.write_bytes(b"\n".join(events(300)[0]) + b"\n")
    flags = ["--model", "features", "--input", str(path), "--state", str(state), "--set", "output.kind=none"]
    ran = CliRunner().invoke(app, ["run", *flags, "--set", "features.warmup=64"])
    assert ran.exit_code == 0, ran.output
    shown = CliRunner().invoke(app, ["inspect", str(state), "--json"])
    found = json.loads(shown.output)
    assert (found["kind"], found["events"]) == ("features", 300)
    assert found["lifecycle"]["counts"]["born"] >= 1
    assert "features of 300 events" in CliRunner().invoke(app, ["inspect", str(state)]).output


def test_health_and_metrics_are_served_and_nothing_of_clusters():
    values, _ = events(400)
    settings = load(overrides={"http": {"enabled": True, "port": 0}, "source": {"kind": "stdin"}})
    policy = Policy(stop_at_end=False, poll=0.01)
    service = Service(MemorySource({P: values}), ListSink(), StreamFeatures(**OPTIONS), policy=policy)
    with serving(service, settings) as url, httpx.Client(base_url=url, trust_env=False) as client:
        while service.stats.events < 400:
            service.run_once()
        service.stats.beat()
        text = client.get("/metrics").text
        assert "streamclust_events_total 400.0" in text
        assert f"streamclust_found_features {service.learner.n_features}.0" in text
        born = sum(change.kind == "born" for change in service.learner.events)
        assert f'streamclust_lifecycle_events_total{{kind="born"}} {born}.0' in text
        assert client.get("/livez").status_code == 200
        assert client.get("/readyz").status_code == 200
        assert client.get("/v1/clusters").status_code == 404
