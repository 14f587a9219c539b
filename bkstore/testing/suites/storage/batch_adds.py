"""Rules about adds of many records: the same as one by one, and what is said where one is refused.

One part of `bkstore.testing.StorageSuite`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    Home,
    StorageSuiteBase,
    content_of,
    record,
    records,
)
from bkstore.testing.suites.storage.errors import BAD_RECORDS

NAMES = [LedgerId.of(ledger) for ledger in LEDGERS]
PREFIX = 4
_COUNTS = (3, 40)
"""Records of a batch: few, and enough to be kept together."""

Content = dict[LedgerId, dict[int, bytes]]


def _batch(rows: dict[int, bytes]) -> RecordBatch:
    return RecordBatch.of(list(rows.values()), list(rows))


def _in_turns(content: Content) -> RecordBatch:
    """Return the records of ledgers with equally many, in turns."""
    rows = [row for rows in zip(*(made.items() for made in content.values())) for row in rows]
    return RecordBatch.of([data for _, data in rows], [entry for entry, _ in rows])


class StorageBatchAddRules(StorageSuiteBase):
    """What holds for `add_batch`, and for `add_entries` of many records."""

    @pytest.mark.parametrize("stage", STAGES)
    def test_batch_of_many_ledgers(self, storage: LedgerStorage, home: Home, stage: str) -> None:
        """Records of several ledgers in turns are stored under each, wherever they are then."""
        added = {name: records(name, range(0, 80, 2)) for name in NAMES}
        late = {name: records(name, range(1, 80, 2)) for name in NAMES}
        storage.add_batch(_in_turns(added), master_key=KEY)
        if stage in ("flushed", "mixed"):
            storage.flush()
        storage.add_batch(_in_turns(late))
        if stage == "flushed":
            storage.flush()
        storage = home.reopen() if stage == "reopened" else storage

        assert {name: added[name] | late[name] for name in NAMES} == content_of(storage)
        for name in NAMES:
            assert list(range(80)) == storage.entries(name).tolist()
            assert 80 == len(storage.read_entries(name, 0))

    def test_batches_tell_their_ids(self, storage: LedgerStorage) -> None:
        """A batch tells the ids of its records in their order."""
        for ledger in LEDGERS:
            told = storage.add_batch(_batch(records(ledger, [9, 7, 8])), master_key=KEY)

            assert np.dtype(np.int64) == told.dtype
            assert [9, 7, 8] == told.tolist()

    def test_empty_batch(self, storage: LedgerStorage) -> None:
        """No records: no ids are told, no ledger is made."""
        for empty in (RecordBatch.of([], []), _batch(records(7, range(3))).between(2, 2)):
            assert [] == storage.add_batch(empty, master_key=KEY).tolist()
        assert [] == storage.ledgers()

    @pytest.mark.parametrize("count", _COUNTS)
    def test_records_anywhere_in_a_buffer(self, storage: LedgerStorage, count: int) -> None:
        """Other bytes may stand between records, and they may lie in another order."""
        added = {name: records(name, range(count)) for name in NAMES}
        for rows in added.values():
            loose = b"".join(b"\xff" * 5 + data for data in rows.values())
            ends = np.cumsum([5 + len(data) for data in rows.values()])
            sizes = np.array([len(data) for data in rows.values()])
            batch = RecordBatch(np.array(list(rows)), loose, ends - sizes, sizes)
            back = np.arange(count)[::-1].copy()
            storage.add_batch(batch.at(back), master_key=KEY)

        assert added == content_of(storage)

    # -- the same entry again

    @pytest.mark.parametrize("count", [3, 16])
    def test_copies_in_batches(self, storage: LedgerStorage, home: Home, count: int) -> None:
        """Of equal entries between two flushes the first or the last stays, as of single adds.

        Inside of a batch, in two batches, in a batch and alone, both ways round.
        """
        expected: Content = {}
        for name in NAMES:
            storage.flush()
            copies = [
                {entry: record(name, entry, bytes([at]) * (at + 5)) for entry in range(count + 1)}
                for at in range(4)
            ]
            alone = copies[3].pop(count)
            storage.add_batch(_batch(copies[0]).first(count), master_key=KEY)
            storage.add_entry(alone)
            both = [*copies[1].items(), *copies[2].items()]
            storage.add_batch(RecordBatch.of([data for _, data in both], [at for at, _ in both]))
            storage.add_entry(copies[3][2])
            if self.duplicates == "first":
                expected[name] = copies[0] | {count: alone}
            else:
                expected[name] = copies[2] | {2: copies[3][2]}

        assert expected == content_of(storage)

        storage.flush()

        assert expected == content_of(storage)
        assert expected == content_of(home.reopen())

    @pytest.mark.parametrize("count", _COUNTS)
    def test_copies_after_a_flush(self, storage: LedgerStorage, home: Home, count: int) -> None:
        """A batch that comes after a flush replaces what is on disk, in memory and for good."""
        new = {}
        for name in NAMES:
            storage.add_batch(_batch(records(name, range(count))), master_key=KEY)
            new[name] = {entry: record(name, entry, b"newer") for entry in range(count)}
        storage.flush()
        storage.add_batch(_in_turns(new))

        assert new == content_of(storage)
        assert new == content_of(home.reopen())

    def test_highest_lac_of_a_batch(self, storage: LedgerStorage, home: Home) -> None:
        """The last add confirmed is the highest that any record of a ledger says."""
        lacs = [3, 17, 4, 0] * 10
        rows = [
            (entry, record(name, entry, lac=lac + at))
            for entry, lac in enumerate(lacs)
            for at, name in enumerate(NAMES)
        ]
        storage.add_batch(
            RecordBatch.of([data for _, data in rows], [entry for entry, _ in rows]),
            master_key=KEY,
        )

        assert [17, 18, 19] == [storage.last_add_confirmed(name) for name in NAMES]

    # -- what is refused

    def _refused(
        self,
        storage: LedgerStorage,
        batch: RecordBatch,
        error: type[BkstoreError],
        key: bytes | None = None,
    ) -> int:
        """Add a batch, see that it is refused; return what it says is stored."""
        with pytest.raises(error) as refused:
            storage.add_batch(batch, master_key=key)
        assert refused.value.stored is not None
        return refused.value.stored

    def test_fence_in_the_middle(self, storage: LedgerStorage, home: Home) -> None:
        """Records before the first of a fenced ledger are stored, those behind it are not.

        A recovery's batch is taken.
        """
        added = {name: records(name, range(20)) for name in NAMES}
        for name in NAMES:
            storage.set_master_key(name, KEY)
        storage.fence(NAMES[1])
        rows = [*added[NAMES[0]].items(), *added[NAMES[1]].items(), *added[NAMES[2]].items()]
        batch = RecordBatch.of([data for _, data in rows], [entry for entry, _ in rows])
        stored = self._refused(storage, batch, LedgerFenced)

        assert 20 == stored
        assert {NAMES[0]: added[NAMES[0]], NAMES[1]: {}, NAMES[2]: {}} == content_of(storage)

        rest = batch.between(stored, len(batch))
        assert rest.entries.tolist() == storage.add_batch(rest, recovery=True).tolist()
        assert added == content_of(storage)
        assert added == content_of(home.reopen())

    def test_records_that_are_none(self, storage: LedgerStorage, home: Home) -> None:
        """Records before one that is none are stored, wherever in the batch it stands."""
        expected: dict[int, bytes] = {}
        for number, (what, bad) in enumerate(BAD_RECORDS.items()):
            before = records(7, range(100 * number, 100 * number + 3 * number))
            behind = records(7, range(90, 95))
            batch = RecordBatch.of([*before.values(), bad, *behind.values()], [*before, 9, *behind])

            assert len(before) == self._refused(storage, batch, InvalidArgument, KEY), what

            expected |= before
            assert list(expected) == storage.entries(7).tolist(), what
        assert {NAMES[0]: expected} == content_of(home.reopen())

    def test_ids_that_are_others(self, storage: LedgerStorage) -> None:
        """A batch whose ids are not those of its records is refused at the first."""
        for name in NAMES:
            rows = records(name, range(30))
            entries = [*range(25), 26, 25, *range(27, 30)]
            batch = RecordBatch.of(list(rows.values()), entries)

            assert 25 == self._refused(storage, batch, InvalidArgument, KEY)
            assert list(range(25)) == storage.entries(name).tolist()

    def test_keys_of_batches(self, storage: LedgerStorage) -> None:
        """Another key stores nothing; an unknown ledger needs a key, or ends the batch."""
        storage.add_batch(_batch(records(7, range(20))), master_key=KEY)
        more = [*records(7, range(20, 40)).values(), *records(8, range(20)).values()]
        batch = RecordBatch.of(more, [*range(20, 40), *range(20)])

        assert 0 == self._refused(storage, batch, UnauthorizedAccess, OTHER_KEY)
        assert [NAMES[0]] == storage.ledgers()
        assert 20 == self._refused(storage, batch, NoSuchLedger)
        assert [NAMES[0]] == storage.ledgers()
        assert list(range(40)) == storage.entries(7).tolist()

    def test_too_large_a_record(self, home: Home) -> None:
        """A record above the largest size ends the batch before it."""
        storage = home.open(max_entry_size=1000)
        rows = records(7, range(30)) | {30: record(7, 30, bytes(1000)), 31: record(7, 31)}

        assert 30 == self._refused(storage, _batch(rows), InvalidArgument, KEY)
        assert list(range(30)) == storage.entries(7).tolist()

    def test_full_cache_in_the_middle(self, home: Home) -> None:
        """Where a cache may not flush itself, a batch is stored as far as it fits.

        What is left goes in after a flush.
        """
        if not self.cached:
            pytest.skip("the storage has no write cache")
        storage = home.open(write_cache=30_000, auto_flush=False)
        rows = records(7, range(150), size=100)
        stored = self._refused(storage, _batch(rows), TooManyRequests, KEY)

        assert 10 < stored < 150
        assert list(range(stored)) == storage.entries(7).tolist()

        left = _batch(rows).between(stored, 150)
        while len(left):
            storage.flush()
            some = min(stored, len(left))
            storage.add_batch(left.first(some))
            left = left.between(some, len(left))

        assert {NAMES[0]: rows} == content_of(home.reopen())

    # -- whose memory it is

    @pytest.mark.parametrize("count", _COUNTS)
    @pytest.mark.parametrize("flushed", [False, True], ids=["unflushed", "flushed"])
    def test_caller_keeps_its_memory(
        self, storage: LedgerStorage, home: Home, count: int, flushed: bool
    ) -> None:
        """A buffer and arrays that the caller changes afterwards change nothing that is stored."""
        added = {name: records(name, range(count)) for name in NAMES}
        for of_array in (False, True):
            for rows in added.values():
                made = _batch(rows)
                data = bytearray(made.buffer)
                array = np.frombuffer(made.buffer, np.uint8).copy()
                view = array.data if of_array else memoryview(data)
                batch = RecordBatch(made.entries, view, made.offsets, made.sizes)
                told = storage.add_batch(batch, master_key=KEY)
                array[:] = 0
                data[:] = bytes(len(data))
                told += 100
                for column in (made.entries, made.offsets, made.sizes):
                    column[:] = 1
            if flushed:
                storage.flush()

            assert added == content_of(storage)
        assert added == content_of(home.reopen())

    @pytest.mark.parametrize("count", _COUNTS)
    def test_answers_are_the_callers(self, storage: LedgerStorage, home: Home, count: int) -> None:
        """Arrays that were given out can be changed without an effect on what is stored."""
        added = {name: records(name, range(count)) for name in NAMES}
        storage.add_batch(_in_turns(added), master_key=KEY)
        for name in NAMES:
            entries, batch = storage.entries(name), storage.read_entries(name, 0)
            entries += 5
            for column in (batch.entries, batch.offsets, batch.sizes):
                column += 3

        assert added == content_of(storage)
        assert [list(range(count))] * 3 == [
            storage.read_entries(name, 0).entries.tolist() for name in NAMES
        ]
        assert added == content_of(home.reopen())

    # -- iterables

    def test_iterable_that_raises(self, storage: LedgerStorage, home: Home) -> None:
        """What an iterable gave before it raised is stored; its error is what comes out."""
        for count in (0, 1, 700, 2300):
            storage.set_master_key(count, KEY)
            rows = records(count, range(count))
            with pytest.raises(ZeroDivisionError):
                storage.add_entries(self._raising(list(rows.values())))

            assert list(range(count)) == storage.entries(count).tolist()
        with pytest.raises(InvalidArgument):
            storage.add_entries([*records(1, range(1, 4)).values(), None])  # type: ignore[list-item]
        assert [0, 1, 2, 3] == storage.entries(1).tolist()
        assert 2300 == len(content_of(home.reopen())[LedgerId.of(2300)])

    def _raising(self, rows: Sequence[bytes]) -> Iterator[bytes]:
        yield from rows
        raise ZeroDivisionError

    def test_stored_of_an_iterable(self, storage: LedgerStorage) -> None:
        """A refused record's error says how many were stored of all that were given.

        The iterable is not asked for records far behind it.
        """
        for at in (0, 1, 999, 1000, 1001, 2500):
            rows = list(records(at, range(at)).values())
            given = iter([*rows, b"bad", *records(at, range(at, at + 4000)).values()])
            with pytest.raises(InvalidArgument) as refused:
                storage.add_entries(given, master_key=KEY)

            assert at == refused.value.stored
            assert at == storage.entries(at).size
            assert 2000 < len(list(given))
