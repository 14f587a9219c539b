"""Reading the Parquet files of dumps where they lie: in tasks, in order, in bounded memory.

`open_dump` opens a dump by its `manifest`, for analyses, loads and comparisons. `read_tasks` cuts
its files into tasks by row groups and ranges of ledgers: read it first. `row_stream` gives the rows
of a task, `side_by_side` those of several sorted streams ledger by ledger. `file_parts` finds the
share of a file that a task has. `ledger_ranges` is what a manifest says of a sorted file,
`dump_file` a file as manifest and footer have it, `places` where files lie: paths, and URIs of
other file systems; `dump_folder` is a dump's folder there. `kept_memory` lets the arrays of batches
use the same memory again. One process and Spark's executors read by the same calls.
"""

from bkstore.offline.reading.dump_file import DumpFile, RowGroup
from bkstore.offline.reading.ledger_ranges import LedgerRange
from bkstore.offline.reading.read_tasks import Read, Task
from bkstore.offline.reading.row_stream import read_rows

__all__ = ["DumpFile", "LedgerRange", "Read", "RowGroup", "Task", "read_rows"]
