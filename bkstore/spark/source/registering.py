"""Register ``format("bookie")`` in a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("bookie")`` available in this session; see `docs/spark.md`.

    Also enables filters for Python data sources (``spark.sql.python.filterPushdown.enabled``),
    without which each query would read all rows. Cheap; repeated calls have no further effect.
    """
    from bkstore.spark.source.data_source import BookieSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(BookieSource)
