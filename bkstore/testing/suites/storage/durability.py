"""Rules of `StorageSuite` about durability: flush, checkpoint, close, reopen, a single writer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bkstore.errors import DirectoryInUse, IllegalOperation
from bkstore.formats.entry import encode_explicit_lac
from bkstore.ids import LedgerId
from bkstore.index.api import LedgerLike
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.testing.suites.storage.base import (
    KEY,
    LEDGERS,
    StorageHome,
    StorageSuiteBase,
    read_content,
    record,
    records,
)

_MAKE_DURABLE: dict[str, Callable[[LedgerStorage], object]] = {
    "flush": LedgerStorage.flush,
    "checkpoint": LedgerStorage.checkpoint,
    "garbage": lambda storage: storage.collect_garbage(),
}


class StorageDurabilityRules(StorageSuiteBase):
    """Rules for opening and closing a storage, and for what it keeps."""

    def test_close_keeps_everything(self, storage: LedgerStorage, home: StorageHome) -> None:
        """Added records and changed states are kept by a close, without a flush before."""
        expected = {}
        for ledger in LEDGERS:
            ledger_id = LedgerId.of(ledger)
            expected[ledger_id] = records(ledger_id, [0, 1, 5, 1024])
            storage.add_entries(expected[ledger_id].values(), master_key=KEY)
            storage.fence(ledger_id)
            storage.set_explicit_lac(ledger_id, encode_explicit_lac(ledger_id, 4, "DUMMY"))
        states = {ledger_id: storage.state(ledger_id) for ledger_id in expected}
        storage = home.reopen()

        assert expected == read_content(storage)
        assert states == {ledger_id: storage.state(ledger_id) for ledger_id in expected}

    @pytest.mark.parametrize("how", _MAKE_DURABLE)
    def test_durable_operations(self, storage: LedgerStorage, home: StorageHome, how: str) -> None:
        """Flush, checkpoint and garbage collection make all records added before them durable."""
        for ledger in LEDGERS:
            storage.add_entries(records(ledger, range(9)).values(), master_key=KEY)
        expected = read_content(storage)
        _MAKE_DURABLE[how](storage)

        assert expected == read_content(storage)

        storage = home.reopen(flush=False)

        assert expected == read_content(storage)

    def test_close_without_flush(self, storage: LedgerStorage, home: StorageHome) -> None:
        """A close without a flush keeps what was flushed; a reopened storage goes on from it."""
        for ledger in LEDGERS:
            storage.add_entries(records(ledger, range(4)).values(), master_key=KEY)
        storage.flush()
        expected = read_content(storage)
        storage.add_entry(record(7, 4))
        storage.fence(7)
        storage = home.reopen(flush=False)

        assert expected == read_content(storage)
        assert not storage.is_fenced(7)
        assert 4 == storage.add_entry(record(7, 4, b"after"))

        storage = home.reopen()

        assert record(7, 4, b"after") == storage.read_entry(7, 4)
        assert 4 == storage.last_entry(7)

    def test_flush_at_any_time(self, storage: LedgerStorage, home: StorageHome) -> None:
        """Flush and checkpoint may be called on an empty storage, and repeatedly."""
        for make_durable in _MAKE_DURABLE.values():
            make_durable(storage)
            make_durable(storage)
        for i, make_durable in enumerate(_MAKE_DURABLE.values()):
            storage.add_entry(record(7, i), master_key=KEY)
            make_durable(storage)
            make_durable(storage)

        assert {LedgerId.of(7): {i: record(7, i) for i in range(3)}} == read_content(home.reopen())

    def test_repeated_reopens(self, storage: LedgerStorage, home: StorageHome) -> None:
        """Each open storage adds to the records of the earlier ones."""
        for life in range(4):
            for ledger in LEDGERS:
                added = records(ledger, range(10 * life, 10 * life + 10))
                storage.add_entries(added.values(), master_key=KEY)
            storage = home.reopen()

        expected = {LedgerId.of(ledger): records(ledger, range(40)) for ledger in LEDGERS}
        assert expected == read_content(storage)

    def test_one_writer(self, storage: LedgerStorage, home: StorageHome) -> None:
        """A second writer is refused while the first one is open, and changes nothing."""
        storage.add_entry(record(7, 0), master_key=KEY)
        with pytest.raises(DirectoryInUse):
            self.make_storage(home.path, home.options)
        storage.add_entry(record(7, 1))
        storage = home.reopen()

        assert [0, 1] == storage.entries(7).tolist()

    def test_close_twice(self, storage: LedgerStorage) -> None:
        """`close` is idempotent, also after the context manager has closed."""
        with storage as entered:
            assert storage is entered

            entered.add_entry(record(7, 0), master_key=KEY)
            entered.close()
        storage.close()

    def test_closed_storage_refuses_calls(self, storage: LedgerStorage) -> None:
        """Every call on a closed storage raises `IllegalOperation`."""
        for ledger in LEDGERS:
            storage.add_entry(record(ledger, 0), master_key=KEY)
        storage.close()
        for ledger in LEDGERS:
            for call in self._list_calls(storage, ledger):
                with pytest.raises(IllegalOperation):
                    call()

    def _list_calls(self, storage: LedgerStorage, ledger: LedgerLike) -> list[Callable[[], object]]:
        """Return calls of every method of a storage."""
        return [
            storage.ledgers,
            storage.flush,
            storage.checkpoint,
            storage.collect_garbage,
            lambda: storage.collect_garbage([]),
            lambda: storage.read_entry(ledger, 0),
            lambda: storage.read_entries(ledger, 0),
            lambda: storage.entry_exists(ledger, 0),
            lambda: storage.entries(ledger),
            lambda: storage.availability(ledger),
            lambda: list(storage.availability_many()),
            lambda: list(storage.availability_many([ledger], {})),
            lambda: storage.last_entry(ledger),
            lambda: storage.ledger_exists(ledger),
            lambda: storage.state(ledger),
            lambda: storage.last_add_confirmed(ledger),
            lambda: storage.add_entry(record(ledger, 1)),
            lambda: storage.add_entries([record(ledger, 1)], master_key=KEY),
            lambda: storage.set_master_key(ledger, KEY),
            lambda: storage.fence(ledger),
            lambda: storage.delete_ledger(ledger),
        ]
