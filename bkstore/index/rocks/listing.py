"""Listing many ledgers of a `locations` database by one scan of its keys, in blocks of arrays.

A look-up a ledger would cost two iterators and a dozen calls of numpy for each. A block of keys
is cut into ledgers by one comparison, and the entries of all of them are condensed together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from bkstore.availability import Availability, from_entries, grouping
from bkstore.availability.many_sets import from_ids_of_many, sets_of
from bkstore.availability.sequence_groups import Groups
from bkstore.ids import MAX_ENTRY_ID, Int64Array, LedgerId
from bkstore.index.rocks.database import Database, Words
from bkstore.index.rocks.keys import key_width, ledger_range
from bkstore.index.rocks.rows import entry_column

_FEWEST = 1 << 9
"""Rows of the first block behind a leap: as many as a leap costs, about."""

_MOST = 1 << 16
_NONE = np.empty(0, np.int64)

Listed = list[tuple[LedgerId, Availability]]


def list_ledgers(database: Database, names: list[LedgerId]) -> Iterator[Listed]:
    """Yield (ledger, entries) of `names`, some at a time; sorted, distinct, of one key width.

    Raises `CorruptionError` at a damaged place, when everything before it is out. Memory: a
    block of rows, and the groups of a ledger that is longer than a block.
    """
    asked = _Asked(names)
    while asked.done < len(names):
        lo, hi = ledger_range(names[asked.done])[0], ledger_range(names[-1])[1]
        for keys in database.key_blocks(lo, hi, key_width(names[0]), _FEWEST, _MOST):
            yield asked.take(keys)
            if asked.leaps:
                break
        else:
            yield asked.finish()


class _Asked:
    """The ledgers asked for: `done` have been listed, the next may have begun."""

    def __init__(self, names: list[LedgerId]) -> None:
        self.done = 0
        self.leaps = False
        """Whether the last block ended in a ledger that was not asked for."""
        self._names = names
        self._places = {name: place for place, name in enumerate(names)}
        # What has come of the next one: its last rows, and those before them if they are many.
        self._rest = _NONE
        self._begun: list[Groups] = []

    def take(self, keys: Words) -> Listed:
        """Take the next rows; return the ledgers that are complete."""
        places, owner = self._owners(keys)
        entries = entry_column(keys)
        # Keys of negative entries, and the last one there is, are in no answer.
        ours = (owner >= 0) & (entries >= 0) & (entries <= MAX_ENTRY_ID)
        if not ours.all():
            entries, owner = entries[ours], owner[ours]
        last = self._names[-1] if places[-1] < 0 else self._names[places[-1]]
        self.leaps = places[-1] < 0
        if self.leaps:
            scope, number = (0, *keys[-1, :-1].tolist())[-2:]
            last = tuple.__new__(LedgerId, (scope % (1 << 64), number % (1 << 64)))
        upto = bisect_right(self._names, last) if self.leaps else int(places[-1])
        return self._listed(entries, owner, max(upto, self.done))

    def _owners(self, keys: Words) -> tuple[list[int], Int64Array]:
        """Return the place in `names` of each ledger in turn, and of each row's; -1 for none."""
        change = keys[1:, 0] != keys[:-1, 0]
        if keys.shape[1] > 2:
            change |= keys[1:, 1] != keys[:-1, 1]
        opens = np.concatenate(([0], np.flatnonzero(change) + 1))
        heads = keys[opens, :-1].astype(np.int64).view(np.uint64)
        scopes = heads[:, 0].tolist() if heads.shape[1] == 2 else [0] * opens.size
        find = self._places.get
        places = [find(pair, -1) for pair in zip(scopes, heads[:, -1].tolist())]  # type: ignore[call-overload]
        sizes = np.diff(opens, append=len(keys))
        return places, np.repeat(np.array(places, np.int64), sizes)

    def _listed(self, entries: Int64Array, owner: Int64Array, upto: int) -> Listed:
        """Return the ledgers up to `upto`; keep what has come of that one."""
        # What was kept of the ledger that may go on stands before the new rows.
        if self._rest.size:
            entries = np.concatenate((self._rest, entries))
            owner = np.concatenate((np.full(self._rest.size, self.done), owner))
        # A ledger longer than a block is condensed block by block; here come its last rows.
        cut = int(np.searchsorted(owner, upto))
        complete = upto - self.done
        found: list[Availability] = []
        if complete and self._begun:
            rest = int(np.searchsorted(owner, self.done, "right"))
            parts = [*self._begun, from_entries.from_ids(entries[:rest])]
            found.append(Availability.from_canonical(grouping.join(parts)))
            self._begun = []
            entries, owner, cut = entries[rest:], owner[rest:], cut - rest
        # All other complete ones are made together, those without rows too.
        if len(found) < complete:
            first = self.done + len(found)
            groups = from_ids_of_many(entries[:cut], owner[:cut] - first)
            found += sets_of(*groups, complete - len(found))
        # Rows of the ledger that may go on: kept as ids while they are few, else condensed.
        self._rest = entries[cut:]
        if self._rest.size >= _MOST:
            self._begun.append(from_entries.from_ids(self._rest))
            self._rest = _NONE
        names = self._names[self.done : upto]
        self.done = upto
        return list(zip(names, found))

    def finish(self) -> Listed:
        """Return the ledgers that are left: the scan has seen its end."""
        return self._listed(_NONE, _NONE, len(self._names))
