"""What the parts of `StorageSuite` share: how storages are made, test records, stages.

The tests are in `entries`, `batches`, `batch_adds`, `ledgers`, `durability`, `garbage` and
`errors`; `suite` puts them together. This module has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from bkstore.formats.entry import NO_ENTRY, Coder, Entry
from bkstore.ids import LedgerId
from bkstore.index.api import LedgerLike
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import StorageOptions

LEDGERS: tuple[LedgerLike, ...] = (7, LedgerId(1, 7), LedgerId(2**64 - 1, 2**63 + 5))
"""A ledger of scope 0, one of a small scope, one with the top bits of scope and number set."""

KEY = b"k" * 20
OTHER_KEY = b"o" * 20

STAGES = ("unflushed", "flushed", "mixed", "reopened")
"""Where records are when they are read: memory, disk, both, on disk before a reopen."""

Content = dict[LedgerId, dict[int, bytes]]
"""Records by ledger and entry id."""

_CODER = Coder("CRC32C", "pw")


def record(ledger: LedgerLike, entry: int, payload: bytes = b"", lac: int | None = None) -> bytes:
    """Return the record of one entry; without `lac` its LAC is the previous entry."""
    record_lac = max(entry - 1, NO_ENTRY) if lac is None else lac
    return _CODER.encode(Entry(ledger, entry, record_lac, len(payload), payload))


def records(ledger: LedgerLike, entries: Iterable[int], size: int = 30) -> dict[int, bytes]:
    """Return records by entry id, each with a distinct payload of `size` (at least 8) bytes."""

    def payload(entry: int) -> bytes:
        return entry.to_bytes(8, "big") + bytes([entry % 251]) * (size - 8)

    return {entry: record(ledger, entry, payload(entry)) for entry in entries}


def read_content(storage: LedgerStorage) -> Content:
    """Return every record of every ledger; it lists the entries and reads each singly."""
    return {
        ledger: {
            entry: storage.read_entry(ledger, entry) for entry in storage.entries(ledger).tolist()
        }
        for ledger in storage.ledgers()
    }


def log_bytes(path: Path) -> int:
    """Return the total size of the entry logs below `path`."""
    return sum(log.stat().st_size for log in path.rglob("current/*.log"))


class StorageHome:
    """A test's directory, and the storages opened in it, which `close` closes."""

    def __init__(self, path: Path, make: Callable[[Path, StorageOptions], LedgerStorage]) -> None:
        self.path = path
        self.options = StorageOptions()
        self._make_storage = make
        self._open_storages: list[LedgerStorage] = []

    def open(self, **options: Any) -> LedgerStorage:
        """Open a storage in the directory; the options stay for later calls."""
        self.options = replace(self.options, **options)
        storage = self._make_storage(self.path, self.options)
        self._open_storages.append(storage)
        return storage

    def reopen(self, flush: bool = True, **options: Any) -> LedgerStorage:
        """Close the storage that was opened last, and open one again."""
        self._open_storages.pop().close(flush=flush)
        return self.open(**options)

    def add_at_stage(
        self, storage: LedgerStorage, stage: str, new_records: Sequence[bytes], key: bytes = KEY
    ) -> LedgerStorage:
        """Add records, bring them into a stage of `STAGES`; return the storage to read from."""
        if stage == "mixed":
            storage.add_entries(new_records[1::2], master_key=key)
            storage.flush()
            storage.add_entries(new_records[::2], master_key=key)
            return storage
        storage.add_entries(new_records, master_key=key)
        if stage == "flushed":
            storage.flush()
        return self.reopen() if stage == "reopened" else storage

    def close(self) -> None:
        """Close all storages that are open."""
        while self._open_storages:
            self._open_storages.pop().close()


class StorageSuiteBase:
    """The fixtures of the tests, and what a subclass defines: `make_storage` and its kind."""

    duplicates: Literal["first", "last"] = "last"
    """Which copy of an entry is kept if several are added between two flushes."""
    limbo: bool = False
    """Whether ledgers can be in limbo."""
    shared_logs: bool = True
    """Whether an entry log holds records of several ledgers, so that compaction moves some."""
    cached: bool = True
    """Whether records wait in a write cache, which can fill up."""
    highest_entry: int = 2**20
    """An accepted entry id, far above all others of the tests."""

    def make_storage(self, path: Path, options: StorageOptions) -> LedgerStorage:
        """Return a storage in directory `path`, which does not exist or holds a closed one."""
        pytest.fail(f"{type(self).__name__} does not define make_storage()")

    @pytest.fixture
    def home(self, tmp_path: Path) -> Iterator[StorageHome]:
        """Yield the directory of the test; close its storages at the end."""
        home = StorageHome(tmp_path / "storage", self.make_storage)
        yield home
        home.close()

    @pytest.fixture
    def storage(self, home: StorageHome) -> LedgerStorage:
        """Return a fresh storage."""
        return home.open()
