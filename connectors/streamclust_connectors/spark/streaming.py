"""StreamingJob: Structured Streaming feeds a clusterer; every micro-batch counts exactly once."""

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
from streamclust_connectors.ports import DataLoss
from streamclust_connectors.spark.learning import SHARD
from streamclust_connectors.spark.rows import Columns
from streamclust_connectors.spark.summaries import MAX_LEAVES, FrameSummary, summary

COMMIT = re.compile("[0-9]+")
"""Names of the files by which Spark marks micro-batches as done."""

log = logging.getLogger(__name__)


class StreamingJob:
    """Learns a streaming data frame of any source: each micro-batch becomes one tree, which the clusterer merges.

    What was learnt and the number of the micro-batch are one checkpoint, written whole or not at all. Spark gives a
    micro-batch that it repeats the same number and the same rows, so one that is in the checkpoint already is skipped:
    through any crash, every row counts once.

    Parameters
    ----------
    clusterer
        A fresh one; what the checkpoint holds takes its place.
    checkpoint
        A directory of the driver's: `model/` holds the clusterer, `query/` Spark's own checkpoint, `refused/` the
        refused rows of each micro-batch, with their reasons, as Parquet.
    columns, weight, time
        As in `summarize`.
    then
        Called with every micro-batch and its number when it has been learnt, before that is saved: `self.clusterer`
        can label it. After a crash it may be called with a micro-batch again.
    on_data_loss
        "fail" refuses to start where Spark's checkpoint and the clusterer's do not belong together; "continue" goes on.
    keep
        How many checkpoints are kept.

    Examples
    --------
    A directory that fills with Parquet files::

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
                "a clusterer with a half_life needs `time`, the column of the rows' times: the rows of a micro-batch "
                "have no other order"
            )
        self.directory = Path(checkpoint).absolute()
        self.store = Checkpoints(self.directory / "model", keep)
        self.columns, self.weight, self.time = columns, weight, time
        self.then, self.on_data_loss = then, on_data_loss
        self.clusterer = clusterer
        self.batch = -1
        """The last micro-batch that was learnt."""
        self.query: str | None = None
        self.skipped = 0
        """Number of repeated micro-batches that were skipped."""
        state = self.store.latest()
        if state is not None:
            self.clusterer = StreamClusterer.from_state(state, clusterer.on_event)
            place = state.values["positions"]["spark"]
            self.batch, self.query = place["batch"], place["query"]

    def start(self, stream: DataFrame, **trigger: Any) -> StreamingQuery:
        """Begin, or go on where the checkpoint ends; `trigger` as Spark has it: processingTime="10 seconds"."""
        self._check_together()
        writer = stream.writeStream.foreachBatch(self.learn).option(
            "checkpointLocation", str(self._query_place)
        )
        return (writer.trigger(**trigger) if trigger else writer).start()

    def learn(self, rows: DataFrame, batch: int) -> None:
        """Learn a micro-batch, unless it is in the checkpoint: what `foreachBatch` is given."""
        if batch <= self.batch:
            self.skipped += 1
            log.info("micro-batch %d is learnt already", batch)
            return
        made = self._summary(rows, batch)
        if made.tree.n_events:
            self.clusterer.learn_tree(made.tree, tuple(self.columns), SHARD, made.sketch)
        self.clusterer.add_refused(made.n_refused)
        if self.then is not None:
            self.then(rows, batch)
        self.batch, self.query = batch, self._query_id() or self.query
        self.store.save(self.clusterer.to_state({"spark": {"batch": self.batch, "query": self.query}}))

    def _summary(self, rows: DataFrame, batch: int) -> FrameSummary:
        """One tree of a micro-batch; what it refuses goes to a directory of its own, which a repetition replaces."""
        of, place = self.clusterer, self.directory / "refused" / f"batch={batch}"
        return summary(
            rows, self.columns, family=of.family, max_leaves=of.max_leaves or MAX_LEAVES, weight=self.weight,
            time=self.time, half_life=of.half_life, refused=str(place), seed=of.seed, salt=batch,
            sketch=of.sketch, max_directions=of.max_directions, scale=of.scale,
        )  # fmt: skip

    # ---------------------------------------------------------------- two checkpoints

    @property
    def _query_place(self) -> Path:
        return self.directory / "query"

    def _query_id(self) -> str | None:
        """Id of the query in Spark's checkpoint."""
        file = self._query_place / "metadata"
        return str(json.loads(file.read_text())["id"]) if file.exists() else None

    def _check_together(self) -> None:
        """Refuse checkpoints of Spark and of the clusterer that do not belong together: rows would be lost."""
        found = self._query_id()
        commits = self._query_place / "commits"
        numbers = (int(file.name) for file in commits.glob("[0-9]*") if COMMIT.fullmatch(file.name))
        done = max(numbers, default=-1) if found else -1
        if self.batch >= 0 and found != self.query:
            told = (
                f"{self.store.directory} holds micro-batches until {self.batch} of another query than the one in "
                f"{self._query_place}: its next ones would be taken for those, and skipped"
            )
            cure = "bring back the query's checkpoint, or start with an empty directory"
        elif done > self.batch:
            told = (
                f"Spark's checkpoint {self._query_place} has done micro-batches until {done}, the clusterer's in "
                f"{self.store.directory} until {self.batch}: those between are not learnt"
            )
            cure = "bring back the clusterer's checkpoint, or start with an empty directory"
        else:
            return
        if self.on_data_loss == "fail":
            raise DataLoss(f'{told}; {cure}; on_data_loss="continue" goes on regardless')
        log.warning("%s", told)
        self.batch = done
