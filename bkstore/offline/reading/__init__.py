"""Reading the Parquet files of dumps: in tasks, in order, in bounded memory.

`open_dump` opens a dump by its `manifest`. `read_tasks` splits its files into tasks by row groups
and ranges of ledgers: read it first. `disjoint_files` finds those that share no ledger with another
and so are read alone. `row_stream` yields the rows of a task, `merged_streams` those
of several sorted streams ledger by ledger. `file_parts` finds the row groups of a task's share.
`ledger_ranges` has the declared order of a sorted file, `dump_file` a file as manifest and footer
describe it, `file_locations` its location: a path, or a URI of another file system; `dump_folder`
is a dump's folder. `freed_memory` lets batches reuse freed memory.
"""

from bkstore.former_names import former_exports
from bkstore.offline.reading.dump_file import DumpFile, RowGroup
from bkstore.offline.reading.ledger_ranges import LedgerRange
from bkstore.offline.reading.read_tasks import FileRead, ReadTask
from bkstore.offline.reading.row_stream import read_rows

__all__ = ["DumpFile", "FileRead", "LedgerRange", "ReadTask", "RowGroup", "read_rows"]

__getattr__ = former_exports(__name__, Read="FileRead", Task="ReadTask")
