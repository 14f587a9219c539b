"""Rules of `StorageSuite` about garbage: deleted ledgers' space is freed, nothing else is lost."""

from __future__ import annotations

import pytest

from bkstore.ids import LedgerId
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.testing.suites.storage.base import (
    KEY,
    LEDGERS,
    Content,
    StorageHome,
    StorageSuiteBase,
    log_bytes,
    read_content,
    record,
    records,
)

LOG_SIZE = 20_000


class StorageGarbageRules(StorageSuiteBase):
    """Rules for garbage collection and compaction."""

    def _fill_logs(
        self, home: StorageHome, live_step: int = 1
    ) -> tuple[LedgerStorage, Content, Content]:
        """Return a storage with many logs, its live records, and those of ledgers to delete: two
        for each live one, which has only each `live_step`-th entry."""
        storage = home.open(entry_log_size=LOG_SIZE)
        ids = [LedgerId.of(ledger)._replace(ledger=40 + i) for i, ledger in enumerate(LEDGERS)]
        live = {id_: records(id_, range(0, 120, live_step), size=150) for id_ in ids}
        doomed_ids = [id_._replace(ledger=id_.ledger + step) for id_ in ids for step in (10, 20)]
        doomed = {id_: records(id_, range(120), size=150) for id_ in doomed_ids}
        for entry in range(120):
            for added in (*live.values(), *doomed.values()):
                if entry in added:
                    storage.add_entry(added[entry], master_key=KEY)
            if entry % 10 == 9:
                storage.checkpoint()
        return home.reopen(), live, doomed  # so that no log is being written

    def test_nothing_to_collect(self, home: StorageHome) -> None:
        """Without a deleted ledger nothing is collected, whatever the threshold."""
        storage, live, doomed = self._fill_logs(home)
        bytes_before = log_bytes(home.path)
        for threshold in (None, 0.2, 0.8):
            report = storage.collect_garbage(threshold=threshold)

            assert [] == report.deleted_ledgers
            assert 0 == report.moved_entries == len(report.compacted_logs)
        assert bytes_before <= log_bytes(home.path)
        assert live | doomed == read_content(storage)

    def test_live_ledgers_stay(self, home: StorageHome) -> None:
        """Ledgers that are not live are deleted and reported in order; the others are kept."""
        storage, live, doomed = self._fill_logs(home)
        report = storage.collect_garbage([*live, LedgerId(0, 999)], threshold=None)

        assert sorted(doomed) == report.deleted_ledgers
        assert live == read_content(storage)
        assert [] == report.findings
        assert live == read_content(home.reopen())

    def test_all_deleted(self, home: StorageHome) -> None:
        """If no ledger is live, every closed log is removed."""
        storage, _, _ = self._fill_logs(home)
        bytes_before = log_bytes(home.path)
        report = storage.collect_garbage([], threshold=None)

        assert [] == storage.ledgers()
        assert bytes_before == report.removed_bytes + log_bytes(home.path)
        assert 3000 > log_bytes(home.path)
        assert {} == read_content(home.reopen())

    @pytest.mark.parametrize("transactional", [False, True])
    def test_compaction(self, home: StorageHome, transactional: bool) -> None:
        """Compaction frees the space of deleted ledgers; live records stay as they are."""
        storage, live, doomed = self._fill_logs(home, live_step=3)
        bytes_before = log_bytes(home.path)
        for ledger_id in doomed:
            storage.delete_ledger(ledger_id)
        report = storage.collect_garbage(threshold=0.8, transactional=transactional)
        live_bytes = sum(4 + len(data) for added in live.values() for data in added.values())
        live_count = sum(map(len, live.values()))

        # A log of several ledgers is compacted before it is removed, a log of one is only removed.
        assert [] == report.findings
        assert report.removed_logs
        assert self.shared_logs == (set(report.compacted_logs) == set(report.removed_logs))
        assert (live_count if self.shared_logs else 0) == report.moved_entries
        assert bytes_before > 2 * live_bytes  # or there would be nothing to free
        assert 1.6 * live_bytes > log_bytes(home.path)  # logs may keep a fifth of garbage
        assert live == read_content(storage)
        for ledger_id, added in live.items():
            assert list(added) == storage.entries(ledger_id).tolist()
        assert live == read_content(home.reopen())

    @pytest.mark.parametrize("transactional", [False, True])
    def test_threshold(self, home: StorageHome, transactional: bool) -> None:
        """A log whose live part is above the threshold is not compacted."""
        storage, live, doomed = self._fill_logs(home)
        for ledger in list(doomed)[::2]:
            storage.delete_ledger(ledger)
        kept = {ledger: added for ledger, added in doomed.items() if storage.ledger_exists(ledger)}
        low_report = storage.collect_garbage(threshold=0.5, transactional=transactional)

        assert (0, []) == (low_report.moved_entries, low_report.compacted_logs)

        high_report = storage.collect_garbage(threshold=0.8, transactional=transactional)

        assert self.shared_logs == bool(high_report.compacted_logs)
        assert live | kept == read_content(storage)

    @pytest.mark.parametrize("transactional", [False, True])
    def test_collecting_again_finds_nothing(self, home: StorageHome, transactional: bool) -> None:
        """Compacted records are not compacted again after a reopen."""
        storage, live, _ = self._fill_logs(home, live_step=3)
        storage.collect_garbage(list(live), threshold=0.8, transactional=transactional)
        for _ in range(2):
            storage = home.reopen()
            report = storage.collect_garbage(list(live), transactional=transactional)

            assert ([], 0) == (report.deleted_ledgers, report.moved_entries)
            assert live == read_content(storage)

    @pytest.mark.parametrize("transactional", [False, True])
    def test_newest_copy_survives_compaction(self, home: StorageHome, transactional: bool) -> None:
        """After an entry is added again, compaction does not bring back the old copy."""
        storage, live, doomed = self._fill_logs(home, live_step=3)
        for ledger_id, added in live.items():
            for entry in list(added)[::4]:
                added[entry] = record(ledger_id, entry, b"again")
                storage.add_entry(added[entry])
        storage.flush()
        for ledger_id in doomed:
            storage.delete_ledger(ledger_id)
        for _ in range(2):  # again after a reopen
            storage.collect_garbage(threshold=1.0, transactional=transactional)

            assert live == read_content(storage)

            storage = home.reopen()

            assert live == read_content(storage)

    @pytest.mark.parametrize("transactional", [False, True])
    def test_unflushed_adds_beside_compaction(self, home: StorageHome, transactional: bool) -> None:
        """Compaction neither loses unflushed records nor replaces them with older copies."""
        storage, live, doomed = self._fill_logs(home, live_step=3)
        for ledger_id, added in live.items():
            added[500], added[0] = record(ledger_id, 500, b"new"), record(ledger_id, 0, b"instead")
            storage.add_entries([added[500], added[0]])
        storage.collect_garbage(list(live), threshold=0.8, transactional=transactional)

        assert set(doomed).isdisjoint(storage.ledgers())
        assert live == read_content(storage)
        assert live == read_content(home.reopen())
