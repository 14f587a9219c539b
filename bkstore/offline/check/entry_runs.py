"""Entries with the same fault, gathered as runs: a lost log is a few findings, not a million.

Rows come in any order; they are condensed as they come, so that memory is bounded by the runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from bkstore.counts import counted
from bkstore.ids import Int64Array, LedgerId
from bkstore.offline.check.findings import CheckFinding, Kind, Severity

MOST_RUNS = 64
"""Runs of one ledger, kind and file that are told apart; the last takes the rest."""

_MOST_FINDINGS = 10_000
_PENDING = 1 << 18
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
        self._waiting = 0
        self._runs = _NO_RUNS

    def add(
        self, scopes: Int64Array, ledgers: Int64Array, entries: Int64Array, offsets: Int64Array
    ) -> None:
        """Take entries with their ledgers (two's complement) and offsets, int64[n] each."""
        ones = np.ones(entries.size, np.int64)
        self._take(np.column_stack((scopes, ledgers, entries, entries, ones, offsets)))

    def take(self, other: EntryRuns) -> None:
        """Take all that another has, and leave it empty."""
        self._take(other.rows())
        other._pending, other._runs = [], _NO_RUNS

    def _take(self, rows: Int64Array) -> None:
        if not len(rows):
            return
        self._pending.append(rows)
        self._waiting += len(rows)
        if self._waiting >= max(_PENDING, len(self._runs)):
            self.rows()

    def rows(self) -> Int64Array:
        """Return int64[n, 6]: scope, ledger, first, last, entries, offset; sorted, not touching.

        Ledgers come in unsigned order.
        """
        if self._pending:
            self._runs = _joined(np.concatenate([self._runs, *self._pending]))
            self._pending, self._waiting = [], 0
        return self._runs

    @property
    def entries(self) -> int:
        """How many entries there are."""
        return int(self.rows()[:, 4].sum())

    def findings(
        self, kind: Kind, severity: Severity, detail: str, file: str | None
    ) -> Iterator[CheckFinding]:
        """Yield a finding for each run, of more than `MOST_RUNS` of a ledger one for the rest."""
        rows = self.rows()
        cuts = np.flatnonzero((rows[1:, :2] != rows[:-1, :2]).any(axis=1)) + 1
        ledgers = np.split(rows, cuts) if len(rows) else []
        told = 0
        for at, own in enumerate(ledgers):
            if told >= _MOST_FINDINGS:
                yield _rest(ledgers[at:], kind, severity, detail, file)
                return
            for run in _few(own).tolist():
                told += 1
                yield _finding(run, kind, severity, detail, file)


def _joined(rows: Int64Array) -> Int64Array:
    """Return runs sorted, those that touch or overlap made one."""
    sign = np.int64(-(1 << 63))
    rows = rows[np.lexsort((rows[:, 2], rows[:, 1] ^ sign, rows[:, 0] ^ sign))]
    other = (rows[1:, :2] != rows[:-1, :2]).any(axis=1)
    # A run may lie inside the one before it: what counts is how far those before reach.
    reach = rows[:, 3].copy()
    for lo, hi in _spans(other, len(rows)):
        np.maximum.accumulate(reach[lo:hi], out=reach[lo:hi])
    opens = np.concatenate(([True], other | (rows[1:, 2] > reach[:-1] + 1)))
    starts = np.flatnonzero(opens)
    last = np.maximum.reduceat(rows[:, 3], starts)
    offsets = np.minimum.reduceat(rows[:, 5], starts)
    counts = np.add.reduceat(rows[:, 4], starts)
    counts = np.minimum(counts, last - rows[starts, 2] + 1)  # an entry may have come twice
    return np.column_stack((rows[starts, :3], last, counts, offsets))


def _spans(
    other: np.ndarray[tuple[int], np.dtype[np.bool_]], count: int
) -> Iterator[tuple[int, int]]:
    cuts = [0, *(np.flatnonzero(other) + 1).tolist(), count]
    return pairwise(cuts)


def _few(own: Int64Array) -> Int64Array:
    """Return at most `MOST_RUNS` runs of a ledger, the last one for all that are left."""
    if len(own) <= MOST_RUNS:
        return own
    rest = own[MOST_RUNS - 1 :]
    scope, ledger = own[0, :2]
    last = [scope, ledger, rest[0, 2], rest[:, 3].max(), rest[:, 4].sum(), rest[:, 5].min()]
    return np.vstack((own[: MOST_RUNS - 1], last))


def _finding(
    run: list[int], kind: Kind, severity: Severity, detail: str, file: str | None
) -> CheckFinding:
    scope, number, first, last, count, offset = run
    ledger = LedgerId.from_signed(scope, number)
    if count == 1:
        what = f"entry {first}"
    elif count == last - first + 1:
        what = f"entries {first}-{last}"
    else:
        what = f"{counted(count, 'entry', 'entries')} within {first}-{last}"
    text = f"{what} of ledger {ledger}: {detail}"
    return CheckFinding(kind, severity, text, file, offset, ledger, first, last, count)


def _rest(
    ledgers: list[Int64Array], kind: Kind, severity: Severity, detail: str, file: str | None
) -> CheckFinding:
    count = sum(int(own[:, 4].sum()) for own in ledgers)
    offset = min(int(own[:, 5].min()) for own in ledgers)
    first = LedgerId.from_signed(*ledgers[0][0, :2].tolist())
    whose = f"{counted(len(ledgers), 'more ledger')}, from {first} on"
    text = f"{counted(count, 'entry', 'entries')} of {whose}: {detail}"
    return CheckFinding(kind, severity, text, file, offset, None, None, None, count)
