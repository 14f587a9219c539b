"""What is measured: three bookies, their metadata, and their dump."""

from __future__ import annotations

from pathlib import Path

import numpy as np

BOOKIES = ("b0", "b1", "b2")
QUORUM = 2


def make_world(top: Path, entries: int, ledgers: int, seed: int = 1) -> None:
    """Write three bookies' indexes with about `entries` rows in all, and their metadata."""
    from bkstore.cluster import MemoryStore, snapshot
    from bkstore.formats.metadata.json_file import encode_file
    from bkstore.ids import LedgerId
    from bkstore.index.hierarchical import HierarchicalIndex
    from bkstore.ledger_metadata import LedgerMetadata, Segment
    from bkstore.schedule import expected

    chance = np.random.default_rng(seed)
    each = max(1, entries // ledgers // QUORUM)
    names = [
        LedgerId(2**63 + 1, 2**63 + n) if n % 2 else LedgerId.of(n + 1) for n in range(ledgers)
    ]
    store = MemoryStore()
    for name in names:
        segments = (Segment(0, BOOKIES),)
        state = {"state": "CLOSED", "last_entry_id": each - 1, "length": each}
        store.create(LedgerMetadata(name, len(BOOKIES), QUORUM, QUORUM, segments, **state))  # type: ignore[arg-type]
    (top / "metadata.json").write_bytes(encode_file(snapshot(store)))
    for at, bookie in enumerate(BOOKIES):
        with HierarchicalIndex(top / bookie, writable=True) as index:
            for number, name in enumerate(names):
                held = expected(0, each - 1, at, len(BOOKIES), QUORUM).entries()
                if number % 4 == 0:
                    held = held[chance.random(held.size) > 0.05]
                place = np.cumsum(chance.integers(200, 2000, held.size)) + 1028
                logs = place // (1 << 20) + number % 50
                index.put_many(name, held, (logs << 32) | (place & 0x3FFFFFFF))


def opened_world(top: Path, entries: int, ledgers: int) -> int:
    """Make the world and its dump below `top`, unless they are there; return its rows."""
    from bkstore.offline.analyses import open_dump
    from bkstore.offline.dump import dump

    if not (top / "dump").exists():
        top.mkdir(parents=True, exist_ok=True)
        make_world(top, entries, ledgers)
        dump([top / name for name in BOOKIES], top / "dump", jobs=1)
    return sum(file.rows for file in open_dump(top / "dump").files["entries"])
