"""Rules of `StorageOptions(compat="bookkeeper")` that no golden tree shows.

The facts are those of `SingleDirectoryDbLedgerStorage.checkpoint`: it returns early where the
write cache is empty, before the queue of changed ledgers is written; the clean-up of deleted
ledgers follows whichever way it ends.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkstore import Bookie, LedgerId, LedgerStorage
from bkstore.errors import NoSuchEntry, NoSuchLedger, UnsupportedLayout
from bkstore.formats.entry import Coder, encode_explicit_lac
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.storage.options import StorageOptions

KEY = b"k" * 20
CODER = Coder("CRC32C", "pw")
BOTH = pytest.mark.parametrize("compat", [None, "bookkeeper"])


def records(ledger: int, entries: range) -> list[bytes]:
    """Return records of a ledger."""
    return CODER.encode_many(ledger, entries, [b"%06d" % entry for entry in entries])


def lac_body(ledger: int, lac: int) -> bytes:
    """Return the body of an explicit LAC."""
    return encode_explicit_lac(ledger, lac, "CRC32C", "pw")


def open_db(path: Path, compat: Any, directories: int = 1, **more: Any) -> LedgerStorage:
    """Return db storage over some directories."""
    places = [path / str(number) for number in range(directories)]
    return LedgerStorage.open(places, "db", options=StorageOptions(compat=compat, **more))


@BOTH
def test_state_only_ledgers(tmp_path: Path, compat: Any) -> None:
    """Of a directory with an empty cache no flush, checkpoint or close writes states.

    Ledger L lies in directory L mod 2: those of directory 1, which has an entry, stay.
    """
    with open_db(tmp_path, compat, 2) as storage:
        for ledger in (10, 11, 20, 21, 30, 31):
            storage.set_master_key(ledger, KEY)
        storage.fence(20)
        storage.fence(21)
        storage.set_explicit_lac(30, lac_body(30, 5))
        storage.set_explicit_lac(31, lac_body(31, 5))
        storage.add_entries(records(11, range(1)))
        storage.flush()
        storage.checkpoint()

        assert [10, 11, 20, 21, 30, 31] == [name.ledger for name in storage.ledgers()]
    kept = [11, 21, 31] if compat else [10, 11, 20, 21, 30, 31]
    with open_db(tmp_path, compat, 2) as storage:
        assert kept == [name.ledger for name in storage.ledgers()]
        assert storage.is_fenced(21)
        assert lac_body(31, 5) == storage.explicit_lac(31)


@BOTH
def test_states_of_ledgers_with_entries(tmp_path: Path, compat: Any) -> None:
    """A fence, a limbo or an explicit LAC that came after the last entry is lost likewise."""
    with open_db(tmp_path, compat) as storage:
        storage.add_entries(records(7, range(3)), master_key=KEY)
        storage.flush()
        storage.fence(7)
        storage.set_explicit_lac(7, lac_body(7, 1))
    with open_db(tmp_path, compat) as storage:
        assert [0, 1, 2] == storage.entries(7).tolist()
        assert (compat is None) == storage.is_fenced(7)
        assert (None if compat else lac_body(7, 1)) == storage.explicit_lac(7)


def test_states_wait_for_the_next_entry(tmp_path: Path) -> None:
    """What an early end left is written by the next flush that finds an entry, of any ledger."""
    with open_db(tmp_path, "bookkeeper") as storage:
        storage.set_master_key(7, KEY)
        storage.flush()
        storage.add_entries(records(8, range(1)), master_key=KEY)
        storage.flush()
    with open_db(tmp_path, "bookkeeper") as storage:
        assert [7, 8] == [name.ledger for name in storage.ledgers()]


@pytest.mark.parametrize("full", [False, True])
def test_clean_up_follows_any_flush(tmp_path: Path, full: bool) -> None:
    """Locations of a deleted ledger are found until a flush, one of an empty cache too."""
    name = LedgerId.of(7)
    with open_db(tmp_path, "bookkeeper", write_cache=4000) as storage:
        (path,) = storage.write_paths
        storage.add_entries(records(7, range(3)), master_key=KEY)
        storage.flush()
        storage.delete_ledger(7)

        assert path.get_location(name, 2) is not None
        if full:  # the flush that makes room
            storage.add_entries(records(8, range(60)), master_key=KEY)
        else:
            storage.flush()
        assert path.get_location(name, 2) is None


@pytest.mark.parametrize("entries", [0, 2])
def test_clean_up_of_a_ledger_made_again(tmp_path: Path, entries: int) -> None:
    """Its new entries go with the old ones, its row stays."""
    with open_db(tmp_path, "bookkeeper") as storage:
        storage.add_entries(records(7, range(3)), master_key=KEY)
        storage.flush()
        storage.delete_ledger(7)
        storage.set_master_key(7, KEY)
        storage.add_entries(records(7, range(5, 5 + entries)))
        storage.flush()

        assert [] == storage.entries(7).tolist()
    with open_db(tmp_path, "bookkeeper") as storage:
        assert KEY == storage.master_key(7)
        assert [] == storage.entries(7).tolist()


@BOTH
@pytest.mark.parametrize("storage", ["sorted", "interleaved", "db"])
def test_deleted_ledger_that_was_known(tmp_path: Path, storage: Any, compat: Any) -> None:
    """What was read of a flushed ledger does not keep it known when it is deleted."""
    options = StorageOptions(compat=compat)
    with LedgerStorage.open(tmp_path, storage, options=options) as opened:
        opened.add_entries(records(7, range(3)), master_key=KEY)
        opened.flush()

        assert opened.ledger_exists(7)
        assert records(7, range(3)) == opened.read_entries(7, 0).records()
        opened.delete_ledger(7)
        assert not opened.ledger_exists(7)
        for ask in (opened.read_entry, opened.master_key, opened.last_entry):
            with pytest.raises(NoSuchLedger):
                ask(7)


@BOTH
@pytest.mark.parametrize("storage", ["sorted", "interleaved", "db"])
def test_lac_of_a_ledger_without_entries(tmp_path: Path, storage: Any, compat: Any) -> None:
    """The real storages read the last entry, and there is none; by default it is -1."""
    options = StorageOptions(compat=compat)
    with LedgerStorage.open(tmp_path, storage, options=options) as opened:
        with pytest.raises(NoSuchLedger):
            opened.last_add_confirmed(7)
        opened.set_master_key(7, KEY)
        if compat is None:
            assert -1 == opened.last_add_confirmed(7)
        else:
            with pytest.raises(NoSuchEntry):
                opened.last_add_confirmed(7)


@pytest.mark.parametrize("compat", [None, "bookkeeper"])
@pytest.mark.parametrize("storage", ["sorted", "interleaved"])
def test_explicit_lac_and_header_version_0(tmp_path: Path, storage: Any, compat: Any) -> None:
    """Asked for version 0, a storage has an explicit LAC until it is closed, as upstream.

    A header of version 1 has a field for it, whatever was asked for.
    """
    old = StorageOptions(index_header_version=0, compat=compat)
    with LedgerStorage.open(tmp_path, storage, options=old) as opened:
        opened.add_entries(records(7, range(3)), master_key=KEY)
        opened.set_explicit_lac(7, lac_body(7, 1))
        opened.flush()

        assert lac_body(7, 1) == opened.explicit_lac(7)
    with LedgerStorage.open(tmp_path, storage, options=old) as opened:
        assert opened.explicit_lac(7) is None
        assert [0, 1, 2] == opened.entries(7).tolist()
    with LedgerStorage.open(tmp_path, storage) as opened:
        opened.add_entries(records(8, range(2)), master_key=KEY)
        opened.set_explicit_lac(8, lac_body(8, 0))
    with LedgerStorage.open(tmp_path, storage, options=old) as opened:
        assert lac_body(8, 0) == opened.explicit_lac(8)
        opened.set_explicit_lac(8, lac_body(8, 1))
        opened.flush()  # in compat mode closing does not
    with LedgerStorage.open(tmp_path, storage, options=old) as opened:
        assert lac_body(8, 1) == opened.explicit_lac(8)


def test_index_of_header_version_0(tmp_path: Path) -> None:
    """The index itself refuses what it has no field for, and version 1 takes over from 0."""
    with HierarchicalIndex(tmp_path / "current", writable=True, header_version=0) as index:
        assert not index.can_store_explicit_lac(7)
        index.put(7, 0, 1)
        assert not index.can_store_explicit_lac(7)
        with pytest.raises(UnsupportedLayout, match="version 0"):
            index.set_state(7, index.state(7)._replace(explicit_lac=lac_body(7, 1)))
    with HierarchicalIndex(tmp_path / "current", writable=True) as index:
        assert index.can_store_explicit_lac(7)
        index.set_state(7, index.state(7)._replace(explicit_lac=lac_body(7, 2)))
    with HierarchicalIndex(tmp_path / "current", writable=True, header_version=0) as index:
        assert index.can_store_explicit_lac(7)
        assert lac_body(7, 2) == index.state(7).explicit_lac


def test_replayed_explicit_lac_and_header_version_0(tmp_path: Path) -> None:
    """A start that is asked for version 0 takes an explicit LAC of the journal into memory."""
    bookie = Bookie.open(tmp_path, "sorted")
    bookie.add_entries(records(7, range(1)), KEY)
    bookie.set_explicit_lac(7, lac_body(7, 0), KEY)
    bookie.close(checkpoint=False)
    old = StorageOptions(index_header_version=0)
    with Bookie.open(tmp_path, "sorted", options=old) as again:
        assert lac_body(7, 0) == again.explicit_lac(7)
    with Bookie.open(tmp_path, "sorted", options=old) as again:
        assert again.explicit_lac(7) is None
