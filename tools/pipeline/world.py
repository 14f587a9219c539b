"""The data to measure with: three bookies, their metadata, and their dump."""

from __future__ import annotations

from pathlib import Path

import numpy as np

BOOKIES = ("b0", "b1", "b2")
QUORUM = 2


def make_world(directory: Path, entries: int, ledgers: int, seed: int = 1) -> None:
    """Write the indexes of three bookies, with about `entries` rows in total, and metadata. Every
    second ledger has ids with the top bit set, and every fourth lacks 5 % of its entries."""
    from bkstore.cluster import MemoryStore, snapshot
    from bkstore.formats.metadata.json_file import encode_file
    from bkstore.ids import LedgerId
    from bkstore.index.hierarchical import HierarchicalIndex
    from bkstore.ledger_metadata import LedgerMetadata, Segment
    from bkstore.schedule import expected

    rng = np.random.default_rng(seed)
    entries_per_ledger = max(1, entries // ledgers // QUORUM)
    last = entries_per_ledger - 1
    ledger_ids = [
        LedgerId(2**63 + 1, 2**63 + number) if number % 2 else LedgerId.of(number + 1)
        for number in range(ledgers)
    ]
    store = MemoryStore()
    for ledger_id in ledger_ids:
        segments = (Segment(0, BOOKIES),)
        state = {"state": "CLOSED", "last_entry_id": last, "length": entries_per_ledger}
        store.create(LedgerMetadata(ledger_id, len(BOOKIES), QUORUM, QUORUM, segments, **state))  # type: ignore[arg-type]
    (directory / "metadata.json").write_bytes(encode_file(snapshot(store)))
    for bookie_index, bookie in enumerate(BOOKIES):
        with HierarchicalIndex(directory / bookie, writable=True) as index:
            for number, ledger_id in enumerate(ledger_ids):
                entry_ids = expected(0, last, bookie_index, len(BOOKIES), QUORUM).entries()
                if number % 4 == 0:
                    entry_ids = entry_ids[rng.random(entry_ids.size) > 0.05]
                # Records of 200 to 2,000 bytes, and another log after each MiB.
                positions = np.cumsum(rng.integers(200, 2000, entry_ids.size)) + 1028
                log_ids = positions // (1 << 20) + number % 50
                index.put_many(ledger_id, entry_ids, (log_ids << 32) | (positions & 0x3FFFFFFF))


def prepare_world(directory: Path, entries: int, ledgers: int) -> int:
    """Write the world and its dump unless they exist; return the number of rows."""
    from bkstore.offline.analyses import open_dump
    from bkstore.offline.dump import dump

    if not (directory / "dump").exists():
        directory.mkdir(parents=True, exist_ok=True)
        make_world(directory, entries, ledgers)
        dump([directory / name for name in BOOKIES], directory / "dump", jobs=1)
    return sum(file.rows for file in open_dump(directory / "dump").files["entries"])
