"""Rows: scanning and filling a RocksDB index."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
from rocksdict import AccessType, Rdict, RdictIter, ReadOptions, SstFileWriter

from bkstore.ids import Int64Array
from bkstore.index.api import IndexBatch, LedgerLike
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.keys import encode_locations, entry_keys, ledger_range
from bkstore.index.rocks.options import location_options, reading_options
from bkstore.index.rocks.tables.table_writer import TableFileWriter
from bkstore.lab.stores.other_stores import OtherStore, other_store_openers
from tools.bench.cases import BenchmarkRow, Case, Cases, Context, TimedSide
from tools.bench.inputs.entry_ids import SCOPE_0, locations_of, new_directory, rocks_index

_KEY_BYTES = 16
_KEYS_IN_CACHE = 1 << 14
_PER_BATCH = 100_000
"""The rows per batch for peers, as in `put_many` of ours."""


def _open_read_only(path: str) -> Rdict:
    options = reading_options()
    return Rdict(path, options, {"default": options}, AccessType.read_only(False))


def _iterator(database: Rdict, lo: bytes, hi: bytes) -> RdictIter:
    """Return the binding's iterator of the keys in [lo, hi)."""
    bounds = ReadOptions()
    bounds.set_iterate_upper_bound(hi)
    iterator = database.iter(bounds)
    iterator.seek(lo)
    return iterator


def _scan_entry_ids(database: Rdict, lo: bytes, hi: bytes) -> list[int]:
    iterator, entry_ids = _iterator(database, lo, hi), []
    while iterator.valid():
        entry_ids.append(int.from_bytes(iterator.key()[8:], "big"))
        iterator.next()
    return entry_ids


def _scan_keys(database: Rdict, lo: bytes, hi: bytes) -> list[bytes]:
    iterator, keys = _iterator(database, lo, hi), []
    while iterator.valid():
        keys.append(iterator.key())
        iterator.next()
    return keys


def _availability_cases(context: Context) -> Cases:
    ids = np.arange(context.scaled(1_000_000), dtype=np.int64)
    with rocks_index(context, {SCOPE_0: ids, 8: ids[: ids.size // 10]}) as directory:
        database = _open_read_only(str(directory / "current" / "locations"))
        lo, hi = ledger_range(SCOPE_0)
        with RocksIndex(directory) as index:
            ours = TimedSide("RocksIndex.availability", lambda: index.availability(SCOPE_0))
            loop = TimedSide("seek, key, next; ids", lambda: _scan_entry_ids(database, lo, hi))
            keys = TimedSide("seek, key, next; keys only", lambda: _scan_keys(database, lo, hi))
            shape = f"{ids.size} contiguous entries, another ledger behind them"
            with ExitStack() as stack:
                peer_sides = _peer_scans(context, ids, stack)
                yield Case("entry ids", ids.size, shape, ours, (loop,), limit=1.6)
                yield Case("keys only", ids.size, shape, ours, (keys,))
                yield Case("joined keys", ids.size, shape, ours, (_joined_keys(database),), 4)
                for name, side in peer_sides.items():
                    yield Case(f"entry ids, {name}", ids.size, shape, ours, (side,))
        database.close()


def _joined_keys(database: Rdict) -> TimedSide:
    """Return the side that takes all keys from the binding's iterator as fast as they come."""
    return TimedSide('b"".join(keys())', lambda: _join(database.keys()))


def _join(rows: object) -> bytes:
    return b"".join(cast(Iterable[bytes], rows))  # the binding declares no element type


def _scan_cases(context: Context) -> Cases:
    ids = np.arange(context.scaled(1_000_000), dtype=np.int64)
    ledger_count = 1_000
    contents: dict[LedgerLike, Int64Array] = {}
    contents |= dict.fromkeys(range(ledger_count), ids[: ids.size // ledger_count])
    with rocks_index(context, contents) as directory:
        database = _open_read_only(str(directory / "current" / "locations"))
        with RocksIndex(directory) as index:
            ours = TimedSide("RocksIndex.scan", lambda: _count_rows(index))

            def join_both() -> int:
                return len(_join(database.keys())) + len(_join(database.values()))

            joined = TimedSide('b"".join(keys()), b"".join(values())', join_both)
            shape = f"{ids.size} entries of {ledger_count} ledgers"
            yield Case("all rows", ids.size, shape, ours, (joined,), limit=7)

            def take_rows() -> None:
                deque(cast(Iterable[object], database.items()), maxlen=0)

            yield Case("one by one", ids.size, shape, ours, (TimedSide("items()", take_rows),))
        database.close()


def _count_rows(index: RocksIndex) -> int:
    return sum(rows.entry_id.size for rows in index.scan())


def _peer_scans(context: Context, ids: Int64Array, stack: ExitStack) -> dict[str, TimedSide]:
    """Return a side for each other store that is installed: it scans the same keys into ids."""
    lo, hi = ledger_range(SCOPE_0)
    sides = {}
    for name, open_store in other_store_openers(context).items():
        store = open_store(new_directory(context))
        stack.callback(store.close)
        store.put_list(entry_keys(SCOPE_0, ids), encode_locations(locations_of(ids)), _PER_BATCH)
        store.compact()

        def scan(store: OtherStore = store) -> Int64Array:
            keys = np.asarray(store.keys(lo, hi, _KEY_BYTES))  # (ledger id, entry id) each
            return keys.view(">u8").reshape(-1, 2)[:, 1].astype(np.int64)

        if not np.array_equal(scan(), ids):
            raise RuntimeError(f"{name} lists other entries")
        sides[name] = TimedSide("keys of a cursor, ids of them", scan)
    return sides


def create_index(context: Context) -> RocksIndex:
    """Return a new, empty, writable index in a directory of its own."""
    return RocksIndex(new_directory(context), writable=True)


def remove_index(index: RocksIndex) -> None:
    """Close an index that `create_index` created, and delete its directory."""
    directory = index._current_dir.parent
    index.close()
    shutil.rmtree(directory)


def _put_loop_side(context: Context, ids: Int64Array, locations: Int64Array) -> TimedSide:
    keys, values = entry_keys(SCOPE_0, ids), encode_locations(locations)

    def put_singly(database: Rdict) -> None:
        for key, value in zip(keys, values):
            database[key] = value

    def set_up() -> Rdict:
        options = location_options()
        return Rdict(str(new_directory(context)), options, column_families={"default": options})

    def dispose(database: Rdict) -> None:
        path = database.path()
        database.close()
        shutil.rmtree(path)

    return TimedSide("db[k] = v, keys made before", put_singly, set_up, dispose)


def _fill_cases(context: Context) -> Cases:
    ids = np.arange(context.scaled(1_000_000), dtype=np.int64)
    locations = locations_of(ids)
    loop = _put_loop_side(context, ids, locations)

    def put_many(index: RocksIndex) -> None:
        index.put_many(SCOPE_0, ids, locations)

    def bulk_load(index: RocksIndex) -> None:
        index.bulk_load([IndexBatch.of_ledger(SCOPE_0, ids, locations)])

    set_up = partial(create_index, context)
    put_side = TimedSide("RocksIndex.put_many", put_many, set_up, remove_index)
    load_side = TimedSide("RocksIndex.bulk_load", bulk_load, set_up, remove_index)
    shape = f"{ids.size} ascending entries of one ledger"
    yield Case("put_many", ids.size, shape, put_side, (loop,), limit=3.5)
    yield Case("bulk_load", ids.size, shape, load_side, (loop,), limit=5.5)
    yield _table_file_case(context)
    for name, side in _peer_fills(context, ids, locations):
        yield Case(f"put_many, {name}", ids.size, shape, put_side, (side,))


def _table_file_case(context: Context) -> Case:
    ids = np.arange(context.scaled(1_000_000), dtype=np.int64)
    locations = locations_of(ids)

    def write(directory: Path) -> None:
        with TableFileWriter(directory / "file", words=2) as writer:
            writer.add([np.broadcast_to(np.int64(SCOPE_0.ledger), ids.shape), ids], locations)
            writer.finish()

    def write_by_binding(directory: Path) -> None:
        writer = SstFileWriter(location_options())
        writer.open(str(directory / "file"))
        for start in range(0, ids.size, _KEYS_IN_CACHE):
            part = slice(start, start + _KEYS_IN_CACHE)
            keys, values = entry_keys(SCOPE_0, ids[part]), encode_locations(locations[part])
            for key, value in zip(keys, values):
                writer[key] = value
        writer.finish()

    set_up = partial(new_directory, context)
    ours = TimedSide("TableFileWriter", write, set_up, shutil.rmtree)
    theirs = TimedSide("SstFileWriter, a row a call", write_by_binding, set_up, shutil.rmtree)
    shape = f"{ids.size} ascending entries of one ledger, synced"
    return Case("table file", ids.size, shape, ours, (theirs,))


def _peer_fills(
    context: Context, ids: Int64Array, locations: Int64Array
) -> Iterator[tuple[str, TimedSide]]:
    """Yield (name, side) of each other store that is installed: it writes the same rows."""
    keys, values = entry_keys(SCOPE_0, ids), encode_locations(locations)

    def put(store_and_directory: tuple[OtherStore, Path]) -> None:
        store_and_directory[0].put_list(keys, values, _PER_BATCH)

    def dispose(store_and_directory: tuple[OtherStore, Path]) -> None:
        store_and_directory[0].close()
        shutil.rmtree(store_and_directory[1])

    for name, open_store in other_store_openers(context).items():

        def set_up(
            open_store: Callable[[Path], OtherStore] = open_store,
        ) -> tuple[OtherStore, Path]:
            directory = new_directory(context)
            return open_store(directory), directory

        yield name, TimedSide("batches, keys made before", put, set_up, dispose)


ROWS = (
    BenchmarkRow(
        "rocks-availability",
        "availability of a flushed ledger, RocksDB",
        "Ours: RocksIndex.availability (bounded key scan into an array, condensed). Baseline: "
        "the iterator of the same binding on the same database files with the same options and "
        "an upper bound: seek, then key and next per row, the entry id of each key collected in "
        "a list. Beside it: a loop that only collects the raw keys; all keys joined as fast as "
        "the binding yields them; lmdb and LevelDB (plyvel) with the same rows, their keys in an "
        "array. Warm caches.",
        _availability_cases,
    ),
    BenchmarkRow(
        "rocks-scan",
        "a scan of a RocksDB index",
        "Ours: RocksIndex.scan, all rows of a read-only index as int64 arrays, opened before. "
        "Baseline: the keys, then the values of the same database by the same binding, as fast as "
        "it hands them out: joined, not decoded. Its rows one by one are shown beside it.",
        _scan_cases,
    ),
    BenchmarkRow(
        "rocks-fill",
        "put_many and bulk load, RocksDB",
        "Ours: put_many, and bulk_load of one batch, from int64 arrays, key building included, "
        "into a new index. Baseline: db[key] = value per row into a new database with the same "
        "options, the keys and values made before (in its favour). No sync on either side; "
        "opening and closing are not timed; background flushes are not in the CPU time. lmdb and "
        "LevelDB (plyvel) get the same rows in batches, keys and values made before. A table file "
        "alone is also compared with the binding's SstFileWriter, which gets keys and values made "
        "of the same arrays.",
        _fill_cases,
    ),
)
