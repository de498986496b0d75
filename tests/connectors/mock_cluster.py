"""librdkafka's mock cluster: speaks the protocol on loopback, and errs when it is told to."""

import ctypes
from pathlib import Path

import confluent_kafka

FETCH, OFFSET_COMMIT, JOIN_GROUP, HEARTBEAT, SYNC_GROUP, INIT_PRODUCER_ID = 1, 8, 11, 12, 14, 22
NOT_LEADER, TIMED_OUT, COORDINATOR_LOADING, NOT_COORDINATOR = 6, 7, 14, 16
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE_IN_PROGRESS = 22, 25, 27


def library():
    confluent_kafka.libversion()  # loads what it depends on
    (path,) = Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka-*.so*")
    found = ctypes.CDLL(str(path))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(found, name).restype = ctypes.c_void_p
    found.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return found


class MockCluster:
    """One broker, until `close`.

    To a member that is told that it is unknown it holds on until that member's session is over, and every join takes it
    nearly as long: sessions should be short.
    """

    def __init__(self):
        self.library = library()
        reason = ctypes.create_string_buffer(512)
        conf = ctypes.c_void_p(self.library.rd_kafka_conf_new())
        self.client = ctypes.c_void_p(self.library.rd_kafka_new(0, conf, reason, len(reason)))
        self.cluster = ctypes.c_void_p(self.library.rd_kafka_mock_cluster_new(self.client, 1))
        self.library.rd_kafka_mock_group_initial_rebalance_delay_ms(self.cluster, ctypes.c_int32(0))
        self.address = self.library.rd_kafka_mock_cluster_bootstraps(self.cluster).decode()

    def topic(self, name, partitions=1):
        self.library.rd_kafka_mock_topic_create(self.cluster, name.encode(), partitions, 1)

    def err(self, request, *errors):
        """The next requests of this kind are answered by these errors, in turn."""
        self.library.rd_kafka_mock_push_request_errors(
            self.cluster, ctypes.c_int16(request), ctypes.c_size_t(len(errors)), *map(ctypes.c_int, errors)
        )

    def down(self):
        self.library.rd_kafka_mock_broker_set_down(self.cluster, ctypes.c_int32(1))

    def up(self):
        self.library.rd_kafka_mock_broker_set_up(self.cluster, ctypes.c_int32(1))

    def close(self):
        self.library.rd_kafka_mock_cluster_destroy(self.cluster)
        self.library.rd_kafka_destroy(self.client)
