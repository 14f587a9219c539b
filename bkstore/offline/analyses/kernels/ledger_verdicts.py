"""Verdicts on ledgers: the entries expected, missing and surplus according to their metadata. The
rules and the set algebra are the auditor's (`bkstore.cluster.audit`). All ledgers of all bookies
are laid on one axis, so that each array operation runs once per block."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bkstore.availability import Availability
from bkstore.availability.grouping import canonicalize
from bkstore.durability.missing_entries import (
    ExpectedEntries,
    HeldEntries,
    expected_replicas,
    missing_groups,
)
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
    """A ledger: its facts, and the verdict that `judge_ledgers` fills in. The counts are of
    replicas, except `lost_count`, of entries without any. `unread_bookies` could not read it,
    `undumped_bookies` are not in the dump."""

    ledger: LedgerId
    facts: LedgerFacts
    expected_count: int = 0
    missing_count: int = 0
    lost_count: int = 0
    has_entries: bool = False
    worst_shortage: Shortage | None = None
    unread_bookies: set[str] = field(default_factory=set)
    undumped_bookies: set[str] = field(default_factory=set)
    missing_replicas: list[MissingReplicas] = field(default_factory=list)
    surplus: list[tuple[str, Availability]] = field(default_factory=list)


_Verdicts = Mapping[int, LedgerVerdict]


class _ExpectedRow(NamedTuple):
    """The entries of a segment, `first` to `last`, that are expected at one position of its
    ensemble, `bookie_index`. The fields before `ensemble` are columns of `ExpectedEntries`."""

    ledger: int
    first: int
    last: int
    bookie_index: int
    size: int
    quorum: int
    ensemble: list[str]


class _Pairs(NamedTuple):
    """Numbered (bookie, ledger) pairs, and the entries expected and held by pair number, which is
    the ledger number in `expected` and the owner in `held`. `expected_rows[n]` is row n of
    `expected`."""

    bookies: list[str]
    bookie_index: Int64Array
    ledger: Int64Array
    expected_rows: list[_ExpectedRow]
    expected: ExpectedEntries
    held: GroupsByOwner


def judge_ledgers(
    verdicts: _Verdicts,
    groups_by_bookie: Mapping[str, GroupsByOwner],
    bookies: frozenset[str],
    *,
    find_worst: bool = True,
) -> None:
    """Fill in `verdicts`, by ledger number; their worst shortages and lost entries only with
    `find_worst`. The owners of each bookie's canonical groups in `groups_by_bookie` are ledger
    numbers too; groups of other ledgers are skipped. `bookies` are those that the dump has read."""
    # `pairs.held.owner` and `pairs.expected.ledger_number` are numbers of (bookie, ledger) pairs.
    pairs = _number_pairs(verdicts, groups_by_bookie, _expected_rows(verdicts, bookies))
    pairs_with_entries = pairs.held.owner[run_starts(pairs.held.owner)]
    for number in np.unique(pairs.ledger[pairs_with_entries]).tolist():
        verdicts[number].has_entries = True
    # Surplus of a pair = held - expected + missing: what is held, less the expected entries that
    # are held.
    surplus_counts = count_entries(pairs.held, pairs.ledger.size)
    expected_counts = _count_expected(pairs.expected)
    np.subtract.at(surplus_counts, pairs.expected.ledger_number, expected_counts)
    for expected_row, entry_count in zip(pairs.expected_rows, expected_counts.tolist()):
        verdicts[expected_row.ledger].expected_count += entry_count
    missing_by_row = _record_missing(verdicts, pairs)
    missing_counts = count_entries(missing_by_row, len(pairs.expected_rows))
    np.add.at(surplus_counts, pairs.expected.ledger_number, missing_counts)
    if find_worst and missing_by_row.owner.size:
        expected_ledgers = pairs.ledger[pairs.expected.ledger_number]
        layers = shortage_layers(expected_ledgers, pairs.expected.bookie_index, missing_by_row)
        for number, shortage in worst_shortages(layers).items():
            verdicts[number].worst_shortage = shortage
        _count_lost(verdicts, layers)
    # Only the pairs that have a surplus need its entries.
    for pair in np.flatnonzero(surplus_counts > 0).tolist():
        verdict = verdicts[int(pairs.ledger[pair])]
        bookie = pairs.bookies[int(pairs.bookie_index[pair])]
        if verdict.facts.skip_reason is None and bookie not in verdict.unread_bookies:
            verdict.surplus.append((bookie, _surplus_entries(pairs, pair)))


def _expected_rows(verdicts: _Verdicts, bookies: frozenset[str]) -> dict[str, list[_ExpectedRow]]:
    """Return the rows expected at each bookie. Bookies that are not in the dump are noted in the
    verdicts; of them, and of those that could not read a ledger, nothing is expected."""
    rows_by_bookie: dict[str, list[_ExpectedRow]] = defaultdict(list)
    for number, verdict in verdicts.items():
        facts = verdict.facts
        if facts.skip_reason is not None:
            continue
        sizes = (facts.ensemble_size, facts.write_quorum)
        for segment in facts.segment_ranges():
            _, _, ensemble = segment
            for bookie, first, last, position in expected_replicas([segment], *sizes):
                if bookie not in bookies:
                    verdict.undumped_bookies.add(bookie)
                elif bookie not in verdict.unread_bookies:
                    row = _ExpectedRow(number, first, last, position, *sizes, ensemble)
                    rows_by_bookie[bookie].append(row)
    return rows_by_bookie


def _number_pairs(
    verdicts: _Verdicts,
    groups_by_bookie: Mapping[str, GroupsByOwner],
    expected: Mapping[str, list[_ExpectedRow]],
) -> _Pairs:
    """Number each (bookie, ledger) pair with expected or held entries, sorted by bookie, then
    ledger."""
    bookies = sorted({*expected, *groups_by_bookie})
    ledger_numbers = np.fromiter(verdicts, np.int64, len(verdicts))
    ledger_span = int(ledger_numbers.max(initial=-1)) + 1
    held, expected_keys, expected_rows = [], [], []
    # First give each pair the key bookie index * ledger span + ledger number, which ascends.
    for bookie_index, bookie in enumerate(bookies):
        rows = groups_by_bookie.get(bookie, GroupsByOwner.empty())
        rows = rows.take(np.isin(rows.owner, ledger_numbers))
        held.append(rows._replace(owner=rows.owner + bookie_index * ledger_span))
        bookie_rows = expected.get(bookie, [])
        expected_rows += bookie_rows
        expected_ledgers = np.array([expected_row.ledger for expected_row in bookie_rows], np.int64)
        expected_keys.append(expected_ledgers + bookie_index * ledger_span)
    # Then number the keys that occur. `return_index` is not used, but makes numpy sort by merging,
    # which is faster here: the input is made of sorted runs.
    all_held = concatenate_groups(held)
    keys = np.concatenate([all_held.owner, *expected_keys])
    pair_keys, _, pair_numbers = np.unique(keys, return_index=True, return_inverse=True)
    held_count = all_held.owner.size
    # The columns of `ExpectedEntries`, whose ledger numbers are replaced by the numbers of pairs.
    expected_columns = (
        np.array([expected_row[:6] for expected_row in expected_rows], np.int64).reshape(-1, 6).T
    )
    return _Pairs(
        bookies,
        pair_keys // max(ledger_span, 1),
        pair_keys % max(ledger_span, 1),
        expected_rows,
        ExpectedEntries(pair_numbers[held_count:], *expected_columns[1:]),
        all_held._replace(owner=pair_numbers[:held_count]),
    )


def _record_missing(verdicts: _Verdicts, pairs: _Pairs) -> GroupsByOwner:
    """Record the missing entries in the verdicts; return them, owned by number of the expected
    row."""
    # The rest of what bookies hold is not expected, so nothing is missing there.
    held_where_expected = pairs.held.take(np.isin(pairs.held.owner, pairs.expected.ledger_number))
    missing = missing_groups(pairs.expected, HeldEntries(*held_where_expected))
    missing_by_row = fold_many(concatenate_groups([GroupsByOwner(*part) for part in missing]))
    starts = run_starts(missing_by_row.owner)
    bounds = np.append(starts, missing_by_row.owner.size).tolist()
    for row_number, start, end in zip(missing_by_row.owner[starts].tolist(), bounds, bounds[1:]):
        expected_row = pairs.expected_rows[row_number]
        verdict = verdicts[expected_row.ledger]
        entries = Availability.from_canonical(missing_by_row.cut(start, end).groups)
        verdict.missing_count += len(entries)
        verdict.missing_replicas.append(
            MissingReplicas(
                expected_row.first, expected_row.ensemble, expected_row.bookie_index, entries
            )
        )
    return missing_by_row


def _count_expected(expected: ExpectedEntries) -> Int64Array:
    """Return the number of entries that each row of `expected` stands for, by arithmetic. O(rows).

    Of any E consecutive entries (E: ensemble size), a bookie is expected to have W (write quorum),
    which follow each other. A round is E entries that begin with these W."""
    ensemble_size, write_quorum = expected.ensemble_size, expected.write_quorum
    span = expected.last - expected.first + 1
    # How far `first` is behind the beginning of its round.
    round_offset = (expected.first - expected.bookie_index + write_quorum - 1) % ensemble_size
    # Full rounds have W expected entries each. The remaining entries lie in the round of `first`,
    # from its offset on, and perhaps in the next one.
    full_rounds, remaining = span // ensemble_size, span % ensemble_size
    partial_end = round_offset + remaining
    expected_in_first_round = np.minimum(write_quorum, partial_end) - np.minimum(
        write_quorum, round_offset
    )
    expected_in_next_round = np.clip(partial_end - ensemble_size, 0, write_quorum)
    expected_counts: Int64Array = (
        full_rounds * write_quorum + expected_in_first_round + expected_in_next_round
    )
    return expected_counts


def _surplus_entries(pairs: _Pairs, pair: int) -> Availability:
    """Return the entries of a pair that are held, but not expected."""
    start, end = np.searchsorted(pairs.held.owner, [pair, pair + 1])
    held_entries = Availability.from_canonical(pairs.held.cut(start, end).groups)
    start, end = np.searchsorted(pairs.expected.ledger_number, [pair, pair + 1])
    if start == end:
        return held_entries
    # All columns but the first, the number of the pair, say which entries are expected.
    expected = ExpectedEntries(*(column[start:end] for column in pairs.expected))
    return held_entries - Availability.from_canonical(canonicalize(expected_many(*expected[1:])))


def shortage_layers(
    ledger: Int64Array, ensemble_position: Int64Array, missing: GroupsByOwner
) -> list[GroupsByOwner]:
    """Return layers of missing entries: layer k has those that k + 1 bookies lack, by ledger.

    `missing.owner` is the number of an expected row; `ledger` and `ensemble_position` have each
    row's ledger number and position in its ensemble. Segments of a ledger do not overlap, so the
    missing entries at one position do not either. O(groups x E x W) array work, for any number of
    ledgers."""
    # Add the positions one by one: entries that a layer has already are carried to the next one, as
    # in a binary addition.
    layers: list[GroupsByOwner] = []
    group_ledgers, group_positions = ledger[missing.owner], ensemble_position[missing.owner]
    for position in np.unique(group_positions).tolist():
        rows = np.flatnonzero(group_positions == position)
        rows = rows[np.lexsort((missing.groups.first[rows], group_ledgers[rows]))]
        carry = GroupsByOwner(group_ledgers[rows], missing.groups.take(rows))
        for k, layer in enumerate(layers):
            layers[k] = combine_groups(layer, carry, "or")
            carry = combine_groups(layer, carry, "and")
        if carry.owner.size:
            layers.append(carry)
    return layers


def worst_shortages(layers: Iterable[GroupsByOwner]) -> dict[int, Shortage]:
    """Return the worst shortage of each ledger: the first of the entries that most bookies lack,
    and how many lack it. `layers` are those of `shortage_layers`. O(groups)."""
    # A deeper layer overwrites the shallower ones: the worst entry is in the last.
    worst: dict[int, Shortage] = {}
    for depth, layer in enumerate(layers, 1):
        first_rows = run_starts(layer.owner)
        firsts = layer.groups.first[first_rows].tolist()
        for ledger_number, first in zip(layer.owner[first_rows].tolist(), firsts):
            worst[ledger_number] = Shortage(depth, first)
    return worst


def _count_lost(verdicts: _Verdicts, layers: Iterable[GroupsByOwner]) -> None:
    """Record in the verdicts how many entries all bookies of their write set lack."""
    for depth, layer in enumerate(layers, 1):
        counts = count_entries(layer, int(layer.owner.max()) + 1)
        for number in np.flatnonzero(counts).tolist():
            if verdicts[number].facts.write_quorum == depth:
                verdicts[number].lost_count = int(counts[number])
