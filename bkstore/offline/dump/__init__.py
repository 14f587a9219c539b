"""Dump bookie directories to Parquet: many bookies, one dataset, pieces written in parallel.

Read `dump_job` first: it has `dump`. `plan` cuts a bookie into pieces, each small enough for one
task; `workers` runs the tasks and `dump_piece` writes one piece with `parquet`, from `index_rows`,
`group_rows`, `log_rows` and `record_lengths` (which also reads Pulsar's messages). An interrupted
dump resumes in `partial_dump`, `incremental` uses the files of an earlier one; `file_names` has the
names of files.
"""

from bkstore.offline.dump.dump_job import TABLES, BookieDump, DumpProgress, DumpResult, dump
from bkstore.offline.dump.plan import DumpSource

__all__ = ["TABLES", "BookieDump", "DumpProgress", "DumpResult", "DumpSource", "dump"]
