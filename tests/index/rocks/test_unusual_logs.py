"""Write-ahead logs that RocksDB was told to track, or writes into files of older logs."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.log.framing import encode_records
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.files.database_directory import find_manifest
from bkstore.index.rocks.table_database import TableLocations, open_locations
from bkstore.index.rocks.tables.database_reader import DatabaseReader
from tests.index.rocks.tables.random_databases import read_by_binding


@pytest.mark.parametrize("family", [False, True], ids=["one family", "another family"])
@pytest.mark.parametrize("live", [False, True], ids=["stopped", "live"])
def test_rocksdb_does_not_open_what_ends_its_process(
    tmp_path: Path, live: bool, family: bool
) -> None:
    """A manifest may track write-ahead logs: RocksDB fails by a null pointer if it opens such a
    database to read only. Rows and look-ups come from the arrays; where these do not read the
    database either, it is refused by name."""
    path, key = tmp_path / "database", bytes(15) + b"\5"
    options = Options(raw_mode=True)
    database = Rdict(str(path), options)
    database[key] = bytes(7) + b"\1"
    if family:
        database.create_column_family("another", options)
    database.close()
    manifest = find_manifest(path)
    with manifest.open("ab") as file:
        file.write(encode_records([bytes.fromhex("8740 02 0901")]))  # log 9 is tracked
    if family:
        with pytest.raises(UnsupportedLayout, match="tracks write-ahead logs"):
            open_locations(path, live=live)
        return
    with closing(open_locations(path, live=live)) as opened:
        assert isinstance(opened, TableLocations)
        assert [bytes(7) + b"\1", None] == opened.get_list([key, bytes(16)])
    with pytest.raises(UnsupportedLayout, match=f"{manifest.name}: tracks write-ahead logs"):
        Database(path, live=live)
    with manifest.open("ab") as file:
        file.write(encode_records([bytes.fromhex("8840 01 0a")]))  # and not any more
    with closing(Database(path, live=live)) as opened_by_rocksdb:
        assert bytes(7) + b"\1" == opened_by_rocksdb.get(key)


def write_reused_log(path: Path) -> Path:
    """Write a database, and return its log: RocksDB has used the file before, for longer records,
    so that behind the two rows of this log bytes of an older row follow."""
    options = Options(raw_mode=True)
    options.set_recycle_log_file_num(1)
    database = Rdict(str(path / "written"), options)
    for ledger in range(4):
        for entry in range(2):
            database[bytes([ledger]) * 8 + bytes(7) + bytes([entry])] = bytes(7) + b"\1"
            if ledger < 3:  # a longer record
                database.delete(bytes([ledger]) * 8 + bytes(29) + bytes([entry]))
        database.flush_wal(True)
        if ledger < 3:
            database.flush()
    shutil.copytree(path / "written", path / "database")
    database.close()
    return max((path / "database").glob("*.log"))


def test_a_log_in_a_file_that_was_used_before(tmp_path: Path) -> None:
    """All its rows are read; that a last one may be damaged is an oddity, but not if a later log
    goes on where it ends. A damaged row before others is damage."""
    log = write_reused_log(tmp_path)
    path = log.parent
    expected = read_by_binding(path)
    with closing(DatabaseReader(path)) as reader:
        assert expected == reader.items()
        assert 8 == len(expected)
        ((oddity_path, _, detail),) = reader.oddities
    assert (log, True) == (oddity_path, "used before" in detail)

    last = expected[-1][0]
    first_write = reader.manifest.version.last_sequence + 1
    for skipped, is_sound in ((0, True), (1, False)):
        batch = (first_write + 2 + skipped).to_bytes(8, "little") + (1).to_bytes(4, "little")
        batch += b"\0\x10" + last  # a delete
        (path / "000999.log").write_bytes(encode_records([batch]))
        if is_sound:
            with closing(DatabaseReader(path)) as reader:
                assert ([], expected[:-1]) == (reader.oddities, reader.items())
        else:
            with pytest.raises(CorruptionError, match="the last known one is"):
                DatabaseReader(path)
    (path / "000999.log").unlink()

    data = log.read_bytes()
    log.write_bytes(data[:20] + bytes([data[20] ^ 1]) + data[21:])
    with pytest.raises(CorruptionError, match="record fails its checksum"):
        DatabaseReader(path)
