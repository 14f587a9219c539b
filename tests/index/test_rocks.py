"""RocksIndex itself: closed, written while it is scanned, several levels and directories."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from bkstore import (
    BkstoreError,
    CorruptionError,
    DirectoryInUse,
    IllegalOperation,
    LedgerId,
    NoSuchLedger,
    open_index,
)
from bkstore.formats.ledgerdata import FLAGS_KEY
from bkstore.index.api import LedgerState
from bkstore.index.partitioned import PartitionedIndex
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.keys import entry_key
from bkstore.index.rocks.options import count_opening_threads, database_options, location_options
from tests.corruption.rocks.databases import QUESTIONS

# -- states of the index itself


def test_closed_index_answers_nothing(tmp_path: Path) -> None:
    """After `close` every path says so: a closed index is not an empty one."""
    for writable in (True, False):
        index = RocksIndex(tmp_path, writable=writable)
        if writable:
            index.put_many(1, [0], [5])
        index.close()
        for ask in (*QUESTIONS.values(), lambda i: i.findings(), lambda i: i.put(1, 1, 1)):
            with pytest.raises(BkstoreError) as caught:
                ask(index)

            assert not isinstance(caught.value, NoSuchLedger | CorruptionError | DirectoryInUse)
    with pytest.raises(IllegalOperation):
        index.ledgers()


def test_rows_put_during_a_scan_are_no_damage(tmp_path: Path) -> None:
    """A scan is a snapshot: rows that are written behind its back do not look like lost ones."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(1, range(100), range(1, 101))
        seen = 0
        for part in index.scan(10):
            seen += part.entry_id.size
            index.put_many(2, range(seen), range(1, seen + 1))

        assert 100 == seen
        assert list(range(100)) == index.entries(2).tolist()


def test_row_deleted_during_a_scan_is_no_damage(tmp_path: Path) -> None:
    """The look past the end asks for a row before it calls it lost: it may be deleted by now."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(1, range(100), range(1, 101))
        database = index._database("locations", False)
        older = database._handle.iter()
        index.delete(1)

        assert [] == index.entries(1).tolist()
        database._check_end(older, b"", None)


def test_last_entry_passes_by_an_id_that_is_none(tmp_path: Path) -> None:
    """A row with entry id 2^63-1, which no bookie can find, does not hide the last real one."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(7, [3, 4], [1028, 2000])
        index.put_many(8, [1], [1028])
    database = Database(tmp_path / "current" / "locations", location_options())
    database.put((7).to_bytes(8, "big") + (2**63 - 1).to_bytes(8, "big"), (1028).to_bytes(8, "big"))
    database.close()
    with RocksIndex(tmp_path) as index:
        assert 4 == index.last_entry(7)
        assert [3, 4] == index.entries(7).tolist()
        assert 1 == index.last_entry(8)


@pytest.mark.parametrize("levels", [7, 12])
def test_more_levels(tmp_path: Path, levels: int) -> None:
    """A database with more levels than RocksDB's default (a bookie's setting) is read."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.set_state(1, LedgerState())
    shutil.rmtree(tmp_path / "current" / "locations")
    options = location_options()
    options.set_num_levels(levels)
    database = Database(tmp_path / "current" / "locations", options)
    for entry in range(500):
        database.put(entry_key(LedgerId.of(1), entry), (1028 + entry).to_bytes(8, "big"))
    database._handle.flush()
    database._handle.compact_range(None, None)
    database.close()
    with RocksIndex(tmp_path) as index:
        assert [[0, 499]] == index.availability(1).ranges().tolist()


def test_storage_flags_of_several_directories(tmp_path: Path) -> None:
    """The flags row lies in the directory of ledger 0, and is seen through all of them."""
    parts = [RocksIndex(tmp_path / f"ledgers{n}", writable=True) for n in range(2)]
    with PartitionedIndex(parts) as index:
        index.put_many(0, [0], [1028])
        index.put_many(1, [0], [1028])
    path = tmp_path / "ledgers0" / "current" / "ledgers"
    database = Database(path, database_options("ledgers"))
    database.put(FLAGS_KEY, (1).to_bytes(8, "big"))
    database.close()
    with open_index(tmp_path) as index:
        assert 1 == index.storage_flags
        assert [LedgerId.of(0), LedgerId.of(1)] == index.ledgers()


def test_few_tables_few_threads(tmp_path: Path) -> None:
    """A database is opened by a thread for each four of its tables, not by RocksDB's 16."""
    options = location_options()
    options.set_disable_auto_compactions(True)
    told = []
    for tables in (3, 11, 11):
        database = Database(tmp_path / "x", options)
        newest = max((tmp_path / "x").glob("OPTIONS-*"), key=lambda file: file.name)
        told += re.findall(r"max_file_opening_threads=(\d+)", newest.read_text())
        while len(list((tmp_path / "x").glob("*.sst"))) < tables:
            database.put(entry_key(LedgerId.of(1), 5), bytes(8))
            database._handle.flush()
        database.close()

    assert ["1", "1", "2"] == told
    for number in range(100):
        (tmp_path / "x" / f"copy{number}.sst").touch()
    assert 16 == count_opening_threads(tmp_path / "x")
