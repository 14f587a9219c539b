"""The data of `bkstore demo`: a bookie of every layout, with holes punched on purpose."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from bkstore import schedule
from bkstore.availability import Availability
from bkstore.ids import LedgerId, make_locations
from bkstore.index.api import EntryIndex, LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.partitioned import PartitionedIndex
from bkstore.index.rocks import RocksIndex

__all__ = ["LAST_ENTRY", "make_bookies"]

LAST_ENTRY = 19_999
_MASTER_KEY = bytes.fromhex("2e2a69d870796fe05c0e77c52a29ce5e4222b758")  # of "testPasswd"
_SCOPED = LedgerId.from_uuid(uuid.UUID("c0ffee00-feed-4bad-9e55-0123456789ab"))
_STRIPED = {2: (3, 2), 4: (3, 2), 6: (5, 3)}  # ledger: ensemble size, write quorum
_HOLES: dict[int | LedgerId, list[tuple[int, int]]] = {
    3: [(100, 119), (5_000, 5_000), (19_000, 19_123)],
    4: [(3_000, 3_299)],
    _SCOPED: [(7, 7), (77, 79)],
}


def _writers(top: Path) -> Iterator[tuple[str, Callable[[], EntryIndex]]]:
    """Yield (bookie, how to open its index for writing)."""
    yield "idx", lambda: HierarchicalIndex(top / "idx/ledgers", writable=True)
    yield (
        "idx-two-dirs",
        lambda: HierarchicalIndex(
            [top / f"idx-two-dirs/index{n}" for n in range(2)], writable=True
        ),
    )
    yield "rocksdb", lambda: RocksIndex(top / "rocksdb/ledgers", writable=True)
    yield (
        "rocksdb-three-dirs",
        lambda: PartitionedIndex(
            [RocksIndex(top / f"rocksdb-three-dirs/ledgers{n}", writable=True) for n in range(3)]
        ),
    )


def make_bookies(top: Path) -> dict[tuple[str, LedgerId], Availability]:
    """Write the bookies below `top`, one folder each; return the holes punched, by ledger."""
    punched = {}
    for number, (bookie, open_index) in enumerate(_writers(top)):
        with open_index() as index:
            for ledger in (1, 2, 3, 4, 5, 6, _SCOPED):
                lost = _fill(index, LedgerId.of(ledger), number)
                if lost:
                    punched[bookie, LedgerId.of(ledger)] = lost
    return punched


def _fill(index: EntryIndex, ledger: LedgerId, bookie_number: int) -> Availability:
    """Store a ledger less its holes; return the entries left out."""
    ensemble, quorum = _STRIPED.get(ledger.ledger, (1, 1))
    due = schedule.expected(0, LAST_ENTRY, bookie_number % ensemble, ensemble, quorum)
    lost = due & Availability.from_ranges(_HOLES.get(ledger.ledger, _HOLES.get(ledger, [])))
    entries = (due - lost).entries()
    positions = 1028 + 100 * np.arange(entries.size, dtype=np.int64)
    index.set_state(ledger, LedgerState(_MASTER_KEY, fenced=ledger.ledger == 5))
    index.put_many(ledger, entries, make_locations(ledger.ledger % 8, positions))
    return lost
