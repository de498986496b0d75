"""What tests do with a broker: make topics, write, read, run the service in processes of its own."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import msgspec
import numpy as np
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from streamclust_connectors.kafka import source_type

CLIENTS = ("kafka-python", "confluent")
RUNNER = Path(__file__).with_name("runner.py")
PATIENCE = float(os.environ.get("STREAMCLUST_PATIENCE", "240"))  # a first start compiles the kernels


def events(n, seed=0, d=2, k=3):
    """Clustered events, as JSON, and their rows."""
    rng = np.random.default_rng(seed)
    rows = (rng.normal(size=(n, d)) + 12.0 * rng.integers(k, size=(n, 1))).round(6)
    names = [f"x{i}" for i in range(d)]
    return [msgspec.json.encode(dict(zip(names, row, strict=True))) for row in rows.tolist()], rows


def until(what, condition, patience=PATIENCE):
    """Wait for something, and say what it was if it never came."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {patience:.0f} s in vain for {what}")


class Cluster:
    """Topics with names of their own, on a broker that others may use too."""

    def __init__(self, address, client="kafka-python", replicas=1, **options):
        self.address, self.client, self.replicas = address.split(","), client, replicas
        if len(self.address) == 1:
            (self.address,) = self.address
        self.options = {"bootstrap_servers": self.address} | options
        soon = {"reconnect_backoff_max_ms": 1000}
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.admin = KafkaAdminClient(**self.options, **soon)
        self.producer = KafkaProducer(**self.options, **soon, linger_ms=5, max_request_size=10_000_000)
        self.services = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for service in self.services:
            service.kill()
        self.producer.close()
        self.admin.close()

    def topic(self, name="in", partitions=1, **settings):
        full = f"{self.name}.{name}"
        self.admin.create_topics([NewTopic(full, partitions, self.replicas, topic_configs=settings)])
        return full

    def recreate(self, topic):
        """Delete a topic and create one of the same name."""
        self.admin.delete_topics([topic])
        until("the topic to go", lambda: topic not in self.admin.list_topics())
        self.admin.create_topics([NewTopic(topic, 1, 1)])

    def write(self, topic, values, partition=0, **more):
        for value in values:
            self.producer.send(topic, value, partition=partition, **more)
        self.producer.flush()

    def read(self, topic, isolation="read_committed"):
        """All records of a topic that can be seen now."""
        consumer = KafkaConsumer(**self.options, isolation_level=isolation, enable_auto_commit=False)
        try:
            numbers = consumer.partitions_for_topic(topic) or ()
            names = [TopicPartition(topic, number) for number in numbers]
            if not names:
                return []
            consumer.assign(names)
            consumer.seek_to_beginning(*names)
            ends = consumer.end_offsets(names)
            found = []
            while any(consumer.position(name) < ends[name] for name in names):
                for records in consumer.poll(timeout_ms=200).values():
                    found += records
            return found
        finally:
            consumer.close()

    def committed(self, topic):
        """What the group has committed of a topic."""
        found = self.admin.list_group_offsets([self.name])[self.name]
        return {name.partition: at.offset for name, at in found.items() if name.topic == topic}

    def values(self, topic):
        return [msgspec.json.decode(record.value) for record in self.read(topic)]

    def source(self, topic, group=None, **options):
        """A source, by the client under test."""
        return source_type(self.client)([topic], group or self.name, self.address, **options)

    def join(self, topic, directory, **settings):
        """A member of a group with its state in Kafka; the directory is for its report alone."""
        return self.serve(topic, directory / "none", state_in="kafka", **settings)

    def serve(self, topic, state, **settings):
        """A service in a process of its own."""
        told = {"topic": topic, "group": self.name, "state": str(state), "library": self.client}
        service = Process(self, told | self.options | settings)
        self.services.append(service)
        return service


class Process:
    """The service, run by runner.py."""

    def __init__(self, cluster, settings):
        self.settings = settings
        self.report = Path(settings["state"]).parent / f"report-{uuid.uuid4().hex[:8]}.json"
        environment = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        self.log = self.report.with_suffix(".log")
        self._over = False
        """Whether it was told to end."""
        with self.log.open("w") as log:
            command = [sys.executable, str(RUNNER), json.dumps(settings | {"report": str(self.report)})]
            self.process = subprocess.Popen(command, env=environment, stderr=log, stdout=log)

    def stats(self):
        """What it has reported last; nothing before it has. A service that has ended by itself is a failure."""
        if not self._over and self.process.poll() is not None:
            raise AssertionError(f"the service ended by itself: {self.log.read_text()[-4000:]}")
        try:
            return json.loads(self.report.read_text())
        except FileNotFoundError:
            return {}

    def story(self):
        """What it has reported and logged last, and where its threads are."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGUSR2)
            time.sleep(0.5)
        said = self.report.read_text() if self.report.exists() else "nothing"
        return f"{self.process.pid} ({self.process.poll()}): {said}\n{self.log.read_text()[-6000:]}"

    def until(self, what, condition, patience=PATIENCE):
        try:
            return until(what, lambda: (found := self.stats()) and condition(found), patience)
        except AssertionError as error:
            raise AssertionError(
                f"{error}; last seen: {self.stats()}\n{self.log.read_text()[-2000:]}"
            ) from None

    def until_learnt(self, n):
        return self.until(f"{n} events", lambda stats: sum(stats["seen"].values()) >= n)

    def stop(self):
        """Ask it to stop, and wait for it to do so in good order."""
        self._over = True
        self.process.terminate()
        code = self.process.wait(timeout=PATIENCE)
        assert code == 0, self.log.read_text()[-2000:]
        return self.stats()

    def freeze(self):
        """As a machine that swaps, or a laptop that sleeps."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self._over = True
        self.process.kill()
        self.process.wait()
