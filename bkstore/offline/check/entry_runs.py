"""Collect entries with the same fault as runs: a lost log is a few findings, not a million."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from bkstore.counts import format_count
from bkstore.ids import Int64Array, LedgerId
from bkstore.offline.check.findings import CheckFinding, CheckKind, Severity

MAX_LEDGER_RUNS = 64
"""The maximum of runs for a ledger, kind and file; the last one includes all further ones."""

_MAX_FINDINGS = 10_000
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
        if not len(rows):
            return
        self._pending.append(rows)
        self._pending_rows += len(rows)
        if self._pending_rows >= max(_MIN_PENDING_ROWS, len(self._runs)):
            self.rows()

    def rows(self) -> Int64Array:
        """Return int64[n, 6]: scope, ledger, first, last, entries, offset; sorted, not touching.

        Ledgers come in unsigned order.
        """
        if self._pending:
            self._runs = _merge_runs(np.concatenate([self._runs, *self._pending]))
            self._pending, self._pending_rows = [], 0
        return self._runs

    @property
    def entry_count(self) -> int:
        """The number of entries in all runs."""
        return int(self.rows()[:, 4].sum())

    def findings(
        self, kind: CheckKind, severity: Severity, detail: str, file: str | None
    ) -> Iterator[CheckFinding]:
        """Yield a finding for each run; after `MAX_LEDGER_RUNS` of a ledger, one for the others."""
        rows = self.rows()
        ledger_starts = np.flatnonzero((rows[1:, :2] != rows[:-1, :2]).any(axis=1)) + 1
        runs_by_ledger = np.split(rows, ledger_starts) if len(rows) else []
        finding_count = 0
        for ledger_index, ledger_runs in enumerate(runs_by_ledger):
            if finding_count >= _MAX_FINDINGS:
                others = runs_by_ledger[ledger_index:]
                yield _finding_of_other_ledgers(others, kind, severity, detail, file)
                return
            for run in _limit_runs(ledger_runs).tolist():
                finding_count += 1
                yield _finding(run, kind, severity, detail, file)


def _merge_runs(rows: Int64Array) -> Int64Array:
    sign = np.int64(-(1 << 63))
    rows = rows[np.lexsort((rows[:, 2], rows[:, 1] ^ sign, rows[:, 0] ^ sign))]
    is_new_ledger = (rows[1:, :2] != rows[:-1, :2]).any(axis=1)
    # A run may lie inside an earlier one, so compare with the highest entry of all before it.
    highest_before = rows[:, 3].copy()
    bounds = [0, *(np.flatnonzero(is_new_ledger) + 1).tolist(), len(rows)]
    for start, stop in pairwise(bounds):
        np.maximum.accumulate(highest_before[start:stop], out=highest_before[start:stop])
    opens_run = np.concatenate(([True], is_new_ledger | (rows[1:, 2] > highest_before[:-1] + 1)))
    # Now reduce each group of runs that touch or overlap to one.
    starts = np.flatnonzero(opens_run)
    last_entries = np.maximum.reduceat(rows[:, 3], starts)
    offsets = np.minimum.reduceat(rows[:, 5], starts)
    counts = np.add.reduceat(rows[:, 4], starts)
    # An entry may have been added twice.
    counts = np.minimum(counts, last_entries - rows[starts, 2] + 1)
    return np.column_stack((rows[starts, :3], last_entries, counts, offsets))


def _limit_runs(runs: Int64Array) -> Int64Array:
    """Return at most `MAX_LEDGER_RUNS` runs of a ledger; the last one includes all further ones."""
    if len(runs) <= MAX_LEDGER_RUNS:
        return runs
    excess = runs[MAX_LEDGER_RUNS - 1 :]
    merged = [*excess[0, :3], excess[:, 3].max(), excess[:, 4].sum(), excess[:, 5].min()]
    return np.vstack((runs[: MAX_LEDGER_RUNS - 1], merged))


def _finding(
    run: list[int], kind: CheckKind, severity: Severity, detail: str, file: str | None
) -> CheckFinding:
    scope, signed_ledger, first, last, count, offset = run
    ledger = LedgerId.from_signed(scope, signed_ledger)
    if count == 1:
        entries = f"entry {first}"
    elif count == last - first + 1:
        entries = f"entries {first}-{last}"
    else:
        entries = f"{format_count(count, 'entry', 'entries')} within {first}-{last}"
    message = f"{entries} of ledger {ledger}: {detail}"
    return CheckFinding(kind, severity, message, file, offset, ledger, first, last, count)


def _finding_of_other_ledgers(
    ledgers: list[Int64Array], kind: CheckKind, severity: Severity, detail: str, file: str | None
) -> CheckFinding:
    count = sum(int(runs[:, 4].sum()) for runs in ledgers)
    offset = min(int(runs[:, 5].min()) for runs in ledgers)
    first_ledger = LedgerId.from_signed(*ledgers[0][0, :2].tolist())
    ledger_text = f"{format_count(len(ledgers), 'more ledger')}, from {first_ledger} on"
    message = f"{format_count(count, 'entry', 'entries')} of {ledger_text}: {detail}"
    return CheckFinding(kind, severity, message, file, offset, None, None, None, count)
