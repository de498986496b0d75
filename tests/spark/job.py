"""Learns a directory of Parquet files as a stream, and dies where its argument, a JSON object, says."""

import json
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from streamclust import StreamClusterer
from streamclust_connectors.spark import StreamingJob
from tests.spark import sessions

COLUMNS = ["x", "y", "z"]
SCHEMA = "x double, y double, z double"
OPTIONS = {"max_leaves": 64, "seed": 4, "background": False}


def events(spark, directory):
    """One file for each micro-batch."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(directory))


def job(checkpoint, **options):
    return StreamingJob(StreamClusterer(**OPTIONS), checkpoint, COLUMNS, **options)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    told = json.loads(sys.argv[1])
    spark = sessions.start("local[1]")
    learner = job(
        told["checkpoint"], then=lambda _, batch: die() if batch == told["die_before_saving"] else None
    )
    save = learner.store.save

    def save_and_die(state):
        save(state)
        if learner.batch == told["die_after_saving"]:
            die()

    learner.store.save = save_and_die
    learner.start(events(spark, told["events"]), availableNow=True).awaitTermination()


if __name__ == "__main__":
    main()
