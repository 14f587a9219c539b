"""Bookies that are not running, for an audit: bookie directories, and tables of sequence groups.

A sequence group is a row that stands for many entries: equally long runs of ids at equal distances.
A scope is the upper 64 bits of a 128-bit ledger id; BookKeeper's ledgers are in scope 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from bkstore.arguments import check_compat
from bkstore.availability import Availability
from bkstore.availability.grouping import canonicalize
from bkstore.availability.sequence_groups import Groups
from bkstore.errors import BookieUnavailable
from bkstore.ids import Int64Array, LedgerId, ledger_runs
from bkstore.index.api import LedgerLike, LedgerListing
from bkstore.index.bulk_listing import LedgerErrors, list_one_by_one, normalize_ledger_ids
from bkstore.storage.read_only.bookie_dir import BookieDir


class DirectoryBookie:
    """A bookie's `BookieDir`, of any layout, which the caller closes. Reads index data only.

    With ``compat="bookkeeper"`` a bookie with db storage raises `BookieUnavailable` for ledgers it
    has: `DbLedgerStorage.getListOfEntriesOfLedger` throws, and the client's request times out.
    """

    def __init__(self, bookie: BookieDir, compat: Literal["bookkeeper"] | None = None) -> None:
        check_compat("compat", compat)
        self.bookie = bookie
        throws = compat is not None and bookie.layout == "rocksdb"
        listing = bookie.index.list_readable_ledgers() if throws else LedgerListing([])
        self._unlistable_ledgers = frozenset(listing.ledgers)

    def refuse_output(self, target: Path) -> None:
        """Raise `InvalidArgument` if `target` lies in one of the directories."""
        self.bookie.refuse_output(target)

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return which entries of the ledger the bookie has; empty for an unknown ledger."""
        if LedgerId.of(ledger) in self._unlistable_ledgers:
            raise BookieUnavailable("db storage cannot list a ledger's entries")
        return self.bookie.index.availability(ledger)

    def availability_many(
        self, ledgers: Iterable[LedgerLike] | None = None, errors: LedgerErrors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        """Yield each ledger with its entries, all ledgers by default; with `errors`, which gets
        them by ledger, failed ledgers are left out. Lists ledgers one by one if some cannot be
        listed."""
        index = self.bookie.index
        if not self._unlistable_ledgers:
            return index.availability_many(ledgers, errors)
        ledger_ids = index.ledgers() if ledgers is None else normalize_ledger_ids(ledgers)
        return list_one_by_one(self.availability, ledger_ids, errors)


class GroupsBookie:
    """A bookie whose sequence groups are given as columns, like the `groups` table of a dump.

    Rows may have any order, and overlap if several directories have a ledger. O(rows log rows).

    >>> rows = [np.array([each]) for each in (0, 7, 0, 9, 2, 3)]
    >>> GroupsBookie(rows[0], rows[1], Groups(*rows[2:])).availability(7).ranges().tolist()
    [[0, 1], [3, 4], [6, 7], [9, 10]]
    """

    def __init__(self, scope_id: Int64Array, ledger_id: Int64Array, groups: Groups) -> None:
        """Take the rows of a dump's groups, in any order, and sort them by ledger."""
        order = np.lexsort((groups.first, ledger_id, scope_id))
        scopes, ledgers = scope_id[order], ledger_id[order]
        self._groups = groups.take(order)
        ledger_rows = ledger_runs(scopes, ledgers)
        self._rows = {ledger: (start, stop) for ledger, start, stop in ledger_rows}

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return which entries of the ledger the bookie has; empty for an unknown ledger."""
        start, stop = self._rows.get(LedgerId.of(ledger), (0, 0))
        groups = self._groups.take(np.arange(start, stop))
        if (groups.ends[:-1] <= groups.first[1:]).all():  # none overlaps the one before it
            return Availability.from_canonical(canonicalize(groups))
        # Groups of several directories overlap: merge them one by one.
        entries = Availability()
        for row in range(stop - start):
            entries |= Availability.from_canonical(canonicalize(groups.take(np.array([row]))))
        return entries
