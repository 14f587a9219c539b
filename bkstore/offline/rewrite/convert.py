"""Converting a bookie's index, `.idx` files <-> RocksDB, with nothing lost on the way.

Upstream's `convert-to-db-storage` drops explicit LACs and deletes what it reads as it goes;
`convert-to-interleaved-storage` stops at an empty ledger, and loses explicit LACs and limbo. Here
rows, keys, fences, limbo and explicit LACs all arrive, or the conversion is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import numpy as np

from bkstore.counts import counted
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import Finding, IndexBatch
from bkstore.index.partitioned import PartitionedIndex
from bkstore.index.rocks import RocksIndex
from bkstore.offline.rewrite.frame import (
    AS_IT_LIES,
    Opening,
    Rewrite,
    RewriteProgress,
    RewriteResult,
)
from bkstore.offline.rewrite.index_writer import in_key_order
from bkstore.offline.rewrite.log_names import LogNames
from bkstore.storage.directories.layout import Layout
from bkstore.storage.read_only.bookie_dir import BookieDir


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    to: Layout,
    progress: Callable[[RewriteProgress], None] | None = None,
    *,
    link: bool = False,
    opening: Opening = AS_IT_LIES,
    files: Files = OS_FILES,
) -> RewriteResult:
    """Make `target`, new or an empty folder, the bookie of `source` with an index of layout `to`.

    All rows of known ledgers and all states are the source's, and compared after writing; entry
    logs, journals, marks and cookies are copies (`link` makes hard links of the entry logs). Rows
    of ledgers that the index does not know, which a delete that was cut short leaves, are left out
    (`left_out`), with a finding. The layout may be the one that the source has: a fresh index.

    Raises `CorruptionError` for an index that is damaged (`rebuild_index` makes one of the logs),
    `UnsupportedLayout` for ledgers in limbo to index files, `InvalidArgument` for a ledger whose
    index file would have too many pages and for a target that cannot be, `DirectoryInUse` where
    the source moves, `WriteFailed` where the system refuses. Nothing is under `target` then.
    Memory: some 300 bytes a ledger and about 250 MiB. Cost: about 2 us a row, and the copy.

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
    with Rewrite(
        "convert",
        source,
        target,
        to,
        needs_index=True,
        opening=opening,
        link=link,
        progress=progress,
        files=files,
    ) as job:
        index = job.bookie.index
        states = {name: index.state(name) for name in index.ledgers()}
        logs = job.bookie.entry_logs
        names = LogNames(logs, job.by_directory, job.to, job.result.directories)
        rows = _Rows(job.bookie, names)
        job.write_index(rows, states, index.storage_flags)
        _tell_left_out(job.result, rows)
        job.carry_logs(names, names.kept)
        job.carry_rest_and_compare(names, logs, rows, states)
        return job.finish()


class _Rows:
    """The source's rows of known ledgers by key, with the target's locations; for several passes.

    After a pass, `left_out` counts rows of ledgers that are not known, `lost_logs` those that
    point into no log.
    """

    def __init__(self, bookie: BookieDir, names: LogNames) -> None:
        self._bookie = bookie
        self._names = names
        self._known = set(bookie.index.ledgers())
        index = bookie.index
        parts = index.parts if isinstance(index, PartitionedIndex) else [index]
        held = [part.ledgers_with_entries() for part in parts if isinstance(part, RocksIndex)]
        self.orphans = {name for found in held for name in found} - self._known
        self.left_out = 0
        self.lost_logs = 0

    def __iter__(self) -> Iterator[IndexBatch]:
        self.left_out = self.lost_logs = 0
        for rows in in_key_order(self._bookie.index):
            rows = self._of_known(rows) if self.orphans else rows
            if not rows.entry_id.size:
                continue
            if self._bookie.layout == "idx":
                number = self._bookie.dir_indexes(0, rows.location)
                rows = rows._replace(dir_index=number)
                self.lost_logs += int(np.count_nonzero(number < 0))
            yield self._names.located(rows)

    def _of_known(self, rows: IndexBatch) -> IndexBatch:
        keep: list[Int64Array] = []
        at = 0
        for name, entries, _ in rows.by_ledger():
            if name in self._known:
                keep.append(np.arange(at, at + entries.size))
            else:
                self.left_out += entries.size
            at += entries.size
        here = np.concatenate(keep) if keep else np.empty(0, np.int64)
        return IndexBatch(*(column[here] for column in rows))


def _tell_left_out(result: RewriteResult, rows: _Rows) -> None:
    result.left_out = rows.left_out
    if rows.left_out:
        some = counted(rows.left_out, "row is", "rows are")
        of = counted(len(rows.orphans), "ledger")
        detail = f"{some} of {of} that the index does not know (a delete cut short): left out"
        first: LedgerId = min(rows.orphans)
        result.findings.append(Finding("oddity", detail, str(result.source), ledger=first))
    if rows.lost_logs:
        detail = f"{counted(rows.lost_logs, 'row')} into entry logs that are not here"
        result.findings.append(Finding("damage", detail, str(result.source)))
