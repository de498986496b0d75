"""Summaries on Spark beside MLlib's KMeans (told K) and GaussianMixture (told K), on the same cached data frame.

All run in one session on the same rows, after a first call on a few of them that starts Python and compiles Java;
ARI is of rows nobody has seen. Then: bytes shuffled for a tenth of the rows and for all; one core against two, each in
a process of its own; and what 1,000 partitions of a trillion events would cost, by arithmetic from what was measured.

    python benchmarks/spark_scale.py             5,000,000 rows, D = 8, 10 clusters
    python benchmarks/spark_scale.py --quick     200,000 rows
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pyspark.ml.clustering import GaussianMixture, KMeans
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import DataFrame, SparkSession
from sklearn.metrics import adjusted_rand_score

from streamclust.summaries import SummaryTree, merge_all, tree_from_bytes, tree_to_bytes
from streamclust_connectors.spark import clusterer_of, summary
from streamclust_connectors.spark.session import session
from streamclust_connectors.synthetic import SyntheticMixture

K, PARTITIONS, CHUNK_ROWS, WARM_ROWS = 10, 16, 250_000, 20_000
EVENTS, EXECUTORS = 1e12, 1000


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = perf_counter()
    result = call()
    return result, perf_counter() - start


def names(d: int) -> list[str]:
    return [f"x{j}" for j in range(d)]


def write(mixture: SyntheticMixture, rows: int, d: int, directory: Path) -> None:
    """Rows as Parquet files, one for each partition."""
    directory.mkdir()
    for i, part in enumerate(np.array_split(np.arange(rows), PARTITIONS)):
        schema = pa.schema([(name, pa.float64()) for name in names(d)])
        with parquet.ParquetWriter(directory / f"{i:03d}.parquet", schema, compression="none") as writer:
            for events in mixture.batches(len(part), CHUNK_ROWS):
                writer.write_table(pa.table(dict(zip(names(d), events.T, strict=True)), schema))


def start(master: str, memory: str) -> SparkSession:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    options = {
        "spark.driver.memory": memory,
        "spark.sql.files.maxPartitionBytes": str(2**40),  # a file is a partition
        "spark.sql.files.openCostInBytes": str(2**40),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = session(master, "benchmark", options)
    spark.sparkContext.setLogLevel("OFF")
    return spark


def cached(spark: SparkSession, directory: Path, d: int) -> DataFrame:
    """The rows in memory, as columns and as MLlib's vectors."""
    frame = VectorAssembler(inputCols=names(d), outputCol="features").transform(
        spark.read.parquet(str(directory))
    )
    frame = frame.cache()
    print(f"cached {frame.count():,} rows in {frame.rdd.getNumPartitions()} partitions", flush=True)
    return frame


def ours(frame: DataFrame, d: int, leaves: int) -> tuple[Any, Any]:
    made = summary(frame, names(d), max_leaves=leaves)
    return clusterer_of(made.tree, names(d)), made


def compare(
    spark: SparkSession, frame: DataFrame, mixture: SyntheticMixture, rows: int, d: int, leaves: int
) -> Any:  # noqa: ANN401
    """Everyone on all rows, after a first call on a few."""
    unseen, truth = mixture.sample(50_000)
    table = spark.createDataFrame(pa.table(dict(zip(names(d), unseen.T, strict=True))))
    test = VectorAssembler(inputCols=names(d), outputCol="features").transform(table)
    few = frame.limit(WARM_ROWS).cache()
    few.count()

    def told(name: str, seconds: float, k: int, labels: Any, note: str = "") -> None:  # noqa: ANN401
        score = adjusted_rand_score(truth, labels)
        print(f"{name:<34} {seconds:>8.1f} {rows / seconds:>12,.0f}  {k:>3}  {score:.4f}  {note}", flush=True)

    print(f"{'method':<34} {'seconds':>8} {'rows/s':>12}  {'K':>3}  ARI", flush=True)
    _, first = timed(lambda: ours(few, d, leaves))
    (model, made), seconds = timed(lambda: ours(frame, d, leaves))
    told(
        "summarize + refit",
        seconds,
        model.n_clusters,
        model.predict_many(unseen),
        f"first call {first:.1f} s",
    )
    for peer in (KMeans(k=K, seed=1), GaussianMixture(k=K, seed=1)):
        peer.copy().setMaxIter(2).fit(few)
        found, theirs = timed(lambda peer=peer: peer.fit(frame))
        labels = found.transform(test).select("prediction").toPandas()["prediction"]
        name = f"MLlib {type(peer).__name__}, told K"
        told(name, theirs, len(set(labels)), labels, f"{theirs / seconds:.1f}x ours")
    return made


def shuffled(frame: DataFrame, d: int, leaves: int, made: Any) -> None:  # noqa: ANN401
    """Bytes of summaries: what leaves an executor."""
    tenth = summary(frame.sample(0.1, seed=1), names(d), max_leaves=leaves)
    print(
        f"shuffled for each partition: {tenth.bytes // tenth.partitions:,} bytes of {tenth.n_rows:,} rows, "
        f"{made.bytes // made.partitions:,} of {made.n_rows:,}; the rows are {made.n_rows * d * 8:,} bytes",
        flush=True,
    )


def alone(directory: Path, d: int, leaves: int, memory: str, cores: int) -> float:
    """Rows a second with so many cores, in a process of its own; the better of two."""
    command = [sys.executable, __file__, "--alone", str(directory), "--cores", str(cores)]
    command += ["--features", str(d), "--leaves", str(leaves), "--memory", memory]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def run_alone(directory: Path, d: int, leaves: int, memory: str, cores: int) -> None:
    frame = cached(start(f"local[{cores}]", memory), directory, d)
    ours(frame.limit(WARM_ROWS), d, leaves)
    rows = frame.count()
    print(max(rows / timed(lambda: ours(frame, d, leaves))[1] for _ in range(2)))


def on_paper(mixture: SyntheticMixture, d: int, leaves: int, rate: float, size: float) -> None:
    """1,000 partitions and a trillion events, from the cost of a row, of a merge and of a refit."""
    fan = math.ceil(math.sqrt(EXECUTORS))
    trees = []
    for seed in range(fan):
        trees.append(SummaryTree(d, max_leaves=leaves, seed=seed))
        trees[-1].insert(mixture.sample(20_000)[0])
    merge_all(trees[:2])  # once unmeasured: compiled kernels come from the disk
    merged, merging = timed(lambda: merge_all(trees))
    half = timed(lambda: merge_all(trees[: fan // 2]))[1]
    packed, packing = timed(lambda: [tree_to_bytes(tree) for tree in trees])
    _, unpacking = timed(lambda: [tree_from_bytes(one) for one in packed])
    _, refitting = timed(lambda: clusterer_of(merged, names(d)))
    pooled = sum(tree.n_leaves for tree in trees)
    print(
        f"a merge of {fan} trees, {pooled:,} leaves: {merging:.2f} s, {1e6 * merging / pooled:.0f} µs a leaf (half of "
        f"them: {half:.2f} s); packing and unpacking a tree {1e3 * (packing + unpacking) / fan:.1f} ms; refit "
        f"{refitting:.2f} s"
    )
    scan = EVENTS / (rate * EXECUTORS)
    reduce = merging + packing + unpacking
    print(
        f"on paper, {EVENTS:.0e} events on {EXECUTORS:,} cores, a partition each: {scan / 3600:.1f} h to summarise at "
        f"{rate:,.0f} rows/s a core, {reduce:.1f} s for {fan} reducers of {fan} trees, {reduce:.1f} s on the driver, "
        f"{refitting:.1f} s to refit; {EXECUTORS * size / 1e9:.1f} GB shuffled of {EVENTS * d * 8 / 1e12:,.0f} TB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--features", type=int, default=8)
    parser.add_argument("--leaves", type=int, default=512)
    parser.add_argument("--tau", type=float, default=2.0, help="separation (default: 2)")
    parser.add_argument("--memory", default="6g", help="of the Java process (default: 6g)")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="200,000 rows")
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    d, leaves = args.features, args.leaves
    if args.alone:
        run_alone(args.alone, d, leaves, args.memory, args.cores)
        return
    rows = 200_000 if args.quick else args.rows
    mixture = SyntheticMixture(d, n_clusters=K, tau=args.tau, seed=0)
    directory = Path(tempfile.mkdtemp())
    try:
        write(mixture, rows, d, directory / "rows")
        spark = start(f"local[{args.cores}]", args.memory)
        frame = cached(spark, directory / "rows", d)
        made = compare(spark, frame, mixture, rows, d, leaves)
        shuffled(frame, d, leaves, made)
        spark.stop()
        one, two = (alone(directory / "rows", d, leaves, args.memory, cores) for cores in (1, 2))
        print(f"one core {one:,.0f} rows/s, two {two:,.0f}: {two / one:.2f}x", flush=True)
        on_paper(mixture, d, leaves, one, made.bytes / made.partitions)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
