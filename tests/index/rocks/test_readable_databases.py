"""The two implementations of reading a database: files as arrays, and RocksDB. Both give the same,
for databases written at random; and a reader opens RocksDB only for look-ups of keys."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore.errors import CorruptionError, IllegalOperation
from bkstore.ids import LedgerId
from bkstore.index.api import IndexBatch, LedgerState
from bkstore.index.rocks import RocksIndex, rows
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.keys import ledger_range
from bkstore.index.rocks.readable_database import LedgersDatabase, LocationsDatabase
from bkstore.index.rocks.table_database import TableLedgers, TableLocations, open_locations
from bkstore.index.rocks.tables.database_reader import DatabaseReader
from tests.index.rocks.tables.random_databases import RandomDatabase, random_settings

Read = Callable[[Any], object]


def joined(parts: list[Any]) -> list[Any]:
    """Return arrays of rows, joined along their last axis."""
    return np.concatenate(parts, axis=-1).tolist() if parts else []


def range_reads(
    start: bytes, stop: bytes, words: int
) -> dict[str, Callable[[LocationsDatabase], object]]:
    """Return calls that read [start, stop)."""
    return {
        "keys": lambda database: database.keys(start, stop, words).tolist(),
        "key_blocks": lambda database: joined(list(database.key_blocks(start, stop, words))),
        "items": lambda database: [
            joined(list(columns)) for columns in zip(*database.items(start, stop, words, 50))
        ],
        "items to the end": lambda database: [
            joined(list(columns)) for columns in zip(*database.items(start, None, words, 10_000))
        ],
        "consecutive": lambda database: database.consecutive_values(start, stop, words).tolist(),
        "last": lambda database: database.last_key(start, stop, words),
        "get": lambda database: [database.get(start), database.get(stop)],
        "get_list": lambda database: database.get_list([start, stop]),
    }


@pytest.mark.parametrize("seed", range(10))
def test_locations_alike(seed: int, tmp_path: Path) -> None:
    """Every call, of the whole database and of ranges that begin and end anywhere."""
    rng = random.Random(seed)
    words = rng.choice([2, 2, 3])
    written = RandomDatabase(tmp_path, rng, random_settings(rng), 8 * words)
    written.write(rng.randrange(1, 25))
    path = tmp_path / "database"
    with closing(Database(path)) as by_rocksdb, closing(TableLocations(path)) as as_arrays:
        rows = by_rocksdb.read_all()
        bounds = [
            bytes(8 * words),
            b"\xff" * 8 * words,
            *(key for key, _ in rows[:: max(len(rows) // 4, 1)]),
        ]
        bounds += [written.random_key() for _ in range(4)]
        for _ in range(8):
            start, stop = sorted(rng.sample(bounds, 2))
            for name, read in range_reads(start, stop, words).items():
                assert read(by_rocksdb) == read(as_arrays), (name, start.hex(), stop.hex())

        keys = [*bounds, *(written.random_key() for _ in range(20))]
        found = [as_arrays._files.get(key) for key in keys]
        assert [by_rocksdb.get(key) for key in keys] == found
        assert by_rocksdb.key_prefixes(words) == as_arrays.key_prefixes(words)
        assert by_rocksdb.sizes() == as_arrays.sizes()
        assert by_rocksdb.oddities == as_arrays.oddities


@pytest.mark.parametrize("seed", range(6))
def test_ledgers_alike(seed: int, tmp_path: Path) -> None:
    """All rows, and single ones that are and are not there."""
    rng = random.Random(seed)
    written = RandomDatabase(tmp_path, rng, random_settings(rng))
    written.write(rng.randrange(1, 25))
    path = tmp_path / "database"
    opened: list[LedgersDatabase] = [Database(path), TableLedgers(path)]
    by_rocksdb, as_arrays = opened
    keys = [key for key, _ in by_rocksdb.read_all()][:50] + [
        written.random_key() for _ in range(50)
    ]

    assert by_rocksdb.read_all() == as_arrays.read_all()
    assert [by_rocksdb.get(key) for key in keys] == [as_arrays.get(key) for key in keys]
    assert by_rocksdb.sizes() == as_arrays.sizes()
    for database in opened:
        database.close()
        with pytest.raises(IllegalOperation):
            database.read_all()


def test_long_ledgers_are_skipped(tmp_path: Path) -> None:
    """Prefixes of ledgers of many blocks and of none of their own: each once."""
    with RocksIndex(tmp_path, writable=True) as index:
        for ledger_id, count in ((3, 120_000), (4, 1), (5, 1), (9, 30_000), (2**63 - 1, 5)):
            index.put_many(ledger_id, range(count), range(1, count + 1))
    with closing(TableLocations(tmp_path / "current" / "locations")) as database:
        numbers = [int.from_bytes(prefix, "big") for prefix in database.key_prefixes(2)]

        assert database.may_be_long(*ledger_range(LedgerId(0, 3)))
        assert not database.may_be_long(*ledger_range(LedgerId(0, 9)))
    with RocksIndex(tmp_path) as index:
        sizes = [len(index.availability(ledger_id)) for ledger_id in numbers]

    assert [3, 4, 5, 9, 2**63 - 1] == numbers
    assert [120_000, 1, 1, 30_000, 5] == sizes


@pytest.mark.parametrize(("count", "reads"), [(20_000, 1), (600_000, 4)])
def test_what_listing_ledgers_reads(
    count: int, reads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ledgers of a few blocks are listed by one read; behind a long one another read begins."""
    entries = np.arange(count)
    with RocksIndex(tmp_path, writable=True) as index:
        for ledger_id in (3, 4, 5):
            index.bulk_load([IndexBatch.of_ledger(LedgerId(0, ledger_id), entries, entries + 1)])
    read_rows, starts, rows_read = DatabaseReader.rows, list[object](), list[int]()

    def counting(reader: DatabaseReader, words: int, *bounds: Any, **how: Any) -> Iterator[Any]:
        starts.append(bounds[0])
        for batch in read_rows(reader, words, *bounds, **how):
            rows_read.append(len(batch))
            yield batch

    monkeypatch.setattr(DatabaseReader, "rows", counting)
    with closing(TableLocations(tmp_path / "current" / "locations")) as database:
        numbers = [int.from_bytes(prefix, "big") for prefix in database.key_prefixes(2)]

    assert [3, 4, 5] == numbers
    assert reads == len(starts)
    assert reads == 1 or sum(rows_read) < count  # a third of them at most


@pytest.mark.parametrize("writable", [True, False])
def test_many_locations_at_once(writable: bool, tmp_path: Path) -> None:
    """Entries without a gap in any order, with repeats, and with absent ones at either end."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(7, range(1, 6), range(11, 16))
    with RocksIndex(tmp_path, writable=writable) as index:
        for entries in ([1, 2, 3], [3, 2, 1], [2, 4, 3], [1, 3, 3], [5, 6], [0, 1, 2], [6, 7], [4]):
            expected = [10 + entry if 1 <= entry <= 5 else 0 for entry in entries]

            assert expected == index.get_many(7, entries).tolist(), entries


def test_ledgers_are_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader keeps what it listed of each scope, out of the caller's reach, until it is closed; a
    writer lists again."""
    state = LedgerState(b"key", False)
    with RocksIndex(tmp_path, writable=True) as index:
        for ledger_id in (LedgerId(0, 3), LedgerId(7, 4)):
            assert ledger_id not in index.ledgers()
            index.set_state(ledger_id, state)
            assert ledger_id in index.ledgers()
    reads, read_ledger_rows = list[bool](), rows.read_ledger_rows

    def counting(database: LedgersDatabase, is_scoped: bool, *more: Any) -> object:
        reads.append(is_scoped)
        return read_ledger_rows(database, is_scoped, *more)

    monkeypatch.setattr(rows, "read_ledger_rows", counting)
    with RocksIndex(tmp_path) as index:
        for _ in range(3):
            listing = index.list_readable_ledgers()
            assert [LedgerId(0, 3), LedgerId(7, 4)] == listing.ledgers
            listing.ledgers.clear()
            assert [LedgerId(0, 3)] == index.ledgers(0)
            assert [LedgerId(7, 4)] == index.ledgers(7)
        assert [False, True, False, True] == reads  # all scopes, then scope 0, then scope 7
    with pytest.raises(IllegalOperation):
        index.ledgers()


def test_last_key_behind_deleted_rows(tmp_path: Path) -> None:
    """The last rows of many blocks are deleted: the last one that is left is found."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(7, range(60_000), range(1, 60_001))
        index.put_many(8, [5], [5])
        locations = index._writable_database("locations", is_scoped=False)
        locations._handle.flush()
        locations.delete_range(_key(7, 123), _key(8, 0))
    with RocksIndex(tmp_path) as index:
        assert 122 == index.last_entry(7)
        assert 5 == index.last_entry(8)
        assert index.last_entry(6) is None
        assert index.last_entry(9) is None


def _key(ledger_id: int, entry_id: int) -> bytes:
    return ledger_id.to_bytes(8, "big") + entry_id.to_bytes(8, "big")


def test_rocksdb_is_opened_for_single_keys_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listings, scans and states need no scratch directory; the first look-up makes one."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(7, range(100), range(1, 101))
    opened: list[Path] = []
    open_reading = Database._open_reading

    def count(self: Database) -> Any:
        opened.append(self.path)
        return open_reading(self)

    monkeypatch.setattr(Database, "_open_reading", count)
    with RocksIndex(tmp_path) as index:
        assert 100 == index.entries(7).size == index.items(7)[1].size
        assert 100 == len(index.availability(7))
        assert [7] == [each.ledger for each in index.ledgers_with_entries()]
        assert not index.state(7).fenced
        assert 99 == index.last_entry(7)
        assert [1, 51] == index.get_many(7, [0, 50]).tolist()
        assert [] == index.findings()
        assert 100 == index.sizes()[0].table_entries
        assert [] == opened
        assert [1, 2, None] == [index.get(7, 0), index.get(7, 1), index.get(7, 100)]
        assert [tmp_path / "current" / "locations"] == opened


@pytest.mark.parametrize("case", ["live", "writer is open", "writer is gone"])
def test_look_ups_and_ranges_are_one_snapshot(tmp_path: Path, case: str) -> None:
    """Rows that are deleted or written after the opening: look-ups do not notice, as listings do
    not. Without `live`, a writer may begin once the index is open, and end before the look-up."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(5, range(0, 400, 2), range(1, 201))
        if case == "live":
            index.flush()
            reader = RocksIndex(tmp_path, live=True)
    if case != "live":
        reader = RocksIndex(tmp_path)
    with reader, ExitStack() as writing:
        index = writing.enter_context(RocksIndex(tmp_path, writable=True))
        index.delete(5)
        index.put(6, 0, 5000)
        index.flush()
        if case == "writer is gone":
            writing.close()

        assert 200 == reader.entries(5).size
        assert [4, None, None] == [reader.get(5, 6), reader.get(5, 400), reader.get(6, 0)]
        assert [None, None] == [reader.get(5, 5), reader.get(5, 7)]
        assert [200, 1, 0] == reader.get_many(5, [398, 0, 10**9]).tolist()
        assert [] == reader.entries(6).tolist()


def test_sound_keys_beside_an_unreadable_file(tmp_path: Path) -> None:
    """One table file cannot be opened: keys outside it are looked up, those in it are refused."""
    with RocksIndex(tmp_path, writable=True) as index:
        for ledger in (5, 6, 7):
            entries, zeros = np.arange(1000), np.zeros(1000, np.int64)
            index.bulk_load([IndexBatch(zeros, zeros, zeros + ledger, entries, entries + 1)])
    file = sorted((tmp_path / "current" / "locations").glob("*.sst"))[1]
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    with RocksIndex(tmp_path) as index:
        assert [1, 1000, None] == [index.get(5, 0), index.get(7, 999), index.get(7, 1000)]
        assert [1, 1000, 0] == index.get_many(7, [0, 999, 10**9]).tolist()
        assert index.get(99, 1) is None
        for entry in (0, 500, 999):
            with pytest.raises(CorruptionError, match=r"not a table file.* are unknown") as caught:
                index.get(6, entry)
            assert str(file) == caught.value.file


def test_what_is_not_read_as_arrays_is_read_by_rocksdb(tmp_path: Path) -> None:
    """A database with something that is refused by name: all rows, and an oddity that says why."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(7, range(100), range(1, 101))
    path = tmp_path / "current" / "locations"
    _write_with_dictionary(path)
    with closing(open_locations(path)) as database:
        assert isinstance(database, Database)
    with RocksIndex(tmp_path) as index:
        (oddity,) = index.findings()
        assert 300 == index.entries(7).size

    assert str(path) == oddity.file
    assert "is read by RocksDB, not as arrays: " in oddity.detail
    assert "compression dictionary" in oddity.detail


def _write_with_dictionary(path: Path) -> None:
    """Add 200 rows to a database in a file with a compression dictionary."""
    from rocksdict import DBCompressionType, Options, Rdict, WriteBatch

    options = Options(raw_mode=True)
    options.set_compression_type(DBCompressionType.zstd())
    options.set_compression_options(-14, 32767, 0, 1 << 14)
    database = Rdict(str(path), options, {"default": options})
    batch = WriteBatch(raw_mode=True)
    for entry_id in range(100, 300):
        batch.put(_key(7, entry_id), (entry_id + 1).to_bytes(8, "big"))
    database.write(batch)
    database.flush()
    database.close()


def test_unflushed_rows_are_kept_once(tmp_path: Path) -> None:
    """Once the rows of logs are sorted, all reads are served by the arrays: values, deletes, and
    range deletes; keys of another width are refused, not absent."""
    top = tmp_path / "index"
    with RocksIndex(top, writable=True) as index:
        index.put_many(7, range(100), range(1, 101))
        locations = index._writable_database("locations", is_scoped=False)
        locations.delete(_key(7, 5))
        locations.delete_range(_key(7, 50), _key(7, 60))
        index.flush()
        shutil.copytree(top, tmp_path / "copy")
    with closing(DatabaseReader(tmp_path / "copy" / "current" / "locations")) as reader:
        before = reader.items()
        (rows,) = reader.rows(2)

        assert len(before) == 89 == len(rows)
        assert before == reader.items()
        with pytest.raises(ValueError, match="other widths than 24 bytes"):
            list(reader.rows(3))
