"""PendingLocations: locations of entries whose index pages are not written yet.

What the pages in memory are in the interleaved storage of BookKeeper (`IndexInMemPageMgr`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bkstore.ids import Int64Array, LedgerId
from bkstore.storage.ledgers.write_paths.pending import FEWEST, Pending, Run, Table, is_ascending


class _Locations(Run[int]):
    """Locations of ascending entries."""

    def __init__(self, entries: Int64Array, locations: Int64Array) -> None:
        super().__init__(entries)
        self.locations = locations

    def value(self, at: int) -> int:
        return int(self.locations[at])


class PendingLocations(Pending[int]):
    """Locations by ledger and entry, in memory; the last of equal entries stays.

    Memory: 16 bytes an entry that came in a batch, about 150 one that came alone.

    >>> pending, name = PendingLocations(), LedgerId(ledger=7)
    >>> pending.put(name, 3, 1028), pending.put(name, 3, 2000)
    (True, False)
    >>> pending.get(name, 3), pending.entries(7).tolist()
    (2000, [3])
    """

    def __init__(self) -> None:
        super().__init__("last")

    def put_many(self, name: LedgerId, entries: Int64Array, locations: Int64Array) -> None:
        """Store locations, in this order: int64[n] each, which nobody may change later."""
        if entries.size >= FEWEST and is_ascending(entries):
            self.put_run(name, _Locations(entries, locations))
        else:
            for entry, location in zip(entries.tolist(), locations.tolist()):
                self.put(name, entry, location)

    def items(self, name: LedgerId, first: int, last: int | None) -> tuple[Int64Array, Int64Array]:
        """Return (entries, locations) of first..last, sorted. Cost: as `entries`."""
        table = self._tables.get(name)
        if table is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        single = table.single_ids(first, last)
        parts = [(np.array(single, np.int64), _values(table, single))]
        for run, part in table.runs_in(first, last):
            assert isinstance(run, _Locations)
            parts.append((run.entries[part], run.locations[part]))
        return _merged(parts)

    def get_many(self, name: LedgerId, entries: Int64Array) -> Int64Array:
        """Return the locations of these entries, 0 where there is none."""
        if not entries.size or name not in self._tables:
            return np.zeros(entries.size, np.int64)
        have, locations = self.items(name, int(entries.min()), int(entries.max()))
        at = have.searchsorted(entries)
        here = at < have.size
        here[here] = have[at[here]] == entries[here]
        found = np.zeros(entries.size, np.int64)
        found[here] = locations[at[here]]
        return found

    def tables(self) -> Iterator[tuple[LedgerId, Int64Array, Int64Array]]:
        """Yield (ledger, sorted entry ids, their locations), ledgers in unsigned order."""
        for name in sorted(self._tables):
            yield name, *self.items(name, 0, None)


def _values(table: Table[int], ids: list[int]) -> Int64Array:
    return np.fromiter(map(table.values.__getitem__, ids), np.int64, len(ids))


def _merged(parts: list[tuple[Int64Array, Int64Array]]) -> tuple[Int64Array, Int64Array]:
    """Return all sorted by entry; of equal ones the first stays."""
    entries, locations = (np.concatenate(columns) for columns in zip(*parts))
    if is_ascending(entries):
        return entries, locations
    order = np.argsort(entries, kind="stable")
    entries, locations = entries[order], locations[order]
    keep = np.concatenate(([True], entries[1:] != entries[:-1]))
    return entries[keep], locations[keep]
