"""Rules of `StorageSuite` about adding many records in one call: what is stored, and refusals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from bkstore.errors import (
    BkstoreError,
    InvalidArgument,
    LedgerFenced,
    NoSuchLedger,
    TooManyRequests,
    UnauthorizedAccess,
)
from bkstore.formats.entry import RecordBatch
from bkstore.ids import LedgerId
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.testing.suites.storage.base import (
    KEY,
    LEDGERS,
    OTHER_KEY,
    STAGES,
    Content,
    StorageHome,
    StorageSuiteBase,
    read_content,
    record,
    records,
)
from bkstore.testing.suites.storage.errors import BAD_RECORDS

LEDGER_IDS = [LedgerId.of(ledger) for ledger in LEDGERS]
_RECORD_COUNTS = (3, 40)
"""Records per batch: a few, and enough for a storage to keep them together."""


def _make_batch(*ledger_records: dict[int, bytes]) -> RecordBatch:
    return _batch_of([pair for ledger_rows in ledger_records for pair in ledger_rows.items()])


def _batch_of(pairs: list[tuple[int, bytes]]) -> RecordBatch:
    return RecordBatch.of([data for _, data in pairs], [entry for entry, _ in pairs])


def _interleave(content: Content) -> RecordBatch:
    turns = zip(*(added.items() for added in content.values()))
    return _batch_of([pair for turn in turns for pair in turn])


class StorageBatchAddRules(StorageSuiteBase):
    """Rules for `add_batch`, and for `add_entries` of many records."""

    @pytest.mark.parametrize("stage", STAGES)
    def test_batch_of_ledgers(self, storage: LedgerStorage, home: StorageHome, stage: str) -> None:
        """A batch may interleave ledgers; each record is stored under its own. The records are in
        memory, on disk, in both, or read after a reopen (`stage`)."""
        even = {ledger: records(ledger, range(0, 80, 2)) for ledger in LEDGER_IDS}
        odd = {ledger: records(ledger, range(1, 80, 2)) for ledger in LEDGER_IDS}
        storage.add_batch(_interleave(even), master_key=KEY)
        if stage in ("flushed", "mixed"):
            storage.flush()
        storage.add_batch(_interleave(odd))
        if stage == "flushed":
            storage.flush()
        storage = home.reopen() if stage == "reopened" else storage

        expected = {ledger: even[ledger] | odd[ledger] for ledger in LEDGER_IDS}
        assert expected == read_content(storage)
        for ledger in LEDGER_IDS:
            assert list(range(80)) == storage.entries(ledger).tolist()
            assert 80 == len(storage.read_entries(ledger, 0))

    def test_batch_returns_its_ids(self, storage: LedgerStorage) -> None:
        """`add_batch` returns the entry ids of its records, in their order."""
        for ledger in LEDGERS:
            entry_ids = storage.add_batch(_make_batch(records(ledger, [9, 7, 8])), master_key=KEY)

            assert np.dtype(np.int64) == entry_ids.dtype
            assert [9, 7, 8] == entry_ids.tolist()

    def test_empty_batch(self, storage: LedgerStorage) -> None:
        """A batch without records returns no ids and makes no ledger."""
        for batch in (RecordBatch.of([], []), _make_batch(records(7, range(3))).between(2, 2)):
            assert [] == storage.add_batch(batch, master_key=KEY).tolist()
        assert [] == storage.ledgers()

    @pytest.mark.parametrize("count", _RECORD_COUNTS)
    def test_records_anywhere_in_a_buffer(self, storage: LedgerStorage, count: int) -> None:
        """A buffer may have other bytes between records, and the records in another order."""
        expected = {ledger_id: records(ledger_id, range(count)) for ledger_id in LEDGER_IDS}
        for added in expected.values():
            buffer = b"".join(b"\xff" * 5 + data for data in added.values())
            ends = np.cumsum([5 + len(data) for data in added.values()])
            sizes = np.array([len(data) for data in added.values()])
            batch = RecordBatch(np.array(list(added)), buffer, ends - sizes, sizes)
            backwards = np.arange(count)[::-1].copy()
            storage.add_batch(batch.take(backwards), master_key=KEY)

        assert expected == read_content(storage)

    @pytest.mark.parametrize("count", [3, 16])
    def test_copies_in_batches(self, storage: LedgerStorage, home: StorageHome, count: int) -> None:
        """Between flushes the first or last copy is kept, whether it came in a batch or alone."""
        expected: Content = {}
        for ledger in LEDGER_IDS:
            storage.flush()
            copies = [
                {entry: record(ledger, entry, bytes([i]) * (i + 5)) for entry in range(count + 1)}
                for i in range(4)
            ]
            # First all but the last entry in a batch, and the last entry alone.
            single_record = copies[3].pop(count)
            storage.add_batch(_make_batch(copies[0]).first(count), master_key=KEY)
            storage.add_entry(single_record)
            # Then two more copies of each entry in one batch, and a copy of entry 2 alone.
            storage.add_batch(_make_batch(copies[1], copies[2]))
            storage.add_entry(copies[3][2])
            if self.duplicates == "first":
                expected[ledger] = copies[0] | {count: single_record}
            else:
                expected[ledger] = copies[2] | {2: copies[3][2]}

        assert expected == read_content(storage)

        storage.flush()

        assert expected == read_content(storage)
        assert expected == read_content(home.reopen())

    @pytest.mark.parametrize("count", _RECORD_COUNTS)
    def test_copies_on_disk(self, storage: LedgerStorage, home: StorageHome, count: int) -> None:
        """A batch added after a flush replaces the copies on disk, also after a reopen."""
        new_copies = {}
        for ledger in LEDGER_IDS:
            storage.add_batch(_make_batch(records(ledger, range(count))), master_key=KEY)
            new_copies[ledger] = {entry: record(ledger, entry, b"newer") for entry in range(count)}
        storage.flush()
        storage.add_batch(_interleave(new_copies))

        assert new_copies == read_content(storage)
        assert new_copies == read_content(home.reopen())

    def test_highest_lac_of_a_batch(self, storage: LedgerStorage, home: StorageHome) -> None:
        """The last add confirmed is the highest LAC in any record of the ledger."""
        lacs = [3, 17, 4, 0] * 10
        pairs = [
            (entry, record(ledger_id, entry, lac=lac + ledger_index))
            for entry, lac in enumerate(lacs)
            for ledger_index, ledger_id in enumerate(LEDGER_IDS)
        ]
        storage.add_batch(_batch_of(pairs), master_key=KEY)

        assert [17, 18, 19] == [storage.last_add_confirmed(ledger_id) for ledger_id in LEDGER_IDS]

    def _add_partly(
        self, storage: LedgerStorage, batch: RecordBatch, error: type[BkstoreError], **options: Any
    ) -> int:
        """Add a batch, which ends with `error`; return how many of its records were stored."""
        with pytest.raises(error) as refused:
            storage.add_batch(batch, **options)
        assert refused.value.stored is not None
        return refused.value.stored

    def test_fence_in_the_middle(self, storage: LedgerStorage, home: StorageHome) -> None:
        """Records from the first of a fenced ledger on are stored by a recovery add only."""
        added = {ledger_id: records(ledger_id, range(20)) for ledger_id in LEDGER_IDS}
        for ledger_id in LEDGER_IDS:
            storage.set_master_key(ledger_id, KEY)
        storage.fence(LEDGER_IDS[1])
        batch = _make_batch(*added.values())
        stored = self._add_partly(storage, batch, LedgerFenced)
        nothing: Content = {ledger_id: {} for ledger_id in LEDGER_IDS}

        assert 20 == stored
        assert nothing | {LEDGER_IDS[0]: added[LEDGER_IDS[0]]} == read_content(storage)

        unstored = batch.between(stored, len(batch))
        assert unstored.entries.tolist() == storage.add_batch(unstored, recovery=True).tolist()
        assert added == read_content(storage)
        assert added == read_content(home.reopen())

    def test_malformed_record_in_a_batch(self, storage: LedgerStorage, home: StorageHome) -> None:
        """The records before a malformed one are stored, wherever in the batch it is."""
        ledger_id = LEDGER_IDS[0]
        expected: dict[int, bytes] = {}
        for number, (case, bad) in enumerate(BAD_RECORDS.items()):
            # The first batch begins with its bad record; in each next one three more precede it,
            # with entry ids of their own. The valid records after it are never stored.
            before = records(ledger_id, range(100 * number, 100 * number + 3 * number))
            after = records(ledger_id, range(90, 95))
            batch = _make_batch(before, {9: bad}, after)

            stored = self._add_partly(storage, batch, InvalidArgument, master_key=KEY)
            assert len(before) == stored, case

            expected |= before
            assert list(expected) == storage.entries(ledger_id).tolist(), case
        assert {ledger_id: expected} == read_content(home.reopen())

    def test_ids_that_differ_from_the_records(self, storage: LedgerStorage) -> None:
        """A batch is refused from the first id on that differs from its record's."""
        for ledger_id in LEDGER_IDS:
            added = records(ledger_id, range(30))
            entries = [*range(25), 26, 25, *range(27, 30)]
            batch = RecordBatch.of(list(added.values()), entries)

            assert 25 == self._add_partly(storage, batch, InvalidArgument, master_key=KEY)
            assert list(range(25)) == storage.entries(ledger_id).tolist()

    def test_keys_of_batches(self, storage: LedgerStorage) -> None:
        """With a wrong key nothing is stored; without one an unknown ledger ends the batch."""
        storage.add_batch(_make_batch(records(7, range(20))), master_key=KEY)
        batch = _make_batch(records(7, range(20, 40)), records(8, range(20)))

        assert 0 == self._add_partly(storage, batch, UnauthorizedAccess, master_key=OTHER_KEY)
        assert [LEDGER_IDS[0]] == storage.ledgers()
        assert 20 == self._add_partly(storage, batch, NoSuchLedger)
        assert [LEDGER_IDS[0]] == storage.ledgers()
        assert list(range(40)) == storage.entries(7).tolist()

    def test_too_large_a_record(self, home: StorageHome) -> None:
        """Only the records before one that is larger than `max_entry_size` are stored."""
        storage = home.open(max_entry_size=1000)
        added = records(7, range(30)) | {30: record(7, 30, bytes(1000)), 31: record(7, 31)}

        assert 30 == self._add_partly(storage, _make_batch(added), InvalidArgument, master_key=KEY)
        assert list(range(30)) == storage.entries(7).tolist()

    def test_full_cache_in_the_middle(self, home: StorageHome) -> None:
        """Without `auto_flush` a batch is stored as far as it fits, the rest after flushes."""
        if not self.cached:
            pytest.skip("the storage has no write cache")
        storage = home.open(write_cache=30_000, auto_flush=False)
        added = records(7, range(150), size=100)
        stored = self._add_partly(storage, _make_batch(added), TooManyRequests, master_key=KEY)

        assert 10 < stored < 150
        assert list(range(stored)) == storage.entries(7).tolist()

        unstored = _make_batch(added).between(stored, 150)
        while len(unstored):
            storage.flush()
            count = min(stored, len(unstored))
            storage.add_batch(unstored.first(count))
            unstored = unstored.between(count, len(unstored))

        assert {LEDGER_IDS[0]: added} == read_content(home.reopen())

    @pytest.mark.parametrize("count", _RECORD_COUNTS)
    @pytest.mark.parametrize("flushed", [False, True], ids=["unflushed", "flushed"])
    def test_caller_may_change_its_arguments(
        self, storage: LedgerStorage, home: StorageHome, count: int, flushed: bool
    ) -> None:
        """Stored records stay as they are when the caller changes its buffer and arrays."""
        added = {ledger_id: records(ledger_id, range(count)) for ledger_id in LEDGER_IDS}
        for from_array in (False, True):
            for ledger_records in added.values():
                original = _make_batch(ledger_records)
                buffer = bytearray(original.buffer)
                array = np.frombuffer(original.buffer, np.uint8).copy()
                view = array.data if from_array else memoryview(buffer)
                batch = RecordBatch(original.entries, view, original.offsets, original.sizes)
                entry_ids = storage.add_batch(batch, master_key=KEY)
                array[:] = 0
                buffer[:] = bytes(len(buffer))
                entry_ids += 100
                for column in (original.entries, original.offsets, original.sizes):
                    column[:] = 1
            if flushed:
                storage.flush()

            assert added == read_content(storage)
        assert added == read_content(home.reopen())

    @pytest.mark.parametrize("count", _RECORD_COUNTS)
    def test_returned_arrays(self, storage: LedgerStorage, home: StorageHome, count: int) -> None:
        """Stored records stay as they are when the caller changes returned arrays."""
        added = {ledger_id: records(ledger_id, range(count)) for ledger_id in LEDGER_IDS}
        storage.add_batch(_interleave(added), master_key=KEY)
        for ledger_id in LEDGER_IDS:
            entries, batch = storage.entries(ledger_id), storage.read_entries(ledger_id, 0)
            entries += 5
            for column in (batch.entries, batch.offsets, batch.sizes):
                column += 3  # in place

        assert added == read_content(storage)
        for ledger_id in LEDGER_IDS:
            assert list(range(count)) == storage.read_entries(ledger_id, 0).entries.tolist()
        assert added == read_content(home.reopen())

    def test_iterable_that_raises(self, storage: LedgerStorage, home: StorageHome) -> None:
        """Records that an iterable yields before it raises are stored; its error is passed on."""
        for count in (0, 1, 700, 2300):
            storage.set_master_key(count, KEY)
            added = records(count, range(count))
            with pytest.raises(ZeroDivisionError):
                storage.add_entries(self._yield_then_raise(list(added.values())))

            assert list(range(count)) == storage.entries(count).tolist()
        with pytest.raises(InvalidArgument):
            storage.add_entries([*records(1, range(1, 4)).values(), None])  # type: ignore[list-item]
        assert [0, 1, 2, 3] == storage.entries(1).tolist()
        assert 2300 == len(read_content(home.reopen())[LedgerId.of(2300)])

    def _yield_then_raise(self, added: Sequence[bytes]) -> Iterator[bytes]:
        yield from added
        raise ZeroDivisionError

    def test_stored_of_an_iterable(self, storage: LedgerStorage) -> None:
        """The error of a refused record counts all records of the iterable that were stored. The
        iterable is not read far beyond the refused record."""
        for count in (0, 1, 999, 1000, 1001, 2500):
            added = list(records(count, range(count)).values())
            remaining = iter([*added, b"bad", *records(count, range(count, count + 4000)).values()])
            with pytest.raises(InvalidArgument) as refused:
                storage.add_entries(remaining, master_key=KEY)

            assert count == refused.value.stored
            assert count == storage.entries(count).size
            assert 2000 < len(list(remaining))
