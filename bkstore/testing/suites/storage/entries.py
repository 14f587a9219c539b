"""Rules about entries of a storage: adding, reading singly, copies, listings.

One part of `bkstore.testing.StorageSuite`.
"""

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
    Home,
    StorageSuiteBase,
    content_of,
    record,
    records,
)

IDS = [0, 1, 2, 5, 6, 1023, 1024, 3000]
"""Entries on both sides of index pages, with gaps."""


class StorageEntryRules(StorageSuiteBase):
    """What holds for single entries, and for lists of them."""

    def test_nothing_is_here_at_first(self, storage: LedgerStorage) -> None:
        """A new storage has no ledgers; of an unknown one nothing is listed."""
        assert [] == storage.ledgers()
        for ledger in LEDGERS:
            assert [] == storage.entries(ledger).tolist()
            assert Availability.from_entries([]) == storage.availability(ledger)
            assert not storage.ledger_exists(ledger)

        assert [] == list(storage.availability_many())

    def test_lists_many_ledgers(self, storage: LedgerStorage) -> None:
        """`availability_many` lists flushed, unflushed and half flushed ledgers of all scopes in
        unsigned order, as single calls do; of those named, unknown ones are empty."""
        model: dict[LedgerId, list[int]] = {}
        for scope in (0, 1, 2**64 - 1):
            for number in range(30):
                name = LedgerId(scope, number)
                storage.set_master_key(name, KEY)
                model[name] = list(range(number % 5))
                for entry in model[name]:
                    storage.add_entry(record(name, entry))
        storage.flush()
        for name in sorted(model)[::2]:
            model[name] += [7, 8]
            for entry in (7, 8):
                storage.add_entry(record(name, entry))
        gone = sorted(model)[::7]
        for name in gone:
            storage.delete_ledger(name)
            del model[name]
        found = list(storage.availability_many())
        some = [*gone[:3], *sorted(model)[::-4]]

        assert sorted(model.items()) == [(name, each.entries().tolist()) for name, each in found]
        assert [storage.availability(name) for name in sorted(model)] == [each for _, each in found]
        assert [(name, model.get(name, [])) for name in sorted(some)] == [
            (name, each.entries().tolist()) for name, each in storage.availability_many(some)
        ]

    def test_unknown_ledger(self, storage: LedgerStorage) -> None:
        """A read of an unknown ledger is `NoSuchLedger`, and so is an add without its key."""
        for ledger in LEDGERS:
            for entry in (0, -1):
                with pytest.raises(NoSuchLedger):
                    storage.read_entry(ledger, entry)
                with pytest.raises(NoSuchLedger):
                    storage.read_entries(ledger, entry)
                with pytest.raises(NoSuchLedger):
                    storage.entry_exists(ledger, entry)
            with pytest.raises(NoSuchLedger):
                storage.last_entry(ledger)
            with pytest.raises(NoSuchLedger):
                storage.add_entry(record(ledger, 0))

        assert [] == storage.ledgers()

    def test_adds_tell_their_ids(self, storage: LedgerStorage) -> None:
        """An add tells the id in the record, many adds tell all, no add none."""
        for ledger in LEDGERS:
            storage.set_master_key(ledger, KEY)

            assert 3 == storage.add_entry(record(ledger, 3))
            assert 4 == storage.add_entry(record(ledger, 4), master_key=KEY)
            told = storage.add_entries(record(ledger, entry) for entry in (9, 7, 8))
            assert np.dtype(np.int64) == told.dtype
            assert [9, 7, 8] == told.tolist()
            assert [] == storage.add_entries([]).tolist()
            assert [3, 4, 7, 8, 9] == storage.entries(ledger).tolist()

    @pytest.mark.parametrize("stage", STAGES)
    def test_reads_give_the_bytes_that_were_added(
        self, storage: LedgerStorage, home: Home, stage: str
    ) -> None:
        """A record comes back byte for byte, wherever it is."""
        added = {LedgerId.of(ledger): records(ledger, IDS) for ledger in LEDGERS}
        together = [record for rows in added.values() for record in rows.values()]
        storage = home.stage(storage, stage, together)

        assert added == content_of(storage)

    @pytest.mark.parametrize("stage", STAGES)
    def test_entries_that_are_not_here(
        self, storage: LedgerStorage, home: Home, stage: str
    ) -> None:
        """An entry that was not added to a known ledger is `NoSuchEntry`, and does not exist."""
        for ledger in LEDGERS:
            storage = home.stage(storage, stage, list(records(ledger, IDS).values()))
            for entry in (3, 4, 7, 1022, 1025, 2999, 3001, 2**40):
                with pytest.raises(NoSuchEntry):
                    storage.read_entry(ledger, entry)
                assert not storage.entry_exists(ledger, entry)
            assert all(storage.entry_exists(ledger, entry) for entry in IDS)
            assert not storage.entry_exists(ledger, -1)

    @pytest.mark.parametrize("stage", STAGES)
    def test_last_entry(self, storage: LedgerStorage, home: Home, stage: str) -> None:
        """The last entry is the highest, whenever it came; a read of -1 gives it."""
        for ledger in LEDGERS:
            added = records(ledger, [5, 0, 1024, 7])
            storage = home.stage(storage, stage, list(added.values()))

            assert 1024 == storage.last_entry(ledger)
            assert added[1024] == storage.read_entry(ledger)
            assert added[1024] == storage.read_entry(ledger, -1)

    def test_ledger_without_entries(self, storage: LedgerStorage, home: Home) -> None:
        """A ledger may have a key and no entry: it is known, its last entry is None."""
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
    def test_digests(self, storage: LedgerStorage, home: Home, digest: str) -> None:
        """A storage keeps records of every digest type, empty and large payloads too."""
        payloads = [b"", b"x", bytes(range(256)) * 4, b"\0" * 700]
        for ledger in LEDGERS:
            storage.set_master_key(ledger, KEY)
            for entry, payload in enumerate(payloads):
                made = Entry(ledger, entry, entry - 1, 0, payload)
                storage.add_entry(encode(made, digest, "secret"))
        storage = home.reopen()
        for ledger in LEDGERS:
            read = [decode(storage.read_entry(ledger, at), digest, "secret") for at in range(4)]

            assert payloads == [entry.payload for entry in read]
            assert [(LedgerId.of(ledger), at) for at in range(4)] == [row[:2] for row in read]

    def test_large_record(self, home: Home) -> None:
        """A record of nearly the largest size is stored as any other."""
        storage = home.open(max_entry_size=1000)
        for ledger in LEDGERS:
            overhead = len(record(ledger, 0))
            largest = record(ledger, 0, b"L" * (1000 - overhead))
            storage.add_entry(largest, master_key=KEY)
            storage.flush()

            assert 1000 == len(largest)
            assert largest == storage.read_entry(ledger, 0)

    @pytest.mark.parametrize("order", ["ascending", "descending", "shuffled", "late"])
    def test_order_of_adds(self, storage: LedgerStorage, home: Home, order: str) -> None:
        """Entries may come in any order; the lists are ascending."""
        ids = list(range(200))
        orders = {
            "ascending": ids,
            "descending": ids[::-1],
            "shuffled": np.random.default_rng(1).permutation(ids).tolist(),
            "late": list(dict.fromkeys(generators.late_and_duplicate(np.array(ids)).tolist())),
        }
        for at, ledger in enumerate(LEDGERS):
            added = records(ledger, orders[order])
            storage.add_entries(added.values(), master_key=KEY)
            if at == 1:
                storage.flush()
            batch = storage.read_entries(ledger, 0)

            assert ids == storage.entries(ledger).tolist()
            assert [added[entry] for entry in ids] == batch.records()
        storage = home.reopen()

        assert [ids] * len(LEDGERS) == [storage.entries(ledger).tolist() for ledger in LEDGERS]

    # -- the same entry again

    def test_copies_before_a_flush(self, storage: LedgerStorage, home: Home) -> None:
        """Of equal entries between two flushes the first or the last stays, as the kind says."""
        for ledger in LEDGERS:
            storage.set_master_key(ledger, KEY)
            copies = [record(ledger, 3, bytes([at]) * (10 + at)) for at in range(3)]
            stays = copies[0] if self.duplicates == "first" else copies[-1]
            for copy in copies:
                storage.add_entry(copy)
            storage.add_entry(record(ledger, 4))

            assert stays == storage.read_entry(ledger, 3)
            assert [3, 4] == storage.entries(ledger).tolist()

            storage.flush()

            assert [stays, record(ledger, 4)] == storage.read_entries(ledger, 3).records()
        storage = home.reopen()
        for ledger in LEDGERS:
            assert 2 == len(storage.availability(ledger))
            assert len(record(ledger, 3)) + (10 if self.duplicates == "first" else 12) == len(
                storage.read_entry(ledger, 3)
            )

    def test_copy_after_a_flush(self, storage: LedgerStorage, home: Home) -> None:
        """A copy that comes after a flush replaces the one on disk, in memory and for good."""
        for ledger in LEDGERS:
            old, new = record(ledger, 3, b"old"), record(ledger, 3, b"newer")
            storage.add_entries([record(ledger, 2), old, record(ledger, 4)], master_key=KEY)
            storage.flush()
            storage.add_entry(new)

            assert new == storage.read_entry(ledger, 3)
            assert [record(ledger, 2), new] == storage.read_entries(ledger, 2, 2).records()
            assert [2, 3, 4] == storage.entries(ledger).tolist()
        storage.flush()
        expected = [record(ledger, 3, b"newer") for ledger in LEDGERS]

        assert expected == [storage.read_entry(ledger, 3) for ledger in LEDGERS]

        storage = home.reopen()

        assert expected == [storage.read_entry(ledger, 3) for ledger in LEDGERS]

    # -- lists

    @pytest.mark.parametrize("stage", STAGES)
    def test_lists_have_what_is_unflushed(
        self, storage: LedgerStorage, home: Home, stage: str
    ) -> None:
        """Entries, ranges of them and availability tell what memory and disk have together."""
        for ledger in LEDGERS:
            storage = home.stage(storage, stage, list(records(ledger, IDS).values()))

            assert IDS == storage.entries(ledger).tolist()
            assert np.dtype(np.int64) == storage.entries(ledger).dtype
            assert [5, 6, 1023] == storage.entries(ledger, 3, 1023).tolist()
            assert [3000] == storage.entries(ledger, 1025).tolist()
            assert [] == storage.entries(ledger, 7, 6).tolist()
            assert Availability.from_entries(IDS) == storage.availability(ledger)

    def test_ledgers_in_unsigned_order(self, storage: LedgerStorage, home: Home) -> None:
        """Ledgers are listed in unsigned order, all or one scope's, unflushed ones too."""
        names = [LedgerId(0, 5), LedgerId(0, 2**63 - 1), LedgerId(1, 2), LedgerId(1, 2**63)]
        names += [LedgerId(2**63, 1), LedgerId(2**64 - 1, 2**64 - 1)]
        for at, name in enumerate(reversed(names)):
            storage.add_entry(record(name, 0), master_key=KEY)
            if at == 2:
                storage.flush()
        for stage in ("mixed", "reopened"):
            if stage == "reopened":
                storage = home.reopen()

            assert names == storage.ledgers()
            assert names[:2] == storage.ledgers(0)
            assert names[2:4] == storage.ledgers(1)
            assert names[4:5] == storage.ledgers(2**63)
            assert [] == storage.ledgers(3)

    def test_many_ledgers(self, storage: LedgerStorage, home: Home) -> None:
        """Entries of many ledgers, taken in turns, stay apart."""
        names = [LedgerId(at % 3, 100 + at) for at in range(24)]
        added = {name: records(name, range(15)) for name in names}
        for entry in range(15):
            for name in names:
                storage.add_entry(added[name][entry], master_key=KEY)
            if entry == 8:
                storage.flush()

        assert added == content_of(storage)
        assert added == content_of(home.reopen())

    def test_high_entry(self, storage: LedgerStorage, home: Home) -> None:
        """An entry id far behind all others is stored, listed and the last."""
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
