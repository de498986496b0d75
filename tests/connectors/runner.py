"""Runs the service on Kafka as its one argument, a JSON object, says; reports what it does to a file."""

import json
import logging
import sys
import threading
import time
from pathlib import Path

from streamclust import StreamClusterer
from streamclust_connectors.kafka import KafkaSink, KafkaSource
from streamclust_connectors.service import Policy, Service
from streamclust_connectors.shared_state import SharedState

CLIENT = (
    "bootstrap_servers",
    "security_protocol",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
)


def build(settings):
    """The service, as told."""
    store = SharedState(settings["state"])
    member = f"{settings['group']}-{store.place}"
    client = {name: settings[name] for name in CLIENT if name in settings} | settings.get("client", {})
    if settings.get("static", True):
        client["group_instance_id"] = member
    client.setdefault("session_timeout_ms", 6000)
    client.setdefault("heartbeat_interval_ms", 500)
    source = KafkaSource([settings["topic"]], settings["group"], **client)
    exactly = settings.get("delivery") == "exactly-once"
    sink = KafkaSink(source, settings.get("topics", {}), transactional_id=member if exactly else None)
    policy = Policy(poll=0.2, **({"checkpoint_every": 1.0} | settings.get("policy", {})))
    return Service(source, sink, StreamClusterer(**settings.get("clusterer", {})), store, policy=policy)


def report(service, path):
    """What the service is doing, replaced whole."""
    stats, clusterer = service.stats, service.clusterer
    shards = clusterer._engine.shards.items()
    content = {
        name: getattr(stats, name)
        for name in ("messages", "events", "dead_letters", "tombstones", "skipped", "replayed", "assignments",
                     "lifecycle", "snapshots", "checkpoints", "retries", "ready", "rate", "last_error", "seconds")
    } | {
        "positions": {f"{t}-{p}": at for (t, p), at in stats.positions.items()},
        "lag": {f"{t}-{p}": n for (t, p), n in stats.lag.items()},
        "seen": {f"{key[0]}-{key[1]}": part.n_seen for key, part in list(shards)},
        "clusters": clusterer.n_clusters,
        "at": time.time(),
    }  # fmt: skip
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content))
    part.replace(path)


def main():
    settings = json.loads(sys.argv[1])
    logging.basicConfig(level=settings.get("log", "WARNING"), format="%(asctime)s %(name)s %(message)s")
    service = build(settings)
    service.stop_on_signals()
    path = Path(settings["report"])
    done = threading.Event()

    def keep_reporting():
        while not done.wait(0.1):
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
