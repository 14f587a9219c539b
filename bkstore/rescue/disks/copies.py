"""Copies: the records of wanted ledgers that a survey finds, a row each, sorted by entry.

A row is int64[7]: scope, ledger, entry, rank, location, size and content. The location is the
number of the file (`SourceFile`) << 40, plus the record's position, as a journal may be larger than
the 4 GiB of an entry log; `content` is a checksum of payload and length field, but not of the LAC,
in which copies of one entry may differ (a recovery writes an entry again with another LAC).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array, LedgerId, ledger_runs

COLUMNS = 7
"""The columns of a row."""

RANK, LOCATION, SIZE, CONTENT = 3, 4, 5, 6
"""The columns after the key, which is scope, ledger and entry."""

VERIFIED, UNVERIFIED, DAMAGED = 8, 4, 0
"""Added to the rank of a copy whose digest matches; of one whose digest cannot be verified; of one
whose digest does not match, or of which only an index row is left."""

NAMED_BY_INDEX, IN_LOG = 2, 1
"""Added to the rank of a copy that its bookie's index names; of one in an entry log."""


_POSITION_BITS = 40
_MAX_FILES = 1 << (63 - _POSITION_BITS)


def locate(file_number: int, positions: Int64Array) -> Int64Array:
    """Return the locations of records at these positions of a file. Raises `InvalidArgument` for a
    file number above 8,388,607, or a position above 1 TiB.

    >>> locate(1, np.array([1 << 33])).tolist() == [(1 << 40) + (1 << 33)]
    True
    """
    if not 0 <= file_number < _MAX_FILES or (positions >> np.int64(_POSITION_BITS)).any():
        raise InvalidArgument(f"file {file_number}: a position or the number of files is too large")
    return np.int64(file_number << _POSITION_BITS) | positions


class Copies(NamedTuple):
    """The copies of some entries of one ledger by entry, the best of each entry first; int64[n]."""

    ledger_id: LedgerId
    entry_id: Int64Array
    rank: Int64Array
    location: Int64Array
    size: Int64Array
    content: Int64Array

    @property
    def is_readable(self) -> npt.NDArray[np.bool_]:
        """Whether each copy can be used: its digest matches, or cannot be verified."""
        return self.rank >= UNVERIFIED

    @property
    def file_number(self) -> Int64Array:
        """The number of the file that has each copy."""
        return self.location >> np.int64(_POSITION_BITS)

    @property
    def position(self) -> Int64Array:
        """The position of each copy in its file."""
        return self.location & np.int64((1 << _POSITION_BITS) - 1)

    def where(self, rows: npt.NDArray[np.bool_] | Int64Array) -> Copies:
        """Return the copies of these rows."""
        return Copies(self.ledger_id, *(column[rows] for column in self[1:]))

    def first_of_entries(self) -> npt.NDArray[np.bool_]:
        """Return which copy is the first one of its entry, bool[n]."""
        is_first = np.ones(self.entry_id.size, np.bool_)
        is_first[1:] = self.entry_id[1:] != self.entry_id[:-1]
        return is_first


def make_rows(
    scopes: Int64Array,
    ledgers: Int64Array,
    entries: Int64Array,
    ranks: Int64Array,
    locations: Int64Array,
    sizes: Int64Array,
    contents: Int64Array,
) -> Int64Array:
    """Return rows of copies, int64[7, n]."""
    return np.array((scopes, ledgers, entries, ranks, locations, sizes, contents), np.int64)


def sort_rows(rows: Int64Array) -> Int64Array:
    """Return rows by scope, ledger and entry, unsigned; the copies of an entry by falling rank, and
    of equal ranks by file and position."""
    scope, ledger, entry, rank, location = rows[:5]
    sign_bit = np.int64(-(1 << 63))
    order = np.lexsort((location, -rank, entry, ledger ^ sign_bit, scope ^ sign_bit))
    return rows.take(order, axis=1)


def split_by_ledger(rows: Int64Array) -> list[Copies]:
    """Return the copies of each ledger, from sorted rows."""
    return [
        Copies(ledger_id, *rows[2:, start:stop])
        for ledger_id, start, stop in ledger_runs(rows[0], rows[1])
    ]
