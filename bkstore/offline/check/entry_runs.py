"""Collect entries with the same fault as runs: a lost log is a few findings, not a million."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from bkstore.counts import format_count
from bkstore.ids import Int64Array, LedgerId
from bkstore.offline.check.findings import CheckFinding, CheckKind, Severity

MAX_LEDGER_RUNS = 64
"""The maximum of runs for a ledger, kind and file; the last one includes all further ones."""

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
        """Add runs. Merge only if as many are pending as have been merged: that is rare enough."""
        if not len(rows):
            return
        self._pending.append(rows)
        self._pending_rows += len(rows)
        if self._pending_rows >= max(_MIN_PENDING_ROWS, len(self._runs)):
            self.rows()

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
        return int(self.rows()[:, 4].sum())

    def findings(
        self, kind: CheckKind, severity: Severity, detail: str, file: str | None
    ) -> Iterator[CheckFinding]:
        """Yield a finding for each run, and one for all runs of a ledger beyond `MAX_LEDGER_RUNS`;
        after `_MAX_FINDINGS`, one for all other ledgers."""
        rows = self.rows()
        ledger_starts = np.flatnonzero(_starts_ledger(rows)) + 1
        runs_by_ledger = np.split(rows, ledger_starts) if len(rows) else []
        finding_count = 0
        for ledger_index, ledger_runs in enumerate(runs_by_ledger):
            if finding_count >= _MAX_FINDINGS:
                others = runs_by_ledger[ledger_index:]
                yield _finding_of_other_ledgers(others, kind, severity, detail, file)
                return
            for run in _limit_runs(ledger_runs).tolist():
                finding_count += 1
                yield _make_finding(run, kind, severity, detail, file)


def _starts_ledger(rows: Int64Array) -> npt.NDArray[np.bool_]:
    """Return bool[n - 1]: whether each row but the first has another ledger than the row before."""
    ledgers = rows[:, :2]  # scope, ledger
    is_other: npt.NDArray[np.bool_] = (ledgers[1:] != ledgers[:-1]).any(axis=1)
    return is_other


def _merge_runs(rows: Int64Array) -> Int64Array:
    """Return the runs sorted, with those that touch or overlap made one."""
    sign = np.int64(-(1 << 63))  # with this bit flipped, signed numbers sort as unsigned ones
    rows = rows[np.lexsort((rows[:, 2], rows[:, 1] ^ sign, rows[:, 0] ^ sign))]
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


def _limit_runs(runs: Int64Array) -> Int64Array:
    """Return at most `MAX_LEDGER_RUNS` runs of a ledger; the last one includes all further ones."""
    if len(runs) <= MAX_LEDGER_RUNS:
        return runs
    excess = runs[MAX_LEDGER_RUNS - 1 :]
    scopes, ledgers, first, last, counts, offsets = excess.T
    merged = [scopes[0], ledgers[0], first[0], last.max(), counts.sum(), offsets.min()]
    return np.vstack((runs[: MAX_LEDGER_RUNS - 1], merged))


def _make_finding(
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
    """Return one finding on all runs of several ledgers; an element has the runs of one ledger."""
    _, _, _, _, counts, offsets = np.concatenate(ledgers).T
    first_ledger = LedgerId.from_signed(*ledgers[0][0, :2].tolist())
    ledger_text = f"{format_count(len(ledgers), 'more ledger')}, from {first_ledger} on"
    count, lowest_offset = int(counts.sum()), int(offsets.min())
    message = f"{format_count(count, 'entry', 'entries')} of {ledger_text}: {detail}"
    return CheckFinding(kind, severity, message, file, lowest_offset, entries=count)
