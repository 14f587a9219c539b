"""Look-ups of single keys in the files of a level."""

from __future__ import annotations

import random
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np

from bkstore.errors import CorruptionError
from bkstore.index.rocks.tables.database_reader import DatabaseReader
from bkstore.index.rocks.tables.key_lookups import KeyLookups
from bkstore.index.rocks.tables.table_reader import TableReader
from bkstore.index.rocks.tables.table_writer import TableFileWriter
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
