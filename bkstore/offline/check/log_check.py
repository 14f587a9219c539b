"""Compare one entry log with the index: records that rows point at, and records without a row.

One pass over the log joins it by position with the rows that point into it. A record without a
row is looked up: if the index has its entry elsewhere, it is an older copy (the entry was added
again, or compacted); if its ledger is not in the index, it is garbage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bkstore.counts import format_count
from bkstore.errors import BkstoreError, SystemRefused
from bkstore.formats.entry import order_by_ledger
from bkstore.formats.entrylog import LogMetadata
from bkstore.formats.syntax.framing import SIZE_FIELD_BYTES
from bkstore.ids import MAX_ENTRY_ID, Int64Array, LedgerId, ledger_runs
from bkstore.index.api import EntryIndex, Finding
from bkstore.offline.check.coverage import LogCoverage
from bkstore.offline.check.entry_runs import EntryRuns
from bkstore.offline.check.findings import CheckFinding, Severity
from bkstore.offline.check.log_sizes import LogSizes, size_findings
from bkstore.offline.check.record_digests import RecordDigests
from bkstore.offline.spilled_rows.rows_by_log import LogRows, Segment
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.entry_log.byte_usage import LogByteUsage
from bkstore.storage.entry_log.scan import LogBatch, scan_log

_LOOK_UP_BATCH = 1 << 19
"""The number of records without a row that are looked up together: 24 MiB."""

_MAX_GARBAGE_FINDINGS = 64
"""The number of unknown ledgers of a log that get a finding each."""

_NO_RECORD = "no record begins where the row points"
_WRONG_RECORD = "the row points to the record of another entry"
_UNINDEXED = "in the log, but in no row of the index"
_EARLIER = (
    "in the log, before all rows of the ledger: lost, or from before it was deleted "
    "and created again"
)
_TAIL = "at the end of an open log and in no row of the index: not flushed yet"
_REPLAYED = "in no row of the index, but in a journal after the last mark: a replay adds them"
_UNKNOWN_LEDGER = "not in the index: garbage of a deleted ledger, or the ledger is lost"
_LIVE_LEDGER = "of a ledger in the metadata, but not in the index"


@dataclass(frozen=True)
class LogTask:
    """One log to check: the file, the index rows that point into it, and its cached metadata.

    `exists` is False if rows point into a log that does not exist; `log` has its name only.
    """

    log: LogFile
    exists: bool
    segments: list[Segment] = field(default_factory=list)
    cached_metadata: LogMetadata | None = None


@dataclass(frozen=True)
class IndexView:
    """What a log is compared with: rows in a scratch file, and the index for look-ups.

    `lowest_locations` maps the ledgers in the index to their lowest locations (0 without entries),
    and is None if the index cannot be read. Records of ledgers other than `only_ledger` are only
    counted. `live_ledgers` are in the metadata. `replayed` is what a replay of journals adds.
    """

    rows_path: Path
    open_index: Callable[[], EntryIndex]
    lowest_locations: Mapping[LedgerId, int] | None
    digests: RecordDigests | None = None
    only_ledger: LedgerId | None = None
    live_ledgers: frozenset[LedgerId] = frozenset()
    replayed: Mapping[LedgerId, Int64Array] = field(default_factory=dict)


def check_log(task: LogTask, view: IndexView) -> tuple[list[CheckFinding], LogCoverage]:
    """Return the findings on a log and on the rows that point into it, and the coverage.

    Damage in the log never raises. Cost: 300 ns a record, and a look-up for each record without a
    row. Memory: a window of the log, a segment of the rows, and the runs of faulty entries.
    """
    return _LogCheck(task, view).run()


class _LogCheck:
    """The state of one log's check."""

    def __init__(self, task: LogTask, view: IndexView) -> None:
        log = task.log
        self._task, self._view = task, view
        self._rows = LogRows(view.rows_path, task.segments)
        self.coverage = LogCoverage(log.dir_index, log.log_id, log.path, log.bytes)
        self.coverage.rows = self._rows.row_count
        self._lost, self._wrong = EntryRuns(), EntryRuns()
        self._unindexed, self._earlier = EntryRuns(), EntryRuns()
        self._tail, self._replayed = EntryRuns(), EntryRuns()
        self._without_row: list[Int64Array] = []  # scope, ledger, entry, position, size
        self._waiting_records = 0
        self._garbage: dict[LedgerId, list[int]] = {}
        self._last_indexed = -1
        self._sizes = LogSizes()

    def run(self) -> tuple[list[CheckFinding], LogCoverage]:
        """Join the log with its rows, and look up the rest; return findings and coverage."""
        findings: list[CheckFinding] = []
        account = LogByteUsage()
        if self._task.exists:
            findings += self._scan(account)
        for rows in self._rows.read_rest():
            self._lost.add(*rows.T)
        self._look_up_waiting()
        findings += self._row_findings()
        findings += self._record_findings(account)
        findings += self._garbage_findings()
        return findings, self.coverage

    def _scan(self, account: LogByteUsage) -> list[CheckFinding]:
        scan_findings: list[Finding] = []
        path, coverage = self._task.log.path, self.coverage
        try:
            for batch in scan_log(path, scan_findings, usage=account):
                self._join_batch(batch)
        except BkstoreError as error:
            scan_findings.append(Finding.of(error))
        coverage.header_bytes, coverage.record_bytes = account.header_bytes, account.record_bytes
        coverage.map_bytes, coverage.padding_bytes = account.map_bytes, account.padding_bytes
        coverage.records, coverage.unaccounted = account.record_count, list(account.skipped_ranges)
        skipped_bytes = sum(end - start for start, end in account.skipped_ranges)
        accounted_end = account.known_bytes + skipped_bytes
        if accounted_end < coverage.bytes:  # the scan ended early
            coverage.unaccounted.append((accounted_end, coverage.bytes))
        findings = list(CheckFinding.from_findings("log", scan_findings))
        is_damaged = any(finding.severity == "damage" for finding in scan_findings)
        return findings + size_findings(
            self._task.log, account, self._sizes, self._task.cached_metadata, is_damaged
        )

    # -- the join

    def _join_batch(self, batch: LogBatch) -> None:
        self._sizes.add(batch)
        rows = self._rows.read_up_to(int(batch.position[-1]))
        is_indexed = np.zeros(len(batch), np.bool_)
        if rows.size:
            record_indexes = np.searchsorted(batch.position, rows[:, 3])
            record_exists = batch.position[record_indexes] == rows[:, 3]
            is_same_entry = record_exists & self._is_same_entry(batch, record_indexes, rows)
            is_indexed[record_indexes[is_same_entry]] = True
            self._lost.add(*rows[~record_exists].T)
            self._wrong.add(*rows[record_exists & ~is_same_entry].T)
        indexed_records = np.flatnonzero(is_indexed)
        if indexed_records.size:
            self._unindexed.move_from(self._tail)
            self._last_indexed = int(batch.position[indexed_records[-1]])
            if self._view.digests is not None:
                all_indexed = indexed_records.size == len(batch)
                indexed_batch = batch if all_indexed else batch.where(indexed_records)
                self._view.digests.verify(indexed_batch)
                self.coverage.digests += len(indexed_batch)
        self.coverage.indexed += int(indexed_records.size)
        if indexed_records.size < len(batch):
            self._keep_for_look_up(batch, ~is_indexed)

    @staticmethod
    def _is_same_entry(
        batch: LogBatch, record_indexes: Int64Array, rows: Int64Array
    ) -> npt.NDArray[np.bool_]:
        is_same: npt.NDArray[np.bool_] = batch.entry_id[record_indexes] == rows[:, 2]
        is_same &= batch.ledger_id[record_indexes] == rows[:, 1]
        is_same &= batch.scope_id[record_indexes] == rows[:, 0]
        return is_same

    def _keep_for_look_up(self, batch: LogBatch, has_no_row: npt.NDArray[np.bool_]) -> None:
        columns = (batch.scope_id, batch.ledger_id, batch.entry_id, batch.position, batch.size)
        if self._view.only_ledger is not None:
            scope, ledger = self._view.only_ledger.signed
            is_requested = (batch.scope_id == scope) & (batch.ledger_id == ledger)
            self.coverage.others += int(np.count_nonzero(has_no_row & ~is_requested))
            has_no_row &= is_requested
        self._without_row.append(np.column_stack([column[has_no_row] for column in columns]))
        self._waiting_records += len(self._without_row[-1])
        if self._waiting_records >= _LOOK_UP_BATCH:
            self._look_up_waiting()

    def _look_up_waiting(self) -> None:
        if not self._waiting_records:
            return
        rows = np.concatenate(self._without_row)
        self._without_row, self._waiting_records = [], 0
        rows = rows[order_by_ledger(rows[:, 0], rows[:, 1])]
        for ledger_id, start, stop in ledger_runs(rows[:, 0], rows[:, 1]):
            self._classify_records(ledger_id, rows[start:stop])

    def _classify_records(self, ledger: LedgerId, records: Int64Array) -> None:
        """Count a ledger's records without a row, by what they are, and note the faulty ones."""
        known, coverage = self._view.lowest_locations, self.coverage
        if known is None:
            coverage.unjudged += len(records)
            return
        if ledger not in known:
            counts = self._garbage.setdefault(ledger, [0, 0, int(records[0, 3])])
            counts[0] += len(records)
            counts[1] += int(records[:, 4].sum()) + SIZE_FIELD_BYTES * len(records)
            return
        entries = np.minimum(records[:, 2], MAX_ENTRY_ID)
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
        coverage.unindexed += len(missing)
        is_replayed = _in_ranges(missing[:, 2], self._view.replayed.get(ledger))
        self._replayed.add(*missing[is_replayed, :4].T)
        missing = missing[~is_replayed]
        # If the ledger was deleted and made again, all of its rows point behind its old records.
        is_earlier = missing[:, 3] + (self._task.log.log_id << 32) < known[ledger]
        self._earlier.add(*missing[is_earlier, :4].T)
        missing = missing[~is_earlier]
        # Records behind the last one with a row may just not have been flushed.
        is_before_last_row = missing[:, 3] <= self._last_indexed
        self._unindexed.add(*missing[is_before_last_row, :4].T)
        self._tail.add(*missing[~is_before_last_row, :4].T)

    # -- findings

    def _row_findings(self) -> list[CheckFinding]:
        log = self._task.log
        if not self._task.exists:
            return list(self._lost.findings("no-log", "damage", "no such entry log", log.path))
        findings = list(self._lost.findings("no-record", "damage", _NO_RECORD, log.path))
        findings += self._wrong.findings("wrong-record", "damage", _WRONG_RECORD, log.path)
        if self._view.digests is not None:
            findings += self._view.digests.findings(log.path)
        return findings

    def _record_findings(self, account: LogByteUsage) -> list[CheckFinding]:
        path = self._task.log.path
        if account.map_offset is not None:  # a closed log has no unflushed tail
            self._unindexed.move_from(self._tail)
        findings = list(self._unindexed.findings("unindexed", "damage", _UNINDEXED, path))
        findings += self._earlier.findings("unindexed", "oddity", _EARLIER, path)
        findings += self._tail.findings("unflushed", "oddity", _TAIL, path)
        return findings + list(self._replayed.findings("unflushed", "oddity", _REPLAYED, path))

    def _garbage_findings(self) -> list[CheckFinding]:
        """Return a finding for each unknown ledger; above the limit, one for all further ones."""
        self.coverage.garbage = sum(counts[0] for counts in self._garbage.values())
        self.coverage.garbage_bytes = sum(counts[1] for counts in self._garbage.values())
        live = sorted(self._garbage.keys() & self._view.live_ledgers)
        others = sorted(self._garbage.keys() - self._view.live_ledgers)
        listed, unlisted = others[:_MAX_GARBAGE_FINDINGS], others[_MAX_GARBAGE_FINDINGS:]
        findings = [self._garbage_finding(ledger_id, "damage", _LIVE_LEDGER) for ledger_id in live]
        findings += [self._garbage_finding(n, "note", _UNKNOWN_LEDGER) for n in listed]
        if unlisted:
            more_ledgers = format_count(len(unlisted), "more ledger")
            count = sum(self._garbage[ledger_id][0] for ledger_id in unlisted)
            detail = f"{format_count(count, 'record')} of {more_ledgers}: {_UNKNOWN_LEDGER}"
            path = self._task.log.path
            findings.append(CheckFinding("unknown-ledger", "note", detail, path, entries=count))
        return findings

    def _garbage_finding(self, ledger: LedgerId, severity: Severity, reason: str) -> CheckFinding:
        count, size, offset = self._garbage[ledger]
        detail = f"{format_count(count, 'record')} ({size} bytes) of ledger {ledger}: {reason}"
        path = self._task.log.path
        return CheckFinding("unknown-ledger", severity, detail, path, offset, ledger, entries=count)


def _in_ranges(entries: Int64Array, ranges: Int64Array | None) -> npt.NDArray[np.bool_]:
    """Return which entries lie in one of the ascending ranges; none does if `ranges` is None."""
    if ranges is None:
        return np.zeros(entries.size, np.bool_)
    range_indexes = np.searchsorted(ranges[:, 0], entries, "right") - 1
    range_ends = ranges[np.maximum(range_indexes, 0), 1]
    is_within: npt.NDArray[np.bool_] = (range_indexes >= 0) & (entries <= range_ends)
    return is_within
