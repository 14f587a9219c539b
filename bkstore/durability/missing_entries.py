"""The entries that bookies should hold and lack, for many ledgers at once; nothing is enumerated.

The kernel of audits and analyses is set algebra on sequence groups. Ledgers are placed one after
another on one axis of entry ids. The entries expected at a bookie and those it holds are then two
sets of groups, and one set difference is the result for all ledgers. Rule:
`client/RoundRobinDistributionSchedule`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bkstore.availability import Availability
from bkstore.availability.grouping import canonicalize
from bkstore.availability.sequence_groups import Groups, clip_with_rows, empty
from bkstore.availability.set_operations import combine_uncanonical
from bkstore.ids import Int64Array
from bkstore.schedule import expected_many

_MAX_AXIS_LENGTH = 2**62
"""Length up to which ledgers share an axis; a longer ledger has an axis of its own."""


class ExpectedEntries(NamedTuple):
    """The entries that one bookie should hold: a row for each segment it is in, int64 columns.
    `ledger_number` is the ledger's number in the batch, ascending; `first` and `last` are the
    segment's ends, ascending within a ledger; `bookie_index` is the bookie's in the ensemble."""

    ledger_number: Int64Array
    first: Int64Array
    last: Int64Array
    bookie_index: Int64Array
    ensemble_size: Int64Array
    write_quorum: Int64Array


class HeldEntries(NamedTuple):
    """The entries that one bookie holds: groups by ledger, and the ledger number of each group."""

    ledger_number: Int64Array
    groups: Groups

    @classmethod
    def from_availabilities(cls, availabilities: Sequence[tuple[int, Availability]]) -> HeldEntries:
        """Return the columns of (ledger number, held entries) pairs, which ascend by number: the
        sequence groups of all of them, and the ledger number of each group."""
        columns = [availability.columns for _, availability in availabilities]
        sizes = [group_columns.first.size for group_columns in columns]
        numbers = np.array([ledger_number for ledger_number, _ in availabilities], np.int64)
        groups = Groups(*map(np.concatenate, zip(*columns))) if columns else empty()
        return cls(np.repeat(numbers, sizes), groups)


def has_expected_entries(
    first: int, last: int, index: int, ensemble_size: int, write_quorum: int
) -> bool:
    """Return whether any entry of first..last goes to the bookie at `index` of an ensemble of E
    bookies, each entry being written to W of them in turn. O(1).

    >>> has_expected_entries(0, 1, 2, 3, 1), has_expected_entries(0, 2, 2, 3, 1)
    (False, True)
    """
    if last < first:
        return False
    # The bookie gets runs of W entries, one beginning every E entries. Either the run that begins
    # before `first` reaches it, or the next one must begin at `last` or before.
    # From `first` to the next start of a run: entry e begins one if e + W - 1 is `index` modulo E.
    distance_to_run = (index - write_quorum + 1 - first) % ensemble_size
    return distance_to_run + write_quorum > ensemble_size or first + distance_to_run <= last


def expected_replicas(
    segments: Iterable[tuple[int, int, Sequence[str]]], ensemble_size: int, write_quorum: int
) -> Iterator[tuple[str, int, int, int]]:
    """Yield (bookie, first, last, bookie index) for each segment and each bookie of its ensemble
    that must hold entries of it. A segment is (first entry, last entry, ensemble); an empty one
    yields nothing. O(segments x E).

    >>> list(expected_replicas([(0, 0, ["b1", "b2"]), (1, 0, ["b1", "b3"])], 2, 1))
    [('b1', 0, 0, 0)]
    """
    for first, last, ensemble in segments:
        if last < first:
            continue
        # Each of E consecutive entries begins at another bookie, so they reach every one.
        all_bookies_expected = write_quorum == ensemble_size or last - first >= ensemble_size - 1
        for index, bookie in enumerate(ensemble):
            if all_bookies_expected or has_expected_entries(
                first, last, index, ensemble_size, write_quorum
            ):
                yield bookie, first, last, index


def missing_entries(
    expected: ExpectedEntries, held: HeldEntries
) -> Iterator[tuple[int, Availability]]:
    """Yield (row of `expected`, its missing entries) for each row that has any. A row of `expected`
    is what one bookie must hold of one segment of a ledger; `held` has what it does hold.

    Entries that are held but not expected are ignored. O(rows + groups) if the groups of both have
    equal periods. `held` must not have ledgers without a row in `expected`. In the example, entries
    0..8 of ledger 0 are written to two of three bookies each, and this is the bookie at index 1.

    >>> rows = [np.array([value]) for value in (0, 0, 8, 1, 3, 2)]
    >>> here = Availability.from_entries([0, 1, 3, 6, 7])
    >>> [(row, gone.entries().tolist()) for row, gone in missing_entries(ExpectedEntries(*rows),
    ...     HeldEntries.from_availabilities([(0, here)]))]
    [(0, [4])]
    """
    for rows, groups in missing_groups(expected, held):
        starts = _run_starts(rows)
        ends = np.concatenate((starts[1:], [rows.size]))
        for start, end in zip(starts.tolist(), ends.tolist()):
            missing = groups.take(np.arange(start, end))
            yield int(rows[start]), Availability.from_canonical(canonicalize(missing))


def missing_groups(
    expected: ExpectedEntries, held: HeldEntries
) -> Iterator[tuple[Int64Array, Groups]]:
    """Yield the entries that are expected and not held, as arrays: (the row of `expected` of each
    group, ascending; the sequence groups). The groups of a row are ordered and disjoint;
    `canonicalize` makes them canonical."""
    # One subtraction does many ledgers: they are placed one after the other on one axis of int64
    # ids, each moved by its own offset. Usually all fit on one axis.
    for start_row, end_row in _split_by_axis(expected):
        axis_expected = ExpectedEntries(*(column[start_row:end_row] for column in expected))
        first, last = axis_expected.ledger_number[[0, -1]].tolist()
        # The held groups of these ledgers: they ascend by ledger number.
        held_rows = np.arange(*np.searchsorted(held.ledger_number, [first, last + 1]))
        axis_held = HeldEntries(held.ledger_number[held_rows], held.groups.take(held_rows))
        rows, missing = _missing_on_axis(axis_expected, axis_held)
        if rows.size:
            yield start_row + rows, missing


def _ledger_spans(expected: ExpectedEntries) -> tuple[Int64Array, Int64Array]:
    """Return where each ledger's rows start, and how many entry ids it takes up on an axis."""
    ledger_starts = _run_starts(expected.ledger_number)
    last_rows = np.concatenate((ledger_starts[1:], [expected.ledger_number.size])) - 1
    return ledger_starts, expected.last[last_rows] + 1


def _run_starts(values: Int64Array) -> Int64Array:
    """Return where each run of equal values starts."""
    return np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))


def _split_by_axis(expected: ExpectedEntries) -> Iterator[tuple[int, int]]:
    """Yield (first row, end row) of parts of `expected` whose ledgers, placed one after the other,
    fit on one axis of int64 ids. A ledger's rows stay together."""
    if not expected.ledger_number.size:
        return
    ledger_starts, spans = _ledger_spans(expected)
    start_row, used_length = 0, 0
    for row, span in zip(ledger_starts.tolist(), spans.tolist()):
        if used_length and used_length + span > _MAX_AXIS_LENGTH:
            yield start_row, row
            start_row, used_length = row, 0
        used_length += span
    yield start_row, expected.ledger_number.size


def _missing_on_axis(expected: ExpectedEntries, held: HeldEntries) -> tuple[Int64Array, Groups]:
    """Return (row of `expected` for each group, groups of missing entries) of ledgers that fit on
    one axis of ids, on which they are subtracted all at once."""
    # Place the ledgers one after the other on the axis.
    ledger_starts, spans = _ledger_spans(expected)
    offsets = np.concatenate(([0], np.cumsum(spans[:-1])))
    ledger_numbers = expected.ledger_number[ledger_starts]
    ledger_of_row = np.searchsorted(ledger_numbers, expected.ledger_number)
    row_offsets = offsets[ledger_of_row]
    # Subtract what is held from what is expected.
    due_groups = expected_many(
        expected.first,
        expected.last,
        expected.bookie_index,
        expected.ensemble_size,
        expected.write_quorum,
        row_offsets,
    )
    held_groups = _place_on_axis(held, ledger_numbers, offsets, spans)
    missing = combine_uncanonical(due_groups, held_groups, "sub")
    # Find the row of each group, as rows ascend on the axis. Then move the groups back to the ids
    # of their ledgers.
    row_of_group = np.searchsorted(expected.first + row_offsets, missing.first, "right") - 1
    return row_of_group, _shift_groups(missing, -row_offsets[row_of_group])


def _shift_groups(groups: Groups, offsets: Int64Array) -> Groups:
    return groups._replace(first=groups.first + offsets, last=groups.last + offsets)


def _place_on_axis(
    held: HeldEntries, ledger_numbers: Int64Array, offsets: Int64Array, spans: Int64Array
) -> Groups:
    """Return the held groups, each moved by the offset of its ledger on the axis. Groups of ledgers
    that are not on this axis are left out; others are cut at the end of their ledger's span."""
    if not held.ledger_number.size:
        return empty()
    # Keep the groups of ledgers that are on this axis.
    ledger_of_group = np.searchsorted(ledger_numbers, held.ledger_number)
    ledger_of_group = np.minimum(ledger_of_group, ledger_numbers.size - 1)
    is_on_axis = ledger_numbers[ledger_of_group] == held.ledger_number
    groups, ledger_of_group = held.groups.take(is_on_axis), ledger_of_group[is_on_axis]
    # Drop what lies past the last expected entry: it would overlap the next ledger.
    is_in_span = groups.first < spans[ledger_of_group]
    groups, ledger_of_group = groups.take(is_in_span), ledger_of_group[is_in_span]
    ends = np.minimum(groups.ends, spans[ledger_of_group])
    if (groups.ends > ends).any():
        groups, group_rows = clip_with_rows(groups, groups.first, ends)
        ledger_of_group = ledger_of_group[group_rows]
    return _shift_groups(groups, offsets[ledger_of_group])
