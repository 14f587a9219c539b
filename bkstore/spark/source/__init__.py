"""``spark.read.format("bookie")``: the directories of bookies as tables of Spark.

`data_source` implements Spark's interface: read it first. `options` parses its options, `filters`
prunes by a query's filters, `rows` reads one partition on an executor; `registering` registers the
format with a session.
"""

__all__ = ["data_source", "filters", "options", "registering", "rows"]
