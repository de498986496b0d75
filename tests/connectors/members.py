"""Members of a group that has its state and its model in Kafka, as threads of a test."""

import threading
from contextlib import ExitStack, suppress

from streamclust import StreamClusterer
from streamclust.checkpoint import model_in
from streamclust_connectors.interfaces import Transient
from streamclust_connectors.kafka import GroupModel, KafkaSink, KafkaState
from streamclust_connectors.kafka.group_model import MODEL
from streamclust_connectors.kafka.state_records import Assembler
from streamclust_connectors.kafka.topics import model_topic
from streamclust_connectors.service import Policy, Service


class Member:
    """A member of a group, in a thread of its own."""

    def __init__(
        self,
        cluster,
        topic,
        name,
        largest=900_000,
        login=None,
        every=0.2,
        session=6.0,
        static=False,
        decoder=None,
        fresh=StreamClusterer,
        client=(),
        **topics,
    ):
        options, id = {"bootstrap_servers": cluster.address} | (login or {}), f"{cluster.name}.{name}"
        more = (login or {}) | ({"group_instance_id": id} if static else {})
        times = {"session_timeout_ms": int(1000 * session), "heartbeat_interval_ms": 200}
        self.source = cluster.source(topic, **times, **more, **dict(client))
        self.sink = KafkaSink(self.source, topics, id, largest, transaction_timeout_ms=5000)
        self.store = KafkaState(topic, cluster.name, self.sink, options)
        self.group = GroupModel(topic, cluster.name, name, self.sink, options, fresh, every=0.1)
        policy = Policy(poll=0.2, checkpoint_every=every, backoff=0.01)
        self.service = Service(self.source, self.sink, fresh(), self.store, decoder, policy, group=self.group)

        self._over, self._in_good_order = threading.Event(), False
        self._failure = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._over.is_set():
            with suppress(Transient):
                try:
                    self.service.run_once()
                except Exception as error:
                    self._failure = error
                    raise
        if self._in_good_order:
            self.service.stop()
            self.service.run()  # which but ends
            return
        with ExitStack() as every:
            for part in (self.store, self.sink, self.source, self.group):
                every.callback(part.close)

    @property
    def positions(self):
        if self._failure is not None and not isinstance(self._failure, Transient):
            raise AssertionError(f"the member has ended: {self._failure!r}")
        return self.service.stats.positions

    def leave(self):
        """End as on SIGTERM."""
        self._in_good_order = True
        self.close()

    def close(self):
        """End without a last checkpoint, as if it were killed."""
        self._over.set()
        self._thread.join()


def all_at(members, position, partitions):
    """Whether the members have learnt so many events of each of so many partitions."""
    held = [at for member in members for at in member.positions.values()]
    return held == [position] * partitions


def published(cluster, topic):
    """Every model that was published, by version and revision, and their versions in the order of the log."""
    assembler, found, versions = Assembler(cluster.name, "models"), {}, []
    for record in cluster.read(model_topic(topic)):
        whole = assembler.add(record)
        if whole is not None and whole.name == MODEL:
            state = whole.state()
            model = model_in(state)
            versions.append(model.version)
            found[model.version, state.values["sequence"]] = model
    return found, versions
