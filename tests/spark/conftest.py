"""One Spark session for all tests of a process; the broker of the connectors' tests."""

import os

import numpy as np
import pytest

from streamclust_connectors.spark.session import NoJava, find_java
from tests.connectors.conftest import broker_address, cluster, shared_broker
from tests.jars import Missing
from tests.spark import sessions

__all__ = ["broker_address", "cluster", "shared_broker"]

NAMES = ["x", "y", "z"]


def without(reason):
    """Skip loudly or, where Spark is required, fail."""
    if os.environ.get("STREAMCLUST_REQUIRE_SPARK"):
        pytest.fail(f"STREAMCLUST_REQUIRE_SPARK is set, but: {reason}", pytrace=False)
    pytest.skip(str(reason))


@pytest.fixture(scope="session")
def kafka_source():
    """The jars that a session with the Kafka source has, or why there are none."""
    try:
        return sessions.kafka_jars()
    except Missing as error:
        return error


@pytest.fixture(scope="session")
def spark(kafka_source):
    try:
        find_java()
    except NoJava as error:
        without(error)
    jars = {"spark.jars": ",".join(kafka_source)} if isinstance(kafka_source, list) else {}
    session = sessions.start(options=jars)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def points():
    """Four clusters, and which point is of which."""
    rng = np.random.default_rng(3)
    labels = rng.integers(4, size=8000)
    return rng.normal(size=(8000, 3)) + 9.0 * labels[:, None] * [1.0, -1.0, 0.5], labels


@pytest.fixture
def frame(spark):
    """A data frame of rows, in so many partitions, one after the other."""

    def make(rows, partitions=2, **more):
        columns = dict(zip(NAMES, rows.T.tolist(), strict=False)) | {n: list(v) for n, v in more.items()}
        kinds = {float: "double", int: "long", str: "string"}
        schema = ", ".join(f"{name} {kinds[type(values[0])]}" for name, values in columns.items())
        slices = spark.sparkContext.parallelize(list(zip(*columns.values(), strict=True)), partitions)
        return spark.createDataFrame(slices, schema, verifySchema=False)

    return make
