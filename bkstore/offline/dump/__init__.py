"""Dumping bookie directories to Parquet: many bookies, one dataset, pieces done side by side.

`run` has `dump`: read it first. `plan` cuts a bookie into pieces, each small enough to be one
task; `workers` has them done and `piece` writes one, from `index_rows`, `group_rows`, `log_rows`
and `record_lengths`, as files by `parquet`. `partial_dump` is
the folder in which it grows, and from which an interrupted one goes on.
"""

from bkstore.offline.dump.run import (
    TABLES,
    BookieDump,
    DumpProgress,
    DumpResult,
    DumpSource,
    dump,
)

__all__ = ["TABLES", "BookieDump", "DumpProgress", "DumpResult", "DumpSource", "dump"]
