"""The short ways of reading say what the long ones say: files kept open, values without keys."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bkstore.errors import CorruptionError, NoSuchEntry, NoSuchLedger
from bkstore.formats.entry import Coder
from bkstore.formats.idxfile import HEADER_SIZE, index_path
from bkstore.ids import LedgerId
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.options import location_options
from bkstore.storage.entry_log.reader import LogReader
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import StorageKind, StorageOptions
from bkstore.testing.leaks import CAN_LIST_OPEN_FILES, open_files

STORAGES: tuple[StorageKind, ...] = ("sorted", "interleaved", "db")
KEY = b"k" * 20
SCOPED = LedgerId(5, 7)


def record(ledger: int | LedgerId, entry: int, payload: bytes) -> bytes:
    """Return the record of one entry."""
    return Coder("CRC32C").encode_many(ledger, [entry], [payload])[0]


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LedgerStorage]:
    """An empty storage of each kind."""
    with LedgerStorage.open(tmp_path, request.param) as opened:
        yield opened


def fill(storage: LedgerStorage, ledger: int | LedgerId, payloads: dict[int, bytes]) -> None:
    """Add entries to a ledger, which is made."""
    storage.set_master_key(ledger, KEY)
    storage.add_entries([record(ledger, entry, data) for entry, data in payloads.items()])


def test_a_ledger_that_comes_again_is_read_anew(storage: LedgerStorage) -> None:
    """Nothing of a deleted ledger is found in the one of its id that follows."""
    fill(storage, 7, {entry: b"old %d" % entry for entry in range(20)})
    storage.flush()
    assert record(7, 4, b"old 4") == storage.read_entry(7, 4)
    storage.delete_ledger(7)
    assert not storage.ledger_exists(7)
    for ask in (storage.last_entry, storage.read_entry, storage.read_entries):
        with pytest.raises(NoSuchLedger):
            ask(7, *[4] * (ask != storage.last_entry))
    fill(storage, 7, {4: b"new"})
    storage.flush()

    assert record(7, 4, b"new") == storage.read_entry(7, 4)
    with pytest.raises(NoSuchEntry):
        storage.read_entry(7, 5)


@pytest.mark.parametrize("kind", ["sorted", "interleaved"])
def test_an_index_file_without_its_name_yet(kind: StorageKind, tmp_path: Path) -> None:
    """Locations that left memory before any flush are found, and after the flush too."""
    options = StorageOptions(pending_locations=4, write_cache=2000)
    with LedgerStorage.open(tmp_path, kind, options=options) as storage:
        fill(storage, 7, dict.fromkeys(range(30), b"x" * 50))
        assert not (tmp_path / "current" / index_path(LedgerId(0, 7))).exists()
        found = [storage.read_entry(7, entry) for entry in range(30)]
        storage.flush()

        assert [record(7, entry, b"x" * 50) for entry in range(30)] == found
        assert found == [storage.read_entry(7, entry) for entry in range(30)]


def test_more_ledgers_than_files_stay_open(storage: LedgerStorage, tmp_path: Path) -> None:
    """Each ledger is read right, in any order; at most 64 index files are open twice."""
    ledgers = range(70)
    for ledger in ledgers:
        fill(storage, ledger, {0: b"of %d" % ledger})
    storage.flush()
    for order in (ledgers, reversed(ledgers)):
        for ledger in order:
            assert record(ledger, 0, b"of %d" % ledger) == storage.read_entry(ledger, 0)
    if CAN_LIST_OPEN_FILES:
        assert 2 * 64 >= sum(path.endswith(".idx") for path in open_files(tmp_path))
        storage.close()

        assert [] == open_files(tmp_path)


@pytest.mark.parametrize("kind", ["sorted", "interleaved"])
def test_damage_in_a_slot_is_named(kind: StorageKind, tmp_path: Path) -> None:
    """A slot that turns bad under an open file is the index's `CorruptionError`, with its place."""
    with LedgerStorage.open(tmp_path, kind) as storage:
        fill(storage, 7, dict.fromkeys(range(3), b"x"))
        storage.flush()
        assert record(7, 1, b"x") == storage.read_entry(7, 1)
        path = tmp_path / "current" / index_path(LedgerId(0, 7))
        with path.open("r+b") as file:
            file.seek(HEADER_SIZE + 8)
            file.write(b"\xff" * 8)
        with pytest.raises(CorruptionError, match="negative") as negative:
            storage.read_entry(7, 1)
        assert (str(path), HEADER_SIZE + 8) == (negative.value.file, negative.value.offset)
        os.truncate(path, HEADER_SIZE + 8 * 2 + 3)
        with pytest.raises(CorruptionError, match="inside the slot") as cut:
            storage.read_entry(7, 2)

        assert (str(path), HEADER_SIZE + 16) == (cut.value.file, cut.value.offset)


@pytest.mark.parametrize("ledger", [7, SCOPED])
def test_records_of_all_lengths(storage: LedgerStorage, ledger: int | LedgerId) -> None:
    """Short ones, ones longer than a read's guess, and long ones come whole, in both reads."""
    sizes = [0, 100, 467, 472, 473, 480, 2003, 2012, 2013, 5000, 40_000, 1, 100_000, 3, 3, 3, 3, 9]
    payloads = {entry: bytes([entry]) * size for entry, size in enumerate(sizes)}
    fill(storage, ledger, payloads)
    expected = [record(ledger, entry, data) for entry, data in payloads.items()]
    storage.flush()

    assert expected == [storage.read_entry(ledger, entry) for entry in payloads]
    assert expected == storage.read_entries(ledger, 0).records()
    assert expected[8:] == storage.read_entries(ledger, 8).records()


@pytest.mark.parametrize("size", [100, 3000, 20_000])
def test_a_batch_ends_at_its_size(storage: LedgerStorage, size: int) -> None:
    """As many records come as fit the frame, however they are read; exactly at the limit too."""
    fill(storage, 7, {entry: bytes(size) for entry in range(12)})
    storage.flush()
    frame = 4 + len(record(7, 0, bytes(size)))
    for most in (5, 12):
        limits = [36 + most * frame + more for more in (-1, 0, 1)]

        assert [most - 1, most, most] == [
            len(storage.read_entries(7, 0, max_size=limit)) for limit in limits
        ]


@pytest.mark.parametrize("ledger", [7, SCOPED])
def test_a_location_of_another_record(ledger: int | LedgerId, tmp_path: Path) -> None:
    """It is damage, whoever's record lies there: raised where it stands first, else the end."""
    with LedgerStorage.open(tmp_path, "interleaved") as storage:
        for name in (ledger, 8):
            fill(storage, name, {entry: b"%d" % entry for entry in range(8)})
        storage.flush()
        path = storage.write_paths[0]
        name = LedgerId.of(ledger)
        places, others = (path.list_locations(LedgerId.of(n), 0, 7)[1] for n in (ledger, 8))
        reader = LogReader(path.logger.path)
        for place, wanted in ((places[4], name), (others[3], name), (places[3], LedgerId(0, 9))):
            with pytest.raises(CorruptionError, match="not entry 3 of ledger"):
                reader.read(int(place), wanted, 3)
        whole = reader.read_many(name, np.arange(8), places)
        shifted = reader.read_many(name, np.array([0, 1, 2, 3, 5, 6]), places[:6])
        with pytest.raises(CorruptionError, match="not entry 0 of ledger"):
            reader.read_many(name, np.arange(6), others[:6])
        reader.close()

        assert [record(ledger, entry, b"%d" % entry) for entry in range(8)] == whole.records()
        assert None is whole.stopped
        assert whole.records()[:4] == shifted.records()
        assert shifted.stopped is not None
        assert "the record here is not entry 5" in shifted.stopped.reason


IDS = st.sets(st.integers(0, 12))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocksIndex]:
    """An index in which ledgers 6 and 8 have rows."""
    with RocksIndex(tmp_path_factory.mktemp("run"), writable=True) as index:
        for ledger in (6, 8):
            index.put_many(ledger, range(13), range(900, 913))
        yield index


@given(ids=IDS, first=st.integers(0, 14), count=st.integers(0, 14))
def test_run_of_rows(rows: RocksIndex, ids: set[int], first: int, count: int) -> None:
    """The locations of first, first + 1, ... up to a gap; never of a neighbour's rows."""
    rows.delete(7)
    rows.put_many(7, sorted(ids), [1000 + entry for entry in sorted(ids)])
    expected: list[int] = []
    while len(expected) < count and first + len(expected) in ids:
        expected.append(1000 + first + len(expected))

    assert expected == rows.get_location_run(7, first, count).tolist()
    assert [] == rows.get_location_run(9, first, count).tolist()
    assert [] == rows.get_location_run(SCOPED, first, count).tolist()


FIRST = bytes(7) + b"\x07" + bytes(8)
SECOND = FIRST[:-1] + b"\x01"
ODD_ROWS = {
    "key": {FIRST + b"\x00": bytes(7) + b"M"},
    "value": {FIRST: bytes(7) + b"MM"},
    "values": {FIRST: bytes(7) + b"MM", SECOND: bytes(6) + b"M"},  # as long together as they are
}


@pytest.mark.parametrize("odd", ODD_ROWS)
def test_a_row_of_another_width_ends_a_run(odd: str, tmp_path: Path) -> None:
    """A row that is no bookie's between the wanted ones is damage, not an entry."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(6, [0], [500])
        index.put_many(7, range(5), range(1000, 1005))
        index.put_many(8, [0], [600])
    database = Database(tmp_path / "current" / "locations", location_options())
    for key, value in ODD_ROWS[odd].items():
        database.put(key, value)
    database.close()

    with RocksIndex(tmp_path) as index, pytest.raises(CorruptionError, match=r"not a bookie.s row"):
        index.get_location_run(7, 0, 5)


def test_a_location_that_is_none_ends_a_run(tmp_path: Path) -> None:
    """A row that says 0 is damage, and the error names the row."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(7, range(5), range(1000, 1005))
    database = Database(tmp_path / "current" / "locations", location_options())
    database.put(bytes(7) + b"\x07" + bytes(7) + b"\x03", bytes(8))
    database.close()

    with RocksIndex(tmp_path) as index:
        with pytest.raises(CorruptionError, match="0000000000000003: location 0"):
            index.get_location_run(7, 0, 5)
        assert [1000, 1001, 1002] == index.get_location_run(7, 0, 3).tolist()
