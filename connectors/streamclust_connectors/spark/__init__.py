"""Spark: summarises data frames of any size in one tree, and assigns their rows to clusters.

    tree = summarize(frame, ["x", "y"])             # merges one tree per partition; rows are not collected
    model = clusterer_of(tree, ["x", "y"])          # finds the clusters
    assign(frame, model).groupBy("cluster").count()
    StreamingJob(StreamClusterer(), "state", ["x", "y"]).start(stream)

Executors need this package, like the other Python dependencies of pyspark.
"""

from streamclust_connectors.spark.assignment import assign
from streamclust_connectors.spark.clusterer import clusterer_of
from streamclust_connectors.spark.streaming_job import StreamingJob
from streamclust_connectors.spark.summaries import FrameSummary, RefusedRows, summarize, summary

__all__ = ["FrameSummary", "RefusedRows", "StreamingJob", "assign", "clusterer_of", "summarize", "summary"]
