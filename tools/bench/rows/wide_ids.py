"""Row: what 128-bit ledger ids cost the ledgers that do not use them (informative).

There is no bkstore without scopes to compare with. Its stand-ins are *twins*: the same steps
over the same helpers, written for 64-bit ledger ids alone.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from bkstore.availability import Availability
from bkstore.ids import MAX_ENTRY_ID, Int64Array, LedgerId, as_entry_ids, as_locations
from bkstore.index.api import IndexBatch, LedgerLike
from bkstore.index.hierarchical import file_slots
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.index import PUTS_PER_BATCH, RocksIndex
from bkstore.index.rocks.keys import entry_keys, values
from bkstore.index.rocks.options import location_options
from tools.bench.inputs.entry_ids import (
    SCOPE_0,
    SCOPED,
    idx_index,
    locations_of,
    new_directory,
    rocks_index,
)
from tools.bench.measure import Case, Context, Fact, Row, Side
from tools.bench.rows.rocks import fresh_index, remove_index

LEDGER = SCOPE_0.ledger
ASKED = 1000
"""Single look-ups a run."""


def _keys_64(ledger: int, entries: Int64Array) -> list[bytes]:
    columns = np.empty((entries.size, 2), ">i8")
    columns[:, 0] = ledger
    columns[:, 1] = entries
    keys: list[bytes] = columns.view("V16").ravel().tolist()
    return keys


def _key_64(ledger: int, entry: int) -> bytes:
    return ledger.to_bytes(8, "big") + entry.to_bytes(8, "big")


def _put_many_64(database: Database, ledger: int, ids: Int64Array, places: Int64Array) -> None:
    ids, places = as_entry_ids(ids), as_locations(places)
    for at in range(0, ids.size, PUTS_PER_BATCH):
        part = slice(at, at + PUTS_PER_BATCH)
        database.put_list(_keys_64(ledger, ids[part]), values(places[part]), PUTS_PER_BATCH)


def _availability_64(database: Database, ledger: int) -> Availability:
    rows = database.keys(_key_64(ledger, 0), _key_64(ledger, MAX_ENTRY_ID + 1), 16)
    return Availability.from_entries(rows.view(">i8").reshape(-1, 2)[:, 1].astype(np.int64))


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
    own = os.dup(fd)  # as HierarchicalIndex does, so that its pool may close the other
    try:
        slots = file_slots.slot_count(os.fstat(own).st_size, path)
        return Availability.from_canonical(file_slots.present_groups(own, path, 0, slots))
    finally:
        os.close(own)


def _fresh_database(context: Context) -> Database:
    return Database(new_directory(context) / "locations", location_options())


def _remove_database(database: Database) -> None:
    database.close()
    shutil.rmtree(database.path.parent)


def _writing_cases(context: Context, ids: Int64Array, places: Int64Array) -> list[Case]:
    shape = f"{ids.size} ascending entries of one ledger"

    def put_many(name: LedgerId) -> Side:
        def run(index: RocksIndex) -> None:
            index.put_many(name, ids, places)

        def fresh() -> RocksIndex:
            index = fresh_index(context)
            index.put_many(name, [], [])  # the ledger is known, its databases are open
            return index

        label = "scoped" if name.scope else "scope 0"
        return Side(f"put_many, {label}", run, fresh, remove_index)

    twin = Side(
        "put_many, 64-bit twin",
        lambda database: _put_many_64(database, LEDGER, ids, places),
        lambda: _fresh_database(context),
        _remove_database,
    )
    return [
        Case(
            "keys: scope 0 against twin",
            ids.size,
            shape,
            Side("entry_keys, scope 0", lambda: entry_keys(SCOPE_0, ids)),
            (Side("keys, 64-bit twin", lambda: _keys_64(LEDGER, ids)),),
        ),
        Case("rocks put_many: scope 0 against twin", ids.size, shape, put_many(SCOPE_0), (twin,)),
        Case(
            "rocks put_many: scoped against scope 0",
            ids.size,
            shape,
            put_many(SCOPED),
            (put_many(SCOPE_0),),
            facts=lambda: _bytes_on_disk(context, ids, places),
        ),
    ]


def _reading_cases(top: Path, stack: ExitStack, ids: Int64Array) -> list[Case]:
    index = stack.enter_context(RocksIndex(top))
    twin = Database(top / "current" / "locations")
    stack.callback(twin.close)
    shape = f"{ids.size} contiguous entries"
    here = Side("availability, scope 0", lambda: index.availability(SCOPE_0))
    twin_here = Side("availability, 64-bit twin", lambda: _availability_64(twin, LEDGER))
    scoped_here = Side("availability, scoped", lambda: index.availability(SCOPED))
    asked = np.linspace(0, ids.size - 1, ASKED).astype(np.int64).tolist()
    get = Side("get, scope 0", lambda: [index.get(LEDGER, entry) for entry in asked])
    twin_get = Side("get, 64-bit twin", lambda: [_get_64(twin, LEDGER, e) for e in asked])
    return [
        Case("rocks availability: scope 0 against twin", ids.size, shape, here, (twin_here,)),
        Case("rocks availability: scoped against scope 0", ids.size, shape, scoped_here, (here,)),
        Case("rocks get: scope 0 against twin", ASKED, f"{ASKED} of {shape}", get, (twin_get,)),
    ]


@contextmanager
def _scopes(context: Context) -> Iterator[list[Case]]:
    ids = np.arange(context.scaled(1_000_000), dtype=np.int64)
    ledgers: dict[LedgerLike, Int64Array] = {SCOPE_0: ids, SCOPED: ids}
    with ExitStack() as stack:
        top = stack.enter_context(rocks_index(context, ledgers))
        cases = _writing_cases(context, ids, locations_of(ids))
        cases += _reading_cases(top, stack, ids)
        index = stack.enter_context(idx_index(context, ledgers))
        path = index.path(SCOPE_0)
        assert path is not None
        fd = os.open(path, os.O_RDONLY)
        stack.callback(os.close, fd)
        shape = f"{ids.size} contiguous entries"
        here = Side("availability, scope 0", lambda: index.availability(SCOPE_0))
        twin = Side("availability, 64-bit twin", lambda: _idx_availability_64(fd, path))
        scoped = Side("availability, scoped", lambda: index.availability(SCOPED))
        yield [
            *cases,
            Case("idx availability: scope 0 against twin", ids.size, shape, here, (twin,)),
            Case("idx availability: scoped against scope 0", ids.size, shape, scoped, (here,)),
        ]


def _bytes_on_disk(context: Context, ids: Int64Array, places: Int64Array) -> list[Fact]:
    """Return the bytes an entry takes in table files and in the write-ahead log."""
    facts: list[Fact] = []
    log, table = {}, {}
    for name in (SCOPE_0, SCOPED):
        index = fresh_index(context)
        folder = index._current / ("locations-128" if name.scope else "locations")
        few = slice(0, 50_000)  # less than a write buffer: all of it is in one log
        index.put_many(name, ids[few], places[few])
        index.flush()
        log[name] = _size(folder, ".log") / ids[few].size
        remove_index(index)
        index = fresh_index(context)
        index.bulk_load([IndexBatch.of_ledger(name, ids, places)])
        table[name] = _size(index._current / folder.name, ".sst") / ids.size
        remove_index(index)
    for what, found in (("write-ahead log", log), ("table file", table)):
        facts.append(Fact(f"{what}, bytes an entry, scope 0", round(found[SCOPE_0], 2)))
        more = found[SCOPED] - found[SCOPE_0]
        facts.append(Fact(f"{what}, bytes an entry, more for a scope", round(more, 2)))
    return facts


def _size(folder: Path, suffix: str) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.suffix == suffix)


ROWS = (
    Row(
        "scope",
        "128-bit ledger ids: what scope 0 pays, what a scope costs (informative)",
        "'Against twin': the scope-0 path beside the same steps over the same helpers written "
        "for 64-bit ids alone; a stand-in, as there is no bkstore without scopes. The design asks "
        "for a ratio of 0.97. 'Scoped against scope 0': the 24-byte keys and the four-level "
        "paths beside the 16-byte keys. Bytes: files of a write-ahead log (uncompressed) and of "
        "a bulk load (LZ4), divided by the entries.",
        _scopes,
    ),
)
