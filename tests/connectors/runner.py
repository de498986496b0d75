"""Runs the service on Kafka as its one argument, a JSON object, says; reports what it does to a file."""

import faulthandler
import json
import logging
import signal
import sys
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path

from streamclust import StreamClusterer, StreamFeatures
from streamclust_connectors.kafka import GroupModel, KafkaSink, KafkaState, source_type
from streamclust_connectors.service import Policy, Service
from streamclust_connectors.service.key_models import KeyModels, KeyStore
from streamclust_connectors.state_directory import StateDirectory

CLIENT = (
    "bootstrap_servers",
    "security_protocol",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
)


def build(settings):
    """The service, as told."""
    if settings.get("state_in") == "kafka":
        return build_member(settings)
    store = StateDirectory(settings["state"])
    member = f"{settings['group']}-{store.slot}"
    client = {name: settings[name] for name in CLIENT if name in settings} | settings.get("client", {})
    if settings.get("static", True):
        client["group_instance_id"] = member
    client.setdefault("session_timeout_ms", 6000)
    client.setdefault("heartbeat_interval_ms", 500)
    source = source_type(settings["library"])([settings["topic"]], settings["group"], **client)
    exactly = settings.get("delivery") == "exactly-once"
    sink = KafkaSink(source, settings.get("topics", {}), transactional_id=member if exactly else None)
    policy = Policy(poll=0.2, **({"checkpoint_every": 1.0} | settings.get("policy", {})))
    if "per" in settings:
        models = KeyModels(settings.get("clusterer", {}), Path(settings["state"]), **settings["per"])
        return Service(source, sink, models, KeyStore(models), policy=policy)
    if "features" in settings:
        return Service(source, sink, StreamFeatures(**settings["features"]), store, policy=policy)
    return Service(source, sink, StreamClusterer(**settings.get("clusterer", {})), store, policy=policy)


def build_member(settings):
    """A member of a group that has one model, and no state of its own."""
    client = {name: settings[name] for name in CLIENT if name in settings}
    topic, group = settings["topic"], settings["group"]
    times = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500, "max_poll_interval_ms": 120_000}
    times |= settings.get("client", {})
    source = source_type(settings["library"])([topic], group, **client, **times)
    own = f"{group}.{uuid.uuid4().hex[:8]}"
    sink = KafkaSink(source, settings.get("topics", {}), own, transaction_timeout_ms=5000)
    policy = Policy(poll=0.2, **({"checkpoint_every": 1.0} | settings.get("policy", {})))

    def fresh():
        return StreamClusterer(**settings.get("clusterer", {}))

    model = GroupModel(topic, group, own, sink, client, fresh, settings.get("model_every", 1.0))
    return Service(source, sink, fresh(), KafkaState(topic, group, sink, client), policy=policy, group=model)


def report(service, path):
    """What the service is doing, replaced whole."""
    stats, learner = service.stats, service.learner
    content = {
        name: getattr(stats, name)
        for name in ("messages", "events", "dead_letters", "tombstones", "skipped", "replayed", "assignments",
                     "lifecycle", "snapshots", "checkpoints", "retries", "ready", "rate", "last_error", "seconds",
                     "checkpoint_failures", "checkpoint_error", "not_ready")
    } | {
        "positions": {f"{t}-{p}": at for (t, p), at in stats.positions.items()},
        "lag": {f"{t}-{p}": n for (t, p), n in stats.lag.items()},
        "waiting": {f"{t}-{p}": why for (t, p), why in stats.waiting.items()},
        "seen": {f"{t}-{p}": n for (t, p), n in learner.shards.n_seen.items()},
        "clusters": learner.n_clusters if isinstance(learner, StreamClusterer) else 0,
        "at": time.time(),
    }  # fmt: skip
    if service.group is not None:
        group = service.group
        content |= {"version": group.version, "in_model": group.n_seen, "leads": group.leads,
                    "staleness": group.staleness,
                    "stopped": {f"{t}-{p}": why for (t, p), why in stats.stopped.items()},
                    "members": [status.member for status in group.active_members()],
                    "bytes": service.partitions.store.bytes_sent + group.bytes_sent}  # fmt: skip
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content))
    part.replace(path)


def main():
    settings = json.loads(sys.argv[1])
    logging.basicConfig(level=settings.get("log", "WARNING"), format="%(asctime)s %(name)s %(message)s")
    faulthandler.register(signal.SIGUSR2)
    service = build(settings)
    service.stop_on_signals()
    path = Path(settings["report"])
    done = threading.Event()

    def keep_reporting():
        while not done.wait(0.1):
            with suppress(RuntimeError):  # what is reported has changed meanwhile
                report(service, path)

    thread = threading.Thread(target=keep_reporting, daemon=True)
    thread.start()
    try:
        service.run()
    finally:
        done.set()
        thread.join()
        report(service, path)


if __name__ == "__main__":
    main()
