"""What the parts of `StorageSuite` share: how a storage is made, what is added, stages of it.

The suite is taken apart by what is asked: `entries`, `batches`, `batch_adds`, `ledgers`,
`durability`, `garbage`, `errors`; `suite` puts it together. Nothing here is a rule.
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
"""One ledger of scope 0, one of a small scope, one with the top bit set in both halves."""

KEY = b"k" * 20
OTHER_KEY = b"o" * 20

STAGES = ("unflushed", "flushed", "mixed", "reopened")
"""Where records may be when they are asked for: in memory, on disk, both, on disk since before."""

_CODER = Coder("CRC32C", "pw")


def record(ledger: LedgerLike, entry: int, payload: bytes = b"", lac: int | None = None) -> bytes:
    """Return the record of one entry; its LAC is the entry before, if none is given."""
    confirmed = max(entry - 1, NO_ENTRY) if lac is None else lac
    return _CODER.encode(Entry(ledger, entry, confirmed, len(payload), payload))


def records(ledger: LedgerLike, entries: Iterable[int], size: int = 30) -> dict[int, bytes]:
    """Return records by entry, each with a payload of its own of about `size` bytes."""
    return {
        entry: record(ledger, entry, entry.to_bytes(8, "big") + bytes([entry % 251]) * (size - 8))
        for entry in entries
    }


def content_of(storage: LedgerStorage) -> dict[LedgerId, dict[int, bytes]]:
    """Return every record of every ledger, as listings and single reads give them."""
    return {
        name: {entry: storage.read_entry(name, entry) for entry in storage.entries(name).tolist()}
        for name in storage.ledgers()
    }


def log_bytes(path: Path) -> int:
    """Return the bytes in entry logs below `path`."""
    return sum(log.stat().st_size for log in path.rglob("current/*.log"))


class Home:
    """One directory, and the storage that is open in it; closes it at the end of the test."""

    def __init__(
        self, path: Path, make: Callable[[Path, StorageOptions], LedgerStorage], **options: Any
    ) -> None:
        self.path = path
        self.options = StorageOptions(**options)
        self._make = make
        self._open: list[LedgerStorage] = []

    def open(self, **options: Any) -> LedgerStorage:
        """Open the directory, with these options from now on."""
        self.options = replace(self.options, **options)
        storage = self._make(self.path, self.options)
        self._open.append(storage)
        return storage

    def reopen(self, flush: bool = True, **options: Any) -> LedgerStorage:
        """Close what is open and open it again."""
        self._open.pop().close(flush=flush)
        return self.open(**options)

    def stage(
        self, storage: LedgerStorage, stage: str, added: Sequence[bytes], key: bytes = KEY
    ) -> LedgerStorage:
        """Add records and bring them where `stage` says; return the storage to ask."""
        if stage == "mixed":
            storage.add_entries(added[1::2], master_key=key)
            storage.flush()
            storage.add_entries(added[::2], master_key=key)
            return storage
        storage.add_entries(added, master_key=key)
        if stage == "flushed":
            storage.flush()
        return self.reopen() if stage == "reopened" else storage

    def close(self) -> None:
        """Close what is open."""
        while self._open:
            self._open.pop().close()


class StorageSuiteBase:
    """How a storage is made and handed to the tests, and what kind it says it is."""

    duplicates: Literal["first", "last"] = "last"
    """Which of equal entries stays that come between two flushes."""
    limbo: bool = False
    """Whether ledgers can be in limbo."""
    shared_logs: bool = True
    """Whether an entry log takes records of several ledgers, so that compaction has work."""
    cached: bool = True
    """Whether records wait in a write cache, which can be full."""
    highest_entry: int = 2**20
    """An entry id that it takes, far behind all others."""

    def make_storage(self, path: Path, options: StorageOptions) -> LedgerStorage:
        """Return a storage kept in directory `path`, with these options.

        Called with a path that does not exist, and again, after a close, with the same path.
        """
        pytest.fail(f"{type(self).__name__} does not say how its storage is made (make_storage)")

    @pytest.fixture
    def home(self, tmp_path: Path) -> Iterator[Home]:
        """Yield the directory of the test; whatever is open in it is closed at the end."""
        home = Home(tmp_path / "storage", self.make_storage)
        yield home
        home.close()

    @pytest.fixture
    def storage(self, home: Home) -> LedgerStorage:
        """Return a fresh storage."""
        return home.open()
