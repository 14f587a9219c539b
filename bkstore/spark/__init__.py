"""Spark: a quiet local session, and analyses of index dumps.

`session` finds a Java runtime and starts Spark; `analysis` reads a dump and asks it questions.
"""

from bkstore.spark.analysis import holes, read_dump, totals
from bkstore.spark.session import local_session, start_session

__all__ = ["holes", "local_session", "read_dump", "start_session", "totals"]
