"""One entry log against the index: what rows point at, and what no row points at.

One pass over the log, joined by position with the rows that point into it. A record that no row
points at is looked up: an entry that the index has elsewhere makes it an older copy (added
again, or compacted); a ledger that the index does not know makes it garbage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bkstore.counts import counted
from bkstore.errors import BkstoreError, SystemRefused
from bkstore.formats.entry import order_by_ledger
from bkstore.formats.entrylog import LogMetadata
from bkstore.formats.syntax.framing import PREFIX
from bkstore.ids import MAX_ENTRY_ID, Int64Array, LedgerId, ledger_stretches
from bkstore.index.api import EntryIndex, Finding
from bkstore.offline.check.coverage import LogCoverage
from bkstore.offline.check.entry_runs import EntryRuns
from bkstore.offline.check.findings import CheckFinding, Severity
from bkstore.offline.check.log_sizes import LogSizes, size_findings
from bkstore.offline.check.record_digests import RecordDigests
from bkstore.offline.spilled_rows.rows_by_log import LogRows, Segment
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.entry_log.log_account import LogAccount
from bkstore.storage.entry_log.scan import LogBatch, scan_log

_LOOK_UP = 1 << 19
"""Records without a row that wait to be looked up together: 24 MiB."""

_MOST_GARBAGE = 64
"""Unknown ledgers of a log that are told apart."""

_NO_RECORD = "no record begins where the row points"
_OTHER = "the row points at the record of another entry"
_UNINDEXED = "in the log, and in no row of the index"
_EARLIER = (
    "in the log, older than all that the index has of the ledger: from before it was deleted and "
    "made again, or lost"
)
_TAIL = "at the end of an open log and in no row of the index: a flush had not come to them"
_REPLAYED = "in no row of the index, and in a journal behind the last mark: a replay brings them"
_UNKNOWN = "not known to the index: garbage of a deleted ledger, or the ledger is lost"
_LIVE = "which ledger metadata have, and the index does not"


@dataclass(frozen=True)
class LogTask:
    """One log to check: the file, the rows that point into it, and what the bookie cached of it.

    `log` has no path where rows point into a log that is not here.
    """

    log: LogFile
    here: bool
    segments: list[Segment] = field(default_factory=list)
    cached: LogMetadata | None = None


@dataclass(frozen=True)
class IndexView:
    """What a log is held against: the rows in a scratch file, the index to look entries up.

    `known` has its ledgers with the lowest location of each (0 where it has none), None where the
    index cannot be asked. With `only`, records of other
    ledgers are counted and not judged; `live` are ledgers that somebody else knows of. `replayed`
    has the ranges of entries, int64[n, 2], that a replay of the journals brings.
    """

    rows: Path
    index: Callable[[], EntryIndex]
    known: Mapping[LedgerId, int] | None
    digests: RecordDigests | None = None
    only: LedgerId | None = None
    live: frozenset[LedgerId] = frozenset()
    replayed: Mapping[LedgerId, Int64Array] = field(default_factory=dict)


def check_log(task: LogTask, view: IndexView) -> tuple[list[CheckFinding], LogCoverage]:
    """Return what is wrong with a log and with the rows that point into it, and what was read.

    Never raises for what is in the log. Cost: one pass over the log, some 300 ns a record, and a
    look-up for each record that no row points at. Memory: a window of the log, one stretch of
    rows, and the runs of what is wrong.
    """
    return _LogCheck(task, view).run()


class _LogCheck:
    """The state of one log's check."""

    def __init__(self, task: LogTask, view: IndexView) -> None:
        log = task.log
        self._task, self._view = task, view
        self._rows = LogRows(view.rows, task.segments)
        self.coverage = LogCoverage(log.dir_index, log.log_id, log.path, log.bytes)
        self.coverage.rows = self._rows.count
        self._lost, self._wrong = EntryRuns(), EntryRuns()
        self._unindexed, self._earlier = EntryRuns(), EntryRuns()
        self._tail, self._replayed = EntryRuns(), EntryRuns()
        self._alone: list[Int64Array] = []  # scope, ledger, entry, position, size
        self._waiting = 0
        self._garbage: dict[LedgerId, list[int]] = {}
        self._last_indexed = -1
        self._sizes = LogSizes()

    def run(self) -> tuple[list[CheckFinding], LogCoverage]:
        """Go through the log; return findings and coverage."""
        found: list[CheckFinding] = []
        account = LogAccount()
        if self._task.here:
            found += self._scan(account)
        for rows in self._rows.rest():
            self._lost.add(*rows.T)
        self._look_up()
        found += self._row_findings()
        found += self._record_findings(account)
        found += self._garbage_findings()
        return found, self.coverage

    def _scan(self, account: LogAccount) -> list[CheckFinding]:
        odd: list[Finding] = []
        path, seen = self._task.log.path, self.coverage
        try:
            for batch in scan_log(path, odd, account=account):
                self._take(batch)
        except BkstoreError as error:
            odd.append(Finding.of(error))
        seen.header_bytes, seen.record_bytes = account.header, account.record_bytes
        seen.map_bytes, seen.padding_bytes = account.map, account.padding
        seen.records, seen.unaccounted = account.records, list(account.passed_over)
        end = account.bytes + sum(hi - lo for lo, hi in account.passed_over)
        if end < seen.bytes:  # the scan was stopped
            seen.unaccounted.append((end, seen.bytes))
        found = [CheckFinding.of("log", each) for each in odd]
        stopped = any(each.severity == "damage" for each in odd)
        return found + size_findings(
            self._task.log, account, self._sizes, self._task.cached, stopped
        )

    # -- the join

    def _take(self, batch: LogBatch) -> None:
        self._sizes.add(batch)
        rows = self._rows.upto(int(batch.position[-1]))
        pointed = np.zeros(len(batch), np.bool_)
        if rows.size:
            at = np.searchsorted(batch.position, rows[:, 3])
            hit = batch.position[at] == rows[:, 3]
            same = hit & self._same(batch, at, rows)
            pointed[at[same]] = True
            self._lost.add(*rows[~hit].T)
            self._wrong.add(*rows[hit & ~same].T)
        where = np.flatnonzero(pointed)
        if where.size:
            self._unindexed.take(self._tail)
            self._last_indexed = int(batch.position[where[-1]])
            if self._view.digests is not None:
                chosen = batch if where.size == len(batch) else batch.where(where)
                self._view.digests.verify(chosen)
                self.coverage.digests += len(chosen)
        self.coverage.indexed += int(where.size)
        if where.size < len(batch):
            self._leave(batch, ~pointed)

    @staticmethod
    def _same(batch: LogBatch, at: Int64Array, rows: Int64Array) -> npt.NDArray[np.bool_]:
        same: npt.NDArray[np.bool_] = batch.entry_id[at] == rows[:, 2]
        same &= batch.ledger_id[at] == rows[:, 1]
        same &= batch.scope_id[at] == rows[:, 0]
        return same

    def _leave(self, batch: LogBatch, alone: npt.NDArray[np.bool_]) -> None:
        """Keep records that no row points at until they are looked up."""
        columns = (batch.scope_id, batch.ledger_id, batch.entry_id, batch.position, batch.size)
        if self._view.only is not None:
            scope, number = self._view.only.signed
            own = (batch.scope_id == scope) & (batch.ledger_id == number)
            self.coverage.others += int(np.count_nonzero(alone & ~own))
            alone &= own
        self._alone.append(np.column_stack([column[alone] for column in columns]))
        self._waiting += len(self._alone[-1])
        if self._waiting >= _LOOK_UP:
            self._look_up()

    def _look_up(self) -> None:
        """Judge the records that wait, ledger by ledger."""
        if not self._waiting:
            return
        rows = np.concatenate(self._alone)
        self._alone, self._waiting = [], 0
        rows = rows[order_by_ledger(rows[:, 0], rows[:, 1])]
        for name, start, stop in ledger_stretches(rows[:, 0], rows[:, 1]):
            self._judge(name, rows[start:stop])

    def _judge(self, ledger: LedgerId, own: Int64Array) -> None:
        known, seen = self._view.known, self.coverage
        if known is None:
            seen.unjudged += len(own)
            return
        if ledger not in known:
            counts = self._garbage.setdefault(ledger, [0, 0, int(own[0, 3])])
            counts[0] += len(own)
            counts[1] += int(own[:, 4].sum()) + PREFIX * len(own)
            return
        entries = np.minimum(own[:, 2], MAX_ENTRY_ID)
        try:
            places = self._view.index().get_many(ledger, entries)
        except SystemRefused:
            raise
        except BkstoreError:  # the pass over the index has told
            seen.unjudged += len(own)
            return
        missing = own[places == 0]
        seen.copies += len(own) - len(missing)
        seen.unindexed += len(missing)
        kept = _within(missing[:, 2], self._view.replayed.get(ledger))
        self._replayed.add(*missing[kept, :4].T)
        missing = missing[~kept]
        # Where the ledger was made again, all of its rows point behind what it had before.
        earlier = missing[:, 3] + (self._task.log.log_id << 32) < known[ledger]
        self._earlier.add(*missing[earlier, :4].T)
        missing = missing[~earlier]
        before = missing[:, 3] <= self._last_indexed
        self._unindexed.add(*missing[before, :4].T)
        self._tail.add(*missing[~before, :4].T)

    # -- what was found

    def _row_findings(self) -> list[CheckFinding]:
        log = self._task.log
        if not self._task.here:
            return list(self._lost.findings("no-log", "damage", "no such entry log", log.path))
        found = list(self._lost.findings("no-record", "damage", _NO_RECORD, log.path))
        found += self._wrong.findings("wrong-record", "damage", _OTHER, log.path)
        if self._view.digests is not None:
            found += self._view.digests.findings(log.path)
        return found

    def _record_findings(self, account: LogAccount) -> list[CheckFinding]:
        path = self._task.log.path
        if account.map_at is not None:  # a closed log has no tail that waits for a flush
            self._unindexed.take(self._tail)
        found = list(self._unindexed.findings("unindexed", "damage", _UNINDEXED, path))
        found += self._earlier.findings("unindexed", "oddity", _EARLIER, path)
        found += self._tail.findings("unflushed", "oddity", _TAIL, path)
        return found + list(self._replayed.findings("unflushed", "oddity", _REPLAYED, path))

    def _garbage_findings(self) -> list[CheckFinding]:
        """Return a note for each ledger that the index does not know, for many one of the rest."""
        self.coverage.garbage = sum(counts[0] for counts in self._garbage.values())
        self.coverage.garbage_bytes = sum(counts[1] for counts in self._garbage.values())
        live = sorted(name for name in self._garbage if name in self._view.live)
        others = sorted(name for name in self._garbage if name not in self._view.live)
        found = [self._garbage_of(name, "damage", _LIVE) for name in live]
        found += [self._garbage_of(name, "note", _UNKNOWN) for name in others[:_MOST_GARBAGE]]
        if others[_MOST_GARBAGE:]:
            more = counted(len(others) - _MOST_GARBAGE, "more ledger")
            count = sum(self._garbage[name][0] for name in others[_MOST_GARBAGE:])
            detail = f"{counted(count, 'record')} of {more}: {_UNKNOWN}"
            path = self._task.log.path
            found.append(CheckFinding("unknown-ledger", "note", detail, path, entries=count))
        return found

    def _garbage_of(self, ledger: LedgerId, severity: Severity, why: str) -> CheckFinding:
        records, size, offset = self._garbage[ledger]
        detail = f"{counted(records, 'record')} ({size} bytes) of ledger {ledger}: {why}"
        path = self._task.log.path
        return CheckFinding(
            "unknown-ledger", severity, detail, path, offset, ledger, entries=records
        )


def _within(entries: Int64Array, ranges: Int64Array | None) -> npt.NDArray[np.bool_]:
    """Return which entries lie in one of some ranges, which ascend; in none of None."""
    if ranges is None:
        return np.zeros(entries.size, np.bool_)
    at = np.searchsorted(ranges[:, 0], entries, "right") - 1
    inside: npt.NDArray[np.bool_] = (at >= 0) & (entries <= ranges[np.maximum(at, 0), 1])
    return inside
