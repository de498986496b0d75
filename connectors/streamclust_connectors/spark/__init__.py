"""Spark: data of any size become one summary tree, and models label data frames of any size.

    tree = summarize(frame, ["x", "y"])             # a tree for each partition, merged: no rows are collected
    model = clusterer_of(tree, ["x", "y"])          # clusters, and their number
    assign(frame, model).groupBy("cluster").count()
    StreamingJob(StreamClusterer(), "state", ["x", "y"]).start(stream)

Executors need this package, as they need pyspark's other Python dependencies.
"""

from streamclust_connectors.spark.assigning import assign
from streamclust_connectors.spark.learning import clusterer_of
from streamclust_connectors.spark.streaming import StreamingJob
from streamclust_connectors.spark.summaries import FrameSummary, RefusedRows, summarize, summary

__all__ = ["FrameSummary", "RefusedRows", "StreamingJob", "assign", "clusterer_of", "summarize", "summary"]
