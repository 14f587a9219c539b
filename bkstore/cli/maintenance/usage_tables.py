"""The tables of `bkstore usage` for each value of --by, made from a `Usage`."""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from bkstore.cli.terminal.table_output import tables_of_rows
from bkstore.ids import signed64
from bkstore.offline.usage import IndexPart, LogUsage, Usage
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import (
    USAGE,
    USAGE_BY_LEDGER,
    USAGE_BY_LOG,
    USAGE_BY_LOG_AND_LEDGER,
    USAGE_BY_SCOPE,
    USAGE_OF_CACHES,
    USAGE_OF_INDEX,
    Schema,
    Table,
)

_ROWS_PER_TABLE = 1 << 12
# The cells of `USAGE` that are totals of a bookie's logs.
_total_cells = attrgetter(
    *("logs", "file_bytes", "record_bytes", "live_bytes", "garbage_bytes", "other_bytes"),
    *("pinned_logs", "pinned_bytes", "removable_logs", "compactable_logs", "damaged_logs"),
    *("moved_bytes", "given_back"),
)
Rows = Iterator[tuple[Any, ...]]


class UsageTable(NamedTuple):
    """A table's schema, and the function that yields its rows without the bookie's id."""

    schema: Schema
    rows: Callable[[BookieDir, Usage, argparse.Namespace], Rows]

    def tables(self, bookie: BookieDir, usage: Usage, args: argparse.Namespace) -> Iterator[Table]:
        """Return the tables about one bookie, of bounded size."""
        rows = ((bookie.bookie_id, *row) for row in self.rows(bookie, usage, args))
        return tables_of_rows(self.schema, rows, _ROWS_PER_TABLE)


def _by_bookie(bookie: BookieDir, usage: Usage, _args: argparse.Namespace) -> Rows:
    """Yield the one row of a bookie."""
    _complete_totals(usage.logs())
    ledgers, index_parts = usage.ledgers(), usage.index()
    # Bytes of rows of locations (the part "ledgers" has states): if one is unknown, so is the sum.
    row_bytes = [part.row_bytes for part in index_parts if part.part != "ledgers"]
    known_row_bytes = [size for size in row_bytes if size is not None]
    yield (
        bookie.layout,
        usage.indexed_count,
        sum(ledger.live for ledger in ledgers),
        sum(ledger.entries or 0 for ledger in ledgers),
        *_total_cells(usage.totals),
        sum(part.file_bytes for part in index_parts),
        sum(part.disk_bytes for part in index_parts),
        sum(known_row_bytes) if len(known_row_bytes) == len(row_bytes) else None,
        sum(path.stat().st_size for path in bookie.journals),
    )


def _complete_totals(logs: Iterable[LogUsage]) -> None:
    """Read all logs: only then the totals of their `Usage` are complete."""
    deque(logs, maxlen=0)


def _by_log(_bookie: BookieDir, usage: Usage, _args: argparse.Namespace) -> Rows:
    """Yield a row per entry log."""
    for log_usage in usage.logs():
        # The columns of `USAGE_BY_LOG`, in its order, in groups.
        log, record_bytes, live_bytes = log_usage.log, log_usage.record_bytes, log_usage.live_bytes
        log_cells = (log.dir_index, log.log_id, log.path.rpartition("/")[2], log.bytes)
        counts = (len(log_usage.ledgers), len(log_usage.live_ledgers))
        sizes = (record_bytes, live_bytes, record_bytes - live_bytes)
        fate_cells = (usage.is_pinned(log_usage), log_usage.fate, log_usage.given_back)
        yield (*log_cells, log_usage.source, *counts, *sizes, log_usage.occupancy, *fate_cells)


def _by_ledger(_bookie: BookieDir, usage: Usage, _args: argparse.Namespace) -> Rows:
    """Yield a row per ledger."""
    _complete_totals(usage.logs())
    for row in usage.ledgers():
        ids = (*row.ledger.signed, row.ledger.qualified_name)
        sizes = (row.bytes, row.live_bytes, row.bytes - row.live_bytes)
        yield (*ids, row.live, row.entries, row.logs, *sizes, row.pinned_logs)


def _by_scope(_bookie: BookieDir, usage: Usage, _args: argparse.Namespace) -> Rows:
    """Yield a row per scope."""
    _complete_totals(usage.logs())
    for row in usage.scopes():
        sizes = (row.bytes, row.live_bytes, row.bytes - row.live_bytes)
        yield (signed64(row.scope), row.ledgers, row.live_ledgers, row.entries, *sizes)


def _by_log_and_ledger(_bookie: BookieDir, usage: Usage, _args: argparse.Namespace) -> Rows:
    """Yield a row per ledger of each entry log."""
    for log_usage in usage.logs():
        log_cells = (log_usage.log.dir_index, log_usage.log.log_id)
        for ledger_id, size in sorted(log_usage.ledgers.items()):
            yield (*log_cells, *ledger_id.signed, size, ledger_id in log_usage.live_ledgers)


def _of_index(_bookie: BookieDir, usage: Usage, _args: argparse.Namespace) -> Rows:
    """Yield a row per part of the index: a tree of index files, or a database."""
    for part in usage.index():
        sizes = (part.files, part.file_bytes, part.disk_bytes)
        row_cells = (part.rows, part.row_bytes, part.pages)
        yield (part.dir_index, part.part, part.path, *sizes, *row_cells, *_rocksdb_cells(part))


def _rocksdb_cells(part: IndexPart) -> tuple[int | None, ...]:
    """Return the sizes that RocksDB reports of a database: the last six columns of
    `USAGE_OF_INDEX`, nulls for index files."""
    sizes = part.sizes
    if sizes is None:
        return (None,) * 6
    dead_rows = part.dead_rows if part.part.startswith("locations") else None  # of this part only
    deletions = (sizes.tombstones, sizes.range_tombstones)
    return (sizes.table_bytes, sizes.estimated_rows, dead_rows, *deletions, sizes.unflushed_entries)


def _of_caches(_bookie: BookieDir, usage: Usage, args: argparse.Namespace) -> Rows:
    """Yield a row per setting of a bookie's caches, with the value that its data need."""
    _complete_totals(usage.logs())
    for setting in usage.cache_needs(args.readers, args.read_ahead):
        setting_cells = (setting.setting, setting.purpose, setting.value, setting.unit)
        yield (*setting_cells, setting.default, setting.formula, setting.source)


TABLES_BY_KIND = {
    "bookie": UsageTable(USAGE, _by_bookie),
    "log": UsageTable(USAGE_BY_LOG, _by_log),
    "ledger": UsageTable(USAGE_BY_LEDGER, _by_ledger),
    "scope": UsageTable(USAGE_BY_SCOPE, _by_scope),
    "log-and-ledger": UsageTable(USAGE_BY_LOG_AND_LEDGER, _by_log_and_ledger),
    "index": UsageTable(USAGE_OF_INDEX, _of_index),
    "cache": UsageTable(USAGE_OF_CACHES, _of_caches),
}
"""The tables by the value of ``--by``."""
