"""Compare one entry log with the index: records that rows point at, and records without a row.

One pass over the log joins it by position with the rows that point into it. A record without a
row is looked up: if the index has its entry elsewhere, it is an older copy (the entry was added
again, or compacted); if its ledger is not in the index, it is garbage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bkstore.availability.sequence_groups import BoolArray
from bkstore.counts import format_count
from bkstore.errors import BkstoreError, SystemRefused
from bkstore.formats.entry import order_by_ledger
from bkstore.formats.entrylog import LogMetadata
from bkstore.formats.syntax.framing import SIZE_FIELD_BYTES
from bkstore.ids import (
    MAX_ENTRY_ID,
    Int64Array,
    LedgerId,
    LedgerKeys,
    find_keys,
    ledger_keys,
    ledger_runs,
)
from bkstore.index.api import EntryIndex, Finding, UnknownLedgers
from bkstore.offline.check.coverage import LogCoverage
from bkstore.offline.check.entry_runs import EntryRuns
from bkstore.offline.check.findings import CheckFinding, Severity
from bkstore.offline.check.log_sizes import LogSizes, size_findings
from bkstore.offline.check.record_digests import RecordDigests
from bkstore.offline.spilled_rows.rows_by_log import LogRows, Segment
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.entry_log.byte_usage import LogByteUsage
from bkstore.storage.entry_log.scan import LogBatch, scan_log

_LOOK_UP_BATCH = 1 << 19  # the number of records without a row that are looked up together: 24 MiB
_MAX_GARBAGE_FINDINGS = 64  # the number of unknown ledgers of a log that get a finding each
_NO_RECORD_TEXT = "no record begins where the row points"
_WRONG_RECORD_TEXT = "the row points to the record of another entry"
_UNINDEXED_TEXT = "in the log, but in no row of the index"
_BEFORE_ROWS_TEXT = (
    "in the log, before all rows of the ledger: lost, or from before it was deleted "
    "and created again"
)
_UNFLUSHED_TEXT = "at the end of an open log and in no row of the index: not flushed yet"
_REPLAYED_TEXT = "in no row of the index, but in a journal after the last mark: a replay adds them"
_UNKNOWN_LEDGER_TEXT = "not in the index: garbage of a deleted ledger, or the ledger is lost"
_LIVE_TEXT = "of a ledger in the metadata, but not in the index"


_SCOPE, _LEDGER, _ENTRY, _POSITION, _SIZE = range(5)
"""Columns of the arrays of index rows, which have no size, and of records without a row."""


@dataclass
class _Garbage:
    """The records of a ledger that is not in the index: their number, and the bytes they take."""

    lowest_position: int
    records: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class LogTask:
    """One log to check: the file, where the index rows that point into it are in the scratch file
    (`segments`), and its metadata in garbage collection's cache. `exists` is False if rows point
    into a log that does not exist; `log` has its name only."""

    log: LogFile
    exists: bool
    segments: list[Segment] = field(default_factory=list)
    cached_metadata: LogMetadata | None = None


@dataclass(frozen=True)
class IndexView:
    """What a log is compared with: rows in a scratch file, and the index for look-ups.
    `lowest_locations` maps the ledgers in the index to their lowest locations (0 without entries),
    and is None if the index cannot be read. Damage hides whether it has the `unknown_ledgers`.
    Records of ledgers other than `only_ledgers`, as sorted keys, are only counted. `live_ledgers`
    are in the metadata. `replayed` is what a replay of journals adds."""

    rows_path: Path
    open_index: Callable[[], EntryIndex]
    lowest_locations: Mapping[LedgerId, int] | None
    unknown_ledgers: Sequence[UnknownLedgers] = ()
    digests: RecordDigests | None = None
    only_ledgers: LedgerKeys | None = None
    live_ledgers: frozenset[LedgerId] = frozenset()
    replayed: Mapping[LedgerId, Int64Array] = field(default_factory=dict)


def check_log(task: LogTask, view: IndexView) -> tuple[list[CheckFinding], LogCoverage]:
    """Return the findings on a log and on the rows that point into it, and the coverage. Damage in
    the log never raises. Cost: 300 ns a record, and a look-up for each record without a row.
    Memory: a window of the log, a segment of the rows, and the runs of faulty entries."""
    return _LogCheck(task, view).run()


class _LogCheck:
    """The state of one log's check."""

    def __init__(self, task: LogTask, view: IndexView) -> None:
        log = task.log
        self._task, self._view = task, view
        self._rows = LogRows(view.rows_path, task.segments)
        self.coverage = LogCoverage(log.dir_index, log.log_id, log.path, log.bytes)
        self.coverage.rows = self._rows.row_count
        # Rows that point to no record, and rows that point to the record of another entry.
        self._dangling_rows, self._mismatched_rows = EntryRuns(), EntryRuns()
        # Records of known ledgers that are in no row: before all rows of their ledger, before and
        # after the last record of the log that is in a row, and those that a replay adds.
        self._before_all_rows, self._among_rows = EntryRuns(), EntryRuns()
        self._after_last_row, self._in_journal = EntryRuns(), EntryRuns()
        # Records without a row, which wait to be looked up.
        self._waiting_batches: list[Int64Array] = []
        self._waiting_count = 0
        self._garbage: dict[LedgerId, _Garbage] = {}
        self._last_indexed_position = -1
        self._sizes = LogSizes()

    def run(self) -> tuple[list[CheckFinding], LogCoverage]:
        """Compare the log's records with the index rows that point into it; return the findings,
        and how much was checked."""
        findings: list[CheckFinding] = []
        byte_usage = LogByteUsage()
        if self._task.exists:
            findings += self._scan_log(byte_usage)
        # Rows behind the last record point to none. Records without a row are looked up: the index
        # may have their entries elsewhere.
        for rows in self._rows.read_rest():
            self._dangling_rows.add(*rows.T)
        self._look_up_waiting_records()
        findings += self._row_findings()
        findings += self._record_findings(byte_usage)
        findings += self._garbage_findings()
        return findings, self.coverage

    def _scan_log(self, byte_usage: LogByteUsage) -> list[CheckFinding]:
        """Read the log into `byte_usage`, and join it with its rows; return findings on bytes."""
        scan_findings: list[Finding] = []
        path, coverage = self._task.log.path, self.coverage
        try:
            for batch in scan_log(path, scan_findings, usage=byte_usage):
                self._join_batch(batch)
        except BkstoreError as error:
            scan_findings.append(Finding.of(error))
        coverage.header_bytes = byte_usage.header_bytes
        coverage.record_bytes = byte_usage.record_bytes
        coverage.map_bytes, coverage.padding_bytes = byte_usage.map_bytes, byte_usage.padding_bytes
        coverage.records = byte_usage.record_count
        coverage.unaccounted = list(byte_usage.skipped_ranges)
        skipped_bytes = sum(end - start for start, end in byte_usage.skipped_ranges)
        accounted_end = byte_usage.known_bytes + skipped_bytes
        if accounted_end < coverage.bytes:  # the scan ended early
            coverage.unaccounted.append((accounted_end, coverage.bytes))
        findings = list(CheckFinding.from_findings("log", scan_findings))
        is_damaged = any(finding.severity == "damage" for finding in scan_findings)
        return findings + size_findings(
            self._task.log, byte_usage, self._sizes, self._task.cached_metadata, is_damaged
        )

    # -- the join

    def _join_batch(self, batch: LogBatch) -> None:
        """Compare the records of a batch with the index rows that point at or before its end. A row
        is dangling if no record begins at its position, mismatched if that has other ids. Records
        without a row are queued to be looked up."""
        self._sizes.add(batch)
        # Find the record at each row's position; both are sorted by it.
        rows = self._rows.read_up_to(int(batch.position[-1]))
        is_indexed = np.zeros(len(batch), np.bool_)
        if rows.size:
            record_indexes = np.searchsorted(batch.position, rows[:, _POSITION])
            record_exists = batch.position[record_indexes] == rows[:, _POSITION]
            is_same_entry = record_exists & self._is_same_entry(batch, record_indexes, rows)
            is_indexed[record_indexes[is_same_entry]] = True
            self._dangling_rows.add(*rows[~record_exists].T)
            self._mismatched_rows.add(*rows[record_exists & ~is_same_entry].T)
        # Records with a row: verify their digests.
        indexed_records = np.flatnonzero(is_indexed)
        if indexed_records.size:
            # Records without a row that came after all with one are now among them: not just
            # waiting for the next flush, but missing in the index.
            self._among_rows.move_from(self._after_last_row)
            self._last_indexed_position = int(batch.position[indexed_records[-1]])
            if self._view.digests is not None:
                all_indexed = indexed_records.size == len(batch)
                indexed_batch = batch if all_indexed else batch.where(indexed_records)
                self._view.digests.verify(indexed_batch)
                self.coverage.digests += len(indexed_batch)
        self.coverage.indexed += int(indexed_records.size)
        if indexed_records.size < len(batch):
            self._queue_for_look_up(batch, ~is_indexed)

    @staticmethod
    def _is_same_entry(batch: LogBatch, record_indexes: Int64Array, rows: Int64Array) -> BoolArray:
        """Return for each row whether the record of that index in the batch has the row's ids."""
        is_same: BoolArray = batch.entry_id[record_indexes] == rows[:, _ENTRY]
        is_same &= batch.ledger_id[record_indexes] == rows[:, _LEDGER]
        is_same &= batch.scope_id[record_indexes] == rows[:, _SCOPE]
        return is_same

    def _queue_for_look_up(self, batch: LogBatch, has_no_row: BoolArray) -> None:
        """Queue the records that have no row; look them up once there are enough. If only some
        ledgers are checked, records of others are counted, and cleared in `has_no_row`."""
        columns = (batch.scope_id, batch.ledger_id, batch.entry_id, batch.position, batch.size)
        if self._view.only_ledgers is not None:
            record_indexes = np.flatnonzero(has_no_row)
            keys = ledger_keys(batch.scope_id[record_indexes], batch.ledger_id[record_indexes])
            is_requested = find_keys(self._view.only_ledgers, keys) >= 0
            self.coverage.others += int(np.count_nonzero(~is_requested))
            has_no_row[record_indexes] = is_requested
        self._waiting_batches.append(np.column_stack([column[has_no_row] for column in columns]))
        self._waiting_count += len(self._waiting_batches[-1])
        if self._waiting_count >= _LOOK_UP_BATCH:
            self._look_up_waiting_records()

    def _look_up_waiting_records(self) -> None:
        """Look up the records that wait, ledger by ledger, to find out what they are."""
        if not self._waiting_count:
            return
        records = np.concatenate(self._waiting_batches)
        self._waiting_batches, self._waiting_count = [], 0
        records = records[order_by_ledger(records[:, _SCOPE], records[:, _LEDGER])]
        for ledger_id, start, stop in ledger_runs(records[:, _SCOPE], records[:, _LEDGER]):
            self._classify_records(ledger_id, records[start:stop])

    def _classify_records(self, ledger: LedgerId, records: Int64Array) -> None:
        """Count a ledger's records without a row, by what they are, and note the faulty ones.
        `records` has the columns `_SCOPE` to `_SIZE`; the notes are without the size."""
        lowest_locations, coverage = self._view.lowest_locations, self.coverage
        if lowest_locations is None:
            coverage.unjudged += len(records)
            return
        is_unknown = any(each.includes(ledger) for each in self._view.unknown_ledgers)
        if ledger not in lowest_locations and not is_unknown:
            lowest_position = int(records[0, _POSITION])
            garbage = self._garbage.setdefault(ledger, _Garbage(lowest_position))
            garbage.records += len(records)
            garbage.bytes += int(records[:, _SIZE].sum()) + SIZE_FIELD_BYTES * len(records)
            return
        entries = np.minimum(records[:, _ENTRY], MAX_ENTRY_ID)  # `get_many` refuses larger ids
        try:
            locations = self._view.open_index().get_many(ledger, entries)
        except SystemRefused:
            raise
        except BkstoreError:  # the pass over the index has reported it
            coverage.unjudged += len(records)
            return
        # A record whose entry has a location elsewhere is a copy; the others are in no row.
        missing = records[locations == 0]
        coverage.copies += len(records) - len(missing)
        if ledger not in lowest_locations:  # of a ledger, or the garbage of a deleted one
            coverage.unjudged += len(missing)
            return
        coverage.unindexed += len(missing)
        is_replayed = _in_ranges(missing[:, _ENTRY], self._view.replayed.get(ledger))
        self._in_journal.add(*missing[is_replayed, :_SIZE].T)
        missing = missing[~is_replayed]
        # If the ledger was deleted and made again, all of its rows point behind its old records.
        record_locations = missing[:, _POSITION] + (self._task.log.log_id << 32)
        is_before_all_rows = record_locations < lowest_locations[ledger]
        self._before_all_rows.add(*missing[is_before_all_rows, :_SIZE].T)
        missing = missing[~is_before_all_rows]
        # Records behind the last one with a row may just not have been flushed.
        is_before_last_row = missing[:, _POSITION] <= self._last_indexed_position
        self._among_rows.add(*missing[is_before_last_row, :_SIZE].T)
        self._after_last_row.add(*missing[~is_before_last_row, :_SIZE].T)

    # -- findings

    def _row_findings(self) -> list[CheckFinding]:
        """Return the findings on index rows that point to no record, to another entry's record, or
        to one whose digest is wrong."""
        path, dangling, mismatched = self._task.log.path, self._dangling_rows, self._mismatched_rows
        if not self._task.exists:
            return list(dangling.findings("no-log", "damage", "no such entry log", path))
        findings = list(dangling.findings("no-record", "damage", _NO_RECORD_TEXT, path))
        findings += mismatched.findings("wrong-record", "damage", _WRONG_RECORD_TEXT, path)
        if self._view.digests is not None:
            findings += self._view.digests.findings(path)
        return findings

    def _record_findings(self, byte_usage: LogByteUsage) -> list[CheckFinding]:
        """Return the findings on records of known ledgers that are in no row."""
        path = self._task.log.path
        if byte_usage.map_offset is not None:  # the log is closed, so all of it has been flushed
            self._among_rows.move_from(self._after_last_row)
        findings = list(self._among_rows.findings("unindexed", "damage", _UNINDEXED_TEXT, path))
        findings += self._before_all_rows.findings("unindexed", "oddity", _BEFORE_ROWS_TEXT, path)
        findings += self._after_last_row.findings("unflushed", "oddity", _UNFLUSHED_TEXT, path)
        findings += self._in_journal.findings("unflushed", "oddity", _REPLAYED_TEXT, path)
        return findings

    def _garbage_findings(self) -> list[CheckFinding]:
        """Return a finding for each unknown ledger; above the limit, one for all further ones."""
        self.coverage.garbage = sum(garbage.records for garbage in self._garbage.values())
        self.coverage.garbage_bytes = sum(garbage.bytes for garbage in self._garbage.values())
        live = sorted(self._garbage.keys() & self._view.live_ledgers)
        others = sorted(self._garbage.keys() - self._view.live_ledgers)
        listed, unlisted = others[:_MAX_GARBAGE_FINDINGS], others[_MAX_GARBAGE_FINDINGS:]
        findings = [self._garbage_finding(ledger_id, "damage", _LIVE_TEXT) for ledger_id in live]
        findings += [self._garbage_finding(n, "note", _UNKNOWN_LEDGER_TEXT) for n in listed]
        if unlisted:
            more_ledgers = format_count(len(unlisted), "more ledger")
            count = sum(self._garbage[ledger_id].records for ledger_id in unlisted)
            detail = f"{format_count(count, 'record')} of {more_ledgers}: {_UNKNOWN_LEDGER_TEXT}"
            path = self._task.log.path
            findings.append(CheckFinding("unknown-ledger", "note", detail, path, entries=count))
        return findings

    def _garbage_finding(self, ledger: LedgerId, severity: Severity, reason: str) -> CheckFinding:
        """Return the finding on the records of a ledger that is not in the index."""
        garbage = self._garbage[ledger]
        records = format_count(garbage.records, "record")
        return CheckFinding(
            "unknown-ledger",
            severity,
            f"{records} ({garbage.bytes} bytes) of ledger {ledger}: {reason}",
            self._task.log.path,
            garbage.lowest_position,
            ledger,
            entries=garbage.records,
        )


def _in_ranges(entries: Int64Array, ranges: Int64Array | None) -> BoolArray:
    """Return which entries lie in one of the ascending ranges; none does if `ranges` is None."""
    if ranges is None:
        return np.zeros(entries.size, np.bool_)
    firsts, lasts = ranges.T
    # The last range that begins at or before each entry; -1 if there is none.
    range_indexes = np.searchsorted(firsts, entries, "right") - 1
    range_ends = lasts[np.maximum(range_indexes, 0)]
    is_within: BoolArray = (range_indexes >= 0) & (entries <= range_ends)
    return is_within
