"""Orders and widths of keys in RocksDB: `python -m tools.keys`.

What a bookie writes (ledger, entry: 16 bytes), what 128-bit ledger ids need (scope, ledger, entry:
24), and other orders of the same words. The proposal of 128-bit ids says "8 bytes an entry".
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.formats.entry import Coder
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.keys import values
from bkstore.index.rocks.options import location_options
from bkstore.testing.generators import locations
from tools.lab import Column, Experiment, Panel, Row, Run, main
from tools.lab.experiment import Rows
from tools.lab.samples import Asking, done_in_turns, files_below, latencies_of
from tools.lab.sides import Side
from tools.lab.stores.peers import Store, peer_stores
from tools.lab.table import shown

LEDGERS, _PER_LEDGER, _QUERIES = 200, 500, 1_000
USUAL = "ledger, entry"
TABLES = (".sst", ".ldb", ".mdb")

_Opened = Callable[[Path], Store]


def _rocksdb(top: Path) -> Store:
    return Database(top, location_options())


Words = npt.NDArray[np.uint64]


class KeyOrder(NamedTuple):
    """Which words a key has: 0 the scope, 1 the ledger, 2 the entry; and where ids come from.

    `prefix` says how many words name a ledger and come first; 0 where its rows are scattered.
    """

    words: tuple[int, ...]
    scopes: str
    prefix: int


KEY_ORDERS = {
    "ledger, entry": KeyOrder((1, 2), "0", 1),
    "entry, ledger": KeyOrder((2, 1), "0", 0),
    "scope, ledger, entry": KeyOrder((0, 1, 2), "four", 2),
    "ledger, scope, entry": KeyOrder((1, 0, 2), "four", 2),
    "scope, ledger, entry; UUIDs": KeyOrder((0, 1, 2), "UUID", 2),
}
"""Orders by name."""


def _ids(scopes: str, count: int, seed: int) -> tuple[Words, Words]:
    """Return the scopes and ledgers of ledgers."""
    numbers = np.arange(1, count + 1, dtype=np.uint64)
    if scopes == "0":
        return np.zeros(count, np.uint64), numbers
    rng = np.random.default_rng(seed)
    if scopes == "four":
        return rng.integers(1, 1 << 64, 4, np.uint64, endpoint=False)[numbers % 4], numbers
    high, low = rng.integers(1, 1 << 64, (2, count), np.uint64, endpoint=False)
    return high, low


class Filling(NamedTuple):
    """All rows as they arrive: a few entries of every ledger at a time."""

    keys: Words
    places: Int64Array


def filling(order: KeyOrder, count: int, per_ledger: int, seed: int) -> Filling:
    """Return what so many ledgers of so many entries come to."""
    scope, ledger = _ids(order.scopes, count, seed)
    which = np.tile(np.repeat(np.arange(count), per_ledger // 10), 10)
    entry = np.tile(np.arange(per_ledger, dtype=np.uint64).reshape(10, 1, -1), (1, count, 1))
    words = (scope[which], ledger[which], entry.ravel())
    keys = np.stack([words[at] for at in order.words], axis=1)
    return Filling(keys, locations(which.size, seed))


def key_bytes(words: Words) -> list[bytes]:
    """Return the keys as RocksDB has them."""
    made: list[bytes] = words.astype(">u8").view(f"V{8 * words.shape[1]}").ravel().tolist()
    return made


class _KeySide(NamedTuple):
    """A store and the rows that it gets; a folder of its own."""

    order: KeyOrder
    opened: _Opened
    top: Path
    keys: list[bytes]
    values: list[bytes]

    @property
    def width(self) -> int:
        """The bytes of a key."""
        return len(self.keys[0])

    def emptied(self) -> _KeySide:
        """Remove what an earlier round wrote."""
        shutil.rmtree(self.top, ignore_errors=True)
        return self

    def fill(self) -> int | None:
        """Write all rows; return what RocksDB's log has before it is flushed."""
        store = self.opened(self.top)
        store.put_list(self.keys, self.values, 10_000)
        store.sync()
        log = files_below(self.top, (".log",)).bytes if isinstance(store, Database) else None
        store.compact()
        store.close()
        return log

    def ranges(self, some: Int64Array) -> list[tuple[bytes, bytes]]:
        """Return where 50 ledgers of some rows lie; everything where no prefix names a ledger."""
        if not self.order.prefix:
            return [(bytes(self.width), b"\xff" * self.width)]
        heads = sorted({self.keys[at][: 8 * self.order.prefix] for at in some})[:50]
        return [(head + bytes(8), head + b"\xff" * 8) for head in heads]


def _sides(run: Run, count: int) -> dict[str, _KeySide]:
    """Return RocksDB with each order of words, then the peers that are here with a bookie's."""
    stores: list[tuple[str, KeyOrder, _Opened]] = [
        (name, order, _rocksdb) for name, order in KEY_ORDERS.items()
    ]
    for peer, other in peer_stores(run).items():
        stores.append((f"{USUAL}; {peer}", KEY_ORDERS[USUAL], other))
    sides = {}
    for number, (name, order, opened) in enumerate(stores):
        rows, top = filling(order, count, _PER_LEDGER, run.seed), run.directory / f"{number}"
        sides[name] = _KeySide(order, opened, top, key_bytes(rows.keys), values(rows.places))
    return sides


def _written(run: Run, sides: dict[str, _KeySide]) -> dict[str, Row]:
    """Fill every store once a round; return what it takes."""
    works = [Side(name, _KeySide.fill, side.emptied) for name, side in sides.items()]
    rows: dict[str, Row] = {}
    for (name, side), done in zip(sides.items(), done_in_turns(works, run.rounds)):
        number = len(side.keys)
        rows[name] = {
            "rows": number,
            "key_bytes": side.width,
            "log_per_entry": None if done.result is None else done.result / number,
            "table_per_entry": files_below(side.top, TABLES).bytes / number,
            "write_rate": number / done.spent.cpu / 1e3,
            "record_bytes": _record_bytes(side.order.scopes),
        }
    return rows


def _asked(run: Run, sides: dict[str, _KeySide], stores: dict[str, Store]) -> Iterator[Row]:
    """Yield latencies: of single rows, and of listing and ending a ledger by its prefix."""
    rows = len(next(iter(sides.values())).keys)
    some = np.random.default_rng(run.seed).integers(0, rows, run.scaled(_QUERIES, 50))
    point, listed, last = {}, {}, {}
    for name, side in sides.items():
        store, width, ranges = stores[name], side.width, side.ranges(some)
        found = {len(store.keys(*ends, width)) for ends in ranges}
        if found != {_PER_LEDGER if side.order.prefix else rows}:
            raise RuntimeError(f"a listing of {found} rows")
        point[name] = Asking(store.get, [side.keys[at] for at in some])
        listed[name] = Asking(partial(_listed, store, width), ranges)
        if side.order.prefix:
            last[name] = Asking(store.last_below, [hi for _, hi in ranges])
    taken = [latencies_of(askings, run.rounds) for askings in (point, listed, last)]
    for name in sides:
        yield {
            "point_p50": taken[0][name].p50,
            "point_p99": taken[0][name].p99,
            "list_p50": taken[1][name].p50,
            "last_p50": taken[2][name].p50 if name in last else None,
        }


def _listed(store: Store, width: int, ends: tuple[bytes, bytes]) -> object:
    return store.keys(*ends, width)


def _record_bytes(scopes: str) -> int:
    """Return the bytes that an entry's record has beside its payload."""
    name = LedgerId(0 if scopes == "0" else 1 << 40, 7)
    return len(Coder("CRC32C").encode_many(name, [0], [b"x" * 100])[0]) - 100


def measure(run: Run) -> Iterator[Row]:
    """Yield a row for each order of words, and for each peer."""
    sides = _sides(run, run.scaled(LEDGERS, 8))
    run.tell(f"writing: {'; '.join(sides)}")
    rows = _written(run, sides)
    run.tell("reading")
    with ExitStack() as held:
        stores = {
            name: held.enter_context(closing(side.opened(side.top))) for name, side in sides.items()
        }
        for name, asked in zip(sides, _asked(run, sides, stores)):
            yield {"key": name, **rows[name], **asked}


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
        f"{shown(across['list_p50'] / narrow['list_p50'])} times as long. An entry takes {tables}.",
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
        "wall time of warm caches, all stores open, of each query the median of the rounds; a "
        "listing reads the keys of one ledger, or all where a ledger has no prefix of its own. "
        "Stores take turns in writing and in reading. A record's bytes are those beside its "
        "payload."
    ),
    data=(
        f"{LEDGERS} ledgers at scale 1 of {_PER_LEDGER} entries each, which arrive interleaved, in "
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
