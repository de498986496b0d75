"""A Spark session for tests: quick to start, on loopback alone, with the Kafka source where it can be had."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from streamclust_connectors.spark.session import session

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


class Missing(Exception):  # noqa: N818
    """Why there is no Kafka source here."""


def start(master="local[2]", options=None):
    """A session for tests."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = session(master, "tests", QUICK | (options or {}))
    spark.sparkContext.setLogLevel("OFF")
    return spark


def kafka_jars():
    """The jars of Spark's Kafka source, fetched once into the user's cache."""
    if not shutil.which("mvn"):
        raise Missing("Spark's Kafka source needs mvn (maven)")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "streamclust"
    cache.mkdir(parents=True, exist_ok=True)
    version = next(line.strip()[9:-10] for line in POM.read_text().splitlines() if "<version>4" in line)
    where = cache / f"spark-kafka-{version}"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not where.exists():
            part = Path(tempfile.mkdtemp(dir=cache))
            command = [
                "mvn",
                "-q",
                "-B",
                "-f",
                POM,
                "dependency:copy-dependencies",
                f"-DoutputDirectory={part}",
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                shutil.rmtree(part)
                raise Missing(
                    f"the jars of Spark's Kafka source: maven said {done.stdout[-300:]}{done.stderr[-300:]}"
                )
            part.rename(where)
    return sorted(map(str, where.glob("*.jar")))
