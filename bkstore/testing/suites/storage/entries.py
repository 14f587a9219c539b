"""Rules of `StorageSuite` about entries of a storage: adds, single reads, copies, listings."""

from __future__ import annotations

import numpy as np
import pytest

from bkstore.availability import Availability
from bkstore.errors import NoSuchEntry, NoSuchLedger
from bkstore.formats.entry import Entry, decode, encode
from bkstore.ids import LedgerId
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.testing import generators
from bkstore.testing.suites.storage.base import (
    KEY,
    LEDGERS,
    STAGES,
    StorageHome,
    StorageSuiteBase,
    read_content,
    record,
    records,
)

ENTRY_IDS = [0, 1, 2, 5, 6, 1023, 1024, 3000]
"""Entry ids on both sides of index page boundaries, with gaps."""


class StorageEntryRules(StorageSuiteBase):
    """Rules for single entries, and for lists of them."""

    def test_new_storage_is_empty(self, storage: LedgerStorage) -> None:
        """A new storage has no ledgers, and lists no entries of an unknown one."""
        assert [] == storage.ledgers()
        for ledger in LEDGERS:
            assert [] == storage.entries(ledger).tolist()
            assert Availability.from_entries([]) == storage.availability(ledger)
            assert not storage.ledger_exists(ledger)

        assert [] == list(storage.availability_many())

    def test_lists_many_ledgers(self, storage: LedgerStorage) -> None:
        """`availability_many` lists flushed, unflushed and partly flushed ledgers of all scopes in
        unsigned order, equal to single calls; requested ledgers that are unknown are empty."""
        model: dict[LedgerId, list[int]] = {}
        for scope in (0, 1, 2**64 - 1):
            for number in range(30):
                ledger = LedgerId(scope, number)
                storage.set_master_key(ledger, KEY)
                model[ledger] = list(range(number % 5))
                for entry in model[ledger]:
                    storage.add_entry(record(ledger, entry))
        storage.flush()
        # Unflushed entries for every second ledger; then every seventh ledger is deleted.
        for ledger in sorted(model)[::2]:
            model[ledger] += [7, 8]
            for entry in (7, 8):
                storage.add_entry(record(ledger, entry))
        deleted = sorted(model)[::7]
        for ledger in deleted:
            storage.delete_ledger(ledger)
            del model[ledger]
        listed = list(storage.availability_many())
        requested = [*deleted[:3], *sorted(model)[::-4]]

        assert sorted(model.items()) == [(key, value.entries().tolist()) for key, value in listed]
        assert listed == [(ledger, storage.availability(ledger)) for ledger in sorted(model)]

        listed = list(storage.availability_many(requested))

        assert [(ledger, model.get(ledger, [])) for ledger in sorted(requested)] == [
            (ledger, availability.entries().tolist()) for ledger, availability in listed
        ]

    def test_unknown_ledger(self, storage: LedgerStorage) -> None:
        """Reads of an unknown ledger and adds without its key raise `NoSuchLedger`."""
        for ledger in LEDGERS:
            for read in (storage.read_entry, storage.read_entries, storage.entry_exists):
                for entry in (0, -1):
                    with pytest.raises(NoSuchLedger):
                        read(ledger, entry)
            with pytest.raises(NoSuchLedger):
                storage.last_entry(ledger)
            with pytest.raises(NoSuchLedger):
                storage.add_entry(record(ledger, 0))

        assert [] == storage.ledgers()

    def test_adds_return_their_ids(self, storage: LedgerStorage) -> None:
        """Adds return the entry ids of their records, in their order."""
        for ledger in LEDGERS:
            storage.set_master_key(ledger, KEY)

            assert 3 == storage.add_entry(record(ledger, 3))
            assert 4 == storage.add_entry(record(ledger, 4), master_key=KEY)
            entry_ids = storage.add_entries(record(ledger, entry) for entry in (9, 7, 8))
            assert np.dtype(np.int64) == entry_ids.dtype
            assert [9, 7, 8] == entry_ids.tolist()
            assert [] == storage.add_entries([]).tolist()
            assert [3, 4, 7, 8, 9] == storage.entries(ledger).tolist()

    @pytest.mark.parametrize("stage", STAGES)
    def test_reads_are_exact(self, storage: LedgerStorage, home: StorageHome, stage: str) -> None:
        """A record is read as it was added, byte for byte. The records are in memory, on disk, in
        both, or read after a reopen (`stage`)."""
        added = {LedgerId.of(ledger): records(ledger, ENTRY_IDS) for ledger in LEDGERS}
        all_records = [data for by_entry in added.values() for data in by_entry.values()]
        storage = home.add_at_stage(storage, stage, all_records)

        assert added == read_content(storage)

    @pytest.mark.parametrize("stage", STAGES)
    def test_missing_entries(self, storage: LedgerStorage, home: StorageHome, stage: str) -> None:
        """A missing entry of a known ledger does not exist; reading it raises `NoSuchEntry`. The
        records are in memory, on disk, in both, or read after a reopen (`stage`)."""
        for ledger in LEDGERS:
            storage = home.add_at_stage(storage, stage, list(records(ledger, ENTRY_IDS).values()))
            for entry in (3, 4, 7, 1022, 1025, 2999, 3001, 2**40):
                with pytest.raises(NoSuchEntry):
                    storage.read_entry(ledger, entry)
                assert not storage.entry_exists(ledger, entry)
            assert all(storage.entry_exists(ledger, entry) for entry in ENTRY_IDS)
            assert not storage.entry_exists(ledger, -1)

    @pytest.mark.parametrize("stage", STAGES)
    def test_last_entry(self, storage: LedgerStorage, home: StorageHome, stage: str) -> None:
        """The last entry is the highest, in any order of adds; a read of -1 returns it. The records
        are in memory, on disk, in both, or read after a reopen (`stage`)."""
        for ledger in LEDGERS:
            added = records(ledger, [5, 0, 1024, 7])
            storage = home.add_at_stage(storage, stage, list(added.values()))

            assert 1024 == storage.last_entry(ledger)
            assert added[1024] == storage.read_entry(ledger)
            assert added[1024] == storage.read_entry(ledger, -1)

    def test_ledger_without_entries(self, storage: LedgerStorage, home: StorageHome) -> None:
        """A ledger with a master key and no entry is known; its last entry is None."""
        for ledger in LEDGERS:
            storage.set_master_key(ledger, KEY)
        for stage in ("unflushed", "reopened"):
            if stage == "reopened":
                storage = home.reopen()

            assert sorted(map(LedgerId.of, LEDGERS)) == storage.ledgers()
            for ledger in LEDGERS:
                assert storage.ledger_exists(ledger)
                assert storage.last_entry(ledger) is None
                with pytest.raises(NoSuchEntry):
                    storage.read_entry(ledger)
                with pytest.raises(NoSuchEntry):
                    storage.read_entries(ledger, 0)

    @pytest.mark.parametrize("digest", ["CRC32", "CRC32C", "HMAC", "DUMMY"])
    def test_digests(self, storage: LedgerStorage, home: StorageHome, digest: str) -> None:
        """A storage keeps records of every digest type, also with empty and large payloads."""
        payloads = [b"", b"x", bytes(range(256)) * 4, b"\0" * 700]
        for ledger in LEDGERS:
            storage.set_master_key(ledger, KEY)
            for entry, payload in enumerate(payloads):
                new_entry = Entry(ledger, entry, entry - 1, 0, payload)
                storage.add_entry(encode(new_entry, digest, "secret"))
        storage = home.reopen()
        for ledger in LEDGERS:
            decoded = [decode(storage.read_entry(ledger, i), digest, "secret") for i in range(4)]

            assert payloads == [entry.payload for entry in decoded]
            assert [(LedgerId.of(ledger), i) for i in range(4)] == [row[:2] for row in decoded]

    def test_large_record(self, home: StorageHome) -> None:
        """A record of exactly `max_entry_size` is stored."""
        storage = home.open(max_entry_size=1000)
        for ledger in LEDGERS:
            overhead = len(record(ledger, 0))
            largest = record(ledger, 0, b"L" * (1000 - overhead))
            storage.add_entry(largest, master_key=KEY)
            storage.flush()

            assert 1000 == len(largest)
            assert largest == storage.read_entry(ledger, 0)

    @pytest.mark.parametrize("order", ["ascending", "descending", "shuffled", "late"])
    def test_order_of_adds(self, storage: LedgerStorage, home: StorageHome, order: str) -> None:
        """Entries may be added in any order; they are listed in ascending order."""
        ids = list(range(200))
        orders = {
            "ascending": ids,
            "descending": ids[::-1],
            "shuffled": np.random.default_rng(1).permutation(ids).tolist(),
            "late": list(dict.fromkeys(generators.late_and_duplicate(np.array(ids)).tolist())),
        }
        for i, ledger in enumerate(LEDGERS):
            added = records(ledger, orders[order])
            storage.add_entries(added.values(), master_key=KEY)
            if i == 1:
                storage.flush()
            batch = storage.read_entries(ledger, 0)

            assert ids == storage.entries(ledger).tolist()
            assert [added[entry] for entry in ids] == batch.records()
        storage = home.reopen()

        assert [ids] * len(LEDGERS) == [storage.entries(ledger).tolist() for ledger in LEDGERS]

    def test_copies_before_a_flush(self, storage: LedgerStorage, home: StorageHome) -> None:
        """Between two flushes the first or the last copy is kept, as `duplicates` says."""
        for ledger in LEDGERS:
            storage.set_master_key(ledger, KEY)
            copies = [record(ledger, 3, bytes([i]) * (10 + i)) for i in range(3)]
            kept = copies[0] if self.duplicates == "first" else copies[-1]
            for copy in copies:
                storage.add_entry(copy)
            storage.add_entry(record(ledger, 4))

            assert kept == storage.read_entry(ledger, 3)
            assert [3, 4] == storage.entries(ledger).tolist()

            storage.flush()

            assert [kept, record(ledger, 4)] == storage.read_entries(ledger, 3).records()
        storage = home.reopen()
        for ledger in LEDGERS:
            # The first copy has 10 bytes of payload, the last 12.
            kept_size = len(record(ledger, 3)) + (10 if self.duplicates == "first" else 12)

            assert 2 == len(storage.availability(ledger))
            assert kept_size == len(storage.read_entry(ledger, 3))

    def test_copy_after_a_flush(self, storage: LedgerStorage, home: StorageHome) -> None:
        """A copy added after a flush replaces the one on disk, also after a reopen."""
        for ledger in LEDGERS:
            old, new = record(ledger, 3, b"old"), record(ledger, 3, b"newer")
            storage.add_entries([record(ledger, 2), old, record(ledger, 4)], master_key=KEY)
            storage.flush()
            storage.add_entry(new)

            assert new == storage.read_entry(ledger, 3)
            batch = storage.read_entries(ledger, 2, max_count=2)
            assert [record(ledger, 2), new] == batch.records()
            assert [2, 3, 4] == storage.entries(ledger).tolist()
        storage.flush()
        expected = [record(ledger, 3, b"newer") for ledger in LEDGERS]

        assert expected == [storage.read_entry(ledger, 3) for ledger in LEDGERS]

        storage = home.reopen()

        assert expected == [storage.read_entry(ledger, 3) for ledger in LEDGERS]

    @pytest.mark.parametrize("stage", STAGES)
    def test_lists_of_entries(self, storage: LedgerStorage, home: StorageHome, stage: str) -> None:
        """Entries, ranges of them and availability cover both memory and disk. The records are in
        memory, on disk, in both, or read after a reopen (`stage`)."""
        for ledger in LEDGERS:
            storage = home.add_at_stage(storage, stage, list(records(ledger, ENTRY_IDS).values()))

            assert ENTRY_IDS == storage.entries(ledger).tolist()
            assert np.dtype(np.int64) == storage.entries(ledger).dtype
            assert [5, 6, 1023] == storage.entries(ledger, 3, 1023).tolist()
            assert [3000] == storage.entries(ledger, 1025).tolist()
            assert [] == storage.entries(ledger, 7, 6).tolist()
            assert Availability.from_entries(ENTRY_IDS) == storage.availability(ledger)

    def test_ledgers_in_unsigned_order(self, storage: LedgerStorage, home: StorageHome) -> None:
        """Ledgers, all or of one scope, are listed in unsigned order, also unflushed ones."""
        ledger_ids = [LedgerId(0, 5), LedgerId(0, 2**63 - 1), LedgerId(1, 2), LedgerId(1, 2**63)]
        ledger_ids += [LedgerId(2**63, 1), LedgerId(2**64 - 1, 2**64 - 1)]
        for i, ledger_id in enumerate(reversed(ledger_ids)):
            storage.add_entry(record(ledger_id, 0), master_key=KEY)
            if i == 2:
                storage.flush()
        for stage in ("mixed", "reopened"):
            if stage == "reopened":
                storage = home.reopen()

            assert ledger_ids == storage.ledgers()
            assert ledger_ids[:2] == storage.ledgers(0)
            assert ledger_ids[2:4] == storage.ledgers(1)
            assert ledger_ids[4:5] == storage.ledgers(2**63)
            assert [] == storage.ledgers(3)

    def test_many_ledgers(self, storage: LedgerStorage, home: StorageHome) -> None:
        """Entries of many ledgers that are added in turns are kept apart."""
        ledger_ids = [LedgerId(i % 3, 100 + i) for i in range(24)]
        added = {ledger_id: records(ledger_id, range(15)) for ledger_id in ledger_ids}
        for entry in range(15):
            for ledger_id in ledger_ids:
                storage.add_entry(added[ledger_id][entry], master_key=KEY)
            if entry == 8:
                storage.flush()

        assert added == read_content(storage)
        assert added == read_content(home.reopen())

    def test_high_entry(self, storage: LedgerStorage, home: StorageHome) -> None:
        """An entry id far above all others is stored and listed, and is the last entry."""
        high = self.highest_entry
        for ledger in LEDGERS:
            added = records(ledger, [0, high])
            storage.add_entries(added.values(), master_key=KEY)
            storage.flush()

            assert [0, high] == storage.entries(ledger).tolist()
            assert [high] == storage.entries(ledger, 1, 2**63 - 2).tolist()
            assert high == storage.last_entry(ledger)
            assert added[high] == storage.read_entry(ledger, high)
            assert [added[high]] == storage.read_entries(ledger, high).records()
            assert Availability.from_entries([0, high]) == storage.availability(ledger)
