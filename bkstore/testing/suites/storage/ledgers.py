"""Rules of `StorageSuite` about ledgers: master keys, fences, LACs, limbo, deletion."""

from __future__ import annotations

from itertools import permutations

import pytest

from bkstore import errors
from bkstore.formats.entry import encode_explicit_lac
from bkstore.ids import LedgerId
from bkstore.index.api import LedgerLike, LedgerState
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.testing.suites.storage.base import (
    KEY,
    LEDGERS,
    OTHER_KEY,
    STAGES,
    StorageHome,
    StorageSuiteBase,
    read_content,
    record,
    records,
)


def _encode_lac(ledger: LedgerLike, lac: int) -> bytes:
    return encode_explicit_lac(ledger, lac, "CRC32C", "pw")


class StorageLedgerRules(StorageSuiteBase):
    """Rules for the state of ledgers, and for deleting them."""

    def test_master_key(self, storage: LedgerStorage, home: StorageHome) -> None:
        """The first key creates the ledger; the same is accepted again, another is refused."""
        for ledger in LEDGERS:
            storage.set_master_key(ledger, KEY)
            storage.set_master_key(ledger, KEY)
            with pytest.raises(errors.UnauthorizedAccess):
                storage.set_master_key(ledger, OTHER_KEY)

            assert KEY == storage.master_key(ledger)
            assert LedgerState(KEY) == storage.state(ledger)
        storage = home.reopen()
        for ledger in LEDGERS:
            with pytest.raises(errors.UnauthorizedAccess):
                storage.set_master_key(ledger, OTHER_KEY)

            assert KEY == storage.master_key(ledger)

    def test_check_master_key(self, storage: LedgerStorage) -> None:
        """Only the stored key passes the check; an unknown ledger raises `NoSuchLedger`."""
        for ledger in LEDGERS:
            with pytest.raises(errors.NoSuchLedger):
                storage.check_master_key(ledger, KEY)
            with pytest.raises(errors.NoSuchLedger):
                storage.master_key(ledger)
            storage.set_master_key(ledger, KEY)
            storage.check_master_key(ledger, KEY)
            for other in (OTHER_KEY, b"", KEY[:19], bytes(20), None):
                with pytest.raises(errors.UnauthorizedAccess):
                    storage.check_master_key(ledger, other)

    def test_empty_key_is_replaced(self, storage: LedgerStorage, home: StorageHome) -> None:
        """A stored key of zeros is replaced by the first real one, and never replaces one."""
        for ledger in LEDGERS:
            storage.set_master_key(ledger, bytes(20))
            storage.set_master_key(ledger, KEY)
            storage.set_master_key(ledger, bytes(20))

            assert KEY == storage.master_key(ledger)
        storage = home.reopen()

        assert [KEY] * len(LEDGERS) == [storage.master_key(ledger) for ledger in LEDGERS]

    def test_adds_with_a_key(self, storage: LedgerStorage) -> None:
        """An add with a key creates the ledger; one with another key stores nothing."""
        for ledger in LEDGERS:
            storage.add_entry(record(ledger, 0), master_key=KEY)
            with pytest.raises(errors.UnauthorizedAccess):
                storage.add_entry(record(ledger, 1), master_key=OTHER_KEY)
            with pytest.raises(errors.UnauthorizedAccess):
                storage.add_entries([record(ledger, 1)], master_key=OTHER_KEY)

            assert [0] == storage.entries(ledger).tolist()
            assert KEY == storage.master_key(ledger)

    @pytest.mark.parametrize("stage", STAGES)
    def test_fence(self, storage: LedgerStorage, home: StorageHome, stage: str) -> None:
        """A fenced ledger accepts recovery adds only and is read as before, also when reopened. The
        records are in memory, on disk, in both, or read after a reopen (`stage`)."""
        for ledger in LEDGERS:
            added = records(ledger, range(4))
            storage = home.add_at_stage(storage, stage, [added[0], added[1]])

            assert not storage.is_fenced(ledger)
            assert storage.fence(ledger)
            assert not storage.fence(ledger)
            assert storage.is_fenced(ledger)
            with pytest.raises(errors.LedgerFenced):
                storage.add_entry(added[2])
            with pytest.raises(errors.LedgerFenced):
                storage.add_entries([added[2]], master_key=KEY)
            storage.add_entry(added[3], recovery=True)

            assert [0, 1, 3] == storage.entries(ledger).tolist()
            assert added[1] == storage.read_entry(ledger, 1)
        storage.flush()
        storage = home.reopen()
        for ledger in LEDGERS:
            assert LedgerState(KEY, fenced=True) == storage.state(ledger)
            with pytest.raises(errors.LedgerFenced):
                storage.add_entry(record(ledger, 2))
            assert 2 == storage.add_entry(record(ledger, 2), recovery=True)

    def test_unknown_ledgers_have_no_state(self, storage: LedgerStorage) -> None:
        """Reading or changing the state of an unknown ledger raises `NoSuchLedger`."""
        for ledger in LEDGERS:
            calls = (storage.fence, storage.is_fenced, storage.clear_limbo, storage.state)
            for call in (*calls, storage.explicit_lac, storage.last_add_confirmed):
                with pytest.raises(errors.NoSuchLedger):
                    call(ledger)
            with pytest.raises(errors.NoSuchLedger):
                storage.set_explicit_lac(ledger, _encode_lac(ledger, 3))

        assert [] == storage.ledgers()

    @pytest.mark.parametrize("stage", STAGES)
    def test_explicit_lac(self, storage: LedgerStorage, home: StorageHome, stage: str) -> None:
        """An explicit LAC is kept as sent; a lower one replaces it, but the LAC is unchanged. The
        records are in memory, on disk, in both, or read after a reopen (`stage`)."""
        for ledger in LEDGERS:
            storage = home.add_at_stage(storage, stage, [record(ledger, 0), record(ledger, 1)])

            assert storage.explicit_lac(ledger) is None
            storage.set_explicit_lac(ledger, _encode_lac(ledger, 9))
            assert _encode_lac(ledger, 9) == storage.explicit_lac(ledger)
            assert 9 == storage.last_add_confirmed(ledger)
            storage.set_explicit_lac(ledger, _encode_lac(ledger, 5))
            assert _encode_lac(ledger, 5) == storage.explicit_lac(ledger)
            assert 9 == storage.last_add_confirmed(ledger)
        storage = home.reopen()
        for ledger in LEDGERS:
            assert LedgerState(KEY, explicit_lac=_encode_lac(ledger, 5)) == storage.state(ledger)
            assert _encode_lac(ledger, 5) == storage.explicit_lac(ledger)
            assert 5 == storage.last_add_confirmed(ledger)

    def test_explicit_lac_of_another_ledger(self, storage: LedgerStorage) -> None:
        """An explicit LAC that is too short or of another ledger is refused and not stored."""
        for ledger, other in permutations(LEDGERS, 2):
            storage.set_master_key(ledger, KEY)
            storage.set_explicit_lac(ledger, _encode_lac(ledger, 3))
            with pytest.raises(errors.InvalidArgument):
                storage.set_explicit_lac(ledger, _encode_lac(other, 4))
            with pytest.raises(ValueError, match="explicit LAC"):
                storage.set_explicit_lac(ledger, _encode_lac(ledger, 4)[:15])

            assert _encode_lac(ledger, 3) == storage.explicit_lac(ledger)
            assert 3 == storage.last_add_confirmed(ledger)

    def test_last_add_confirmed(self, storage: LedgerStorage, home: StorageHome) -> None:
        """The LAC is the highest of any added entry; after a reopen it is the last entry's."""
        for ledger in LEDGERS:
            storage.set_master_key(ledger, KEY)
            assert -1 == storage.last_add_confirmed(ledger)
            for entry, lac, expected in ((0, -1, -1), (4, 2, 2), (2, 3, 3), (3, 1, 3)):
                storage.add_entry(record(ledger, entry, lac=lac))

                assert expected == storage.last_add_confirmed(ledger)
        storage = home.reopen()

        assert [2] * len(LEDGERS) == [storage.last_add_confirmed(ledger) for ledger in LEDGERS]

    def test_no_limbo(self, storage: LedgerStorage) -> None:
        """A storage without limbo refuses `set_limbo`, and no ledger is in limbo."""
        if self.limbo:
            pytest.skip("the storage has limbo")
        for ledger in LEDGERS:
            storage.set_master_key(ledger, KEY)
            with pytest.raises(errors.UnsupportedLayout):
                storage.set_limbo(ledger)
            assert not storage.clear_limbo(ledger)
            assert not storage.state(ledger).limbo

    def test_limbo(self, storage: LedgerStorage, home: StorageHome) -> None:
        """In limbo negative answers are `DataUnknown`, and stored entries are readable."""
        if not self.limbo:
            pytest.skip("the storage has no limbo")
        for ledger in LEDGERS:
            storage.add_entry(record(ledger, 3), master_key=KEY)
            assert storage.set_limbo(ledger)
            assert not storage.set_limbo(ledger)
        storage = home.reopen()
        for ledger in LEDGERS:
            self._assert_limbo_answers(storage, ledger)
            assert storage.clear_limbo(ledger)
            assert not storage.clear_limbo(ledger)
            with pytest.raises(errors.NoSuchEntry):
                storage.read_entry(ledger, 4)
            assert 3 == storage.last_entry(ledger)
            assert storage.is_fenced(ledger)
        storage = home.reopen()

        assert [False] * len(LEDGERS) == [storage.state(ledger).limbo for ledger in LEDGERS]

    def _assert_limbo_answers(self, storage: LedgerStorage, ledger: LedgerLike) -> None:
        """Check a ledger in limbo that has entry 3 only: positive answers are given, no others."""
        assert storage.state(ledger).limbo
        for call in (
            lambda: storage.read_entry(ledger, 4),
            lambda: storage.read_entries(ledger, 4),
            lambda: storage.entry_exists(ledger, 4),
            lambda: storage.read_entry(ledger, -1),
            lambda: storage.last_entry(ledger),
            lambda: storage.last_add_confirmed(ledger),
            lambda: storage.explicit_lac(ledger),
            lambda: storage.is_fenced(ledger),
        ):
            with pytest.raises(errors.DataUnknown):
                call()

        assert record(ledger, 3) == storage.read_entry(ledger, 3)
        assert [record(ledger, 3)] == storage.read_entries(ledger, 3).records()
        assert storage.entry_exists(ledger, 3)
        assert [3] == storage.entries(ledger).tolist()
        assert storage.fence(ledger)
        assert storage.is_fenced(ledger)

    @pytest.mark.parametrize("stage", STAGES)
    def test_delete(self, storage: LedgerStorage, home: StorageHome, stage: str) -> None:
        """A deleted ledger is gone at once and for good; the others stay as they are. The records
        are in memory, on disk, in both, or read after a reopen (`stage`)."""
        expected = {}
        for ledger in LEDGERS:
            storage = home.add_at_stage(storage, stage, list(records(ledger, range(6)).values()))
            other_id = LedgerId.of(ledger)._replace(ledger=8)
            expected[other_id] = records(other_id, [1])
            storage = home.add_at_stage(storage, stage, [expected[other_id][1]])
            storage.fence(ledger)
        for ledger in LEDGERS:
            storage.delete_ledger(ledger)
            self._assert_deleted(storage, ledger)

        assert expected == read_content(storage)

        storage.flush()

        assert expected == read_content(storage)

        storage = home.reopen()
        for ledger in LEDGERS:
            self._assert_deleted(storage, ledger)

        assert expected == read_content(storage)

    @pytest.mark.parametrize("stage", STAGES)
    def test_delete_after_read(self, storage: LedgerStorage, home: StorageHome, stage: str) -> None:
        """No record or state that was read before the deletion is still cached after it. The
        records are in memory, on disk, in both, or read after a reopen (`stage`)."""
        for ledger in LEDGERS:
            added = records(ledger, range(3))
            storage = home.add_at_stage(storage, stage, list(added.values()))
            storage.set_explicit_lac(ledger, _encode_lac(ledger, 2))

            assert storage.ledger_exists(ledger)
            assert added == {entry: storage.read_entry(ledger, entry) for entry in range(3)}
            assert list(added.values()) == storage.read_entries(ledger, 0).records()
            assert (2, 2) == (storage.last_entry(ledger), storage.last_add_confirmed(ledger))
            assert storage.entry_exists(ledger, 1)
        for ledger in LEDGERS:
            storage.delete_ledger(ledger)
            self._assert_deleted(storage, ledger)
            for call in (storage.last_add_confirmed, storage.explicit_lac, storage.master_key):
                with pytest.raises(errors.NoSuchLedger):
                    call(ledger)
            for read, entry in ((storage.read_entries, 0), (storage.entry_exists, 1)):
                with pytest.raises(errors.NoSuchLedger):
                    read(ledger, entry)
            storage.set_master_key(ledger, KEY)

            assert [] == storage.entries(ledger).tolist()
            assert -1 == storage.last_add_confirmed(ledger)
            assert storage.explicit_lac(ledger) is None
            with pytest.raises(errors.NoSuchEntry):
                storage.read_entry(ledger, 1)

    def _assert_deleted(self, storage: LedgerStorage, ledger: LedgerLike) -> None:
        """Check that a ledger is unknown to all calls."""
        assert not storage.ledger_exists(ledger)
        assert LedgerId.of(ledger) not in storage.ledgers()
        assert [] == storage.entries(ledger).tolist()
        assert 0 == len(storage.availability(ledger))
        for call in (storage.read_entry, storage.state, storage.last_entry, storage.is_fenced):
            with pytest.raises(errors.NoSuchLedger):
                call(ledger)
        with pytest.raises(errors.NoSuchLedger):
            storage.read_entry(ledger, 1)
        with pytest.raises(errors.NoSuchLedger):
            storage.add_entry(record(ledger, 9))

    def test_delete_of_an_unknown_ledger(self, storage: LedgerStorage) -> None:
        """Deleting an unknown ledger does nothing."""
        storage.add_entry(record(5, 0), master_key=KEY)
        for ledger in LEDGERS:
            storage.delete_ledger(ledger)

        assert {LedgerId.of(5): {0: record(5, 0)}} == read_content(storage)

    @pytest.mark.parametrize("stage", STAGES)
    def test_ledger_made_again(self, storage: LedgerStorage, home: StorageHome, stage: str) -> None:
        """The new ledger has its own key, entries and LAC, and none of the old one's. The records
        are in memory, on disk, in both, or read after a reopen (`stage`)."""
        for ledger in LEDGERS:
            storage = home.add_at_stage(storage, stage, list(records(ledger, range(6)).values()))
            storage.set_explicit_lac(ledger, _encode_lac(ledger, 90))
            storage.fence(ledger)
            storage.delete_ledger(ledger)
            added = [record(ledger, 4, b"again"), record(ledger, 7, b"more")]
            storage = home.add_at_stage(storage, stage, added, OTHER_KEY)

            assert [4, 7] == storage.entries(ledger).tolist()
            assert added[0] == storage.read_entry(ledger, 4)
            assert LedgerState(OTHER_KEY) == storage.state(ledger)
            assert 6 == storage.last_add_confirmed(ledger)  # the LAC that entry 7 carries
            with pytest.raises(errors.NoSuchEntry):
                storage.read_entry(ledger, 1)
        storage.flush()
        storage = home.reopen()

        assert [[4, 7]] * len(LEDGERS) == [storage.entries(ledger).tolist() for ledger in LEDGERS]
        assert [OTHER_KEY] * len(LEDGERS) == [storage.master_key(ledger) for ledger in LEDGERS]
