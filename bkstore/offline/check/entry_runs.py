"""Collect entries with the same fault by ledger: a lost log is a few findings, not a million."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from bkstore.availability import Availability
from bkstore.availability.entry_text import format_entries_of
from bkstore.counts import format_count
from bkstore.ids import MAX_ENTRY_ID, Int64Array, LedgerId
from bkstore.offline.check.findings import CheckFinding, CheckKind, Severity

_MAX_FINDINGS = 10_000  # of one kind and file
_MIN_PENDING_ROWS = 1 << 18
_NO_RUNS = np.empty((0, 6), np.int64)


class EntryRuns:
    """Runs of consecutive entries by ledger, each with the lowest of their offsets.

    >>> runs = EntryRuns()
    >>> runs.add(np.zeros(3, int), np.full(3, 7), np.array([5, 3, 4]), np.array([90, 10, 50]))
    >>> [(f.first_entry, f.last_entry, f.entries, f.offset) for f in runs.findings(
    ...     "no-record", "damage", "gone", "0.log")]
    [(3, 5, 3, 10)]
    """

    def __init__(self) -> None:
        self._pending: list[Int64Array] = []
        self._pending_rows = 0
        self._runs = _NO_RUNS

    def add(
        self, scopes: Int64Array, ledgers: Int64Array, entries: Int64Array, offsets: Int64Array
    ) -> None:
        """Add entries with their ledgers (two's complement) and offsets, int64[n] each."""
        ones = np.ones(entries.size, np.int64)
        self._add_rows(np.column_stack((scopes, ledgers, entries, entries, ones, offsets)))

    def move_from(self, other: EntryRuns) -> None:
        """Move all runs of another one to this one."""
        self._add_rows(other.rows())
        other._pending, other._runs = [], _NO_RUNS

    def _add_rows(self, rows: Int64Array) -> None:
        """Add rows of runs (adjacent entries) to the pending ones. These are merged only once they
        are as many as the last merge has left: all merges together cost little more than one."""
        if not len(rows):
            return
        self._pending.append(rows)
        self._pending_rows += len(rows)
        if self._pending_rows >= max(_MIN_PENDING_ROWS, len(self._runs)):
            self.rows()  # merges

    def rows(self) -> Int64Array:
        """Return int64[n, 6]: scope, ledger, first, last, entries, offset; sorted, not touching.
        Ledgers come in unsigned order."""
        if self._pending:
            self._runs = _merge_runs(np.concatenate([self._runs, *self._pending]))
            self._pending, self._pending_rows = [], 0
        return self._runs

    @property
    def entry_count(self) -> int:
        """The number of entries in all runs."""
        return int(self.rows()[:, 4].sum())  # column `entries`

    def findings(
        self, kind: CheckKind, severity: Severity, detail: str, file: str | None
    ) -> Iterator[CheckFinding]:
        """Yield a finding for each ledger, with all of its runs; after `_MAX_FINDINGS`, one for all
        other ledgers."""
        rows = self.rows()
        ledger_starts = np.flatnonzero(_starts_ledger(rows)) + 1
        runs_by_ledger = np.split(rows, ledger_starts) if len(rows) else []
        for ledger_runs in runs_by_ledger[:_MAX_FINDINGS]:
            yield _make_finding(ledger_runs, kind, severity, detail, file)
        if others := runs_by_ledger[_MAX_FINDINGS:]:
            yield _finding_of_other_ledgers(others, kind, severity, detail, file)


def _starts_ledger(rows: Int64Array) -> npt.NDArray[np.bool_]:
    """Return bool[n - 1]: whether each row but the first has another ledger than the row before."""
    ledgers = rows[:, :2]  # scope, ledger
    is_other: npt.NDArray[np.bool_] = (ledgers[1:] != ledgers[:-1]).any(axis=1)
    return is_other


def _merge_runs(rows: Int64Array) -> Int64Array:
    """Return runs (rows as of `EntryRuns.rows`) sorted, with those that touch or overlap made
    one."""
    sign = np.int64(-(1 << 63))  # with this bit flipped, signed numbers sort as unsigned ones
    scopes, ledgers, first, *_ = rows.T
    rows = rows[np.lexsort((first, ledgers ^ sign, scopes ^ sign))]
    _, _, first, last, counts, offsets = rows.T
    is_new_ledger = _starts_ledger(rows)
    # A run may lie inside an earlier one, so compare with the highest entry of all before it.
    highest = last.copy()
    bounds = [0, *(np.flatnonzero(is_new_ledger) + 1).tolist(), len(rows)]
    for start, stop in pairwise(bounds):
        np.maximum.accumulate(highest[start:stop], out=highest[start:stop])
    opens_run = np.concatenate(([True], is_new_ledger | (first[1:] > highest[:-1] + 1)))
    # Now reduce each group of runs that touch or overlap to one.
    starts = np.flatnonzero(opens_run)
    last = np.maximum.reduceat(last, starts)
    offsets = np.minimum.reduceat(offsets, starts)
    # No run has more entries than ids; an entry may have been added twice.
    counts = np.minimum(np.add.reduceat(counts, starts), last - first[starts] + 1)
    return np.column_stack((rows[starts, :3], last, counts, offsets))


def _make_finding(
    runs: Int64Array, kind: CheckKind, severity: Severity, detail: str, file: str | None
) -> CheckFinding:
    """Return the finding on the runs of one ledger; rows are those of `EntryRuns.rows`."""
    scopes, ledgers, first, last, counts, offsets = runs.T
    ledger = LedgerId.from_signed(int(scopes[0]), int(ledgers[0]))
    first_entry, last_entry, count = int(first[0]), int(last[-1]), int(counts.sum())
    entry_set = None
    if 0 <= first_entry and last_entry <= MAX_ENTRY_ID:
        entry_set = Availability.from_half_open_ranges(first, last + 1)
        subject = format_entries_of(ledger, entry_set)
    else:  # ids that no client can have written
        subject = f"{format_count(count, 'entry', 'entries')} of ledger {ledger} within "
        subject += f"{first_entry}..{last_entry}"
    return CheckFinding(
        kind,
        severity,
        f"{subject}: {detail}",
        file,
        int(offsets.min()),
        ledger,
        first_entry,
        last_entry,
        count,
        entry_set,
    )


def _finding_of_other_ledgers(
    ledgers: list[Int64Array], kind: CheckKind, severity: Severity, detail: str, file: str | None
) -> CheckFinding:
    """Return one finding on all runs of several ledgers; an element of `ledgers` has the runs of
    one, with the columns of `EntryRuns.rows`."""
    scopes, numbers, _, _, counts, offsets = np.concatenate(ledgers).T
    first_ledger = LedgerId.from_signed(int(scopes[0]), int(numbers[0]))
    ledger_text = f"{format_count(len(ledgers), 'more ledger')}, from {first_ledger} on"
    count, lowest_offset = int(counts.sum()), int(offsets.min())
    message = f"{format_count(count, 'entry', 'entries')} of {ledger_text}: {detail}"
    return CheckFinding(kind, severity, message, file, lowest_offset, entries=count)
