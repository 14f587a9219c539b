"""Orders and widths of keys in RocksDB: `python -m tools.keys`.

What a bookie writes (ledger, entry: 16 bytes), what 128-bit ledger ids need (scope, ledger, entry:
24), and other orders of the same words. The proposal of 128-bit ids says "8 bytes an entry".
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from bkstore.formats.entry import Coder
from bkstore.ids import LedgerId
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.keys import values
from bkstore.index.rocks.options import location_options
from tools.lab import Column, Experiment, Panel, Row, Run, main
from tools.lab.experiment import Rows
from tools.lab.samples import files_below, latency, median_of, spending
from tools.lab.stores.peers import Store, peer_stores
from tools.lab.table import shown
from tools.lab.workloads.key_orders import KEY_ORDERS, Filling, KeyOrder, filling, key_bytes

__all__ = ["EXPERIMENT"]

LEDGERS, PER_LEDGER, QUERIES = 200, 500, 1_000
USUAL = "ledger, entry"
TABLES = (".sst", ".ldb", ".mdb")

Opened = Callable[[Path], Store]


def _rocksdb(top: Path) -> Store:
    return Database(top, location_options())


def _written(run: Run, opened: Opened, rows: Filling) -> Row:
    """Fill a store once a round; return what it takes, the log's bytes before the flush too."""
    keys, places, top = key_bytes(rows.keys), values(rows.places), run.directory / "locations"
    spent, log = [], 0
    for _ in range(run.rounds):
        shutil.rmtree(top, ignore_errors=True)
        with spending() as cost:
            store = opened(top)
            store.put_list(keys, places, 10_000)
            store.sync()
            log = files_below(top, (".log",)).bytes
            store.compact()
            store.close()
        spent.append(cost)
    return {
        "rows": len(keys),
        "key_bytes": len(keys[0]),
        "log_per_entry": log / len(keys) if isinstance(store, Database) else None,
        "table_per_entry": files_below(top, TABLES).bytes / len(keys),
        "write_rate": len(keys) / median_of(spent).cpu / 1e3,
    }


def _asked(run: Run, store: Store, order: KeyOrder, rows: Filling) -> Row:
    """Return latencies: of single rows, and of listing and ending a ledger by its prefix."""
    width = 8 * rows.keys.shape[1]
    some = np.random.default_rng(run.seed).integers(0, len(rows.keys), run.scaled(QUERIES, 50))
    singles = key_bytes(rows.keys[some])
    point = latency(store.get, singles, run.rounds)
    ranges, last = [(bytes(width), b"\xff" * width)], None
    if order.prefix:
        heads = sorted({key[: 8 * order.prefix] for key in singles})[:50]
        ranges = [(head + bytes(8), head + b"\xff" * 8) for head in heads]
        last = latency(lambda ends: store.last_below(ends[1]), ranges, run.rounds).p50
    found = {len(store.keys(*ends, width)) for ends in ranges}
    if found != {PER_LEDGER if order.prefix else len(rows.keys)}:
        raise RuntimeError(f"a listing of {found} rows")
    listed = latency(lambda ends: store.keys(*ends, width), ranges, run.rounds)
    return {
        "point_p50": point.p50,
        "point_p99": point.p99,
        "list_p50": listed.p50,
        "last_p50": last,
    }


def _record_bytes(scopes: str) -> int:
    """Return the bytes that an entry's record has beside its payload."""
    name = LedgerId(0 if scopes == "0" else 1 << 40, 7)
    return len(Coder("CRC32C").encode_many(name, [0], [b"x" * 100])[0]) - 100


def _stores(run: Run) -> Iterator[tuple[str, KeyOrder, Opened]]:
    """Yield RocksDB with each order of words, then the peers that are here with a bookie's."""
    for name, order in KEY_ORDERS.items():
        yield name, order, _rocksdb
    for peer, opened in peer_stores(run).items():
        yield f"{USUAL}; {peer}", KEY_ORDERS[USUAL], opened


def measure(run: Run) -> Iterator[Row]:
    """Yield a row for each order of words, and for each peer."""
    count = run.scaled(LEDGERS, 8)
    for name, order, opened in _stores(run):
        run.tell(name)
        rows = filling(order, count, PER_LEDGER, run.seed)
        row = {"key": name, **_written(run, opened, rows)}
        store = opened(run.directory / "locations")
        try:
            row |= _asked(run, store, order, rows)
        finally:
            store.close()
        yield {**row, "record_bytes": _record_bytes(order.scopes)}
        shutil.rmtree(run.directory / "locations")


def found(rows: Rows) -> list[str]:
    """Return what the rows come to."""
    by = {row["key"]: row for row in rows}
    narrow, wide = by[USUAL], by["scope, ledger, entry"]
    uuids, across = by["scope, ledger, entry; UUIDs"], by["entry, ledger"]

    def more(column: str, other: Row = wide) -> float:
        return float(other[column] - narrow[column])

    tables = f"{shown(across['table_per_entry'])} bytes, not {shown(narrow['table_per_entry'])}"
    return [
        f"A scope takes {more('key_bytes'):g} bytes in the key, {more('log_per_entry'):.1f} an "
        f"entry in RocksDB's log, {more('table_per_entry'):+.2f} in its tables (compressed; "
        f"{more('table_per_entry', uuids):+.2f} with UUIDs), and {more('record_bytes'):g} in the "
        f"record that journal and entry log have.",
        f"With it, rows are written at {wide['write_rate'] / narrow['write_rate']:.2f} times the "
        f"rate, a row is found in {wide['point_p50'] / narrow['point_p50']:.2f} times the time, "
        f"a ledger listed in {wide['list_p50'] / narrow['list_p50']:.2f} times.",
        f"With entries before ledgers a ledger can be listed only by a scan of everything: "
        f"{across['list_p50'] / narrow['list_p50']:,.0f} times as long. An entry "
        f"takes {tables}.",
    ] + [
        f"{row['key'].rpartition(' ')[2]} takes {shown(row['table_per_entry'])} bytes an entry; it "
        f"is written at {row['write_rate'] / narrow['write_rate']:.2f} times RocksDB's rate, a row "
        f"found in {row['point_p50'] / narrow['point_p50']:.2f} times the time, a ledger listed in "
        f"{row['list_p50'] / narrow['list_p50']:.2f} times."
        for row in rows
        if row["key"].startswith(f"{USUAL};")
    ]


EXPERIMENT = Experiment(
    name="keys",
    question="What do order and width of keys cost, and 128-bit ledger ids?",
    method=(
        "Rows are put in batches of 10,000, synced, compacted and closed, so that tables are "
        "sorted through; rates are by CPU seconds of the process, keys made before. Tables are "
        "the bytes of their files. The log's bytes are those before it is flushed. Latencies are "
        "wall time of warm caches, of each query the median of the rounds; a listing reads the "
        "keys of one ledger, or all where a ledger has no prefix of its own. A record's bytes are "
        "those beside its payload."
    ),
    data=(
        f"{LEDGERS} ledgers at scale 1 of {PER_LEDGER} entries each, which arrive interleaved, in "
        "ten rounds; ids 1 to n, in scope 0 or in four random scopes, or random 128-bit ids."
    ),
    columns=(
        Column("key", "key", kind="given"),
        Column("rows", "rows", kind="count"),
        Column("key_bytes", "key", "bytes", "count"),
        Column("record_bytes", "record beside its payload", "bytes", "count"),
        Column("log_per_entry", "RocksDB's log", "bytes an entry"),
        Column("table_per_entry", "tables", "bytes an entry"),
        Column("write_rate", "written", "k entries a CPU s"),
        Column("point_p50", "single row, p50", "us"),
        Column("point_p99", "single row, p99", "us"),
        Column("list_p50", "listing a ledger, p50", "us"),
        Column("last_p50", "last entry, p50", "us"),
    ),
    panels=(
        Panel("RocksDB's log", "key", "log_per_entry"),
        Panel("Tables", "key", "table_per_entry"),
        Panel("Writing", "key", "write_rate"),
        Panel("Listing a ledger", "key", "list_p50", log="y"),
    ),
    measure=measure,
    found=found,
)


if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
