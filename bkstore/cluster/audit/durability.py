"""Which replicas are missing: set algebra on the sequence groups of many ledgers at once.

The kernel of the durability check. Ledgers are laid side by side on one axis of entry ids, each
moved up by an offset of its own; then what is due at a bookie and what it holds are two sets of
groups, and one set difference answers for all of them. Entries are never taken one by one.
Rule: `client/RoundRobinDistributionSchedule`, and BP-34's durability contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bkstore.availability import Availability
from bkstore.availability.grouping import fold
from bkstore.availability.sequence_groups import Groups, clip_rows, empty
from bkstore.availability.set_operations import pieces
from bkstore.ids import Int64Array
from bkstore.schedule import expected_many

_AXIS = 2**62
"""Ledgers share an axis up to this length; a longer one has an axis of its own."""


class Due(NamedTuple):
    """What one bookie should hold: a row for each segment it is in, int64 columns.

    `ledger` is the ledger's number in the batch, ascending; `first` and `last` are the
    segment's ends, ascending within a ledger; then the bookie's index in the segment's
    ensemble, ensemble size and write quorum.
    """

    ledger: Int64Array
    first: Int64Array
    last: Int64Array
    bookie_index: Int64Array
    ensemble_size: Int64Array
    write_quorum: Int64Array


class Held(NamedTuple):
    """What one bookie holds: groups in the order of ledgers, and each one's ledger number."""

    ledger: Int64Array
    groups: Groups

    @classmethod
    def of(cls, answers: Sequence[tuple[int, Availability]]) -> Held:
        """Return the answers of (ledger number, availability) pairs, ascending by number."""
        parts = [found.columns for _, found in answers]
        sizes = [part.first.size for part in parts]
        numbers = np.array([number for number, _ in answers], np.int64)
        whole = Groups(*map(np.concatenate, zip(*parts))) if parts else empty()
        return cls(np.repeat(numbers, sizes), whole)


class Shortage(NamedTuple):
    """The worst of a ledger: how many replicas of one entry are missing, and which entry."""

    missing: int
    entry: int


def has_due(first: int, last: int, index: int, ensemble_size: int, write_quorum: int) -> bool:
    """Return whether any entry of first..last goes to the bookie at `index`. O(1).

    >>> has_due(0, 1, 2, 3, 1), has_due(0, 2, 2, 3, 1)
    (False, True)
    """
    if last < first:
        return False
    ahead = (index - write_quorum + 1 - first) % ensemble_size
    return ahead + write_quorum > ensemble_size or first + ahead <= last


def due_places(
    segments: Iterable[tuple[int, int, Sequence[str]]], ensemble_size: int, write_quorum: int
) -> Iterator[tuple[str, int, int, int]]:
    """Yield (bookie, first, last, bookie index) for each place in a segment that entries go to.

    Segments are (first, last, ensemble); empty ones have none. O(segments x E).

    >>> list(due_places([(0, 0, ["b1", "b2"]), (1, 0, ["b1", "b3"])], 2, 1))
    [('b1', 0, 0, 0)]
    """
    for first, last, ensemble in segments:
        if last < first:
            continue
        everyone = write_quorum == ensemble_size or last - first >= ensemble_size - 1
        for at, bookie in enumerate(ensemble):
            if everyone or has_due(first, last, at, ensemble_size, write_quorum):
                yield bookie, first, last, at


def missing_entries(due: Due, held: Held) -> Iterator[tuple[int, Availability]]:
    """Yield (row of `due`, what of it is not held) for the rows where something is missing.

    Over-replicated entries, and those behind the last due one, are left aside. O(rows + groups),
    where stripes fit each other; ledgers without a row must not be in `held`.

    >>> rows = [np.array([each]) for each in (0, 0, 8, 1, 3, 2)]
    >>> here = Availability.from_entries([0, 1, 3, 6, 7])
    >>> [(row, gone.entries().tolist()) for row, gone in missing_entries(Due(*rows),
    ...     Held.of([(0, here)]))]
    [(0, [4])]
    """
    for rows, groups in missing_groups(due, held):
        starts = np.flatnonzero(np.concatenate(([True], rows[1:] != rows[:-1])))
        ends = np.concatenate((starts[1:], [rows.size]))
        for start, end in zip(starts.tolist(), ends.tolist()):
            gone = groups.take(np.arange(start, end))
            yield int(rows[start]), Availability.from_canonical(fold(gone))


def missing_groups(due: Due, held: Held) -> Iterator[tuple[Int64Array, Groups]]:
    """Yield the same as arrays: (row of `due`, ascending, for each group; the groups).

    Those of a row are ordered and disjoint, `fold` makes them canonical.
    """
    for lo, hi in _axes(due):
        part = Due(*(column[lo:hi] for column in due))
        first_ledger, last_ledger = int(part.ledger[0]), int(part.ledger[-1])
        a, b = np.searchsorted(held.ledger, [first_ledger, last_ledger + 1])
        here = Held(held.ledger[a:b], held.groups.take(np.arange(a, b)))
        rows, gone = _on_one_axis(part, here)
        if rows.size:
            yield lo + rows, gone


def _spans(due: Due) -> tuple[Int64Array, Int64Array]:
    """Return where each ledger's rows begin, and how many entry ids each ledger takes up."""
    opens = np.flatnonzero(np.concatenate(([True], due.ledger[1:] != due.ledger[:-1])))
    closes = np.concatenate((opens[1:], [due.ledger.size])) - 1
    return opens, due.last[closes] + 1


def _axes(due: Due) -> Iterator[tuple[int, int]]:
    """Yield half-open runs of rows whose ledgers fit one axis."""
    if not due.ledger.size:
        return
    opens, spans = _spans(due)
    begin, length = 0, 0
    for row, span in zip(opens.tolist(), spans.tolist()):
        if length and length + span > _AXIS:
            yield begin, row
            begin, length = row, 0
        length += span
    yield begin, due.ledger.size


def _on_one_axis(due: Due, held: Held) -> tuple[Int64Array, Groups]:
    opens, spans = _spans(due)
    offsets = np.concatenate(([0], np.cumsum(spans[:-1])))
    numbers = due.ledger[opens]
    of_row = np.searchsorted(numbers, due.ledger)
    move = offsets[of_row]
    wanted = expected_many(
        due.first, due.last, due.bookie_index, due.ensemble_size, due.write_quorum, move
    )
    gone = pieces(wanted, _laid_out(held, numbers, offsets, spans), "sub")
    row_of = np.searchsorted(due.first + move, gone.first, "right") - 1
    back = move[row_of]
    return row_of, Groups(gone.first - back, gone.last - back, gone.size, gone.period)


def _laid_out(held: Held, numbers: Int64Array, offsets: Int64Array, spans: Int64Array) -> Groups:
    """Return what is held on the axis, cut to the span of each ledger."""
    if not held.ledger.size:
        return empty()
    at = np.searchsorted(numbers, held.ledger)
    ours = (at < numbers.size) & (numbers[np.minimum(at, numbers.size - 1)] == held.ledger)
    groups, at = held.groups.take(ours), at[ours]
    inside = groups.first < spans[at]
    groups, at = groups.take(inside), at[inside]
    if (groups.ends > spans[at]).any():
        groups, rows = clip_rows(groups, groups.first, np.minimum(groups.ends, spans[at]))
        at = at[rows]
    move = offsets[at]
    return Groups(groups.first + move, groups.last + move, groups.size, groups.period)


def shortage(missing: Iterable[Availability]) -> Shortage | None:
    """Return how many replicas the worst entry of a ledger lacks; None if none lacks any.

    `missing` are what each bookie lacks in each segment. O(groups x write quorum).

    >>> shortage([Availability.from_entries([3, 4]), Availability.from_entries([4, 5])])
    Shortage(missing=2, entry=4)
    """
    layers: list[Availability] = []  # layer k: the entries that k + 1 bookies lack
    for gone in missing:
        carry = gone
        for at, layer in enumerate(layers):
            layers[at], carry = layer | carry, layer & carry
        if carry:
            layers.append(carry)
    if not layers:
        return None
    return Shortage(len(layers), layers[-1].first_entry or 0)
