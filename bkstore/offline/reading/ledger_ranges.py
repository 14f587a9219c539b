"""What a manifest says of a sorted file: how it is sorted, and which ledgers it holds.

The same rule is kept by who writes (`OrderWatch` sees every row before it is declared) and by
who reads (a file that is not as declared is damaged). Order is unsigned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array, LedgerId

LedgerKeys = npt.NDArray[Any]
"""Ledgers as 16 big-endian bytes, `ledger_keys`."""

SORTED_BY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "entries": ("scope_id", "ledger_id", "entry_id"),
        "groups": ("scope_id", "ledger_id", "first_sequence_start"),
        "ledgers": ("scope_id", "ledger_id"),
    }
)
"""By table: the columns that a sorted file is sorted by; no two of its rows are alike in them."""


class LedgerRange(NamedTuple):
    """The first and the last ledger of a sorted file."""

    first: LedgerId
    last: LedgerId

    def to_json(self) -> dict[str, str]:
        """Return the fields of a manifest.

        >>> LedgerRange(LedgerId(0, 7), LedgerId(0, 9)).to_json()["last_ledger"]
        '00000000000000000000000000000009'
        """
        return {
            "first_ledger": self.first.qualified_name,
            "last_ledger": self.last.qualified_name,
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any], table: str) -> LedgerRange | None:
        """Return what a manifest says of a file, None where it does not say that it is sorted.

        Raises `InvalidArgument` for a range that is none.
        """
        if said.get("first_ledger") is None or table not in SORTED_BY:
            return None
        if said.get("sorted_by") != list(SORTED_BY[table]):
            return None  # an order that nobody here makes use of
        found = cls(*(_named(said.get(name)) for name in ("first_ledger", "last_ledger")))
        if found.last < found.first:
            raise InvalidArgument(f"ledgers from {found.first} to {found.last} are no range")
        return found


def _named(text: Any) -> LedgerId:
    if not isinstance(text, str) or len(text) != 32:
        raise InvalidArgument(f"{text!r:.60} is no ledger of 32 hex digits")
    return LedgerId.parse(text)


def ledger_at(scope: Int64Array, ledger: Int64Array, row: int) -> tuple[int, int]:
    """Return the ledger of a row as a pair that compares as `LedgerId` does.

    Rows may hold what is no ledger's id (scope 0 above 2^63-1): they compare all the same.
    """
    return int(scope[row]) % 2**64, int(ledger[row]) % 2**64


def ledger_keys(scope: Int64Array, ledger: Int64Array) -> LedgerKeys:
    """Return ledgers as 16 bytes each, whose order is that of ledgers.

    Only to compare and to search: what is taken out lacks its trailing zeros.

    >>> keys = ledger_keys(np.array([0, 0, -1]), np.array([7, 8, -(2**63)]))
    >>> np.searchsorted(keys, keys).tolist(), bool(keys[1] < keys[2])
    ([0, 1, 2], True)
    """
    words = np.stack((scope, ledger), axis=-1).astype(">i8")
    return words.view("S16").ravel()


def run_starts(*columns: Int64Array) -> Int64Array:
    """Return at which rows any of the columns has another value than the row before; O(rows).

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


class OrderWatch:
    """Sees rows batch by batch, and tells the first that does not stand behind the one before.

    Columns are scope and ledger, and what a ledger's rows are sorted by, if anything. Costs some
    5 ns a row.
    """

    def __init__(self) -> None:
        self.first: tuple[int, int] | None = None
        self.last: tuple[int, int] | None = None
        self._within: int | None = None

    def add(self, columns: Sequence[Int64Array]) -> int | None:
        """Take the next rows; return the first one that is out of order, None if there is none."""
        scope, ledger, *within = columns
        if not scope.size:
            return None
        head = ledger_at(scope, ledger, 0)
        if self.last is None:
            self.first = head
        elif head < self.last or (head == self.last and not self._goes_on(within)):
            return 0
        self.last = ledger_at(scope, ledger, -1)
        self._within = int(within[0][-1]) if within else None
        return _first_unsorted(scope, ledger, within)

    def _goes_on(self, within: Sequence[Int64Array]) -> bool:
        return bool(within) and self._within is not None and int(within[0][0]) > self._within

    def seen(self) -> LedgerRange | None:
        """Return the range of ledgers so far; None without rows, or where one is no ledger's."""
        if self.first is None or self.last is None:
            return None
        try:
            return LedgerRange(LedgerId(*self.first), LedgerId(*self.last))
        except InvalidArgument:
            return None


def _first_unsorted(
    scope: Int64Array, ledger: Int64Array, within: Sequence[Int64Array]
) -> int | None:
    same = (ledger[1:] == ledger[:-1]) & (scope[1:] == scope[:-1])
    bad = same
    if within:
        bad = same & (within[0][1:] <= within[0][:-1])
    found = [int(np.argmax(bad)) + 1] if bad.any() else []
    borders = np.flatnonzero(~same) + 1
    scopes, ledgers = (column.view(np.uint64) for column in (scope, ledger))
    here, before = scopes[borders], scopes[borders - 1]
    down = (here < before) | ((here == before) & (ledgers[borders] < ledgers[borders - 1]))
    if down.any():
        found.append(int(borders[np.argmax(down)]))
    return min(found, default=None)
