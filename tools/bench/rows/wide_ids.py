"""Row: the cost of 128-bit ledger ids for ledgers that do not use them (informative).

There is no bkstore without scopes to compare with. *Twins* stand in for it: the same steps with the
same helpers, written for 64-bit ledger ids only.
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from bkstore.availability import Availability
from bkstore.ids import MAX_ENTRY_ID, Int64Array, LedgerId, as_entry_ids, as_locations
from bkstore.index.api import IndexBatch
from bkstore.index.hierarchical import file_slots
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.index import PUTS_PER_BATCH, RocksIndex
from bkstore.index.rocks.keys import encode_locations, entry_keys
from bkstore.index.rocks.options import location_options
from tools.bench.cases import BenchmarkRow, Case, Cases, Context, Fact, TimedSide
from tools.bench.inputs.entry_ids import (
    SCOPE_0,
    SCOPED,
    Ledgers,
    idx_index,
    locations_of,
    new_directory,
    rocks_index,
)
from tools.bench.rows.rocks import create_index, remove_index

LEDGER = SCOPE_0.ledger
GET_COUNT = 1000
"""Single look-ups per run."""


# -- the twin: the same work as of `bkstore.index.rocks`, for 64-bit ids without a scope


def _keys_64(ledger: int, entries: Int64Array) -> list[bytes]:
    columns = np.empty((entries.size, 2), ">i8")
    columns[:, 0] = ledger
    columns[:, 1] = entries
    keys: list[bytes] = columns.view("V16").ravel().tolist()
    return keys


def _key_64(ledger: int, entry: int) -> bytes:
    return ledger.to_bytes(8, "big") + entry.to_bytes(8, "big")


def _put_many_64(database: Database, ledger: int, ids: Int64Array, locations: Int64Array) -> None:
    ids, locations = as_entry_ids(ids), as_locations(locations)
    for start in range(0, ids.size, PUTS_PER_BATCH):
        rows = slice(start, start + PUTS_PER_BATCH)
        values = encode_locations(locations[rows])
        database.put_list(_keys_64(ledger, ids[rows]), values, PUTS_PER_BATCH)


def _availability_64(database: Database, ledger: int) -> Availability:
    rows = database.keys(_key_64(ledger, 0), _key_64(ledger, MAX_ENTRY_ID + 1), 2)
    return Availability.from_entries(rows[1])


def _get_64(database: Database, ledger: int, entry: int) -> int | None:
    if not 0 <= entry <= MAX_ENTRY_ID:
        raise ValueError(entry)
    value = database.get(_key_64(ledger, entry))
    if value is None:
        return None
    location = int.from_bytes(value, "big", signed=True)
    if len(value) != 8 or location < 0:
        raise ValueError(value)
    return location or None


def _idx_availability_64(fd: int, path: str) -> Availability:
    own_fd = os.dup(fd)  # as in HierarchicalIndex, whose pool may close the original
    try:
        slots = file_slots.count_slots(os.fstat(own_fd).st_size, path)
        return Availability.from_canonical(file_slots.read_present_groups(own_fd, path, 0, slots))
    finally:
        os.close(own_fd)


def _fresh_database(context: Context) -> Database:
    return Database(new_directory(context) / "locations", location_options())


def _remove_database(database: Database) -> None:
    database.close()
    shutil.rmtree(database.path.parent)


def _write_cases(context: Context, ids: Int64Array, locations: Int64Array) -> Cases:
    """Yield cases of writes to scope 0, beside the twin (code for 64-bit ids without a scope), and
    to another scope, beside scope 0."""
    shape = f"{ids.size} ascending entries of one ledger"

    def put_many(ledger_id: LedgerId) -> TimedSide:
        def run(index: RocksIndex) -> None:
            index.put_many(ledger_id, ids, locations)

        def set_up() -> RocksIndex:
            index = create_index(context)
            index.put_many(ledger_id, [], [])  # opens the databases of the ledger untimed
            return index

        label = "scoped" if ledger_id.scope else "scope 0"
        return TimedSide(f"put_many, {label}", run, set_up, remove_index)

    keys = TimedSide("entry_keys, scope 0", lambda: entry_keys(SCOPE_0, ids))
    twin_keys = TimedSide("keys, 64-bit twin", lambda: _keys_64(LEDGER, ids))
    yield Case("keys: scope 0 against twin", ids.size, shape, keys, (twin_keys,))

    put_64 = partial(_put_many_64, ledger=LEDGER, ids=ids, locations=locations)
    set_up_twin = partial(_fresh_database, context)
    twin = TimedSide("put_many, 64-bit twin", put_64, set_up_twin, _remove_database)
    scope_0, scoped = put_many(SCOPE_0), put_many(SCOPED)
    yield Case("rocks put_many: scope 0 against twin", ids.size, shape, scope_0, (twin,))
    facts = partial(_disk_facts, context, ids, locations)
    name = "rocks put_many: scoped against scope 0"
    yield Case(name, ids.size, shape, scoped, (scope_0,), facts=facts)


def _read_cases(directory: Path, stack: ExitStack, ids: Int64Array) -> Cases:
    """Yield cases of reads from RocksDB; a twin is the same code for 64-bit ids without a scope."""
    index = stack.enter_context(RocksIndex(directory))
    twin = Database(directory / "current" / "locations")
    stack.callback(twin.close)
    shape = f"{ids.size} contiguous entries"
    scope_0 = TimedSide("availability, scope 0", lambda: index.availability(SCOPE_0))
    twin_side = TimedSide("availability, 64-bit twin", lambda: _availability_64(twin, LEDGER))
    scoped = TimedSide("availability, scoped", lambda: index.availability(SCOPED))
    yield Case("rocks availability: scope 0 against twin", ids.size, shape, scope_0, (twin_side,))
    yield Case("rocks availability: scoped against scope 0", ids.size, shape, scoped, (scope_0,))
    ids_read = np.linspace(0, ids.size - 1, GET_COUNT).astype(np.int64).tolist()
    get = TimedSide("get, scope 0", lambda: [index.get(LEDGER, entry_id) for entry_id in ids_read])
    get_64 = lambda: [_get_64(twin, LEDGER, entry_id) for entry_id in ids_read]  # noqa: E731
    twin_get = TimedSide("get, 64-bit twin", get_64)
    shape = f"{GET_COUNT} of {shape}"
    yield Case("rocks get: scope 0 against twin", GET_COUNT, shape, get, (twin_get,))


def _scope_cases(context: Context) -> Cases:
    """Yield the cases of a ledger in scope 0 and in another, beside twins: code without scopes."""
    ids = np.arange(context.scaled(1_000_000), dtype=np.int64)
    ledgers: Ledgers = {SCOPE_0: ids, SCOPED: ids}
    with ExitStack() as stack:
        directory = stack.enter_context(rocks_index(context, ledgers))
        yield from _write_cases(context, ids, locations_of(ids))
        yield from _read_cases(directory, stack, ids)
        index = stack.enter_context(idx_index(context, ledgers))
        path = index.path(SCOPE_0)
        assert path is not None
        fd = os.open(path, os.O_RDONLY)
        stack.callback(os.close, fd)
        shape = f"{ids.size} contiguous entries"
        scope_0 = TimedSide("availability, scope 0", lambda: index.availability(SCOPE_0))
        twin = TimedSide("availability, 64-bit twin", lambda: _idx_availability_64(fd, path))
        scoped = TimedSide("availability, scoped", lambda: index.availability(SCOPED))
        yield Case("idx availability: scope 0 against twin", ids.size, shape, scope_0, (twin,))
        yield Case("idx availability: scoped against scope 0", ids.size, shape, scoped, (scope_0,))


def _disk_facts(context: Context, ids: Int64Array, locations: Int64Array) -> list[Fact]:
    """Return the bytes per entry in table files and in the write-ahead log."""
    facts: list[Fact] = []
    log_bytes, table_bytes = {}, {}
    for ledger_id in (SCOPE_0, SCOPED):
        index = create_index(context)
        folder = index._current_dir / ("locations-128" if ledger_id.scope else "locations")
        first_rows = slice(0, 50_000)  # less than a write buffer: all are in one log
        index.put_many(ledger_id, ids[first_rows], locations[first_rows])
        index.flush()
        log_bytes[ledger_id] = _total_bytes(folder, ".log") / ids[first_rows].size
        remove_index(index)
        index = create_index(context)
        index.bulk_load([IndexBatch.of_ledger(ledger_id, ids, locations)])
        table_bytes[ledger_id] = _total_bytes(index._current_dir / folder.name, ".sst") / ids.size
        remove_index(index)
    for label, bytes_per_entry in (("write-ahead log", log_bytes), ("table file", table_bytes)):
        facts.append(Fact(f"{label}, bytes an entry, scope 0", round(bytes_per_entry[SCOPE_0], 2)))
        difference = bytes_per_entry[SCOPED] - bytes_per_entry[SCOPE_0]
        facts.append(Fact(f"{label}, bytes an entry, more for a scope", round(difference, 2)))
    return facts


def _total_bytes(folder: Path, suffix: str) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.suffix == suffix)


ROWS = (
    BenchmarkRow(
        "scope",
        "128-bit ledger ids: what scope 0 pays, what a scope costs (informative)",
        "'Against twin': the scope-0 path beside the same steps over the same helpers written "
        "for 64-bit ids alone; a stand-in, as there is no bkstore without scopes. The design asks "
        "for a ratio of 0.97. 'Scoped against scope 0': the 24-byte keys and the four-level "
        "paths beside the 16-byte keys. Bytes: files of a write-ahead log (uncompressed) and of "
        "a bulk load (LZ4), divided by the entries.",
        _scope_cases,
    ),
)
