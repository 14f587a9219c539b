"""Durability: which replicas are missing, and what that violates, for audits and analyses alike.

The kernel is set algebra on the sequence groups of many ledgers at once. Ledgers are laid side by
side on one axis of entry ids, each moved up by an offset of its own; then what is due at a bookie
and what it holds are two sets of groups, and one set difference answers for all of them. Entries
are never taken one by one. Rule: `client/RoundRobinDistributionSchedule`, and BP-34's durability
contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from bkstore.availability import Availability
from bkstore.availability.grouping import fold
from bkstore.availability.sequence_groups import Groups, clip_rows, empty
from bkstore.availability.set_operations import pieces
from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array, LedgerId
from bkstore.schedule import expected_many
from bkstore.tables import VIOLATIONS, Table

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


class MissingReplicas(NamedTuple):
    """Entries that a bookie lacks of the segment that begins at `first_entry`."""

    first_entry: int
    ensemble: Sequence[str]
    bookie_index: int
    missing: Availability

    @property
    def bookie(self) -> str:
        """The bookie's id."""
        return self.ensemble[self.bookie_index]


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


Category = Literal[
    "no_replica",
    "below_ack_quorum",
    "below_write_quorum",
    "placement",
    "placement_soft",
    "overdue",
    "bookie_unavailable",
]
CATEGORIES: tuple[Category, ...] = get_args(Category)
DURABILITY: tuple[Category, ...] = CATEGORIES[:3]

MOST_RANGES = 10_000
"""Ranges that a table row lists; of more, the row has the groups only."""


class Violation(NamedTuple):
    """One violation, in full.

    `first_entry` is the segment's, `bookie` whose replica is concerned; None where the ledger as
    a whole is meant. `ledger` is None for a bookie of which nothing is known, whatever the
    ledger. `missing` are the segment's entries that the bookie should hold and does not, empty
    where entries are not the matter, None where a bookie gave no answer about them.
    """

    category: Category
    ledger: LedgerId | None
    first_entry: int | None = None
    bookie: str | None = None
    missing: Availability | None = Availability()
    detail: str = ""

    @property
    def order(self) -> tuple[bool, LedgerId, int, str, str]:
        """What reports are sorted by: ledger (unsigned; none first), segment, category, bookie."""
        first = -1 if self.first_entry is None else self.first_entry
        ledger = self.ledger or LedgerId(0, 0)
        return self.ledger is not None, ledger, first, self.category, self.bookie or ""

    def row(self) -> tuple[Any, ...]:
        """Return the row of the `violations` table, of plain values."""
        cells = self.cells()
        return tuple(each.tolist() if isinstance(each, np.ndarray) else each for each in cells)

    def cells(self) -> tuple[Any, ...]:
        """Return the same with ranges and groups as int64[n, 2] and int64[n, 4]."""
        ids: tuple[Any, ...] = (None, None, None)
        if self.ledger is not None:
            ids = (*self.ledger.signed, self.ledger.qualified_name)
        place = (self.first_entry, self.bookie)
        return self.category, *ids, *place, *_missing(self.missing), self.detail


def _missing(
    entries: Availability | None,
) -> tuple[int | None, Int64Array | None, Int64Array | None]:
    """Return how many entries, their ranges unless they are too many, and their groups."""
    if entries is None:
        return None, None, None
    groups = entries.groups
    few = int(((groups[:, 1] - groups[:, 0]) // groups[:, 3].clip(1) + 1).sum()) <= MOST_RANGES
    return len(entries), entries.ranges() if few else None, groups


def violations_table(violations: Iterable[Violation]) -> Table:
    """Return the `violations` table of some violations."""
    return Table.from_rows(VIOLATIONS, (each.row() for each in violations))


def category_of(replicas: int, write_quorum: int, ack_quorum: int) -> Category:
    """Return the category of a ledger whose worst entry has `replicas` of W replicas.

    >>> [category_of(left, 3, 2) for left in (0, 1, 2)]
    ['no_replica', 'below_ack_quorum', 'below_write_quorum']
    """
    if not 0 <= replicas < write_quorum:
        raise InvalidArgument(f"{replicas} of {write_quorum} replicas are no shortage")
    if replicas == 0:
        return "no_replica"
    return "below_ack_quorum" if replicas < ack_quorum else "below_write_quorum"


def durability_violations(
    ledger: LedgerId,
    missing: Sequence[MissingReplicas],
    worst: Shortage,
    write_quorum: int,
    ack_quorum: int,
) -> Iterator[Violation]:
    """Yield a row for each segment and bookie; the worst entry decides the category of all."""
    category = category_of(write_quorum - worst.missing, write_quorum, ack_quorum)
    for each in missing:
        detail = (
            f"index {each.bookie_index} of {' '.join(each.ensemble)}; W {write_quorum}, "
            f"A {ack_quorum}; entry {worst.entry} of the ledger lacks {worst.missing} of "
            f"{write_quorum} replicas"
        )
        yield Violation(category, ledger, each.first_entry, each.bookie, each.missing, detail)
