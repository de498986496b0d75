"""A Spark session for tests: quick to start, on loopback alone, with the Kafka source where it can be had."""

import os
from pathlib import Path

from streamclust_connectors.spark.session import session
from tests.jars import fetched

POM = Path(__file__).with_name("pom.xml")
QUICK = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # it lives for a minute
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def start(master="local[2]", options=None):
    """A session for tests."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = session(master, "tests", QUICK | (options or {}))
    spark.sparkContext.setLogLevel("OFF")
    return spark


def kafka_jars():
    """The jars of Spark's Kafka source, fetched once into the user's cache."""
    return sorted(map(str, fetched(POM, "spark-kafka").glob("*.jar")))
