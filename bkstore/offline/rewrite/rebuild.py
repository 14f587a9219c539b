"""Rebuild an index from entry logs, for a bookie whose index is lost, damaged or not trusted.

The records of known ledgers are taken: those in the old index, and those whose master key is in the
journals after the last mark. The records of all ledgers are taken on request, or if no index lists
the ledgers. Of several copies of an entry, the last in log order wins, as in an index.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import numpy as np

from bkstore.arguments import optional, truth
from bkstore.counts import counted
from bkstore.errors import BkstoreError, SystemRefused
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.formats.idxfile import DEFAULT_PAGE_SIZE
from bkstore.ids import MAX_ENTRY_ID, LedgerId, make_locations
from bkstore.index.api import Finding, IndexBatch
from bkstore.index.hierarchical import DEFAULT_MAX_PAGES
from bkstore.offline.rewrite.log_names import LogNames, in_log_order
from bkstore.offline.rewrite.rewrite_job import (
    AS_IT_LIES,
    Opening,
    Rewrite,
    RewriteProgress,
    RewriteResult,
)
from bkstore.offline.rewrite.source_ledgers import KnownLedgers, read_source_ledgers
from bkstore.offline.spilled_rows.rows_by_key import RowsByKey
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.directories.layout import Layout
from bkstore.storage.entry_log.scan import LogBatch, scan_log

_MAX_INDEX_FILE_ENTRY_ID = DEFAULT_MAX_PAGES * (DEFAULT_PAGE_SIZE // 8) - 1
"""The highest entry id for which an index file has a page; a location takes 8 bytes."""


def rebuild_index(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    to: Layout,
    progress: Callable[[RewriteProgress], None] | None = None,
    *,
    all_ledgers: bool | None = None,
    link: bool = False,
    opening: Opening = AS_IT_LIES,
    files: Files = OS_FILES,
) -> RewriteResult:
    """Copy bookie `source` to `target`, a new or empty folder, with an index built from its logs.

    With `all_ledgers` true, every ledger with a record in the logs is restored, deleted ones too;
    with False, only ledgers that the bookie knows; with None, all if the old index cannot list
    its ledgers, else the known ones. Ledger states come from the old index. For a ledger that is
    not in it, master key, fence and explicit LAC come from the journals, and the ledger is fenced
    if a fence may have been lost. The new index is compared with the rows found. Entry logs,
    journals, marks and cookies are copied (`link` hard-links the entry logs); a bookie replays
    the entries that only the journals have.

    Damage in logs becomes findings, and the records after it are still read. Raises
    `UnsupportedLayout`, `InvalidArgument`, `DirectoryInUse` and `WriteFailed` like `convert`.
    Memory: some 300 bytes a ledger and about 300 MiB. Cost: about 2 us a record, and the copy.

    >>> import tempfile
    >>> from bkstore import LedgerStorage, open_index
    >>> from bkstore.formats.entry import Entry, encode
    >>> with tempfile.TemporaryDirectory() as top:
    ...     with LedgerStorage.open(f"{top}/b", storage="sorted") as storage:
    ...         storage.set_master_key(7, b"key")
    ...         storage.add_entry(encode(Entry(7, 0, -1, 5, b"first"), "CRC32C"))
    ...     made = rebuild_index(f"{top}/b", f"{top}/c", "idx")
    ...     with open_index(f"{top}/b") as old, open_index(f"{top}/c") as new:
    ...         made.entries, new.get(7, 0) == old.get(7, 0), new.state(7) == old.state(7)
    0
    (1, True, True)
    """
    optional(truth)("all_ledgers", all_ledgers)
    with Rewrite(
        "rebuild-index",
        source,
        target,
        to,
        needs_index=False,
        opening=opening,
        link=link,
        progress=progress,
        files=files,
    ) as job:
        return _run_rebuild(job, all_ledgers)


def _run_rebuild(job: Rewrite, all_ledgers: bool | None) -> RewriteResult:
    known = read_source_ledgers(job.bookie, job.result.findings)
    logs = job.bookie.entry_logs
    selection = Choice(job, known, not known.told if all_ledgers is None else all_ledgers)
    log_names = LogNames(logs, selection.by_directory, job.layout, job.result.directories)
    rows = RowsByKey(job.work, "rows", job.files)
    # The logs are read in log order, so that the last row of an entry is the one to keep.
    job.step("reading logs", sum(log.bytes for log in logs))
    for log in in_log_order(logs):
        for log_rows in rows_of(selection, log, job.result.findings):
            rows.add(log_names.located(log_rows))
            job.did(0, log_rows.entry_id.size)
        job.did(log.bytes)
    # The rows are merged by key, without duplicates, while the index is written.
    states = known.states(selection.taken)
    job.write_index(rows, states, old_flags(job), rows.rows)
    job.result.duplicates = rows.duplicates
    tell_ledgers(job.result, selection)
    job.carry_logs(log_names, log_names.kept)
    job.carry_rest_and_compare(log_names, logs, rows, states)
    return job.finish()


class Choice:
    """Decides which ledgers' records are taken, and notes the ledgers by its decisions.

    `taken` ledgers go into the target, `unknown` ones are left out, and those in `astray` have
    records in a directory where db storage does not look. `most` is the highest entry id allowed.
    """

    def __init__(self, job: Rewrite, known: KnownLedgers, every: bool) -> None:
        self.known = known
        self.every = every
        self.count = job.result.directories
        self.most = MAX_ENTRY_ID if job.layout == "rocksdb" else _MAX_INDEX_FILE_ENTRY_ID
        self.by_directory = job.by_directory and self.count > 1
        self.taken: set[LedgerId] = set()
        self.unknown: set[LedgerId] = set()
        self.astray: set[LedgerId] = set()

    def takes(self, name: LedgerId, dir_index: int) -> bool:
        """Return whether a ledger's records in a directory are taken, and note the ledger."""
        if self.by_directory and name.ledger % self.count != dir_index:
            self.astray.add(name)
            return False
        if not self.every and name not in self.known:
            self.unknown.add(name)
            return False
        self.taken.add(name)
        return True


def rows_of(choice: Choice, log: LogFile, findings: list[Finding]) -> Iterator[IndexBatch]:
    """Yield index rows for a log's records that are taken, in order; damage adds findings."""
    try:
        for batch in scan_log(log.path, findings, lambda id_: choice.takes(id_, log.dir_index)):
            yield _to_index_rows(_drop_excess_entry_ids(batch, log, choice.most, findings), log)
    except BkstoreError as error:
        findings.append(Finding.of(error))


def _drop_excess_entry_ids(
    batch: LogBatch, log: LogFile, max_entry_id: int, findings: list[Finding]
) -> LogBatch:
    """Drop the records whose entry id the index cannot hold (mostly damage), with a finding."""
    excess = np.flatnonzero(batch.entry_id > max_entry_id)
    if not excess.size:
        return batch
    records = counted(excess.size, "record of an entry", "records of entries")
    detail = f"{records} above id {max_entry_id}, the highest that the index can store: left out"
    findings.append(Finding("damage", detail, log.path, int(batch.position[excess[0]])))
    return batch.where(np.flatnonzero(batch.entry_id <= max_entry_id))


def _to_index_rows(batch: LogBatch, log: LogFile) -> IndexBatch:
    shape = batch.entry_id.shape
    return IndexBatch(
        np.broadcast_to(np.int64(log.dir_index), shape),
        batch.scope_id,
        batch.ledger_id,
        batch.entry_id,
        make_locations(log.log_id, batch.position),
    )


def old_flags(job: Rewrite) -> int | None:
    """Return the storage flags of the old index, or None if it has none or cannot be read."""
    try:
        return job.bookie.index.storage_flags
    except SystemRefused:
        raise
    except BkstoreError:  # known_ledgers has reported it
        return None


def tell_ledgers(result: RewriteResult, choice: Choice) -> None:
    """Add findings on ledgers without a state in the old index and on misplaced records."""
    result.left_out = len(choice.unknown)
    known, source = choice.known, str(result.source)
    lost = sorted(ledger_id for ledger_id in choice.taken if ledger_id not in known.indexed)
    if choice.every and not known.told and lost:
        detail = "no index lists the ledgers: all ledgers in the entry logs are rebuilt"
        result.findings.append(Finding("oddity", detail, source))
    keyless = [ledger_id for ledger_id in lost if not known.state(ledger_id).master_key]
    if lost:
        ledgers = f"{counted(len(lost), 'ledger has', 'ledgers have')} no state in the old index"
        detail = (
            f"{ledgers}: from the journals, or else fenced; {len(keyless)} without a master key"
        )
        result.findings.append(Finding("oddity", detail, source, ledger=lost[0]))
    if choice.astray:
        ledgers = counted(len(choice.astray), "ledger has", "ledgers have")
        detail = (
            f"{ledgers} records in a directory where no bookie searches for them: skipped there"
        )
        result.findings.append(Finding("oddity", detail, source, ledger=min(choice.astray)))
