"""Rules of `StorageSuite` about bad input: each case raises its error, stored records stay."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from bkstore import errors
from bkstore.ids import LedgerId
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.testing.suites.storage.base import (
    KEY,
    LEDGERS,
    OTHER_KEY,
    StorageHome,
    StorageSuiteBase,
    read_content,
    record,
    records,
)

_V1 = struct.Struct(">qqqq")
_V2 = struct.Struct(">Bqqqqq")

BAD_RECORDS: dict[str, bytes] = {
    "empty": b"",
    "one byte": b"\0",
    "cut-off header": _V1.pack(7, 9, 8, 0)[:31],
    "cut-off wide header": _V2.pack(0xA3, 1, 7, 9, 8, 0)[:40],
    "entry -1": _V1.pack(7, -1, -1, 0),
    "entry 2^63-1": _V1.pack(7, 2**63 - 1, -1, 0),
    "special entry of a journal": _V1.pack(7, -0x1000, -1, 0),
    "wide entry -1": _V2.pack(0xA3, 1, 7, -1, -1, 0),
    "wide entry of scope 0": _V2.pack(0xA3, 0, 7, 9, 8, 0),
    "negative ledger": _V1.pack(-7, 9, 8, 0) + bytes(20),
    "unknown digest": _V2.pack(0xA7, 1, 7, 9, 8, 0),
    "unknown version": _V2.pack(0xB3, 1, 7, 9, 8, 0),
}
"""Records that every storage refuses; their ledger, if they have one, is 7, -7 or (1, 7)."""

_REFUSED_ADDS: list[tuple[type[errors.BkstoreError], bytes, dict[str, Any]]] = [
    (errors.UnauthorizedAccess, record(7, 9), {"master_key": OTHER_KEY}),
    (errors.UnauthorizedAccess, record(7, 9), {"master_key": OTHER_KEY, "recovery": True}),
    (errors.UnauthorizedAccess, record(LedgerId(1, 7), 9), {"master_key": OTHER_KEY}),
    (errors.NoSuchLedger, record(99, 0), {}),
    (errors.NoSuchLedger, record(LedgerId(5, 7), 0), {"recovery": True}),
    (errors.LedgerFenced, record(LedgerId(1, 7), 9), {"master_key": KEY}),
    (errors.LedgerFenced, record(LedgerId(1, 7), 0), {}),
    (errors.InvalidArgument, record(7, 9, bytes(5000)), {}),
    (errors.InvalidArgument, record(LedgerId(1, 7), 9, bytes(5000)), {"recovery": True}),
]
"""Error, record and options of the add; (1, 7) is fenced, `max_entry_size` is 4,000."""


class StorageErrorRules(StorageSuiteBase):
    """Rules for refused calls."""

    def _add_records(self, storage: LedgerStorage) -> dict[LedgerId, dict[int, bytes]]:
        """Fill the ledgers: some records flushed, some not; return them."""
        for ledger in LEDGERS:
            storage.add_entries(records(ledger, range(5)).values(), master_key=KEY)
        storage.flush()
        for ledger in LEDGERS:
            storage.add_entries(records(ledger, range(5, 8)).values())
        return {LedgerId.of(ledger): records(ledger, range(8)) for ledger in LEDGERS}

    def test_malformed_records(self, storage: LedgerStorage, home: StorageHome) -> None:
        """A malformed record raises `InvalidArgument`, with and without a key."""
        expected = self._add_records(storage)
        for case, bad_record in BAD_RECORDS.items():
            for key in (None, KEY):
                with pytest.raises(errors.InvalidArgument):
                    storage.add_entry(bad_record, master_key=key)

                assert sorted(expected) == storage.ledgers(), case

        assert expected == read_content(storage)
        assert expected == read_content(home.reopen())

    def test_refused_adds(self, home: StorageHome) -> None:
        """A refused add raises its error and changes neither records nor LACs."""
        storage = home.open(max_entry_size=4000)
        expected = self._add_records(storage)
        storage.fence(LedgerId(1, 7))
        lacs = {ledger: storage.last_add_confirmed(ledger) for ledger in expected}
        for error, data, options in _REFUSED_ADDS:
            with pytest.raises(error):
                storage.add_entry(data, **options)

            assert expected == read_content(storage)
            assert lacs == {ledger: storage.last_add_confirmed(ledger) for ledger in expected}

        assert expected == read_content(home.reopen())

    def test_adds_before_refused_one_stay(self, storage: LedgerStorage, home: StorageHome) -> None:
        """`add_entries` stops at the first refused record and stores those before it."""
        expected = self._add_records(storage)
        added = records(7, range(20, 24))
        with pytest.raises(errors.InvalidArgument):
            storage.add_entries([added[20], added[21], b"bad", added[22]], master_key=KEY)
        expected[LedgerId.of(7)] |= {20: added[20], 21: added[21]}

        assert expected == read_content(storage)
        assert expected == read_content(home.reopen())

    def test_invalid_ledger_ids(self, storage: LedgerStorage) -> None:
        """A ledger is a number in scope 0 or a `LedgerId`; anything else is refused."""
        expected = self._add_records(storage)
        for ledger in ("7", None, 1.5, -1, 2**63, True):
            self._assert_ledger_refused(storage, ledger)

        assert expected == read_content(storage)

    def _assert_ledger_refused(self, storage: LedgerStorage, ledger: Any) -> None:
        """Assert that every method refuses a value as a ledger id."""
        for call in (
            lambda: storage.read_entry(ledger, 0),
            lambda: storage.read_entries(ledger, 0),
            lambda: storage.entries(ledger),
            lambda: storage.set_master_key(ledger, KEY),
            lambda: storage.fence(ledger),
            lambda: storage.delete_ledger(ledger),
            lambda: storage.collect_garbage([ledger]),
        ):
            with pytest.raises(errors.InvalidArgument):
                call()

    def test_invalid_entry_ids(self, storage: LedgerStorage) -> None:
        """Reads accept the entry ids 0..2^63-2, and -1 for the last entry."""
        self._add_records(storage)
        for entry in (-2, -(2**63), 2**63 - 1, 2**64):
            for read in (storage.read_entry, storage.read_entries, storage.entry_exists):
                with pytest.raises(errors.InvalidArgument):
                    read(7, entry)

    def test_full_cache(self, home: StorageHome) -> None:
        """Without `auto_flush` a full cache refuses adds until the next flush."""
        if not self.cached:
            pytest.skip("the storage has no write cache")
        storage = home.open(write_cache=30_000, auto_flush=False)
        added = (record(7, entry, bytes(100)) for entry in range(1000))
        with pytest.raises(errors.TooManyRequests):
            storage.add_entries(added, master_key=KEY)
        stored = storage.entries(7).tolist()

        assert 10 < len(stored) < 300
        assert list(range(len(stored))) == stored

        with pytest.raises(errors.TooManyRequests):
            storage.add_entry(record(7, len(stored), bytes(100)))
        storage.flush()
        storage.add_entry(record(7, len(stored), bytes(100)))

        assert [*stored, len(stored)] == storage.entries(7).tolist()
        assert len(stored) + 1 == len(home.reopen().read_entries(7, 0))

    def test_cache_that_flushes_itself(self, home: StorageHome) -> None:
        """With `auto_flush` a storage accepts any number of records, and loses none."""
        storage = home.open(write_cache=20_000, pending_locations=50)
        added = records(7, range(600))
        scope_1_rows = records(LedgerId(1, 7), range(0, 600, 7))
        for entry, data in added.items():
            storage.add_entry(data, master_key=KEY)
            if entry in scope_1_rows:
                storage.add_entry(scope_1_rows[entry], master_key=KEY)
        expected = {LedgerId.of(7): added, LedgerId(1, 7): scope_1_rows}

        assert expected == read_content(storage)
        assert list(added.values()) == storage.read_entries(7, 0).records()
        assert expected == read_content(home.reopen())

    def test_record_larger_than_the_cache(self, home: StorageHome) -> None:
        """A record larger than the whole cache raises `InvalidArgument`: a retry would not help."""
        if not self.cached:
            pytest.skip("the storage has no write cache")
        storage = home.open(write_cache=3000)
        storage.add_entry(record(7, 0), master_key=KEY)
        with pytest.raises(errors.InvalidArgument):
            storage.add_entry(record(7, 1, bytes(3000)))

        assert [0] == storage.entries(7).tolist()
