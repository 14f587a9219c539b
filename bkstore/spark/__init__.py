"""Spark: a quiet local session, bookies as a data source, bulk loads, analyses of index dumps.

`session` finds a Java runtime and starts Spark; `register` makes ``format("bookie")`` known;
`load` makes an index of a dump; `analysis` reads a dump and asks it questions.
"""

from bkstore.spark.analysis import holes, read_dump, totals
from bkstore.spark.load import load
from bkstore.spark.session import local_session, start_session
from bkstore.spark.source.registering import register

__all__ = [
    "holes",
    "load",
    "local_session",
    "read_dump",
    "register",
    "start_session",
    "totals",
]
