"""Convert a bookie's index between `.idx` files and RocksDB, without losing anything.

BookKeeper's `convert-to-db-storage` drops explicit LACs and deletes what it has read;
`convert-to-interleaved-storage` stops at an empty ledger, and drops explicit LACs and limbo. Here
rows, keys, fences, limbo and explicit LACs are all converted, or the conversion is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bkstore.counts import format_count
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.ids import LedgerId
from bkstore.index.api import Finding, IndexBatch
from bkstore.index.partitioned import PartitionedIndex
from bkstore.index.rocks import RocksIndex
from bkstore.offline.rewrite.index_writer import scan_in_key_order
from bkstore.offline.rewrite.log_names import LogNames
from bkstore.offline.rewrite.rewrite_job import (
    DEFAULT_OPENING,
    OpenOptions,
    Rewrite,
    RewriteProgress,
    RewriteResult,
)
from bkstore.storage.directories.layout import Layout
from bkstore.storage.read_only.bookie_dir import NO_DIRECTORY, BookieDir


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    to: Layout,
    progress: Callable[[RewriteProgress], None] | None = None,
    *,
    link: bool = False,
    opening: OpenOptions = DEFAULT_OPENING,
    files: Files = OS_FILES,
) -> RewriteResult:
    """Copy bookie `source` to `target`, a new or empty folder, with an index of layout `to`.

    All rows of known ledgers and all ledger states are converted, and compared after writing.
    Entry logs, journals, marks and cookies are copied (`link` hard-links the entry logs). Rows of
    ledgers that the index does not list, which an interrupted delete leaves, are left out
    (`left_out`), with a finding. The layout may be the source's own, for a fresh index.

    Raises `CorruptionError` if the index is damaged (`rebuild_index` builds one from the logs),
    `UnsupportedLayout` for ledgers in limbo if `to` is "idx", `InvalidArgument` if an index
    file would have too many pages or the target is not possible, `DirectoryInUse` if the source
    changes, and `WriteFailed` if the system refuses. Nothing exists at `target` then. Memory: some
    300 bytes a ledger and about 250 MiB. Cost: about 2 us a row, and the copy.

    >>> import tempfile
    >>> from bkstore import LedgerStorage, open_index
    >>> from bkstore.formats.entry import Entry, encode
    >>> with tempfile.TemporaryDirectory() as top:
    ...     with LedgerStorage.open(f"{top}/b", storage="sorted") as storage:
    ...         storage.set_master_key(7, b"key")
    ...         storage.add_entry(encode(Entry(7, 0, -1, 5, b"first"), "CRC32C"))
    ...     made = convert(f"{top}/b", f"{top}/c", "rocksdb")
    ...     with open_index(f"{top}/c") as index:
    ...         made.entries, made.compared, index.layout, index.entries(7).tolist()
    0
    (1, True, 'rocksdb', [0])
    """
    options: dict[str, Any] = {"opening": opening, "link": link, "files": files}
    with Rewrite("convert", source, target, to, progress, needs_index=True, **options) as job:
        # Write the index first: what it cannot store is refused before the long copy.
        index = job.bookie.index
        states = {ledger_id: index.state(ledger_id) for ledger_id in index.ledgers()}
        logs = job.bookie.entry_logs
        names = LogNames(logs, job.is_partitioned, job.layout, job.result.directories)
        rows = _SourceRows(job.bookie, names)
        job.write_index(rows, states, index.storage_flags)
        _report_left_out(job.result, rows)
        # The logs may get new ids, which the rows written above have already.
        job.copy_logs(names, names.distinct_logs)
        job.copy_rest_and_compare(names, logs, rows, states)
        return job.finish()


class _SourceRows:
    """The source's rows of known ledgers in key order, with the target's locations.

    `unlisted_ledgers` have rows, but the index does not list them. After a pass, `left_out` counts
    their rows, `rows_without_log` those into missing logs.
    """

    def __init__(self, bookie: BookieDir, names: LogNames) -> None:
        """Find the ledgers that have rows but are not listed: an interrupted delete left them."""
        self._bookie = bookie
        self._names = names
        index = bookie.index
        self._listed = set(index.ledgers())
        parts = index.parts if isinstance(index, PartitionedIndex) else [index]
        # Only RocksDB keeps rows apart from the list of ledgers.
        id_lists = [part.ledgers_with_entries() for part in parts if isinstance(part, RocksIndex)]
        self.unlisted_ledgers = {ledger_id for ids in id_lists for ledger_id in ids} - self._listed
        self.left_out = self.rows_without_log = 0

    def __iter__(self) -> Iterator[IndexBatch]:
        """Yield the rows of listed ledgers in key order, with their locations in the target; count
        the others, and the rows into logs that are in no directory."""
        self.left_out = self.rows_without_log = 0
        for rows in scan_in_key_order(self._bookie.index):
            rows = self._drop_unlisted_ledgers(rows) if self.unlisted_ledgers else rows
            if not rows.entry_id.size:
                continue
            if self._bookie.layout == "idx":
                # With index files, a row's directory is that of its log; the ledger is not used.
                dir_indexes = self._bookie.dir_indexes(ledger=0, locations=rows.location)
                rows = rows._replace(dir_index=dir_indexes)
                self.rows_without_log += int(np.count_nonzero(dir_indexes == NO_DIRECTORY))
            yield self._names.relocate(rows)

    def _drop_unlisted_ledgers(self, rows: IndexBatch) -> IndexBatch:
        """Return the rows of listed ledgers; count the others."""
        is_listed = np.ones(rows.entry_id.size, np.bool_)
        row_start = 0
        for ledger_id, entries, _ in rows.by_ledger():
            row_stop = row_start + entries.size
            if ledger_id not in self._listed:
                is_listed[row_start:row_stop] = False
                self.left_out += entries.size
            row_start = row_stop
        return IndexBatch(*(column[is_listed] for column in rows))


def _report_left_out(result: RewriteResult, rows: _SourceRows) -> None:
    """Report rows of unlisted ledgers, and rows into logs that do not exist."""
    result.left_out = rows.left_out
    if rows.left_out:
        left_out = format_count(rows.left_out, "row is", "rows are")
        ledgers = format_count(len(rows.unlisted_ledgers), "ledger")
        detail = f"{left_out} of {ledgers} not in the index (an interrupted delete): left out"
        first_ledger: LedgerId = min(rows.unlisted_ledgers)
        result.findings.append(Finding("oddity", detail, str(result.source), ledger=first_ledger))
    if rows.rows_without_log:
        detail = f"{format_count(rows.rows_without_log, 'row')} into entry logs that are not here"
        result.findings.append(Finding("damage", detail, str(result.source)))
