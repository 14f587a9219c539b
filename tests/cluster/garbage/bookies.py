"""Bookies with garbage, stores that say which ledgers live, and clocks that are set by hand."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bkstore import Bookie, LedgerId
from bkstore.cluster.garbage import GarbageOptions
from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.formats.entry import Entry, encode, master_key
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.storage.options import JournalOptions, StorageOptions

__all__ = [
    "GONE",
    "KEY",
    "KINDS",
    "LIVE",
    "OPTIONS",
    "SCOPED",
    "Clock",
    "add",
    "log_bytes",
    "open_bookie",
    "store_of",
    "until",
]

KINDS: tuple[Any, ...] = ("sorted", "interleaved", "db")
KEY = master_key("pw")
LIVE, GONE, SCOPED = LedgerId(0, 1), LedgerId(0, 2), LedgerId(9, 2)
OPTIONS = GarbageOptions(
    gc_wait_time=10, minor_compaction_interval=60, major_compaction_interval=300
)


class Clock:
    """Time that passes by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def open_bookie(path: Path, kind: Any = "db", log_size: int = 1 << 20) -> Bookie:
    """Open a bookie with small files."""
    return Bookie.open(
        path,
        kind,
        options=StorageOptions(entry_log_size=log_size),
        journal=JournalOptions(preallocate=64 << 10),
        bookie_id="b1",
    )


def add(bookie: Bookie, ledger: LedgerId, entries: range) -> None:
    """Add entries of 400 bytes, whose payload begins with whose they are."""
    payload = f"<{ledger.scope}/{ledger.ledger}>".encode().ljust(400, b".")
    records = [encode(Entry(ledger, at, at - 1, at, payload), "CRC32C", "pw") for at in entries]
    bookie.add_entries(records, KEY, sync=False)


def store_of(*ledgers: LedgerId) -> MemoryStore:
    """Return a store with these ledgers."""
    store = MemoryStore()
    for ledger in ledgers:
        store.create(LedgerMetadata(ledger, 1, 1, 1, [(0, ["b1"])], digest_type="CRC32C"))
    return store


def log_bytes(bookie: Bookie) -> bytes:
    """Return the bytes of all entry logs."""
    paths = [path for place in bookie.directories.ledger for path in sorted(place.glob("*.log"))]
    return b"".join(path.read_bytes() for path in paths)


def until(holds: Callable[[], object]) -> None:
    """Wait for what another thread does."""
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.002)
