"""Databases written at random by the binding, read as arrays: equal to what it answers."""

from __future__ import annotations

import random
from bisect import bisect_left
from pathlib import Path

import pytest

from bkstore.index.rocks.tables.block_rows import TableRows
from bkstore.index.rocks.tables.database_reader import DatabaseReader
from bkstore.index.rocks.tables.table_reader import TableReader
from tests.index.rocks.tables.random_databases import (
    CHECKSUMS,
    COMPRESSIONS,
    FORMAT_VERSIONS,
    RandomDatabase,
    TableSettings,
    random_settings,
    read_by_binding,
)
from tests.index.rocks.tables.reading import Pair, pairs_of, read_rows

SEEDS, LONG_SEEDS = 12, 2000


def compare(database: RandomDatabase, steps: int) -> None:
    """Write a database, and compare all its rows, and those of a few ranges."""
    database.write(steps)
    path, rng = database.path / "database", database.rng
    expected = read_by_binding(path)

    assert expected == read_rows(path, database.key_bytes)
    assert expected == DatabaseReader(path).items()
    for _ in range(3):
        start, stop = sorted([database.random_key(), database.random_key()])
        if expected and rng.random() < 0.5:
            start = rng.choice(expected)[0]
        inside = [row for row in expected if start <= row[0] < stop]
        assert inside == read_rows(path, database.key_bytes, start, stop)
        compare_lookups(DatabaseReader(path), expected, [start, stop])


def compare_lookups(reader: DatabaseReader, expected: list[Pair], keys: list[bytes]) -> None:
    """Look up keys, those beside them, some that are there, and the highest below each."""
    words, here, values = len(keys[0]) // 8, [key for key, _ in expected], dict(expected)
    lowest, highest = bytes(8 * words), b"\xff" * 8 * words
    beside = [key[:-1] + bytes([key[-1] ^ 1]) for key in keys]
    for key in [*keys, *beside, *here[:: len(here) // 8 + 1], *here[-1:], lowest, highest]:
        assert values.get(key) == reader.get(key)
        for start in (lowest, keys[0]):
            inside = here[bisect_left(here, start) : bisect_left(here, key)]
            assert reader.last_key(words, start, key) == (inside[-1] if inside else None)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_as_the_binding(seed: int, tmp_path: Path) -> None:
    """All rows and ranges, whatever the settings and however the rows came there."""
    rng = random.Random(seed)
    database = RandomDatabase(tmp_path, rng, random_settings(rng), rng.choice([16, 16, 24]))
    compare(database, rng.randrange(1, 25))


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_many_as_the_binding(part: int, tmp_path: Path) -> None:
    """The same for 2,000 databases."""
    for seed in range(1000 + part, 1000 + LONG_SEEDS, 20):
        rng = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        key_bytes = rng.choice([16, 16, 24])
        compare(RandomDatabase(folder, rng, random_settings(rng), key_bytes), rng.randrange(1, 60))


SETTINGS = [
    *(TableSettings(format_version=version) for version in FORMAT_VERSIONS),
    *(TableSettings(compression=compression) for compression in COMPRESSIONS),
    *(TableSettings(checksum=checksum) for checksum in CHECKSUMS),
    *(TableSettings(format_version=6, checksum=checksum) for checksum in CHECKSUMS),
    TableSettings(index_type="two-level", block_size=256),
    TableSettings(index_type="two-level", block_size=256, index_restart_interval=7),
    TableSettings(index_type="two-level", block_size=256, format_version=2),
    TableSettings(has_hash_index=True, restart_interval=4),
    TableSettings(block_size=1 << 20),
    TableSettings(block_size=1, restart_interval=1),
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_each_setting(settings: TableSettings, tmp_path: Path) -> None:
    """One compacted file of 2,000 rows: all of them, and look-ups of keys that are and are not
    there."""
    database = RandomDatabase(tmp_path, random.Random(5), settings)
    keys = [(7).to_bytes(8, "big") + (3 * n).to_bytes(8, "big") for n in range(2000)]
    database.write_file(keys)
    (file,) = (tmp_path / "database").glob("*.sst")
    expected = read_by_binding(tmp_path / "database")

    assert keys == [key for key, _ in expected]
    assert expected == read_rows(tmp_path / "database", 16)
    with TableReader(file) as table:
        assert expected == pairs_of(TableRows(table, 2))
    compare_lookups(DatabaseReader(tmp_path / "database"), expected, keys[:2])
