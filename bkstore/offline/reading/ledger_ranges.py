"""The declared order of a sorted file: its sort columns, and its range of ledgers.

Writers verify the order of every row before they declare it (`OrderCheck`); for readers a file
that is not as declared is damaged. Order is unsigned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np

from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array, LedgerId

LEDGER_COLUMNS = ("scope_id", "ledger_id")
"""The columns of a ledger's id, in all tables that have it."""

SORTED_BY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "entries": (*LEDGER_COLUMNS, "entry_id"),
        "groups": (*LEDGER_COLUMNS, "first_sequence_start"),
        "ledgers": LEDGER_COLUMNS,
    }
)
"""By table: the columns that a sorted file is sorted by, which are unique in each row."""


class LedgerRange(NamedTuple):
    """The first and the last ledger of a sorted file."""

    first: LedgerId
    last: LedgerId

    def to_json(self) -> dict[str, str]:
        """Return the fields of a manifest.

        >>> LedgerRange(LedgerId(0, 7), LedgerId(0, 9)).to_json()["last_ledger"]
        '00000000000000000000000000000009'
        """
        return {"first_ledger": self.first.qualified_name, "last_ledger": self.last.qualified_name}

    @classmethod
    def from_json(cls, file_object: Mapping[str, Any], table: str) -> LedgerRange | None:
        """Return the range that the manifest's object for a file declares; None if it declares no
        order, or another than the table's. Raises `InvalidArgument` for an invalid range."""
        if file_object.get("first_ledger") is None or table not in SORTED_BY:
            return None
        if file_object.get("sorted_by") != list(SORTED_BY[table]):
            return None  # another order, which is of no use here
        first = _parse_qualified_name(file_object.get("first_ledger"))
        last = _parse_qualified_name(file_object.get("last_ledger"))
        if last < first:
            raise InvalidArgument(f"ledgers from {first} to {last} are not a range")
        return cls(first, last)


def _parse_qualified_name(text: Any) -> LedgerId:
    if not isinstance(text, str) or len(text) != 32:
        raise InvalidArgument(f"{text!r:.60} is not a ledger id of 32 hex digits")
    return LedgerId.parse(text)


def ledger_pair_at(scope: Int64Array, ledger: Int64Array, row: int) -> tuple[int, int]:
    """Return a row's ledger as a pair that compares as `LedgerId` does, even if it is invalid."""
    return int(scope[row]) % 2**64, int(ledger[row]) % 2**64


def run_starts(*columns: Int64Array) -> Int64Array:
    """Return the rows at which any column differs from the row before, and row 0. O(rows).

    >>> run_starts(np.array([7, 7, 8, 8]), np.array([1, 1, 1, 2])).tolist()
    [0, 2, 3]
    """
    if not columns[0].size:
        return np.empty(0, np.int64)
    change = np.ones(columns[0].size, np.bool_)
    change[1:] = False
    for column in columns:
        change[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(change)


class OrderCheck:
    """Verifies batch by batch that rows are sorted, and finds the first that is out of order.

    Rows are sorted by scope, ledger and, if the table has one, a third column (`SORTED_BY`), such
    as the entry id. Without it a ledger has one row. Costs some 5 ns per row.
    """

    def __init__(self) -> None:
        self.first_ledger: tuple[int, int] | None = None
        self.last_ledger: tuple[int, int] | None = None
        self._last_third: int | None = None

    def add(self, columns: Sequence[Int64Array]) -> int | None:
        """Verify the next rows, given by their sort columns: scope, ledger, and possibly a third
        one. Return the number of the first row out of order, or None."""
        scope, ledger, *more_columns = columns
        third = more_columns[0] if more_columns else None
        if not scope.size:
            return None
        first_ledger = ledger_pair_at(scope, ledger, 0)
        if self.last_ledger is None:
            self.first_ledger = first_ledger
        elif first_ledger < self.last_ledger or (
            first_ledger == self.last_ledger and not self._continues_ledger(third)
        ):
            return 0  # the first row sorts before the last one of the rows added before
        self.last_ledger = ledger_pair_at(scope, ledger, -1)
        self._last_third = None if third is None else int(third[-1])
        return _first_unsorted(scope, ledger, third)

    def _continues_ledger(self, third: Int64Array | None) -> bool:
        """Return whether rows of the last ledger may follow: whether the third column ascends."""
        if third is None or self._last_third is None:
            return False  # a second row of a ledger, which may have only one
        return int(third[0]) > self._last_third

    def ledger_range(self) -> LedgerRange | None:
        """Return the range of ledgers so far; None without rows, or if an end is not a valid id."""
        if self.first_ledger is None or self.last_ledger is None:
            return None
        try:
            return LedgerRange(LedgerId(*self.first_ledger), LedgerId(*self.last_ledger))
        except InvalidArgument:
            return None


def _first_unsorted(scope: Int64Array, ledger: Int64Array, third: Int64Array | None) -> int | None:
    """Return the number of the first row that does not sort behind the row before it, or None."""
    # Within a ledger the third column ascends; without such a column its rows are duplicates.
    same_ledger = (ledger[1:] == ledger[:-1]) & (scope[1:] == scope[:-1])
    out_of_order = same_ledger
    if third is not None:
        out_of_order = same_ledger & (third[1:] <= third[:-1])
    first_rows = [int(np.argmax(out_of_order)) + 1] if out_of_order.any() else []
    # Between ledgers the ids ascend, unsigned.
    borders = np.flatnonzero(~same_ledger) + 1
    scopes, ledgers = (column.view(np.uint64) for column in (scope, ledger))
    scope_after, scope_before = scopes[borders], scopes[borders - 1]
    descends = (scope_after < scope_before) | (
        (scope_after == scope_before) & (ledgers[borders] < ledgers[borders - 1])
    )
    if descends.any():
        first_rows.append(int(borders[np.argmax(descends)]))
    return min(first_rows, default=None)


def search_ledger(
    scope: Int64Array,
    ledger: Int64Array,
    key: tuple[int, int],
    side: Literal["left", "right"] = "right",
) -> int:
    """Return the index of the first of sorted rows whose ledger is above `key` (scope, ledger), or
    with `side` "left" at least `key`; the row count if there is none."""
    scopes, ledgers = (column.view(np.uint64) for column in (scope, ledger))
    key_scope, key_ledger = map(np.uint64, key)
    start = int(np.searchsorted(scopes, key_scope, "left"))  # of the rows of the key's scope
    stop = int(np.searchsorted(scopes, key_scope, "right"))
    return start + int(np.searchsorted(ledgers[start:stop], key_ledger, side))
