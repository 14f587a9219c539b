"""Rules of `StorageSuite` about batch reads (BP-62): their records, size and end."""

from __future__ import annotations

import pytest

from bkstore.errors import InvalidArgument, LedgerFenced, NoSuchEntry, UnauthorizedAccess
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.testing.suites.storage.base import (
    KEY,
    LEDGERS,
    OTHER_KEY,
    STAGES,
    StorageHome,
    StorageSuiteBase,
    record,
    records,
)
from bkstore.testing.suites.storage.model import count_batch_records

_MAX_COUNTS = (0, 1, 2, 5, 39, 40, 41)
SIZES = (1, 36, 200, 1000, 5000, 1 << 20)
FRAME_BYTES, PREFIX_BYTES = 36, 4


class StorageBatchRules(StorageSuiteBase):
    """Rules for reading batches of consecutive entries."""

    @pytest.mark.parametrize("stage", STAGES)
    def test_batch_limits(self, storage: LedgerStorage, home: StorageHome, stage: str) -> None:
        """A batch has the first record, and the next ones while count and frame size allow. The
        records are in memory, on disk, in both, or read after a reopen (`stage`)."""
        for ledger in LEDGERS:
            payloads = [bytes([entry]) * (entry * 37 % 150) for entry in range(40)]
            added = [record(ledger, entry, payload) for entry, payload in enumerate(payloads)]
            storage = home.add_at_stage(storage, stage, added)
            for start in (0, 1, 17, 39):
                sizes = [len(data) for data in added[start:]]
                for count in _MAX_COUNTS:
                    for size in SIZES:
                        stop = start + count_batch_records(sizes, count, size)
                        batch = storage.read_entries(ledger, start, count, size)

                        assert list(range(start, stop)) == batch.entries.tolist(), (count, size)
                        assert added[start:stop] == batch.records()

    @pytest.mark.parametrize("stage", STAGES)
    def test_size_to_the_byte(self, storage: LedgerStorage, home: StorageHome, stage: str) -> None:
        """A frame takes 36 bytes plus 4 + size per record, and has to fit to the byte. The records
        are in memory, on disk, in both, or read after a reopen (`stage`)."""
        for ledger in LEDGERS:
            added = records(ledger, range(6), size=50)
            storage = home.add_at_stage(storage, stage, list(added.values()))
            for count in range(1, 6):
                size = FRAME_BYTES + count * (PREFIX_BYTES + len(added[0]))

                assert count == len(storage.read_entries(ledger, 0, max_size=size))
                assert max(count - 1, 1) == len(storage.read_entries(ledger, 0, max_size=size - 1))
                assert count == len(storage.read_entries(ledger, 0, max_size=size + 1))

    @pytest.mark.parametrize("stage", STAGES)
    def test_gap_ends_a_batch(self, storage: LedgerStorage, home: StorageHome, stage: str) -> None:
        """A batch ends before the first missing entry and cannot begin at one. The records are in
        memory, on disk, in both, or read after a reopen (`stage`)."""
        for ledger in LEDGERS:
            added = records(ledger, [0, 1, 2, 4, 5, 1022, 1023, 1024, 1025, 1027])
            storage = home.add_at_stage(storage, stage, list(added.values()))
            for expected in ([0, 1, 2], [2], [4, 5], [1022, 1023, 1024, 1025], [1027]):
                batch = storage.read_entries(ledger, expected[0])

                assert expected == batch.entries.tolist()
                assert [added[entry] for entry in expected] == batch.records()
            for start in (3, 6, 1021, 1026, 1028):
                with pytest.raises(NoSuchEntry):
                    storage.read_entries(ledger, start)

    @pytest.mark.parametrize("stage", STAGES)
    def test_long_batch(self, storage: LedgerStorage, home: StorageHome, stage: str) -> None:
        """One batch can have thousands of records, alternately from memory and disk. The records
        are in memory, on disk, in both, or read after a reopen (`stage`)."""
        for ledger in LEDGERS[:2]:
            added = list(records(ledger, range(3000), size=12).values())
            storage = home.add_at_stage(storage, stage, added)

            assert added == storage.read_entries(ledger, 0).records()
            assert added[700:2400] == storage.read_entries(ledger, 700, max_count=1700).records()

    def test_patches_of_memory_and_disk(self, storage: LedgerStorage) -> None:
        """Newer records in memory replace older ones on disk in the middle of a batch."""
        for ledger in LEDGERS:
            old = [record(ledger, entry, b"old" * 9) for entry in range(30)]
            storage.add_entries(old, master_key=KEY)
            storage.flush()
            new = {entry: record(ledger, entry, b"new") for entry in (0, 7, 8, 9, 20, 29, 30)}
            storage.add_entries(new.values())
            expected = [new.get(entry) or old[entry] for entry in range(31)]

            assert expected == storage.read_entries(ledger, 0).records()
            assert expected[5:12] == storage.read_entries(ledger, 5, max_count=7).records()

    def test_last_entry_as_start(self, storage: LedgerStorage) -> None:
        """A batch that starts at -1 has the last entry only."""
        for ledger in LEDGERS:
            added = records(ledger, range(5))
            storage.add_entries(added.values(), master_key=KEY)
            batch = storage.read_entries(ledger, -1, max_count=3)

            assert [4] == batch.entries.tolist()
            assert [added[4]] == batch.records()

    def test_option_limits_every_batch(self, home: StorageHome) -> None:
        """No batch is larger than `max_batch_size`, whatever size is requested."""
        added = [record(7, entry, b"12") for entry in range(9)]
        storage = home.open(max_batch_size=FRAME_BYTES + 3 * (PREFIX_BYTES + len(added[0])))
        storage.add_entries(added, master_key=KEY)

        assert added[:3] == storage.read_entries(7, 0).records()
        assert added[:3] == storage.read_entries(7, 0, max_size=1 << 20).records()
        assert added[:1] == storage.read_entries(7, 0, max_size=100).records()

    def test_bad_arguments(self, storage: LedgerStorage) -> None:
        """Negative counts and sizes, and starts that are no entry id, are refused."""
        storage.add_entry(record(7, 0), master_key=KEY)
        for bad in ((0, -1, 0), (0, 0, -1), (-2, 0, 0), (2**63 - 1, 0, 0)):
            with pytest.raises(InvalidArgument):
                storage.read_entries(7, *bad)

    def test_batch_that_fences(self, storage: LedgerStorage, home: StorageHome) -> None:
        """A fencing read needs the master key, returns a normal batch, and the fence persists."""
        for ledger in LEDGERS:
            added = records(ledger, range(5))
            storage.add_entries(added.values(), master_key=KEY)
            with pytest.raises(InvalidArgument):
                storage.read_entries(ledger, 0, fence=True)
            with pytest.raises(UnauthorizedAccess):
                storage.read_entries(ledger, 0, fence=True, master_key=OTHER_KEY)
            assert not storage.is_fenced(ledger)

            batch = storage.read_entries(ledger, 1, max_count=2, fence=True, master_key=KEY)

            assert [added[1], added[2]] == batch.records()
            assert storage.is_fenced(ledger)
        storage = home.reopen()
        for ledger in LEDGERS:
            with pytest.raises(LedgerFenced):
                storage.add_entry(record(ledger, 9))

    def test_batch_that_fences_an_unknown_ledger(self, storage: LedgerStorage) -> None:
        """A fencing read creates the ledger as fenced, so that no writer can start it."""
        for ledger in LEDGERS:
            with pytest.raises(NoSuchEntry):
                storage.read_entries(ledger, 0, fence=True, master_key=KEY)

            assert storage.is_fenced(ledger)
            with pytest.raises(LedgerFenced):
                storage.add_entry(record(ledger, 0), master_key=KEY)
