"""``spark.read.format("bookie")``: the directories of bookies as tables of Spark.

`data_source` is what Spark sees: read it first. `options` are its options, `filters` what a
query's filters spare, `rows` the reading of one partition on an executor; `registering` makes
the format known to a session.
"""

__all__ = ["data_source", "filters", "options", "registering", "rows"]
