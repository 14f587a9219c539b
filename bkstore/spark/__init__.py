"""Spark: a quiet local session, bookies as a data source, bulk loads, analyses of index dumps.

`session` starts Spark on the runtime that `java` finds: read it first. `source` is
``format("bookie")``, which `register` registers; `load` builds an index from a dump, `load_tasks`
is its part on executors; `read_tasks` runs tasks there, `parquet_readers` chooses who reads files;
`analysis` is the Spark engine of the analyses; `errors` converts Spark's errors to one line.
"""

from bkstore.spark.analysis import holes, read_dump, totals
from bkstore.spark.load import load
from bkstore.spark.session import local_session, start_session
from bkstore.spark.source.registering import register

__all__ = ["holes", "load", "local_session", "read_dump", "register", "start_session", "totals"]
