"""Write ordered rows and ledger states as a target's index, and verify the index afterwards.

RocksDB databases are built from table files (no write-ahead log, no compaction), one set for each
directory; index files are written page by page. Afterwards each row and state is compared.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from operator import itemgetter
from pathlib import Path

from bkstore.errors import CorruptionError
from bkstore.files.disk_changes import Files
from bkstore.files.os_errors import convert_write_errors
from bkstore.ids import LedgerId
from bkstore.index.api import DEFAULT_BATCH, EntryIndex, IndexBatch, LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.partitioned import PartitionedIndex
from bkstore.index.scope_marker import write_marker
from bkstore.offline.index_building.assembly import build_index
from bkstore.offline.index_building.ledger_states import (
    compare_states,
    put_states,
    put_storage_flags,
)
from bkstore.offline.index_building.row_comparison import compare_rows
from bkstore.offline.index_building.row_writers import (
    TreeWriter,
    open_row_writer,
    rows_of_directory,
)
from bkstore.storage.directories.layout import Layout

_LEDGERS_PER_FLUSH = 4096

ReportRows = Callable[[int], None]


def scan_in_key_order(index: EntryIndex) -> Iterator[IndexBatch]:
    """Yield all rows of an index by scope, ledger and entry. Memory: a batch for each directory."""
    if not isinstance(index, PartitionedIndex):
        yield from index.scan()
        return
    # Each directory has its ledgers in order: merge them, and join the rows to batches again.
    pending_batches: list[IndexBatch] = []
    pending_rows = 0
    sorted_parts = [
        _rows_by_ledger(part, dir_index, len(index.parts))
        for dir_index, part in enumerate(index.parts)
    ]
    for _, rows in heapq.merge(*sorted_parts, key=itemgetter(0)):
        pending_batches.append(rows)
        pending_rows += rows.entry_id.size
        if pending_rows >= DEFAULT_BATCH:
            yield IndexBatch.joined(pending_batches)
            pending_batches, pending_rows = [], 0
    if pending_batches:
        yield IndexBatch.joined(pending_batches)


def _rows_by_ledger(
    part: EntryIndex, dir_index: int, directory_count: int
) -> Iterator[tuple[LedgerId, IndexBatch]]:
    """Yield one directory's rows, ledger by ledger, without ledgers that belong to another one."""
    for rows in part.scan():
        for ledger_id, entries, locations in rows.by_ledger():
            if ledger_id.ledger % directory_count == dir_index:
                yield ledger_id, IndexBatch.of_ledger(ledger_id, entries, locations, dir_index)


def write_index(
    layout: Layout,
    index_dirs: Sequence[Path],
    rows: Iterable[IndexBatch],
    states: Mapping[LedgerId, LedgerState],
    flags: int | None,
    work_dir: Path,
    files: Files,
    report: ReportRows,
) -> int:
    """Write rows in key order, and the ledger states, durably; return the number of rows.

    `flags` are RocksDB's storage flags, if any. A ledger with rows but no state gets an empty one.
    """
    for current in index_dirs:
        with convert_write_errors(current):
            files.makedirs(current)
    if layout == "idx":
        return _write_tree(index_dirs, rows, states, files, report)
    return _write_databases(index_dirs, rows, states, flags, work_dir, files, report)


def _write_tree(
    index_dirs: Sequence[Path],
    rows: Iterable[IndexBatch],
    states: Mapping[LedgerId, LedgerState],
    files: Files,
    report: ReportRows,
) -> int:
    """Write rows and states into index files, in one tree over all directories; return the number
    of rows."""
    # Ledgers of other scopes are bkstore's own: a marker says so in each directory.
    if any(ledger_id.scope for ledger_id in states):
        for current in index_dirs:
            write_marker(current, files)
    row_count = 0
    with HierarchicalIndex(list(index_dirs), writable=True, files=files) as index:
        writer = TreeWriter(index_dirs[0], index, states, advice="write rocksdb")
        for batch in rows:
            writer.add(directory=0, rows=batch)  # one tree spans all directories
            row_count += batch.entry_id.size
            report(batch.entry_id.size)
        put_states(index, states, _LEDGERS_PER_FLUSH)  # those of ledgers without rows
    return row_count


def _write_databases(
    index_dirs: Sequence[Path],
    rows: Iterable[IndexBatch],
    states: Mapping[LedgerId, LedgerState],
    flags: int | None,
    work_dir: Path,
    files: Files,
    report: ReportRows,
) -> int:
    """Write rows and states into the databases of each directory; return the number of rows. The
    rows are written to table files below `work_dir`, which `build_index` moves into the databases.
    """
    row_count, directory_count = 0, len(index_dirs)
    with ExitStack() as open_writers:
        writers = [
            open_writers.enter_context(
                open_row_writer("rocksdb", work_dir / f"tables-{dir_index}", files)
            )
            for dir_index in range(directory_count)
        ]
        for batch in rows:
            for dir_index, writer in enumerate(writers):
                writer.add(dir_index, rows_of_directory(batch, dir_index, directory_count))
            row_count += batch.entry_id.size
            report(batch.entry_id.size)
        table_files = [table_file for writer in writers for table_file in writer.finish()]
    build_index("rocksdb", index_dirs, table_files, states, files)
    if flags is not None:
        put_storage_flags(index_dirs[0] / "ledgers", flags, files)
    return row_count


def compare_index(
    index: EntryIndex,
    rows: Iterable[IndexBatch],
    states: Mapping[LedgerId, LedgerState],
    path: Path,
    report: ReportRows,
) -> int:
    """Compare an index with the rows and states it should have; return its number of rows.

    Raises `CorruptionError` at the first ledger, entry, location or state that differs.
    """

    def reported_rows() -> Iterator[IndexBatch]:
        """Yield the rows, and report them once they are compared."""
        for batch in rows:
            yield batch
            report(batch.entry_id.size)

    origin = "the source"
    row_count = compare_rows(reported_rows(), scan_in_key_order(index), path, origin)
    compare_states(index, states, path, origin)
    indexed_ledgers = set(index.ledgers())
    if indexed_ledgers != states.keys():
        ledger_id = min(indexed_ledgers ^ states.keys())
        raise CorruptionError(path, None, f"ledger {ledger_id} is not in both index and source")
    return row_count
