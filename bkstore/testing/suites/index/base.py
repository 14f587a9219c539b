"""Shared by the parts of `EntryIndexSuite`: fixtures, examples, functions to read a whole index.

The parts are `entries`, `ledgers`, `listings` and `durability`; `suite` combines them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkstore.ids import MAX_ENTRY_ID, LedgerId
from bkstore.index.api import EntryIndex, IndexBatch, LedgerLike, LedgerState

LEDGERS: tuple[LedgerLike, ...] = (7, LedgerId(1, 7), LedgerId(2**64 - 1, 2**63 + 5))
"""One ledger of scope 0, one of a small scope, one with the top bit set in both halves."""

BOUNDARIES = (0, 1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32, 2**63 - 1)
"""Ledger numbers at which a path, a byte length or a sign changes."""

WIDE_BOUNDARIES = (*BOUNDARIES, 2**63, 2**64 - 1)

_EXPLICIT_LAC_BODY = struct.pack(">qq", 7, 41) + bytes.fromhex("0badcafe")
"""An explicit LAC body: ledger, LAC, CRC32C digest."""

STATES = (
    LedgerState(),
    LedgerState(bytes(range(20))),
    LedgerState(b"k" * 20, fenced=True),
    LedgerState(b"k" * 20, explicit_lac=_EXPLICIT_LAC_BODY),
    LedgerState(b"\0" * 20, fenced=True, explicit_lac=_EXPLICIT_LAC_BODY + bytes(16)),
)
"""An empty state, then states with more and more fields; tests set and read them by index."""


def rows_of(index: EntryIndex, ledger: LedgerLike) -> dict[int, int]:
    """Return the locations of a ledger's entries by entry id, in the order listed."""
    entries, locations = index.items(ledger)
    return dict(zip(entries.tolist(), locations.tolist(), strict=True))


def scan_rows(batches: Iterator[IndexBatch]) -> list[tuple[int, int, int, int, int]]:
    """Return (dir_index, scope, ledger, entry, location) rows, ids unsigned, in scan order."""
    rows = []
    for batch in batches:
        columns = [column.tolist() for column in batch]
        for dir_index, scope, ledger, entry, location in zip(*columns, strict=True):
            rows.append((dir_index, scope % 2**64, ledger % 2**64, entry, location))
    return rows


def files_of(path: Path) -> dict[str, tuple[int, int]]:
    """Return the size (-1 for a directory) and mtime of everything below `path`."""
    files = {}
    for file in sorted(path.rglob("*")):
        info = file.stat()
        files[str(file)] = (info.st_size if file.is_file() else -1, info.st_mtime_ns)
    return files


class SuiteBase:
    """Makes a backend, reopens it and passes it to the tests."""

    highest_entry: int = MAX_ENTRY_ID

    def make_index(self, path: Path) -> EntryIndex:
        """Return a writable index kept in directory `path`. Called with a path that does not exist,
        and after a close with the same path again, where a durable backend finds its data."""
        pytest.fail(f"{type(self).__name__} does not define make_index()")

    def reopen(self, path: Path) -> EntryIndex | None:
        """Return a read-only index of the data in `path`, or None if the backend keeps none."""
        return None

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """Return the directory of the test's index."""
        return tmp_path / "index"

    @pytest.fixture
    def index(self, path: Path) -> Iterator[EntryIndex]:
        """Yield a fresh index and close it."""
        with self.make_index(path) as index:
            yield index

    def reopen_or_skip(self, index: EntryIndex, path: Path) -> EntryIndex:
        """Close `index` and return it reopened read-only; skip if the backend is not durable."""
        index.close()
        reopened = self.reopen(path)
        if reopened is None:
            pytest.skip("the backend is not durable")
        return reopened
