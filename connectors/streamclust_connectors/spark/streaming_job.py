"""StreamingJob: learns a Structured Streaming query; every micro-batch is learnt exactly once."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from streamclust.checkpoint import Checkpoints
from streamclust.streaming import StreamClusterer
from streamclust_connectors.interfaces import DataLoss
from streamclust_connectors.spark.clusterer import SHARD
from streamclust_connectors.spark.rows import Columns
from streamclust_connectors.spark.summaries import MAX_LEAVES, FrameSummary, summary

COMMIT = re.compile("[0-9]+")
"""Names of the files by which Spark marks micro-batches as done."""

log = logging.getLogger(__name__)


class StreamingJob:
    """Learns a streaming data frame of any source: each micro-batch becomes one tree, which the clusterer merges.

    A checkpoint holds the clusterer and the number of the last micro-batch, and is written atomically. If Spark repeats
    a micro-batch, it has the same number and rows, and is skipped if it is in the checkpoint. So every row is learnt
    once, also after a crash.

    Parameters
    ----------
    clusterer
        A new clusterer; replaced by the one in the checkpoint, if there is one.
    checkpoint
        A directory of the driver: `model/` holds the clusterer, `query/` Spark's checkpoint, `refused/` the refused
        rows of each micro-batch with their reasons, as Parquet.
    columns, weight, time
        As in `summarize`.
    then
        Called with every micro-batch and its number after it is learnt and before the checkpoint is written, for
        example to label it by `self.clusterer`. After a crash it may be called again with the same micro-batch.
    on_data_loss
        "fail" refuses to start if Spark's checkpoint and the clusterer's do not match; "continue" starts anyway.
    keep
        Number of checkpoints to keep.

    Examples
    --------
    A directory to which Parquet files are added::

        job = StreamingJob(StreamClusterer(half_life=1e6), "state", ["x", "y"])
        query = job.start(spark.readStream.schema("x double, y double").parquet("events"))
        query.awaitTermination()
    """

    def __init__(
        self,
        clusterer: StreamClusterer,
        checkpoint: str | os.PathLike[str],
        columns: Columns,
        *,
        weight: str | None = None,
        time: str | None = None,
        then: Callable[[DataFrame, int], object] | None = None,
        on_data_loss: Literal["fail", "continue"] = "fail",
        keep: int = 3,
    ) -> None:
        if on_data_loss not in ("fail", "continue"):
            raise ValueError(f"on_data_loss must be 'fail' or 'continue', got {on_data_loss!r}")
        if clusterer.half_life is not None and time is None:
            raise ValueError(
                "a clusterer with a half_life needs `time`, the column of the rows' times, since the rows of a "
                "micro-batch have no order"
            )
        self.directory = Path(checkpoint).absolute()
        self.store = Checkpoints(self.directory / "model", keep)
        self.columns, self.weight, self.time = columns, weight, time
        self.then, self.on_data_loss = then, on_data_loss
        self.clusterer = clusterer
        self.batch = -1
        """Number of the last micro-batch that was learnt."""
        self.query: str | None = None
        self.skipped = 0
        """Number of repeated micro-batches that were skipped."""
        state = self.store.latest()
        if state is not None:
            self.clusterer = StreamClusterer.from_state(state, clusterer.on_event)
            place = state.values["positions"]["spark"]
            self.batch, self.query = place["batch"], place["query"]

    def start(self, stream: DataFrame, **trigger: Any) -> StreamingQuery:
        """Start the query, from the checkpoint if there is one; `trigger` as in Spark: processingTime="10 seconds"."""
        self._check_together()
        writer = stream.writeStream.foreachBatch(self.learn).option(
            "checkpointLocation", str(self._query_place)
        )
        return (writer.trigger(**trigger) if trigger else writer).start()

    def learn(self, rows: DataFrame, batch: int) -> None:
        """Learn a micro-batch, unless it is in the checkpoint; called by `foreachBatch`."""
        if batch <= self.batch:
            self.skipped += 1
            log.info("micro-batch %d was already learnt; skipped", batch)
            return
        made = self._summary(rows, batch)
        if made.tree.n_events:
            self.clusterer.shards.learn_tree(made.tree, tuple(self.columns), SHARD, made.sketch)
        self.clusterer.shards.add_refused(made.n_refused)
        if self.then is not None:
            self.then(rows, batch)
        self.batch, self.query = batch, self._query_id() or self.query
        self.store.save(self.clusterer.to_state({"spark": {"batch": self.batch, "query": self.query}}))

    def _summary(self, rows: DataFrame, batch: int) -> FrameSummary:
        """Summarise a micro-batch; its refused rows are written to one directory, which a repetition overwrites."""
        of, place = self.clusterer, self.directory / "refused" / f"batch={batch}"
        return summary(
            rows, self.columns, family=of.family, max_leaves=of.max_leaves or MAX_LEAVES, weight=self.weight,
            time=self.time, half_life=of.half_life, refused=str(place), seed=of.seed, salt=batch,
            sketch=of.sketch, max_directions=of.max_directions, scale=of.scale,
        )  # fmt: skip

    # ---------------------------------------------------------------- Spark's checkpoint and ours

    @property
    def _query_place(self) -> Path:
        return self.directory / "query"

    def _query_id(self) -> str | None:
        """Id of the query in Spark's checkpoint."""
        file = self._query_place / "metadata"
        return str(json.loads(file.read_text())["id"]) if file.exists() else None

    def _check_together(self) -> None:
        """Refuse checkpoints of Spark and of the clusterer that do not match, since rows would be lost."""
        found = self._query_id()
        commits = self._query_place / "commits"
        numbers = (int(file.name) for file in commits.glob("[0-9]*") if COMMIT.fullmatch(file.name))
        done = max(numbers, default=-1) if found else -1
        if self.batch >= 0 and found != self.query:
            problem = (
                f"{self.store.directory} has learnt micro-batches up to {self.batch} of another query than the one in "
                f"{self._query_place}, whose next micro-batches would be skipped"
            )
            cure = "restore the query's checkpoint, or start with an empty directory"
        elif done > self.batch:
            problem = (
                f"Spark's checkpoint {self._query_place} has finished micro-batches up to {done}, but the clusterer's "
                f"in {self.store.directory} only up to {self.batch}: those between would not be learnt"
            )
            cure = "restore the clusterer's checkpoint, or start with an empty directory"
        else:
            return
        if self.on_data_loss == "fail":
            raise DataLoss(f'{problem}; {cure}, or set on_data_loss="continue" to start anyway')
        log.warning("%s", problem)
        self.batch = done
