"""Rows: scanning and filling a RocksDB index."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from rocksdict import AccessType, Rdict, ReadOptions

from bkstore.ids import Int64Array
from bkstore.index.api import IndexBatch
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.keys import encode_locations, entry_keys, ledger_range
from bkstore.index.rocks.options import location_options, reading_options
from tools.bench.inputs.entry_ids import SCOPE_0, locations_of, new_directory, rocks_index
from tools.bench.measure import BenchmarkRow, Case, Context, TimedSide
from tools.lab.stores.other_stores import OtherStore, other_store_openers

_PER_BATCH = 100_000
"""The rows per batch for peers, as in `put_many` of ours."""


def _open_read_only(path: str) -> Rdict:
    options = reading_options()
    return Rdict(path, options, {"default": options}, AccessType.read_only(False))


def _scan_entry_ids(database: Rdict, lo: bytes, hi: bytes) -> list[int]:
    """Return the entry ids of the keys in [lo, hi), read one by one by the binding's iterator."""
    bounds = ReadOptions()
    bounds.set_iterate_upper_bound(hi)
    iterator = database.iter(bounds)
    iterator.seek(lo)
    entry_ids = []
    while iterator.valid():
        entry_ids.append(int.from_bytes(iterator.key()[8:], "big"))
        iterator.next()
    return entry_ids


def _scan_keys(database: Rdict, lo: bytes, hi: bytes) -> list[bytes]:
    bounds = ReadOptions()
    bounds.set_iterate_upper_bound(hi)
    iterator = database.iter(bounds)
    iterator.seek(lo)
    keys = []
    while iterator.valid():
        keys.append(iterator.key())
        iterator.next()
    return keys


@contextmanager
def _availability_cases(context: Context) -> Iterator[list[Case]]:
    ids = np.arange(context.scaled(1_000_000), dtype=np.int64)
    with rocks_index(context, {SCOPE_0: ids, 8: ids[: ids.size // 10]}) as directory:
        database = _open_read_only(str(directory / "current" / "locations"))
        lo, hi = ledger_range(SCOPE_0)
        with RocksIndex(directory) as index:
            ours = TimedSide("RocksIndex.availability", lambda: index.availability(SCOPE_0))
            loop = TimedSide("seek, key, next; ids", lambda: _scan_entry_ids(database, lo, hi))
            keys = TimedSide("seek, key, next; keys only", lambda: _scan_keys(database, lo, hi))
            shape = f"{ids.size} contiguous entries, another ledger behind them"
            with ExitStack() as open_until:
                yield [
                    Case("entry ids", ids.size, shape, ours, (loop,), 1.6),
                    Case("keys only", ids.size, shape, ours, (keys,)),
                    *(
                        Case(f"entry ids, {name}", ids.size, shape, ours, (side,))
                        for name, side in _peer_scans(context, ids, open_until)
                    ),
                ]
        database.close()


def _peer_scans(
    context: Context, ids: Int64Array, open_until: ExitStack
) -> Iterator[tuple[str, TimedSide]]:
    """Yield a side for each installed peer that scans the same keys into an array of ids."""
    lo, hi = ledger_range(SCOPE_0)
    for name, open_store in other_store_openers(context).items():
        directory = new_directory(context)
        store = open_store(directory)
        open_until.callback(store.close)
        store.put_list(entry_keys(SCOPE_0, ids), encode_locations(locations_of(ids)), _PER_BATCH)
        store.compact()

        def scan(store: OtherStore = store) -> Int64Array:
            words = np.asarray(store.keys(lo, hi, 16)).view(">u8").reshape(-1, 2)
            return words[:, 1].astype(np.int64)

        if not np.array_equal(scan(), ids):
            raise RuntimeError(f"{name} lists other entries")
        yield name, TimedSide("keys of a cursor, ids of them", scan)


def create_index(context: Context) -> RocksIndex:
    """Return a new, empty, writable index in a directory of its own."""
    return RocksIndex(new_directory(context), writable=True)


def remove_index(index: RocksIndex) -> None:
    """Close an index that `create_index` created, and delete its directory."""
    directory = index._current.parent
    index.close()
    shutil.rmtree(directory)


def _put_singly(database: Rdict, keys: list[bytes], encoded_locations: list[bytes]) -> None:
    for key, encoded_location in zip(keys, encoded_locations):
        database[key] = encoded_location


def _put_loop_side(context: Context, ids: Int64Array, locations: Int64Array) -> TimedSide:
    keys, encoded_locations = entry_keys(SCOPE_0, ids), encode_locations(locations)

    def fresh() -> Rdict:
        options = location_options()
        return Rdict(str(new_directory(context)), options, column_families={"default": options})

    def dispose(database: Rdict) -> None:
        path = database.path()
        database.close()
        shutil.rmtree(path)

    return TimedSide(
        "db[k] = v, keys made before",
        lambda db: _put_singly(db, keys, encoded_locations),
        fresh,
        dispose,
    )


@contextmanager
def _fill_cases(context: Context) -> Iterator[list[Case]]:
    ids = np.arange(context.scaled(1_000_000), dtype=np.int64)
    locations = locations_of(ids)
    loop = _put_loop_side(context, ids, locations)

    def put_many(index: RocksIndex) -> None:
        index.put_many(SCOPE_0, ids, locations)

    def bulk_load(index: RocksIndex) -> None:
        index.bulk_load([IndexBatch.of_ledger(SCOPE_0, ids, locations)])

    shape = f"{ids.size} ascending entries of one ledger"
    yield [
        Case(
            name,
            ids.size,
            shape,
            TimedSide(f"RocksIndex.{name}", run, lambda: create_index(context), remove_index),
            (loop,),
            limit,
        )
        for name, run, limit in (("put_many", put_many, 3.5), ("bulk_load", bulk_load, 5.5))
    ] + [
        Case(
            f"put_many, {name}",
            ids.size,
            shape,
            TimedSide("RocksIndex.put_many", put_many, lambda: create_index(context), remove_index),
            (side,),
        )
        for name, side in _peer_fills(context, ids, locations)
    ]


def _peer_fills(
    context: Context, ids: Int64Array, locations: Int64Array
) -> Iterator[tuple[str, TimedSide]]:
    keys, encoded_locations = entry_keys(SCOPE_0, ids), encode_locations(locations)

    def put(store_and_directory: tuple[OtherStore, Path]) -> None:
        store_and_directory[0].put_list(keys, encoded_locations, _PER_BATCH)

    def dispose(store_and_directory: tuple[OtherStore, Path]) -> None:
        store_and_directory[0].close()
        shutil.rmtree(store_and_directory[1])

    for name, open_store in other_store_openers(context).items():

        def fresh(open_store: Callable[[Path], OtherStore] = open_store) -> tuple[OtherStore, Path]:
            directory = new_directory(context)
            return open_store(directory), directory

        yield name, TimedSide("batches, keys made before", put, fresh, dispose)


ROWS = (
    BenchmarkRow(
        "rocks-availability",
        "availability of a flushed ledger, RocksDB",
        "Ours: RocksIndex.availability (bounded key scan into an array, condensed). Baseline: "
        "the iterator of the same binding on the same database files with the same options and "
        "an upper bound: seek, then key and next per row, the entry id of each key collected in "
        "a list. A loop that only collects the raw keys is shown beside it, and so are lmdb and "
        "LevelDB (plyvel) with the same rows, their cursors' keys in an array. Warm caches.",
        _availability_cases,
    ),
    BenchmarkRow(
        "rocks-fill",
        "put_many and bulk load, RocksDB",
        "Ours: put_many, and bulk_load of one batch, from int64 arrays, key building included, "
        "into a new index. Baseline: db[key] = value per row into a new database with the same "
        "options, the keys and values made before (in its favour). No sync on either side; "
        "opening and closing are not timed; background flushes are not in the CPU time. lmdb and "
        "LevelDB (plyvel) get the same rows in batches, keys and values made before.",
        _fill_cases,
    ),
)
