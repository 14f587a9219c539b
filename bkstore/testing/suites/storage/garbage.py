"""Rules about garbage: deleted ledgers give their space back, nothing else is lost.

One part of `bkstore.testing.StorageSuite`.
"""

from __future__ import annotations

import pytest

from bkstore.ids import LedgerId
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.testing.suites.storage.base import (
    KEY,
    LEDGERS,
    Home,
    StorageSuiteBase,
    content_of,
    log_bytes,
    record,
    records,
)

LOG_SIZE = 20_000

Content = dict[LedgerId, dict[int, bytes]]


class StorageGarbageRules(StorageSuiteBase):
    """What holds for garbage collection and compaction."""

    def _fill(self, home: Home, every: int = 1) -> tuple[LedgerStorage, Content, Content]:
        """Return a storage of many logs, what is to stay in it, and what is to go.

        Of each ledger that stays there are two that go, and their records lie mixed.
        """
        storage = home.open(entry_log_size=LOG_SIZE)
        names = [LedgerId.of(ledger)._replace(ledger=40 + at) for at, ledger in enumerate(LEDGERS)]
        stays = {name: records(name, range(0, 120, every), 150) for name in names}
        goes = {
            name._replace(ledger=name.ledger + more): records(
                name._replace(ledger=name.ledger + more), range(120), 150
            )
            for name in names
            for more in (10, 20)
        }
        for entry in range(120):
            for rows in (*stays.values(), *goes.values()):
                if entry in rows:
                    storage.add_entry(rows[entry], master_key=KEY)
            if entry % 10 == 9:
                storage.checkpoint()
        return home.reopen(), stays, goes  # so that no log is being written

    def test_nothing_to_collect(self, home: Home) -> None:
        """Where no ledger is deleted nothing is, whatever the threshold."""
        storage, stays, goes = self._fill(home)
        before = log_bytes(home.path)
        for threshold in (None, 0.2, 0.8):
            report = storage.collect_garbage(threshold=threshold)

            assert [] == report.deleted_ledgers
            assert 0 == report.moved_entries == len(report.compacted_logs)
        assert before <= log_bytes(home.path)
        assert stays | goes == content_of(storage)

    def test_live_ledgers_stay(self, home: Home) -> None:
        """Ledgers that are not live are deleted and told, in order; the others stay."""
        storage, stays, goes = self._fill(home)
        report = storage.collect_garbage([*stays, LedgerId(0, 999)], threshold=None)

        assert sorted(goes) == report.deleted_ledgers
        assert stays == content_of(storage)
        assert [] == report.findings

        storage = home.reopen()

        assert stays == content_of(storage)

    def test_all_deleted(self, home: Home) -> None:
        """Where no ledger is live every closed log goes."""
        storage, _, _ = self._fill(home)
        before = log_bytes(home.path)
        report = storage.collect_garbage([], threshold=None)

        assert [] == storage.ledgers()
        assert before == report.removed_bytes + log_bytes(home.path)
        assert 3000 > log_bytes(home.path)
        assert {} == content_of(home.reopen())

    @pytest.mark.parametrize("transactional", [False, True])
    def test_compaction(self, home: Home, transactional: bool) -> None:
        """Compaction gives the space of deleted ledgers back; live records are as they were."""
        storage, stays, goes = self._fill(home, every=3)
        before = log_bytes(home.path)
        for name in goes:
            storage.delete_ledger(name)
        report = storage.collect_garbage(threshold=0.8, transactional=transactional)
        wanted = sum(4 + len(data) for rows in stays.values() for data in rows.values())
        live = sum(map(len, stays.values()))

        assert [] == report.findings
        assert report.removed_logs
        assert self.shared_logs == (set(report.compacted_logs) == set(report.removed_logs))
        assert (live if self.shared_logs else 0) == report.moved_entries
        assert before > 2 * wanted  # else there was nothing to gain
        assert 1.6 * wanted > log_bytes(home.path)
        assert stays == content_of(storage)
        for name, rows in stays.items():
            assert list(rows) == storage.entries(name).tolist()

        storage = home.reopen()

        assert stays == content_of(storage)

    @pytest.mark.parametrize("transactional", [False, True])
    def test_threshold(self, home: Home, transactional: bool) -> None:
        """A log of which more is wanted than the threshold says is left alone."""
        storage, stays, goes = self._fill(home)
        for name in list(goes)[::2]:
            storage.delete_ledger(name)
        kept = {name: rows for name, rows in goes.items() if storage.ledger_exists(name)}
        untouched = storage.collect_garbage(threshold=0.5, transactional=transactional)

        assert (0, []) == (untouched.moved_entries, untouched.compacted_logs)

        touched = storage.collect_garbage(threshold=0.8, transactional=transactional)

        assert self.shared_logs == bool(touched.compacted_logs)
        assert stays | kept == content_of(storage)

    @pytest.mark.parametrize("transactional", [False, True])
    def test_collecting_again_finds_nothing(self, home: Home, transactional: bool) -> None:
        """What was compacted is not compacted again, now or after a reopen."""
        storage, stays, _ = self._fill(home, every=3)
        storage.collect_garbage(list(stays), threshold=0.8, transactional=transactional)
        for _ in range(2):
            storage = home.reopen()
            report = storage.collect_garbage(list(stays), transactional=transactional)

            assert ([], 0) == (report.deleted_ledgers, report.moved_entries)
            assert stays == content_of(storage)

    @pytest.mark.parametrize("transactional", [False, True])
    def test_the_newest_copy_survives_compaction(self, home: Home, transactional: bool) -> None:
        """Where an entry was added again, compaction does not bring the old copy back."""
        storage, stays, goes = self._fill(home, every=3)
        for name, rows in stays.items():
            for entry in list(rows)[::4]:
                rows[entry] = record(name, entry, b"again")
                storage.add_entry(rows[entry])
        storage.flush()
        for name in goes:
            storage.delete_ledger(name)
        for _ in range(2):
            storage.collect_garbage(threshold=1.0, transactional=transactional)

            assert stays == content_of(storage)

            storage = home.reopen()

            assert stays == content_of(storage)

    @pytest.mark.parametrize("transactional", [False, True])
    def test_unflushed_adds_beside_compaction(self, home: Home, transactional: bool) -> None:
        """Adds that wait in memory are neither lost nor overtaken."""
        storage, stays, goes = self._fill(home, every=3)
        for name, rows in stays.items():
            rows[500], rows[0] = record(name, 500, b"new"), record(name, 0, b"instead")
            storage.add_entries([rows[500], rows[0]])
        storage.collect_garbage(list(stays), threshold=0.8, transactional=transactional)

        assert set(goes).isdisjoint(storage.ledgers())
        assert stays == content_of(storage)
        assert stays == content_of(home.reopen())
