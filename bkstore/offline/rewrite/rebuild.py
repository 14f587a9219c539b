"""Rebuild an index from entry logs, for a bookie whose index is lost, damaged or not trusted.

The records of known ledgers are taken: those in the old index, and those whose master key is in the
journals after the last mark. The records of all ledgers are taken on request, or if no index lists
the ledgers. Of several copies of an entry, the last in log order wins, as in an index.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from bkstore.arguments import boolean, optional
from bkstore.counts import format_count
from bkstore.errors import BkstoreError, SystemRefused
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.formats.idxfile import DEFAULT_PAGE_SIZE
from bkstore.ids import MAX_ENTRY_ID, LedgerId, make_locations
from bkstore.index.api import Finding, IndexBatch
from bkstore.index.hierarchical import DEFAULT_MAX_PAGES
from bkstore.offline.rewrite.log_names import LogNames
from bkstore.offline.rewrite.recovered_ledger_states import SourceLedgers, read_source_ledgers
from bkstore.offline.rewrite.rewrite_job import (
    DEFAULT_OPENING,
    OpenOptions,
    Rewrite,
    RewriteProgress,
    RewriteResult,
)
from bkstore.offline.spilled_rows.rows_by_key import RowsByKey
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.directories.layout import Layout
from bkstore.storage.directories.log_order import sort_by_creation
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
    opening: OpenOptions = DEFAULT_OPENING,
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
    optional(boolean)("all_ledgers", all_ledgers)
    with Rewrite(
        "rebuild-index", source, target, to, progress, opening=opening, link=link, files=files
    ) as job:
        return _run_rebuild(job, all_ledgers)


def _run_rebuild(job: Rewrite, all_ledgers: bool | None) -> RewriteResult:
    """Build the index of the target from the source's logs, and copy all other files."""
    known = read_source_ledgers(job.bookie, job.result.findings)
    logs = job.bookie.entry_logs
    takes_all_ledgers = not known.has_listing if all_ledgers is None else all_ledgers
    selection = LedgerSelection(job, known, takes_all_ledgers)
    log_names = LogNames(logs, selection.is_partitioned, job.layout, job.result.directories)
    rows = RowsByKey(job.work_dir, "rows", job.files)
    # The logs are read in log order, so that the last row of an entry is the one to keep.
    job.begin_step("reading logs", sum(log.bytes for log in logs))
    for log in sort_by_creation(logs):
        for log_rows in read_log_rows(selection, log, job.result.findings):
            rows.add(log_names.relocate(log_rows))  # with the log's id in the target
            job.advance(units=0, rows=log_rows.entry_id.size)
        job.advance(units=log.bytes)
    # The rows are merged by key, without duplicates, while the index is written.
    states = known.states(selection.selected)
    job.write_index(rows, states, read_storage_flags(job), rows.row_count)
    job.result.duplicates = rows.duplicates
    report_ledgers(job.result, selection)
    job.copy_logs(log_names, log_names.distinct_logs)
    job.copy_rest_and_compare(log_names, logs, rows, states)
    return job.finish()


class LedgerSelection:
    """Decides which ledgers' records are taken, and notes the ledgers by its decisions.

    With `all_ledgers`, ledgers that are not in `known` are taken, too. `is_partitioned`: records of
    a ledger count in its own directory only, number ``L mod n``, as in db storage. `selected`
    ledgers go into the target, `unknown` ones are left out, and those in `misplaced` have records
    in another directory than their own. The target's index can hold entry ids up to `max_entry_id`.
    """

    def __init__(self, job: Rewrite, known: SourceLedgers, all_ledgers: bool) -> None:
        self.known = known
        self.all_ledgers = all_ledgers
        self.directory_count = job.result.directories
        self.max_entry_id = MAX_ENTRY_ID if job.layout == "rocksdb" else _MAX_INDEX_FILE_ENTRY_ID
        self.is_partitioned = job.is_partitioned and self.directory_count > 1
        self.selected: set[LedgerId] = set()
        self.unknown: set[LedgerId] = set()
        self.misplaced: set[LedgerId] = set()

    def select(self, ledger_id: LedgerId, dir_index: int) -> bool:
        """Return whether a ledger's records in a directory go into the new index; note the ledger
        as selected, misplaced, or unknown."""
        if self.is_partitioned and ledger_id.ledger % self.directory_count != dir_index:
            self.misplaced.add(ledger_id)
            return False
        if not self.all_ledgers and ledger_id not in self.known:
            self.unknown.add(ledger_id)
            return False
        self.selected.add(ledger_id)
        return True


def read_log_rows(
    selection: LedgerSelection, log: LogFile, findings: list[Finding]
) -> Iterator[IndexBatch]:
    """Yield the index rows of a log's records, in log order, for the ledgers that `selection`
    selects. Damage in the log adds findings."""
    select_ledger = partial(selection.select, dir_index=log.dir_index)
    try:
        for batch in scan_log(log.path, findings, select_ledger):
            indexable = _drop_excess_entry_ids(batch, log, selection.max_entry_id, findings)
            yield _to_index_rows(indexable, log)
    except BkstoreError as error:
        findings.append(Finding.of(error))


def _drop_excess_entry_ids(
    batch: LogBatch, log: LogFile, max_entry_id: int, findings: list[Finding]
) -> LogBatch:
    """Drop the records whose entry id the index cannot hold (mostly damage), with a finding."""
    excess = np.flatnonzero(batch.entry_id > max_entry_id)
    if not excess.size:
        return batch
    records = format_count(excess.size, "record of an entry", "records of entries")
    detail = f"{records} above id {max_entry_id}, the highest that the index can store: left out"
    findings.append(Finding("damage", detail, log.path, int(batch.position[excess[0]])))
    return batch.where(np.flatnonzero(batch.entry_id <= max_entry_id))


def _to_index_rows(batch: LogBatch, log: LogFile) -> IndexBatch:
    dir_indexes = np.broadcast_to(np.int64(log.dir_index), batch.entry_id.shape)
    ids = (batch.scope_id, batch.ledger_id, batch.entry_id)
    return IndexBatch(dir_indexes, *ids, make_locations(log.log_id, batch.position))


def read_storage_flags(job: Rewrite) -> int | None:
    """Return the storage flags of the old index, or None if it has none or cannot be read."""
    try:
        return job.bookie.index.storage_flags
    except SystemRefused:
        raise
    except BkstoreError:  # `read_source_ledgers` has reported it
        return None


def report_ledgers(result: RewriteResult, selection: LedgerSelection) -> None:
    """Add findings on ledgers without a state in the old index and on misplaced records."""
    result.left_out = len(selection.unknown)
    known, source = selection.known, str(result.source)
    # Of the ledgers in the target, those without a state in the old index; of these, `keyless` have
    # no master key in the journals either.
    stateless = sorted(selection.selected - known.indexed.keys())
    if selection.all_ledgers and not known.has_listing and stateless:
        detail = "no index lists the ledgers: all ledgers in the entry logs are rebuilt"
        result.findings.append(Finding("oddity", detail, source))
    keyless = [ledger_id for ledger_id in stateless if not known.state(ledger_id).master_key]
    if stateless:
        ledgers = format_count(len(stateless), "ledger has", "ledgers have")
        detail = (
            f"{ledgers} no state in the old index: it is taken from the journals, or else fenced"
        )
        if keyless:
            detail += f"; {len(keyless)} without a master key"
        result.findings.append(Finding("oddity", detail, source, ledger=stateless[0]))
    if selection.misplaced:
        count = format_count(len(selection.misplaced), "ledger has", "ledgers have")
        detail = f"{count} records in a directory where no bookie searches for them: skipped there"
        result.findings.append(Finding("oddity", detail, source, ledger=min(selection.misplaced)))
