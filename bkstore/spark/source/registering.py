"""Making ``format("bookie")`` known to a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("bookie")`` work in this session; see `docs/spark.md`.

    Also allows Python data sources to take filters (``spark.sql.python.filterPushdown.enabled``),
    without which each query would read everything. Cheap; calling it again does nothing new.
    """
    from bkstore.spark.source.data_source import BookieSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(BookieSource)
