"""Salvage a damaged bookie: write a new one from every readable record, and list the losses.

A damaged log gets a fresh one of the same id, with every record that a scan or the old index finds.
By default all ledgers with a record are restored: a damaged index cannot tell a deleted ledger from
one that it lost. Of several copies of an entry, the one in the old index wins, else the last one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from bkstore.arguments import boolean
from bkstore.availability import Availability
from bkstore.availability.entry_text import format_entries_of
from bkstore.errors import BkstoreError, DirectoryInUse, InvalidArgument
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.os_errors import convert_write_errors
from bkstore.formats.entry import Coder, rows_of_ledgers
from bkstore.formats.entrylog import log_name
from bkstore.former_names import with_former_members
from bkstore.ids import Int64Array, LedgerId, log_ids_of, positions_of
from bkstore.index.api import EntryIndex, Finding, IndexBatch
from bkstore.index.damage_runs import add_unreported
from bkstore.offline.rewrite.digest_mismatches import drop_digest_mismatches
from bkstore.offline.rewrite.log_names import LogNames
from bkstore.offline.rewrite.rebuild import LedgerSelection, read_storage_flags, report_ledgers
from bkstore.offline.rewrite.recovered_ledger_states import read_source_ledgers
from bkstore.offline.rewrite.rewrite_job import (
    DEFAULT_OPENING,
    OpenOptions,
    Rewrite,
    RewriteProgress,
    RewriteResult,
)
from bkstore.offline.rewrite.salvaged_log import (
    LogRecords,
    add_indexed_records,
    read_records,
    salvaged_positions,
    write_salvaged_log,
)
from bkstore.offline.spilled_rows.rows_by_key import RowsByKey
from bkstore.offline.spilled_rows.rows_by_log import RowsByLog
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.directories.layout import Layout
from bkstore.storage.directories.log_order import sort_by_creation
from bkstore.storage.entry_log.resynchronization import LogBytes


@dataclass(frozen=True, slots=True)
class Loss:
    """Bytes or entries that a salvage could not save.

    Kind "bytes": `bytes` of `file`, from `offset` on, contain no readable record. Kind "entries":
    `entries` of `ledger` within `first_entry`..`last_entry`, which were in the old index, are in no
    log: the ids in `entry_set`. `file` is the log that the index named, `offset` their lowest
    position there.
    """

    kind: Literal["bytes", "entries"]
    file: str
    offset: int
    detail: str
    bytes: int | None = None
    ledger: LedgerId | None = None
    first_entry: int | None = None
    last_entry: int | None = None
    entries: int | None = None
    entry_set: Availability | None = None


_LogKey = tuple[int, int]  # a log's directory number and id


class _LostEntries(NamedTuple):
    """The entries of a ledger that are lost with one log, and their lowest position there."""

    offset: int
    entries: Availability


@with_former_members(made="rewrite")
@dataclass
class SalvageResult:
    """What a salvage made and lost: `rewritten_logs` logs were rewritten, the others copied.

    `found_by_index` counts records that only the old index found. `made.findings` has the scans'
    findings, where a run of similar ones is one finding; `losses` is complete.
    """

    rewrite: RewriteResult
    losses: list[Loss]
    rewritten_logs: int = 0
    found_by_index: int = 0

    @property
    def lost_bytes(self) -> int:
        """The number of bytes in entry logs that contain no readable record."""
        return sum(loss.bytes or 0 for loss in self.losses)

    @property
    def lost_entries(self) -> int:
        """The number of entries that were in the old index and are lost."""
        return sum(loss.entries or 0 for loss in self.losses)


def salvage(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    to: Layout | None = None,
    progress: Callable[[RewriteProgress], None] | None = None,
    *,
    known_only: bool = False,
    digest_type: str | None = None,
    password: bytes | str | None = None,
    link: bool = False,
    opening: OpenOptions = DEFAULT_OPENING,
    files: Files = OS_FILES,
) -> SalvageResult:
    """Make `target`, a new or empty folder, a bookie with everything readable in `source`.

    `to` is the layout of its index, by default the source's. Every complete record that a scan
    or the old index finds is taken; with a `digest_type` (and `password`), only those whose digest
    matches, unless no digest of their ledger matches in that log (`drop_digest_mismatches`). With
    `known_only`, ledgers that the bookie does not know are left out. Ledger states are made as by
    `rebuild_index`, and the index is compared with the records taken. Undamaged logs, journals,
    marks and cookies are copied (`link` hard-links those logs).

    Raises what `rebuild_index` raises, and `InvalidArgument` for an unknown digest type or a
    password without a digest type. Memory: some 100 bytes a record of one log, 300 bytes a ledger,
    and about 300 MiB. Cost: about 2 us a record, and the copy.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from bkstore import LedgerStorage
    >>> from bkstore.formats.entry import Entry, encode
    >>> with tempfile.TemporaryDirectory() as top:
    ...     with LedgerStorage.open(f"{top}/b", storage="sorted") as storage:
    ...         storage.set_master_key(7, b"key")
    ...         for entry in range(3):
    ...             _ = storage.add_entry(encode(Entry(7, entry, -1, 5, b"x" * 40), "CRC32C"))
    ...     log = Path(top, "b", "current", "0.log")
    ...     data = bytearray(log.read_bytes())
    ...     data[1024 + 80 : 1024 + 84] = b"oops"  # the size of entry 1
    ...     _ = log.write_bytes(data)
    ...     done = salvage(f"{top}/b", f"{top}/c")
    >>> done.rewrite.entries
    2
    >>> [(loss.kind, loss.first_entry, loss.bytes) for loss in done.losses]
    [('bytes', None, 80), ('entries', 1, None)]
    """
    boolean("known_only", known_only)
    coder = None if digest_type is None else Coder(digest_type, password)
    if coder is None and password is not None:
        raise InvalidArgument("a password requires digest_type")
    with Rewrite(
        "salvage", source, target, to, progress, opening=opening, link=link, files=files
    ) as job:
        return _Salvage(job, known_only, coder).run()


class _Salvage:
    """A running salvage: read the old index, then each log; write the index, list the losses.

    `_old_rows` are the old index's rows, `_missing_rows` those of them without a readable record,
    and `_new_rows` the rows for the new index. `_coder` verifies digests, unless it is None.
    """

    def __init__(self, job: Rewrite, known_only: bool, coder: Coder | None) -> None:
        self._job = job
        self._coder = coder
        self._result = SalvageResult(job.result, [])
        self._logs = job.bookie.entry_logs
        known = read_source_ledgers(job.bookie, job.result.findings)
        all_ledgers = not (known_only and known.has_listing)
        self._selection = LedgerSelection(job, known, all_ledgers)
        count = job.result.directories
        self._log_names = LogNames(self._logs, self._selection.is_partitioned, job.layout, count)
        self._old_rows = RowsByLog(job.work_dir / "old", job.files)
        self._new_rows = RowsByKey(job.work_dir, "rows", job.files)
        self._missing_rows = RowsByKey(job.work_dir, "missing", job.files)

    def run(self) -> SalvageResult:
        """Save the records of the logs, index them with the states that are known, and report
        losses."""
        job, known = self._job, self._selection.known
        self._read_old_index()
        self._salvage_logs()
        self._add_rows_without_log()
        states = known.states(self._selection.selected)
        job.write_index(self._new_rows, states, read_storage_flags(job), self._new_rows.row_count)
        job.result.duplicates = self._new_rows.duplicates
        report_ledgers(job.result, self._selection)
        job.copy_rest_and_compare(self._log_names, self._logs, self._new_rows, states)
        with job.open_target() as target:
            self._result.losses += self._find_lost_entries(target.index)
        job.finish()
        return self._result

    # -- the old index

    def _read_old_index(self) -> None:
        """Read what can be read of the old index; damage adds findings, and ends no salvage."""
        bookie, findings = self._job.bookie, list[Finding]()
        self._job.begin_step("reading the index", None)
        try:
            for rows in bookie.scan(findings=findings):
                self._old_rows.add(rows)
                self._job.advance(rows.entry_id.size)
        except DirectoryInUse:
            raise
        except BkstoreError as error:
            findings.append(Finding.of(error))
        self._old_rows.finish()
        add_unreported(self._job.result.findings, findings)

    # -- logs

    def _salvage_logs(self) -> None:
        """Add an index row for each record that is found in a log. Write damaged logs anew, without
        the damage; at the end, copy the others."""
        job = self._job
        job.begin_step("entry logs", sum(log.bytes for log in self._logs))
        # The same log may be linked into several directories: it is written once.
        written_logs = {(log.dir_index, log.log_id) for log in self._log_names.distinct_logs}
        undamaged_logs = []
        for log in sort_by_creation(self._logs):
            old_rows = self._old_rows.rows_of_log(log.dir_index, log.log_id)
            records = read_records(log, old_rows, job.result.findings, self._selection.max_entry_id)
            if records.unreadable:
                detail = "the log cannot be read"
                self._result.losses.append(Loss("bytes", log.path, 0, detail, log.bytes))
            else:
                is_written = (log.dir_index, log.log_id) in written_logs
                with LogBytes(log.path) as data:
                    self._complete_records(log, data, records)
                    if is_written and records.damaged:
                        self._rewrite_log(log, data, records)
                if is_written and not records.damaged:
                    undamaged_logs.append(log)
            # Another log may have these entries: `_find_lost_entries` looks in the new index.
            self._missing_rows.add(records.missing_rows)
            positions = salvaged_positions(records) if records.damaged else records.position
            self._add_rows(log, records, positions)
            job.advance(log.bytes, records.position.size)
        job.copy_logs(self._log_names, undamaged_logs)
        job.result.logs += self._result.rewritten_logs

    def _complete_records(self, log: LogFile, data: LogBytes, records: LogRecords) -> None:
        """Add records that only the index finds, drop digest mismatches, and note lost bytes."""
        add_indexed_records(data, records, self._selection.max_entry_id)
        if self._coder is not None:
            may_differ = self._may_have_other_digest_type
            findings = drop_digest_mismatches(log, data, records, self._coder, may_differ)
            self._job.result.findings += findings
        for offset, size, reason in records.lost_ranges:
            self._result.losses.append(Loss("bytes", log.path, offset, reason, size))

    def _may_have_other_digest_type(self, ledger_id: LedgerId) -> bool:
        """Return whether a ledger of which no digest matches may have another digest type. If the
        bookie does not know it, it may not: its records are probably garbage."""
        known = self._selection.known
        return not known.has_listing or ledger_id in known

    def _rewrite_log(self, log: LogFile, data: LogBytes, records: LogRecords) -> None:
        """Write a damaged log's records to a new log in the target."""
        log_dir = self._job.ledger_dirs()[log.dir_index]
        with convert_write_errors(log_dir):
            self._job.files.makedirs(log_dir)
        target = log_dir / log_name(self._log_names.new_id(log.dir_index, log.log_id))
        size = write_salvaged_log(data, target, records, self._job.files)
        self._job.result.log_bytes += size
        self._result.rewritten_logs += 1
        self._result.found_by_index += records.found_by_index

    def _add_rows(self, log: LogFile, records: LogRecords, positions: Int64Array) -> None:
        """Add the new index's rows for a log's records, of the selected ledgers only. Of several
        copies of an entry, the one that the old index names has priority."""
        rows = records.to_index_rows(log.dir_index, log.log_id, positions)
        is_taken = np.zeros(rows.entry_id.size, np.bool_)
        for ledger_id, record_indexes in rows_of_ledgers(records.scope_id, records.ledger_id):
            is_taken[record_indexes] = self._selection.select(ledger_id, log.dir_index)
        taken_rows = IndexBatch(*(column[is_taken] for column in rows))
        priority = records.confirmed[is_taken].astype(np.int64)
        self._new_rows.add(self._log_names.relocate(taken_rows), priority)

    # -- lost entries

    def _add_rows_without_log(self) -> None:
        """Add the old index's rows that point to logs which do not exist to the missing rows."""
        present_logs = {(log.dir_index, log.log_id) for log in self._logs}
        for dir_index, log_id in self._old_rows.logs():
            if (dir_index, log_id) not in present_logs:
                self._missing_rows.add(self._old_rows.rows_of_log(dir_index, log_id))

    def _find_lost_entries(self, new_index: EntryIndex) -> Iterator[Loss]:
        """Yield entries in the old index, but not in the new one, by ledger and log."""
        current_ledger: LedgerId | None = None
        lost_by_log: dict[_LogKey, _LostEntries] = {}  # of the current ledger
        # The rows come by ledger. An entry is lost only if the new index has it from no other log.
        for rows in self._missing_rows:
            row_start = 0
            for ledger_id, entries, locations in rows.by_ledger():
                dir_indexes = rows.dir_index[row_start : row_start + entries.size]
                row_start += entries.size
                if ledger_id != current_ledger:  # the rows of a ledger may be in several batches
                    yield from self._losses(current_ledger, lost_by_log)
                    current_ledger, lost_by_log = ledger_id, {}
                if ledger_id not in self._selection.known:
                    continue
                is_lost = new_index.get_many(ledger_id, entries) == 0
                lost = (dir_indexes[is_lost], entries[is_lost], locations[is_lost])
                _add_lost_entries(lost_by_log, *lost)
        yield from self._losses(current_ledger, lost_by_log)

    def _losses(
        self, ledger: LedgerId | None, lost_by_log: dict[_LogKey, _LostEntries]
    ) -> Iterator[Loss]:
        """Yield a `Loss` for each log in which the old index had lost entries of a ledger, from
        `lost_by_log`."""
        present_logs = {(log.dir_index, log.log_id) for log in self._logs}
        for dir_index, log_id in sorted(lost_by_log):
            offset, entries = lost_by_log[dir_index, log_id]
            # A log that is in no directory (`NO_DIRECTORY`) is reported with the path in the first.
            file = str(self._job.bookie.folders.ledger[max(dir_index, 0)] / log_name(log_id))
            is_single = len(entries) == 1
            if (dir_index, log_id) not in present_logs:
                reason = f"{'its' if is_single else 'their'} entry log is missing"
            else:
                reason = "its record is damaged" if is_single else "their records are damaged"
            detail = f"{format_entries_of(ledger, entries)}: {reason}"
            yield Loss(
                "entries",
                file,
                offset,
                detail,
                ledger=ledger,
                first_entry=entries.first_entry,
                last_entry=entries.last_entry,
                entries=len(entries),
                entry_set=entries,
            )


def _add_lost_entries(
    lost_by_log: dict[_LogKey, _LostEntries],
    dir_indexes: Int64Array,
    entries: Int64Array,
    locations: Int64Array,
) -> None:
    """Add lost entries of a ledger to those of the log in which the old index had them."""
    # Take the entries of one log after the other: of each distinct (directory, log id).
    log_ids, positions = log_ids_of(locations), positions_of(locations)
    for dir_index, log_id in {*zip(dir_indexes.tolist(), log_ids.tolist())}:
        in_log = (dir_indexes == dir_index) & (log_ids == log_id)
        added, offset = Availability.from_entries(entries[in_log]), int(positions[in_log].min())
        known = lost_by_log.get((dir_index, log_id))
        if known is not None:
            added, offset = known.entries | added, min(known.offset, offset)
        lost_by_log[dir_index, log_id] = _LostEntries(offset, added)
