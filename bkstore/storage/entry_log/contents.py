"""What a scanned entry log holds: the entries of each of its ledgers, condensed.

Sequence groups in a few flat arrays, so that the answers of many logs fit in memory: a ledger
without gaps or with a long regular stripe takes 56 bytes, however many entries it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from bkstore.availability import Availability
from bkstore.availability.sequence_groups import Groups
from bkstore.formats.entry import order_by_ledger
from bkstore.ids import MAX_ENTRY_ID, Int64Array, LedgerId
from bkstore.index.api import Finding
from bkstore.storage.entry_log.scan import LogBatch, scan_log

_ROWS = 1 << 20
"""Records that are condensed at a time: 24 MB of ids, and twice as much to sort them."""

_FEW = 8
"""Runs of a ledger that stay a group each: looking for a stripe costs more than it saves."""


class _Rows(NamedTuple):
    """Ids of records in log order, int64[n] each."""

    scope_id: Int64Array
    ledger_id: Int64Array
    entry_id: Int64Array

    def groups(self) -> Iterator[tuple[LedgerId, Int64Array]]:
        """Yield (ledger, sequence groups) of each ledger, the groups ordered and disjoint."""
        # By ledger, each ledger's rows in log order. A run of ids ends where the ledger changes, or
        # where the next id is not one more.
        order = order_by_ledger(self.scope_id, self.ledger_id)
        scopes, ledgers, entries = (column[order] for column in self)
        other = (scopes[1:] != scopes[:-1]) | (ledgers[1:] != ledgers[:-1])
        opens = np.flatnonzero(other | (np.diff(entries) != 1)) + 1
        starts = np.concatenate(([0], opens))
        first, size = entries[starts], np.diff(starts, append=entries.size)
        runs = np.stack((first, first, size, np.zeros_like(first)), axis=1)
        # Which runs are each ledger's, and which ledgers have a run that begins before the end of
        # the one above it: late entries and copies, which have to be sorted.
        own = np.concatenate(([0], np.flatnonzero(other[opens - 1]) + 1, [starts.size]))
        back = np.flatnonzero(first[1:] < first[:-1] + size[:-1]) + 1  # not those of a new ledger
        unsorted = set(np.searchsorted(own, np.setdiff1d(back, own), "right").tolist())
        # A few ordered runs are groups as they are. The others take the way that finds stripes.
        for number, (lo, hi) in enumerate(pairwise(own.tolist()), 1):
            at = starts[lo]
            name = LedgerId.from_signed(int(scopes[at]), int(ledgers[at]))
            if hi - lo <= _FEW and number not in unsorted:
                yield name, runs[lo:hi].copy()
            else:
                end = starts[hi] if hi < starts.size else entries.size
                yield name, Availability.from_entries(entries[at:end]).groups


@dataclass(frozen=True, eq=False)
class LogContents:
    """The entries of each ledger of one log, and what was odd or damaged in it.

    `ledgers` is int64[n, 2], (scope, ledger) in two's complement; ledger number i has the rows
    ``bounds[i]:bounds[i + 1]`` of `groups`, int64[m, 4].
    """

    ledgers: Int64Array
    bounds: Int64Array
    groups: Int64Array
    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, held: dict[LedgerId, Int64Array], findings: Iterable[Finding] = ()) -> LogContents:
        """Return contents of the sequence groups by ledger."""
        rows = list(held.values())
        ledgers = np.array([name.signed for name in held], np.int64).reshape(-1, 2)
        bounds = np.cumsum([0, *map(len, rows)])
        groups = np.concatenate(rows) if rows else np.empty((0, 4), np.int64)
        return cls(ledgers, bounds, groups, tuple(findings))

    def entries(self, ledger: LedgerId) -> Availability:
        """Return the entries of a ledger that are in the log; none if it has none. O(ledgers)."""
        scope, number = ledger.signed
        found = np.flatnonzero((self.ledgers[:, 1] == number) & (self.ledgers[:, 0] == scope))
        if not found.size:
            return Availability()
        return _entries(self.groups[slice(*self.bounds[found[0] : found[0] + 2].tolist())])

    @property
    def damage(self) -> Finding | None:
        """The first damage that the scan met, None if there was none: the log is whole."""
        return next((found for found in self.findings if found.severity == "damage"), None)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.ledgers.nbytes + self.bounds.nbytes + self.groups.nbytes


def scan_contents(path: str, oddities: Iterable[Finding] = ()) -> LogContents:
    """Return what a log holds, by one scan of it; damage is told in `findings`.

    Raises `BkstoreError` where the file cannot be opened or read. Some 400 ns a record, and for
    each million of records 5 us a ledger (100 us and more where its entries are in many pieces).
    """
    findings, held = list(oddities), dict[LedgerId, Int64Array]()
    for rows in _gathered(scan_log(path, findings), path, findings):
        for name, groups in rows.groups():
            before = held.get(name)
            held[name] = groups if before is None else _united(before, groups)
    return LogContents.of(held, findings)


def _entries(groups: Int64Array) -> Availability:
    """Return the entries of rows that are canonical, or runs ordered and disjoint."""
    columns = Groups(*groups.T.copy())
    if columns.period.any() or columns.first.size == 1:
        return Availability.from_canonical(columns)
    return Availability.from_runs(columns.first, columns.ends)


def _united(one: Int64Array, other: Int64Array) -> Int64Array:
    return (_entries(one) | _entries(other)).groups


def _gathered(batches: Iterable[LogBatch], path: str, findings: list[Finding]) -> Iterator[_Rows]:
    """Yield the ids of about a million records at a time."""
    parts: list[_Rows] = []
    count = 0
    for batch in batches:
        beyond = np.flatnonzero(batch.entry_id > MAX_ENTRY_ID)
        if beyond.size:
            detail = f"record of an entry beyond id {MAX_ENTRY_ID}"
            findings.append(Finding("damage", detail, path, int(batch.position[beyond[0]])))
            batch = batch.where(np.flatnonzero(batch.entry_id <= MAX_ENTRY_ID))
        parts.append(_Rows(batch.scope_id, batch.ledger_id, batch.entry_id))
        count += len(batch)
        if count >= _ROWS:
            yield _joined(parts)
            parts, count = [], 0
    if count:
        yield _joined(parts)


def _joined(parts: list[_Rows]) -> _Rows:
    return _Rows(*(np.concatenate(columns) for columns in zip(*parts)))
