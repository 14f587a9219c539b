"""The contents of a scanned entry log: the entries of each of its ledgers, condensed.

Sequence groups are kept in a few flat arrays, so that the contents of many logs fit in memory: a
ledger without gaps or with a long regular stripe takes 56 bytes, however many entries it has.
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

_MAX_ROWS = 1 << 20
"""Records condensed at a time: 24 MB of ids, and twice as much to sort them."""

_MAX_PLAIN_RUNS = 8
"""Up to so many runs of a ledger become a group each: a search for stripes would not pay."""


class _Rows(NamedTuple):
    """Ids of records in log order, int64[n] each; scope and ledger are the halves of an id."""

    scope_id: Int64Array
    ledger_id: Int64Array
    entry_id: Int64Array

    def groups(self) -> Iterator[tuple[LedgerId, Int64Array]]:
        """Yield (ledger, sequence groups) of each ledger, the groups ordered and disjoint.

        A group, runs of consecutive ids at equal distances, is a row (start of the first run, start
        of the last, size of a run, distance).
        """
        # Sort by ledger, each ledger's rows in log order; split into runs of consecutive ids.
        order = order_by_ledger(self.scope_id, self.ledger_id)
        scopes, ledgers, entries = (column[order] for column in self)
        is_new_ledger = (scopes[1:] != scopes[:-1]) | (ledgers[1:] != ledgers[:-1])
        changes = np.flatnonzero(is_new_ledger | (np.diff(entries) != 1)) + 1
        starts = np.concatenate(([0], changes))
        first, size = entries[starts], np.diff(starts, append=entries.size)
        runs = np.stack((first, first, size, np.zeros_like(first)), axis=1)
        # Assign the runs to ledgers. Find the ledgers with a run that begins before the end of the
        # previous one (late entries, copies): these must be sorted. Their numbers count from 1, as
        # `searchsorted` gives the number of ledgers that begin at or before a run.
        first_runs = np.flatnonzero(is_new_ledger[changes - 1]) + 1
        ledger_runs = np.concatenate(([0], first_runs, [starts.size]))
        late_runs = np.flatnonzero(first[1:] < first[:-1] + size[:-1]) + 1
        late_runs = np.setdiff1d(late_runs, ledger_runs)
        unsorted = set(np.searchsorted(ledger_runs, late_runs, "right").tolist())
        # A few ordered runs are groups already. `from_entries` sorts the others and finds stripes.
        for ledger_number, (run, next_run) in enumerate(pairwise(ledger_runs.tolist()), start=1):
            row = starts[run]
            ledger_id = LedgerId.from_signed(int(scopes[row]), int(ledgers[row]))
            if next_run - run <= _MAX_PLAIN_RUNS and ledger_number not in unsorted:
                yield ledger_id, runs[run:next_run].copy()
            else:
                stop = starts[next_run] if next_run < starts.size else entries.size
                yield ledger_id, Availability.from_entries(entries[row:stop]).groups


@dataclass(frozen=True, eq=False)
class LogContents:
    """The entries of each ledger of one log, and the findings of its scan. `ledgers` is
    int64[n, 2], (scope, ledger) in two's complement; number i has rows ``bounds[i]:bounds[i + 1]``
    of `groups`, int64[m, 4]."""

    ledgers: Int64Array
    bounds: Int64Array
    groups: Int64Array
    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(
        cls, groups_by_ledger: dict[LedgerId, Int64Array], findings: Iterable[Finding] = ()
    ) -> LogContents:
        """Return a log's contents from each ledger's sequence groups, int64[n, 4]: its entries as
        equal runs at equal distances, the form of `Availability.groups`."""
        rows = list(groups_by_ledger.values())
        signed_ids = [ledger_id.signed for ledger_id in groups_by_ledger]
        ledgers = np.array(signed_ids, np.int64).reshape(-1, 2)
        bounds = np.cumsum([0, *map(len, rows)])
        groups = np.concatenate(rows) if rows else np.empty((0, 4), np.int64)
        return cls(ledgers, bounds, groups, tuple(findings))

    def entries(self, ledger: LedgerId) -> Availability:
        """Return the entries of a ledger in the log, which may be none. O(ledgers)."""
        scope, number = ledger.signed
        scopes, numbers = self.ledgers.T
        rows = np.flatnonzero((numbers == number) & (scopes == scope))
        if not rows.size:
            return Availability()
        row = int(rows[0])  # a ledger has one row; its groups are between two bounds
        start, stop = self.bounds[row : row + 2]
        return _to_availability(self.groups[start:stop])

    @property
    def first_damage(self) -> Finding | None:
        """The first damage found by the scan, None if the log is intact."""
        return next((finding for finding in self.findings if finding.severity == "damage"), None)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.ledgers.nbytes + self.bounds.nbytes + self.groups.nbytes


def scan_contents(path: str, oddities: Iterable[Finding] = ()) -> LogContents:
    """Scan a log and return its contents; the findings in them are the caller's `oddities`, then
    those of the scan. Raises `BkstoreError` if the file cannot be opened or read. About 400 ns a
    record, and for each million records 5 us a ledger (100 us and more if its entries are in many
    runs)."""
    findings, groups_of_ledger = list(oddities), dict[LedgerId, Int64Array]()
    for rows in _gather_ids(scan_log(path, findings), path, findings):
        # A ledger may have records in several of these blocks of a million: unite its entries.
        for ledger_id, groups in rows.groups():
            earlier = groups_of_ledger.get(ledger_id)
            groups_of_ledger[ledger_id] = (
                groups if earlier is None else _unite_groups(earlier, groups)
            )
    return LogContents.of(groups_of_ledger, findings)


def _to_availability(groups: Int64Array) -> Availability:
    """Return the entries of groups that are canonical, or ordered and disjoint runs."""
    columns = Groups(*groups.T.copy())
    # Groups with a period are those of an `Availability`, so canonical; so is a single run.
    if columns.period.any() or columns.first.size == 1:
        return Availability.from_canonical(columns)
    return Availability.from_half_open_ranges(columns.first, columns.ends)


def _unite_groups(one: Int64Array, other: Int64Array) -> Int64Array:
    return (_to_availability(one) | _to_availability(other)).groups


def _gather_ids(batches: Iterable[LogBatch], path: str, findings: list[Finding]) -> Iterator[_Rows]:
    """Yield the ids of about a million records at a time; leave out ids that are too large."""
    row_blocks: list[_Rows] = []
    count = 0
    for batch in batches:
        too_large = np.flatnonzero(batch.entry_id > MAX_ENTRY_ID)
        if too_large.size:
            detail = f"record of an entry beyond id {MAX_ENTRY_ID}"
            findings.append(Finding("damage", detail, path, int(batch.position[too_large[0]])))
            batch = batch.where(np.flatnonzero(batch.entry_id <= MAX_ENTRY_ID))
        row_blocks.append(_Rows(batch.scope_id, batch.ledger_id, batch.entry_id))
        count += len(batch)
        if count >= _MAX_ROWS:
            yield _concatenate_rows(row_blocks)
            row_blocks, count = [], 0
    if count:
        yield _concatenate_rows(row_blocks)


def _concatenate_rows(row_blocks: list[_Rows]) -> _Rows:
    return _Rows(*(np.concatenate(columns) for columns in zip(*row_blocks)))
