"""Every ledger storage passes the conformance suite that ships with the package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import StorageOptions
from bkstore.testing import StorageSuite
from bkstore.testing.suites.storage.base import StorageSuiteBase
from bkstore.testing.suites.storage.garbage import StorageGarbageRules


class TestSorted(StorageSuite):
    """Sorted storage: a skip list, index files; the first of equals stays."""

    duplicates = "first"

    def make_storage(self, path: Path, options: StorageOptions) -> LedgerStorage:
        """Return sorted storage in one directory."""
        return LedgerStorage.open(path, "sorted", options=options)


class TestInterleaved(StorageSuite):
    """Interleaved storage: records go to the log at once, index files."""

    cached = False

    def make_storage(self, path: Path, options: StorageOptions) -> LedgerStorage:
        """Return interleaved storage in one directory."""
        return LedgerStorage.open(path, "interleaved", options=options)


class TestDb(StorageSuite):
    """Db storage: two caches by turns, RocksDB."""

    limbo = True
    highest_entry = 2**63 - 2

    def make_storage(self, path: Path, options: StorageOptions) -> LedgerStorage:
        """Return db storage in one directory."""
        return LedgerStorage.open(path, "db", options=options)


class IngestingDb(StorageSuiteBase):
    """Db storage, whose checkpoints and compactions ingest table files, however few their rows."""

    limbo = True
    highest_entry = 2**63 - 2

    @pytest.fixture(autouse=True)
    def _ingest_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for constant in ("_INGESTED_SNAPSHOT_ROWS", "_INGESTED_MOVES", "_MOVES_AT_ONCE"):
            monkeypatch.setattr(f"bkstore.storage.ledgers.write_paths.db.{constant}", 1)

    def make_storage(self, path: Path, options: StorageOptions) -> LedgerStorage:
        """Return db storage in one directory."""
        return LedgerStorage.open(path, "db", options=options)


class TestIngestingDbGarbage(IngestingDb, StorageGarbageRules):
    """Deleted, added again, moved, and reopened."""


@pytest.mark.long  # of these rules, those on garbage are in every run
class TestIngestingDb(IngestingDb, StorageSuite):
    """The whole contract."""


class TestInterleavedThreeDirectories(TestInterleaved):
    """Interleaved storage over three ledger directories, index files in two others."""

    def make_storage(self, path: Path, options: StorageOptions) -> LedgerStorage:
        """Return interleaved storage in several directories."""
        ledgers = [path / f"ledgers{at}" for at in range(3)]
        indexes = [path / f"index{at}" for at in range(2)]
        return LedgerStorage.open(ledgers, "interleaved", index_dirs=indexes, options=options)


@pytest.mark.long
@pytest.mark.long  # six databases a test; the state machine opens them in every run
class TestDbThreeDirectories(TestDb):
    """Db storage over three pairs of directories; ledger L in number L mod 3."""

    def make_storage(self, path: Path, options: StorageOptions) -> LedgerStorage:
        """Return db storage in several directories."""
        ledgers = [path / f"ledgers{at}" for at in range(3)]
        indexes = [path / f"index{at}" for at in range(3)]
        wider = replace(options, write_cache=3 * options.write_cache)  # each has a third
        return LedgerStorage.open(ledgers, "db", index_dirs=indexes, options=wider)


class TestSortedTinyCache(TestSorted):
    """Sorted storage whose skip list flushes itself after some twenty records."""

    def make_storage(self, path: Path, options: StorageOptions) -> LedgerStorage:
        """Return sorted storage with a cache of 6 kB at most."""
        small = replace(options, write_cache=min(options.write_cache, 6000))
        return LedgerStorage.open(path, "sorted", options=small)


@pytest.mark.long
class TestDbTinyCache(TestDb):
    """Db storage whose caches flush themselves after some twenty records."""

    def make_storage(self, path: Path, options: StorageOptions) -> LedgerStorage:
        """Return db storage with caches of 6 kB at most."""
        small = replace(options, write_cache=min(options.write_cache, 12000))
        return LedgerStorage.open(path, "db", options=small)


class TestLogPerLedger(TestSorted):
    """Sorted storage with an entry log for each ledger, in two directories."""

    shared_logs = False

    def make_storage(self, path: Path, options: StorageOptions) -> LedgerStorage:
        """Return sorted storage with one log per ledger."""
        apart = replace(options, entry_log_per_ledger=True)
        return LedgerStorage.open([path / "a", path / "b"], "sorted", options=apart)


@pytest.mark.long
class TestInterleavedFewRows(TestInterleaved):
    """Interleaved storage that hands its index rows on after every seven."""

    def make_storage(self, path: Path, options: StorageOptions) -> LedgerStorage:
        """Return interleaved storage with few rows in memory."""
        few = replace(options, pending_locations=min(options.pending_locations, 7))
        return LedgerStorage.open(path, "interleaved", options=few)
