"""Rules about batch reads (BP-62): how many records come, which, and what ends a batch.

One part of `bkstore.testing.StorageSuite`.
"""

from __future__ import annotations

import pytest

from bkstore.errors import InvalidArgument, LedgerFenced, NoSuchEntry, UnauthorizedAccess
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.testing.suites.storage.base import (
    KEY,
    LEDGERS,
    OTHER_KEY,
    STAGES,
    Home,
    StorageSuiteBase,
    record,
    records,
)
from bkstore.testing.suites.storage.model import batch_size

_COUNTS = (0, 1, 2, 5, 39, 40, 41)
SIZES = (1, 36, 200, 1000, 5000, 1 << 20)
FRAME, PREFIX = 36, 4


class StorageBatchRules(StorageSuiteBase):
    """What holds for batches of consecutive entries."""

    @pytest.mark.parametrize("stage", STAGES)
    def test_count_and_size_limit_a_batch(
        self, storage: LedgerStorage, home: Home, stage: str
    ) -> None:
        """The first record always comes, more while count and frame allow, in order."""
        for ledger in LEDGERS:
            payloads = [bytes([at]) * (at * 37 % 150) for at in range(40)]
            added = [record(ledger, at, payload) for at, payload in enumerate(payloads)]
            storage = home.stage(storage, stage, added)
            for start in (0, 1, 17, 39):
                sizes = [len(data) for data in added[start:]]
                for count in _COUNTS:
                    for size in SIZES:
                        stop = start + batch_size(sizes, count, size)
                        batch = storage.read_entries(ledger, start, count, size)

                        assert list(range(start, stop)) == batch.entries.tolist(), (count, size)
                        assert added[start:stop] == batch.records()

    @pytest.mark.parametrize("stage", STAGES)
    def test_size_is_counted_to_the_byte(
        self, storage: LedgerStorage, home: Home, stage: str
    ) -> None:
        """The frame is 36 bytes and 4 + size a record: at the limit one fits, below it does not."""
        for ledger in LEDGERS:
            rows = records(ledger, range(6), size=50)
            storage = home.stage(storage, stage, list(rows.values()))
            for count in range(1, 6):
                frame = FRAME + count * (PREFIX + len(rows[0]))

                assert count == len(storage.read_entries(ledger, 0, 0, frame))
                assert max(count - 1, 1) == len(storage.read_entries(ledger, 0, 0, frame - 1))
                assert count == len(storage.read_entries(ledger, 0, 0, frame + 1))

    @pytest.mark.parametrize("stage", STAGES)
    def test_a_gap_ends_a_batch(self, storage: LedgerStorage, home: Home, stage: str) -> None:
        """A batch ends before the first entry that is not here; it does not begin at one."""
        for ledger in LEDGERS:
            rows = records(ledger, [0, 1, 2, 4, 5, 1022, 1023, 1024, 1025, 1027])
            storage = home.stage(storage, stage, list(rows.values()))
            for start, expected in (
                (0, [0, 1, 2]),
                (2, [2]),
                (4, [4, 5]),
                (1022, [1022, 1023, 1024, 1025]),
                (1027, [1027]),
            ):
                batch = storage.read_entries(ledger, start)

                assert expected == batch.entries.tolist()
                assert [rows[entry] for entry in expected] == batch.records()
            for start in (3, 6, 1021, 1026, 1028):
                with pytest.raises(NoSuchEntry):
                    storage.read_entries(ledger, start)

    @pytest.mark.parametrize("stage", STAGES)
    def test_long_batch(self, storage: LedgerStorage, home: Home, stage: str) -> None:
        """Thousands of records come in one batch, from memory and disk by turns."""
        for ledger in LEDGERS[:2]:
            rows = list(records(ledger, range(3000), size=12).values())
            storage = home.stage(storage, stage, rows)

            assert rows == storage.read_entries(ledger, 0).records()
            assert rows[700:2400] == storage.read_entries(ledger, 700, 1700).records()

    def test_patches_of_memory_and_disk(self, storage: LedgerStorage) -> None:
        """Newer records in memory replace older ones on disk in the middle of a batch."""
        for ledger in LEDGERS:
            old = [record(ledger, at, b"old" * 9) for at in range(30)]
            storage.add_entries(old, master_key=KEY)
            storage.flush()
            new = {at: record(ledger, at, b"new") for at in (0, 7, 8, 9, 20, 29, 30)}
            storage.add_entries(new.values())
            expected = [new.get(at) or old[at] for at in range(31)]

            assert expected == storage.read_entries(ledger, 0).records()
            assert expected[5:12] == storage.read_entries(ledger, 5, 7).records()

    def test_last_entry_as_start(self, storage: LedgerStorage) -> None:
        """A batch that begins at -1 is the last entry alone."""
        for ledger in LEDGERS:
            rows = records(ledger, range(5))
            storage.add_entries(rows.values(), master_key=KEY)
            batch = storage.read_entries(ledger, -1, 3)

            assert [4] == batch.entries.tolist()
            assert [rows[4]] == batch.records()

    def test_option_limits_every_batch(self, home: Home) -> None:
        """No batch is larger than `max_batch_size`, whatever is asked for."""
        storage = home.open(max_batch_size=FRAME + 3 * (PREFIX + len(record(7, 0, b"12"))))
        rows = [record(7, at, b"12") for at in range(9)]
        storage.add_entries(rows, master_key=KEY)

        assert rows[:3] == storage.read_entries(7, 0).records()
        assert rows[:3] == storage.read_entries(7, 0, 0, 1 << 20).records()
        assert rows[:1] == storage.read_entries(7, 0, 0, 100).records()

    def test_bad_arguments(self, storage: LedgerStorage) -> None:
        """Counts, sizes and starts below what they may be are refused."""
        storage.add_entry(record(7, 0), master_key=KEY)
        for bad in ((0, -1, 0), (0, 0, -1), (-2, 0, 0), (2**63 - 1, 0, 0)):
            with pytest.raises(InvalidArgument):
                storage.read_entries(7, *bad)

    def test_batch_that_fences(self, storage: LedgerStorage, home: Home) -> None:
        """A fencing batch needs the key, fences for good, and reads as any other."""
        for ledger in LEDGERS:
            rows = records(ledger, range(5))
            storage.add_entries(rows.values(), master_key=KEY)
            with pytest.raises(InvalidArgument):
                storage.read_entries(ledger, 0, fence=True)
            with pytest.raises(UnauthorizedAccess):
                storage.read_entries(ledger, 0, fence=True, master_key=OTHER_KEY)
            assert not storage.is_fenced(ledger)

            batch = storage.read_entries(ledger, 1, 2, fence=True, master_key=KEY)

            assert [rows[1], rows[2]] == batch.records()
            assert storage.is_fenced(ledger)
        storage = home.reopen()
        for ledger in LEDGERS:
            with pytest.raises(LedgerFenced):
                storage.add_entry(record(ledger, 9))

    def test_batch_that_fences_an_unknown_ledger(self, storage: LedgerStorage) -> None:
        """Fencing makes the ledger known, so that no writer can begin it; there is no entry."""
        for ledger in LEDGERS:
            with pytest.raises(NoSuchEntry):
                storage.read_entries(ledger, 0, fence=True, master_key=KEY)

            assert storage.is_fenced(ledger)
            with pytest.raises(LedgerFenced):
                storage.add_entry(record(ledger, 0), master_key=KEY)
