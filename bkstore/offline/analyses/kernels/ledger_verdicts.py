"""Verdicts on ledgers: the entries due, missing and surplus according to their metadata.

The rules and the set algebra are the auditor's (`bkstore.cluster.audit`). All ledgers of all
bookies are laid on one axis, so that each array operation runs once per block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bkstore.availability import Availability
from bkstore.availability.grouping import canonicalize
from bkstore.durability.missing_entries import DueEntries, HeldEntries, due_replicas, missing_groups
from bkstore.durability.violations import MissingReplicas, Shortage
from bkstore.ids import Int64Array, LedgerId
from bkstore.offline.analyses.kernels.groups_by_owner import (
    GroupsByOwner,
    combine_groups,
    concatenate_groups,
    count_entries,
    fold_many,
)
from bkstore.offline.analyses.kernels.ledger_facts import LedgerFacts
from bkstore.offline.reading.ledger_ranges import run_starts
from bkstore.schedule import expected_many


@dataclass(slots=True)
class LedgerVerdict:
    """A ledger: its facts, and the verdict, which `judge_ledgers` fills in.

    `due`, `missing` count replicas. `unread_bookies` bookies could not read it, `undumped_bookies`
    are not dumped.
    """

    ledger: LedgerId
    facts: LedgerFacts
    due: int = 0
    missing: int = 0
    has_entries: bool = False
    worst_shortage: Shortage | None = None
    unread_bookies: set[str] = field(default_factory=set)
    undumped_bookies: set[str] = field(default_factory=set)
    missing_replicas: list[MissingReplicas] = field(default_factory=list)
    surplus: list[tuple[str, Availability]] = field(default_factory=list)


class _DueRow(NamedTuple):
    """An ensemble position in a segment where entries are due: first `DueEntries`' columns."""

    ledger: int
    first: int
    last: int
    bookie_index: int
    size: int
    quorum: int
    ensemble: list[str]


class _Rows(NamedTuple):
    """Entries due and held by number of (bookie, ledger) pair; `due_rows[n]` is row n of `due`."""

    bookies: list[str]
    bookie: Int64Array
    ledger: Int64Array
    due_rows: list[_DueRow]
    due: DueEntries
    held: GroupsByOwner


def judge_ledgers(
    verdicts: Mapping[int, LedgerVerdict],
    groups_by_bookie: Mapping[str, GroupsByOwner],
    bookies: frozenset[str],
    *,
    find_worst: bool = True,
) -> None:
    """Fill in the verdict of each subject; `find_worst` only if requested.

    `verdicts` are by ledger number, as are the owners of each bookie's canonical groups in
    `groups_by_bookie`; groups of other numbers are skipped. The dump has read `bookies`.
    """
    rows = _number_pairs(verdicts, groups_by_bookie, _due_rows(verdicts, bookies))
    for number in np.unique(rows.ledger[rows.held.owner[run_starts(rows.held.owner)]]).tolist():
        verdicts[number].has_entries = True
    # Surplus of a pair = held - due + missing: what is held, less the due entries that are held.
    surplus_counts = count_entries(rows.held, rows.ledger.size)
    due_counts = _count_due(rows.due)
    np.subtract.at(surplus_counts, rows.due.ledger_number, due_counts)
    for due_row, entry_count in zip(rows.due_rows, due_counts.tolist()):
        verdicts[due_row.ledger].due += entry_count
    due_ledgers, missing_by_row = _record_missing(verdicts, rows, surplus_counts)
    if find_worst and missing_by_row.owner.size:
        worst = worst_shortages(due_ledgers, rows.due.bookie_index, missing_by_row)
        for number, shortage in worst.items():
            verdicts[number].worst_shortage = shortage
    # Only the pairs that have a surplus need its entries.
    for pair in np.flatnonzero(surplus_counts > 0).tolist():
        subject = verdicts[int(rows.ledger[pair])]
        bookie = rows.bookies[int(rows.bookie[pair])]
        if subject.facts.skip_reason is None and bookie not in subject.unread_bookies:
            subject.surplus.append((bookie, _surplus_entries(rows, pair)))


def _due_rows(
    verdicts: Mapping[int, LedgerVerdict], bookies: frozenset[str]
) -> dict[str, list[_DueRow]]:
    """Return the rows due at each bookie; record bookies that are not in the dump as absent."""
    rows_by_bookie: dict[str, list[_DueRow]] = defaultdict(list)
    for number, subject in verdicts.items():
        facts = subject.facts
        if facts.skip_reason is not None:
            continue
        sizes = (facts.ensemble_size, facts.write_quorum)
        for segment in facts.segment_ranges():
            for bookie, first, last, position in due_replicas([segment], *sizes):
                if bookie not in bookies:
                    subject.undumped_bookies.add(bookie)
                elif bookie not in subject.unread_bookies:
                    row = _DueRow(number, first, last, position, *sizes, segment[2])
                    rows_by_bookie[bookie].append(row)
    return rows_by_bookie


def _number_pairs(
    verdicts: Mapping[int, LedgerVerdict],
    groups_by_bookie: Mapping[str, GroupsByOwner],
    due: Mapping[str, list[_DueRow]],
) -> _Rows:
    """Number each (bookie, ledger) pair with due or held entries, sorted by bookie, then ledger."""
    bookies = sorted({*due, *groups_by_bookie})
    ledger_numbers = np.fromiter(verdicts, np.int64, len(verdicts))
    ledger_span = int(ledger_numbers.max(initial=-1)) + 1
    held, due_keys, due_rows = [], [], []
    # A pair's key is bookie index * ledger span + ledger number.
    for bookie_index, bookie in enumerate(bookies):
        rows = groups_by_bookie.get(bookie, GroupsByOwner.empty())
        rows = rows.take(np.isin(rows.owner, ledger_numbers))
        held.append(rows._replace(owner=rows.owner + bookie_index * ledger_span))
        bookie_rows = due.get(bookie, [])
        due_rows += bookie_rows
        due_ledgers = np.array([due_row.ledger for due_row in bookie_rows], np.int64)
        due_keys.append(due_ledgers + bookie_index * ledger_span)
    # With return_index numpy uses a merge sort, which is faster here: the input is made of runs.
    all_held = concatenate_groups(held)
    keys = np.concatenate([all_held.owner, *due_keys])
    pairs, _, pair_numbers = np.unique(keys, return_index=True, return_inverse=True)
    held_count = all_held.owner.size
    due_columns = np.array([due_row[:6] for due_row in due_rows], np.int64).reshape(-1, 6).T
    return _Rows(
        bookies,
        pairs // max(ledger_span, 1),
        pairs % max(ledger_span, 1),
        due_rows,
        DueEntries(pair_numbers[held_count:], *due_columns[1:]),
        all_held._replace(owner=pair_numbers[:held_count]),
    )


def _record_missing(
    verdicts: Mapping[int, LedgerVerdict], rows: _Rows, surplus_counts: Int64Array
) -> tuple[Int64Array, GroupsByOwner]:
    """Record the missing entries of each due row, and add their counts to `surplus_counts`.

    Returns (ledger number of each due row, missing entries by due row).
    """
    due_ledgers = rows.ledger[rows.due.ledger_number]
    held_where_due = rows.held.take(np.isin(rows.held.owner, rows.due.ledger_number))
    missing = missing_groups(rows.due, HeldEntries(*held_where_due))
    missing_by_row = fold_many(concatenate_groups([GroupsByOwner(*part) for part in missing]))
    counts = count_entries(missing_by_row, len(rows.due_rows))
    np.add.at(surplus_counts, rows.due.ledger_number, counts)
    starts = run_starts(missing_by_row.owner)
    bounds = np.append(starts, missing_by_row.owner.size).tolist()
    for row_number, lo, hi in zip(missing_by_row.owner[starts].tolist(), bounds, bounds[1:]):
        due_row = rows.due_rows[row_number]
        subject = verdicts[due_row.ledger]
        subject.missing += int(counts[row_number])
        entries = Availability.from_canonical(missing_by_row.cut(lo, hi).groups)
        subject.missing_replicas.append(
            MissingReplicas(due_row.first, due_row.ensemble, due_row.bookie_index, entries)
        )
    return due_ledgers, missing_by_row


def _count_due(due: DueEntries) -> Int64Array:
    """Return the number of entries that each row is due, from its write sets. O(rows)."""
    ensemble_size, write_quorum = due.ensemble_size, due.write_quorum
    span = due.last - due.first + 1
    # Offset of the first entry in its round of the ensemble, in which the first `quorum` are due.
    round_offset = (due.first - due.bookie_index + write_quorum - 1) % ensemble_size
    full_rounds, partial_round = span // ensemble_size, span % ensemble_size
    partial_end = round_offset + partial_round
    partial_due = np.minimum(write_quorum, partial_end) - np.minimum(write_quorum, round_offset)
    due_in_next_round = np.clip(partial_end - ensemble_size, 0, write_quorum)
    due_counts: Int64Array = full_rounds * write_quorum + partial_due + due_in_next_round
    return due_counts


def _surplus_entries(rows: _Rows, pair: int) -> Availability:
    lo, hi = np.searchsorted(rows.held.owner, [pair, pair + 1])
    held_entries = Availability.from_canonical(rows.held.cut(lo, hi).groups)
    lo, hi = np.searchsorted(rows.due.ledger_number, [pair, pair + 1])
    if lo == hi:
        return held_entries
    due = DueEntries(*(column[lo:hi] for column in rows.due))
    return held_entries - Availability.from_canonical(canonicalize(expected_many(*due[1:])))


def worst_shortages(
    ledger: Int64Array, ensemble_position: Int64Array, missing: GroupsByOwner
) -> dict[int, Shortage]:
    """Return how many replicas the worst entry of each ledger lacks, as `durability.shortage` does.

    `missing.owner` is the number of a due row; `ledger_number` and `ensemble_position` have each
    row's ledger and position in its ensemble. Segments of a ledger do not overlap, so the missing
    entries at one position do not either. O(groups x E x W) array work, for any number of ledgers.
    """
    layers: list[GroupsByOwner] = []  # layer k: the entries of each ledger that k + 1 bookies lack
    owner_ledgers, owner_places = ledger[missing.owner], ensemble_position[missing.owner]
    for position in np.unique(owner_places).tolist():
        rows = np.flatnonzero(owner_places == position)
        rows = rows[np.lexsort((missing.groups.first[rows], owner_ledgers[rows]))]
        carry = GroupsByOwner(owner_ledgers[rows], missing.groups.take(rows))
        for number, layer in enumerate(layers):
            layers[number] = combine_groups(layer, carry, "or")
            carry = combine_groups(layer, carry, "and")
        if carry.owner.size:
            layers.append(carry)
    # A deeper layer overwrites the shallower ones: the worst entry is in the last.
    worst: dict[int, Shortage] = {}
    for depth, layer in enumerate(layers, 1):
        first_rows = run_starts(layer.owner)
        firsts = layer.groups.first[first_rows].tolist()
        for ledger_number, first in zip(layer.owner[first_rows].tolist(), firsts):
            worst[ledger_number] = Shortage(depth, first)
    return worst
