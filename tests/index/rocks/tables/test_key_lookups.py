"""Look-ups of single keys in the files of a level."""

from __future__ import annotations

import random
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.index.rocks.tables.database_reader import DatabaseReader
from bkstore.index.rocks.tables.key_lookups import KeyLookups
from bkstore.index.rocks.tables.table_reader import TableReader
from bkstore.index.rocks.tables.table_writer import TableFileWriter
from tests.index.rocks.tables.changed_blocks import change_row
from tests.index.rocks.tables.random_databases import RandomDatabase, TableSettings


def _key(entry: int) -> bytes:
    return (7).to_bytes(8, "big") + entry.to_bytes(8, "big")


def _open_file(path: Path, entries: list[int], sequence: int, start: int) -> TableReader:
    """Return a file with a row of each entry of ledger 7, in the level from entry `start` on."""
    with TableFileWriter(path, 2) as writer:
        ledgers = np.full(len(entries), 7)
        writer.add([ledgers, np.array(entries)], 1000 * sequence + np.array(entries))
        writer.finish()
    table = TableReader(path, sequence)
    table.key_bounds = _key(start), _key(entries[-1] + 1)
    return table


def test_rows_of_one_key_in_two_files(tmp_path: Path) -> None:
    """A level may be cut between the rows of a key: the newest is in the first file."""
    with ExitStack() as stack:
        newer = stack.enter_context(_open_file(tmp_path / "8.sst", [1, 4], 9, start=1))
        older = stack.enter_context(_open_file(tmp_path / "9.sst", [4, 6], 5, start=4))
        last = stack.enter_context(_open_file(tmp_path / "10.sst", [8], 5, start=8))
        lookups = KeyLookups([[newer, older, last]])

        values = {
            entry: [int.from_bytes(row.value, "big") for row in lookups.find_versions(_key(entry))]
            for entry in (0, 1, 4, 5, 6, 7, 8, 9)
        }
    none: list[int] = []
    assert values == {
        0: none,
        1: [9001],
        4: [9004],
        5: none,
        6: [5006],
        7: none,
        8: [5008],
        9: none,
    }


def test_last_key_of_a_file_that_begins_with_a_range_delete(tmp_path: Path) -> None:
    """Below its first row, a file has none: the highest key is in the file before."""
    with ExitStack() as stack:
        first = stack.enter_context(_open_file(tmp_path / "8.sst", [1, 4], 9, start=1))
        second = stack.enter_context(_open_file(tmp_path / "9.sst", [8, 9], 9, start=5))
        lookups = KeyLookups([[first, second]])

        last_keys = [lookups.last_key_before(_key(entry)) for entry in (1, 2, 5, 7, 8, 9, 20)]
    assert last_keys == [None, *map(_key, [1, 4, 4, 4, 8, 9])]


def test_blocks_in_each_others_place(tmp_path: Path) -> None:
    """Each has its own checksum: that their rows are elsewhere is told, and none is missing."""
    settings = TableSettings(block_size=256, compression="none", format_version=5)
    database = RandomDatabase(tmp_path, random.Random(3), settings)
    keys = [_key(entry) for entry in range(200)]
    database.write_file(keys)
    path = tmp_path / "database"
    (file,) = path.glob("*.sst")
    with TableReader(file) as table:
        offsets, sizes = table.index.offsets.tolist(), table.index.sizes.tolist()
    first, second = next(
        (i, j) for i in range(1, 9) for j in range(i + 1, 10) if sizes[i] == sizes[j]
    )
    data = bytearray(file.read_bytes())
    one, other = (slice(offsets[i], offsets[i] + sizes[i] + 5) for i in (first, second))
    data[one], data[other] = data[other], data[one]
    file.write_bytes(data)

    reasons: list[str] = []
    with closing(DatabaseReader(path)) as reader:
        for entry, key in enumerate(keys):
            try:
                assert reader.get(key) is not None
                assert key == reader.last_key(2, _key(0), _key(entry + 1))
            except CorruptionError as error:
                reasons.append(error.reason)
    assert 0 < len(reasons) < 100
    assert all("not where the index has them" in reason for reason in reasons)


def test_a_block_of_another_file(tmp_path: Path) -> None:
    """It has keys of the same range, and its own checksum; but its rows are older than any that the
    manifest lists for the file. No look-up returns one of them."""
    settings = TableSettings(block_size=256, compression="none", format_version=5)
    database = RandomDatabase(tmp_path, random.Random(3), settings)
    keys = [_key(entry) for entry in range(100)]
    database.write_file(keys, is_compacted=False)
    database.add_to_file(keys, deleted=(_key(200), _key(201)))
    path = tmp_path / "database"
    older, newer = sorted(path.glob("*.sst"))
    with closing(DatabaseReader(path)) as reader:
        values = {key: reader.get(key) for key in keys}
    with TableReader(older) as one, TableReader(newer) as other:
        offsets, sizes = one.index.offsets.tolist(), one.index.sizes.tolist()
        assert other.index.offsets.tolist() == offsets
        low, high = other.index.separators[2:4]
    block = slice(offsets[3], offsets[3] + sizes[3] + 5)
    data = bytearray(newer.read_bytes())
    data[block] = older.read_bytes()[block]
    newer.write_bytes(data)

    replaced = [key for key in keys if low < key <= high]
    assert 5 < len(replaced) < 50
    with closing(DatabaseReader(path)) as reader:
        for key in keys:
            if key in replaced:
                with pytest.raises(CorruptionError, match="before the oldest") as caught:
                    reader.get(key)
                assert (str(newer), offsets[3]) == (caught.value.file, caught.value.offset)
            else:
                assert values[key] == reader.get(key)
        with pytest.raises(CorruptionError, match="before the oldest"):
            reader.last_key(2, _key(0), replaced[-1])
        assert keys[-1] == reader.last_key(2, _key(0), _key(200))


def _write_file(top: Path, settings: TableSettings) -> tuple[Path, Path]:
    """Write a database of one file with the entries 0 to 199 of ledger 7; return both."""
    database = RandomDatabase(top, random.Random(3), settings)
    database.write_file([_key(entry) for entry in range(200)])
    (file,) = (top / "database").glob("*.sst")
    return top / "database", file


def _whole_keys(checksum: str) -> TableSettings:
    """Return settings of small blocks of rows with whole keys, which are not compressed."""
    return TableSettings(
        block_size=512, compression="none", format_version=5, restart_interval=1, checksum=checksum
    )


@pytest.mark.parametrize(
    ("type_and_bytes", "reason"),
    [
        ((1, 7), "a value of 7 bytes"),
        ((1, 0), "a value of 0 bytes"),
        ((0, 8), "a value of 8 bytes"),  # a deletion has none
        ((7, 8), "a value of 8 bytes"),  # of a single row
    ],
)
def test_a_value_of_another_width(
    tmp_path: Path, type_and_bytes: tuple[int, int], reason: str
) -> None:
    """It is no location, and no deletion: never returned, and its key never absent."""
    path, file = _write_file(tmp_path, _whole_keys("crc32c"))
    code, value_bytes = type_and_bytes

    def change(contents: bytearray, trailer: int) -> None:
        contents[trailer] = code
        lengths = trailer - 16 - 3  # of the shared bytes of the key, its other bytes, the value
        assert contents[lengths : lengths + 3] == bytes([0, 24, 8])
        contents[lengths + 2] = value_bytes

    change_row(file, _key(22), change)
    with closing(DatabaseReader(path)) as reader, TableReader(file) as table:
        with pytest.raises(CorruptionError, match=reason) as caught:
            list(KeyLookups([[table]]).find_versions(_key(22)))
        assert str(file) == caught.value.file
        with pytest.raises(CorruptionError, match="are unknown"):
            reader.get(_key(22))
        assert 8 == len(reader.get(_key(150)) or b"")


def test_blocks_without_checksums_are_read_whole(tmp_path: Path) -> None:
    """Nothing else verifies them: a row out of order refuses all keys of its block, as it does in a
    read of all rows."""
    path, file = _write_file(tmp_path, _whole_keys("none"))

    def change(contents: bytearray, trailer: int) -> None:
        contents[trailer - 1] = 5  # the last byte of the entry id

    offset = change_row(file, _key(23), change)
    with TableReader(file) as table:
        block = table.index.offsets.tolist().index(offset)
        low, high = table.index.separators[block - 1 : block + 1]
        with pytest.raises(UnsupportedLayout, match="without checksums"):
            list(KeyLookups([[table]]).find_versions(_key(150)))
    block_entries = [entry for entry in range(200) if low < _key(entry) <= high]
    with closing(DatabaseReader(path)) as reader:
        for entry in range(200):
            if entry in block_entries:
                with pytest.raises(CorruptionError, match="out of order"):
                    reader.get(_key(entry))
            else:
                assert 8 == len(reader.get(_key(entry)) or b"")
    assert 23 in block_entries
