"""LedgerOwners: the owners of all ledgers of a cluster, as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array, LedgerId, find_keys, ledger_keys, unsigned_order
from bkstore.ledger_metadata.owner_filter import OwnerFilter
from bkstore.ledger_metadata.owners import LedgerOwner

UNLISTED = -1
"""The owner number of a ledger that is not in the metadata."""


class LedgerOwners:
    """The owners of ledgers: immutable, searched in arrays, sent to processes as arrays.

    `scope_ids` and `ledger_ids` are the ledgers, int64[n] in unsigned order; `owner_numbers`,
    int32[n], are indexes into `owners`, the distinct owners. `entry_counts`, int64[n], are the
    numbers of entries, 0 if not given; passed as an argument, they are in the order of `pairs`, and
    read after these, so that an iterator of pairs may fill the sequence. Memory: 44 bytes a ledger,
    and some 600 bytes an owner. Raises `InvalidArgument` if a ledger is given twice.

    >>> owners = LedgerOwners([(LedgerId.of(9), LedgerOwner("distributedlog")),
    ...                        (LedgerId.of(7), LedgerOwner())])
    >>> owners.get(LedgerId.of(9)).application, owners.get(LedgerId.of(8))
    ('distributedlog', None)
    >>> owners.numbers_of(np.array([0, 0]), np.array([7, 8])).tolist()
    [1, -1]
    """

    def __init__(
        self,
        pairs: Iterable[tuple[LedgerId, LedgerOwner]] = (),
        entry_counts: Sequence[int] | None = None,
    ) -> None:
        """Number the owners in the order of their first ledgers, and sort the ledgers."""
        numbers_by_owner: dict[LedgerOwner, int] = {}
        numbered = (
            (*ledger_id.signed, numbers_by_owner.setdefault(owner, len(numbers_by_owner)))
            for ledger_id, owner in pairs
        )
        row_type: Any = np.dtype((np.int64, 3))
        rows: Int64Array = np.fromiter(numbered, row_type)
        scope_ids, ledger_ids, owner_numbers = rows.T
        counts = np.zeros(len(rows), np.int64)
        if entry_counts is not None:  # complete now that `pairs` is exhausted
            counts[:] = entry_counts
        order = unsigned_order(scope_ids, ledger_ids)
        sorted_numbers = owner_numbers[order].astype(np.int32)
        self._set(scope_ids[order], ledger_ids[order], sorted_numbers, counts[order])
        self.owners: tuple[LedgerOwner, ...] = tuple(numbers_by_owner)
        repeated = np.flatnonzero(self._keys[1:] == self._keys[:-1])
        if repeated.size:
            raise InvalidArgument(f"ledger {self.ledgers()[repeated[0]]} is given twice")

    @classmethod
    def from_arrays(
        cls,
        scope_ids: Int64Array,
        ledger_ids: Int64Array,
        owner_numbers: npt.NDArray[Any],
        owners: Iterable[LedgerOwner],
    ) -> LedgerOwners:
        """Return the owners of distinct ledgers in any order, given by their numbers in `owners`.
        O(n log n)."""
        order = unsigned_order(scope_ids, ledger_ids)
        columns = scope_ids[order], ledger_ids[order], owner_numbers[order].astype(np.int32)
        made = cls()
        made._set(*columns, np.zeros(order.size, np.int64))
        made.owners = tuple(owners)
        return made

    def _set(
        self,
        scope_ids: Int64Array,
        ledger_ids: Int64Array,
        owner_numbers: npt.NDArray[np.int32],
        entry_counts: Int64Array,
    ) -> None:
        """Take the columns, a row for each ledger in unsigned order, and make the search keys."""
        self.scope_ids, self.ledger_ids = scope_ids, ledger_ids
        self.owner_numbers, self.entry_counts = owner_numbers, entry_counts
        self._keys = ledger_keys(scope_ids, ledger_ids)

    def __len__(self) -> int:
        return self.ledger_ids.size

    def __contains__(self, ledger: LedgerId) -> bool:
        return self.get(ledger) is not None

    def get(self, ledger: LedgerId) -> LedgerOwner | None:
        """Return the owner of a ledger, None if the ledger is not listed. O(log n)."""
        scope_id, ledger_id = ledger.signed
        (number,) = self.numbers_of(np.array([scope_id]), np.array([ledger_id])).tolist()
        return None if number == UNLISTED else self.owners[number]

    def numbers_of(self, scope_ids: Int64Array, ledger_ids: Int64Array) -> Int64Array:
        """Return int64[m]: the index in `owners` of each ledger's owner, -1 for ledgers that are
        not listed. O(m log n)."""
        rows = find_keys(self._keys, ledger_keys(scope_ids, ledger_ids))
        is_listed = rows >= 0
        numbers = np.full(rows.size, UNLISTED, np.int64)
        numbers[is_listed] = self.owner_numbers[rows[is_listed]]
        return numbers

    def entries_of(self, scope_ids: Int64Array, ledger_ids: Int64Array) -> Int64Array:
        """Return int64[m]: the entries of each ledger, 0 if it is not listed. O(m log n)."""
        rows = find_keys(self._keys, ledger_keys(scope_ids, ledger_ids))
        counts = np.zeros(rows.size, np.int64)
        counts[rows >= 0] = self.entry_counts[rows[rows >= 0]]
        return counts

    def choose(self, owner_filter: OwnerFilter) -> LedgerOwners:
        """Return the ledgers whose owners the filter matches; owners keep their numbers. O(n)."""
        matches = np.fromiter(map(owner_filter.matches, self.owners), np.bool_, len(self.owners))
        is_chosen = matches[self.owner_numbers]
        chosen = LedgerOwners()
        chosen._set(
            self.scope_ids[is_chosen],
            self.ledger_ids[is_chosen],
            self.owner_numbers[is_chosen],
            self.entry_counts[is_chosen],
        )
        chosen.owners = self.owners
        return chosen

    def ledgers(self) -> list[LedgerId]:
        """Return the ledgers in unsigned order. O(n)."""
        pairs = zip(self.scope_ids.tolist(), self.ledger_ids.tolist())
        return [LedgerId.from_signed(scope_id, ledger_id) for scope_id, ledger_id in pairs]
