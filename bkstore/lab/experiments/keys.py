"""Orders and widths of keys in RocksDB: `bkstore lab keys`. Compares the keys that a bookie
writes (ledger, entry: 16 bytes) with those for 128-bit ledger ids (scope, ledger, entry: 24 bytes),
whose proposal estimates a cost of "8 bytes an entry", and other orders of the words."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.formats.entry import Coder
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.keys import encode_locations
from bkstore.index.rocks.options import location_options
from bkstore.lab.experiment import Experiment, LabRun, Panel, ResultColumn, Row, Rows
from bkstore.lab.measuring.latencies_and_costs import (
    QuerySet,
    measure_files,
    measure_latencies_of,
    run_in_turns,
)
from bkstore.lab.measuring.timing import TimedSide
from bkstore.lab.number_format import as_text, compare
from bkstore.lab.stores.chosen_sides import add_rocks_options, only_sides, own_rocks
from bkstore.lab.stores.other_stores import Store, other_store_openers
from bkstore.lab.stores.tuned_rocks import Change
from bkstore.testing.generators import locations

LEDGERS, _ENTRIES_PER_LEDGER, _QUERY_COUNT = 200, 500, 1_000
USUAL = "ledger, entry"
TABLE_FILE_ENDINGS = (".sst", ".ldb", ".mdb")

_OpenStore = Callable[[Path], Store]


def _open_rocksdb(directory: Path, changes: tuple[Change, ...] = ()) -> Store:
    options = location_options()
    for change in changes:
        change(options)
    return Database(directory, options)


KeyWords = npt.NDArray[np.uint64]


class KeyOrder(NamedTuple):
    """The words of a key in order (0 scope, 1 ledger, 2 entry), and the kind of the ids: all in
    scope 0, in four random scopes, or random 128-bit ids ("UUID"). `prefix_words` is the number of
    leading words that identify a ledger; with 0 its rows are scattered."""

    words: tuple[int, ...]
    scopes: Literal["0", "four", "UUID"]
    prefix_words: int


KEY_ORDERS = {
    "ledger, entry": KeyOrder((1, 2), "0", prefix_words=1),
    "entry, ledger": KeyOrder((2, 1), "0", prefix_words=0),
    "scope, ledger, entry": KeyOrder((0, 1, 2), "four", prefix_words=2),
    "ledger, scope, entry": KeyOrder((1, 0, 2), "four", prefix_words=2),
    "scope, ledger, entry; UUIDs": KeyOrder((0, 1, 2), "UUID", prefix_words=2),
}
"""Key orders by name."""


def _scopes_and_ledgers(order: KeyOrder, count: int, seed: int) -> tuple[KeyWords, KeyWords]:
    """Return `count` ledger ids of 128 bits as two 64-bit words each: the scopes (upper words) and
    the ledger numbers (lower words). Scopes are 0, four random ones, or all random, by
    `order.scopes`."""
    numbers = np.arange(1, count + 1, dtype=np.uint64)
    if order.scopes == "0":
        return np.zeros(count, np.uint64), numbers
    rng = np.random.default_rng(seed)
    if order.scopes == "four":
        four_scopes = rng.integers(1, 1 << 64, 4, np.uint64, endpoint=False)
        return four_scopes[numbers % 4], numbers
    scopes, ledgers = rng.integers(1, 1 << 64, (2, count), np.uint64, endpoint=False)
    return scopes, ledgers


class ArrivingRows(NamedTuple):
    """All rows in order of arrival: a few entries of every ledger at a time."""

    keys: KeyWords
    locations: Int64Array


def make_arriving_rows(order: KeyOrder, count: int, per_ledger: int, seed: int) -> ArrivingRows:
    """Return the index rows of `count` ledgers with `per_ledger` entries each (a multiple of ten),
    whose entries arrive in ten rounds, as in a bookie that flushes ten times."""
    scopes, ledgers = _scopes_and_ledgers(order, count, seed)
    # A round has the next tenth of the entries of every ledger, ledger by ledger.
    ledger_of_row = np.tile(np.repeat(np.arange(count), per_ledger // 10), 10)
    entries_of_rounds = np.arange(per_ledger, dtype=np.uint64).reshape(10, 1, -1)
    entry_ids = np.tile(entries_of_rounds, (1, count, 1)).ravel()
    # `order.words` numbers the words of a key: 0 scope, 1 ledger, 2 entry.
    words = (scopes[ledger_of_row], ledgers[ledger_of_row], entry_ids)
    keys = np.stack([words[i] for i in order.words], axis=1)
    return ArrivingRows(keys, locations(ledger_of_row.size, seed))


def encode_keys(words: KeyWords) -> list[bytes]:
    """Return the keys as bytes, words in big-endian order, as RocksDB stores them."""
    keys: list[bytes] = words.astype(">u8").view(f"V{8 * words.shape[1]}").ravel().tolist()
    return keys


class _KeySide(NamedTuple):
    """A store in a directory of its own, and the rows to write into it."""

    order: KeyOrder
    open: _OpenStore
    top: Path
    keys: list[bytes]
    values: list[bytes]

    @property
    def key_bytes(self) -> int:
        return len(self.keys[0])

    def emptied(self) -> _KeySide:
        shutil.rmtree(self.top, ignore_errors=True)
        return self

    def fill(self) -> int | None:
        """Write the rows, and compact. Return the size of RocksDB's write-ahead log before the
        compaction, which deletes it; None for other stores, which have no such files."""
        store = self.open(self.top)
        store.put_list(self.keys, self.values, per_batch=10_000)
        store.sync()
        has_log = isinstance(store, Database)
        log_bytes = measure_files(self.top, (".log",)).bytes if has_log else None
        store.compact()
        store.close()
        return log_bytes

    def ranges(self, row_numbers: Int64Array) -> list[tuple[bytes, bytes]]:
        """Return key ranges (first key, last possible key): of up to 50 ledgers, those of the rows
        `row_numbers`, or one range of all keys if a key does not begin with its ledger."""
        if not self.order.prefix_words:
            return [(bytes(self.key_bytes), b"\xff" * self.key_bytes)]
        prefix_bytes = 8 * self.order.prefix_words
        prefixes = sorted({self.keys[row][:prefix_bytes] for row in row_numbers})[:50]
        return [(prefix + bytes(8), prefix + b"\xff" * 8) for prefix in prefixes]


def _sides(run: LabRun, count: int) -> dict[str, _KeySide]:
    """Return the compared stores ("sides") by name: RocksDB with each key order, then the other
    installed key-value stores, and RocksDB with options of the user's, both with a bookie's key
    order. If --only is given, only those that it names."""
    stores: dict[str, tuple[KeyOrder, _OpenStore]] = {
        name: (order, _open_rocksdb) for name, order in KEY_ORDERS.items()
    }
    for peer, open_peer in other_store_openers(run).items():
        stores[f"{USUAL}; {peer}"] = KEY_ORDERS[USUAL], open_peer
    for name, changes in own_rocks(run.options).items():
        open_tuned = partial(_open_rocksdb, changes=changes)
        stores[f"{USUAL}; {name}"] = KEY_ORDERS[USUAL], open_tuned
    chosen = only_sides(run.options, stores)
    sides = {}
    for number, (name, (order, open_store)) in enumerate(chosen.items()):
        rows = make_arriving_rows(order, count, _ENTRIES_PER_LEDGER, run.seed)
        keys, values = encode_keys(rows.keys), encode_locations(rows.locations)
        sides[name] = _KeySide(order, open_store, run.directory / f"{number}", keys, values)
    return sides


def _measure_writes(run: LabRun, sides: dict[str, _KeySide]) -> dict[str, Row]:
    """Fill every store once per round, in an emptied directory; return sizes and write rates by
    side."""
    write_sides = [
        TimedSide(name, run=_KeySide.fill, setup=side.emptied) for name, side in sides.items()
    ]
    rows: dict[str, Row] = {}
    for (name, side), result in zip(sides.items(), run_in_turns(write_sides, run.rounds)):
        row_count, log_bytes = len(side.keys), result.result
        rows[name] = {
            "rows": row_count,
            "key_bytes": side.key_bytes,
            "log_per_entry": None if log_bytes is None else log_bytes / row_count,
            "table_per_entry": measure_files(side.top, TABLE_FILE_ENDINGS).bytes / row_count,
            "write_rate": row_count / result.cost.cpu / 1e3,
            "record_bytes": _record_overhead(side.order.scopes),
        }
    return rows


def _measure_reads(
    run: LabRun, sides: dict[str, _KeySide], stores: dict[str, Store]
) -> Iterator[Row]:
    """Yield each side's latencies: of reading a row, listing a ledger, finding its last entry. The
    last column is None for orders in which the entry comes before the ledger, as no single seek
    finds the last entry of a ledger."""
    row_count = len(next(iter(sides.values())).keys)
    rng = np.random.default_rng(run.seed)
    row_numbers = rng.integers(0, row_count, run.scaled(_QUERY_COUNT, minimum=50))
    row_reads, listings, seeks = {}, {}, {}
    for name, side in sides.items():
        store, words, ranges = stores[name], side.key_bytes // 8, side.ranges(row_numbers)
        listed_counts = {store.keys(*bounds, words).shape[1] for bounds in ranges}
        if listed_counts != {_ENTRIES_PER_LEDGER if side.order.prefix_words else row_count}:
            raise RuntimeError(f"a listing of {listed_counts} rows")
        row_reads[name] = QuerySet(store.get, [side.keys[row] for row in row_numbers])
        listings[name] = QuerySet(partial(_list_keys, store, words), ranges)
        if side.order.prefix_words:  # the key begins with the ledger: seek the end of its range
            seeks[name] = QuerySet(store.seek_for_prev, [upper for _, upper in ranges])
    row_latencies, list_latencies, seek_latencies = (
        measure_latencies_of(query_sets, run.rounds) for query_sets in (row_reads, listings, seeks)
    )
    for name in sides:
        yield {
            "point_p50": row_latencies[name].p50,
            "point_p99": row_latencies[name].p99,
            "list_p50": list_latencies[name].p50,
            "last_p50": seek_latencies[name].p50 if name in seeks else None,
        }


def _list_keys(store: Store, words: int, bounds: tuple[bytes, bytes]) -> object:
    return store.keys(*bounds, words)


def _record_overhead(scopes: str) -> int:
    ledger_id = LedgerId(0 if scopes == "0" else 1 << 40, 7)
    return len(Coder("CRC32C").encode_many(ledger_id, [0], [b"x" * 100])[0]) - 100


def measure(run: LabRun) -> Iterator[Row]:
    """Yield a row for each compared store ("side"): RocksDB with each order of the words of a key,
    then other stores."""
    sides = _sides(run, run.scaled(LEDGERS, minimum=8))
    run.expect_steps(2)
    run.report_progress(f"writing: {'; '.join(sides)}")
    rows = _measure_writes(run, sides)
    run.report_progress("reading")
    with ExitStack() as open_stores:
        stores = {
            name: open_stores.enter_context(closing(side.open(side.top)))
            for name, side in sides.items()
        }
        for name, latencies in zip(sides, _measure_reads(run, sides, stores)):
            yield {"key": name, **rows[name], **latencies}


def summarize(rows: Rows) -> list[str]:
    """Return the findings, one sentence each, that follow from the rows."""
    row_of = {row["key"]: row for row in rows}
    if USUAL not in row_of:  # --only left out what all others are compared with
        return []
    sentences = _describe_orders(row_of) if row_of.keys() >= KEY_ORDERS.keys() else []
    usual = row_of[USUAL]
    return sentences + [
        f"{row['key'].partition('; ')[2]} takes {as_text(row['table_per_entry'])} bytes an entry; "
        f"it is written {compare(row['write_rate'] / usual['write_rate'], 'fast')} as RocksDB with "
        f"a bookie's options; finding a row takes "
        f"{compare(row['point_p50'] / usual['point_p50'], 'long')}, listing a ledger "
        f"{compare(row['list_p50'] / usual['list_p50'], 'long')}."
        for row in rows
        if row["key"].startswith(f"{USUAL};")
    ]


def _describe_orders(row_of: dict[str, Row]) -> list[str]:
    """Return sentences on what a scope in the key costs, and on an order with entries first."""
    usual, scoped = row_of[USUAL], row_of["scope, ledger, entry"]
    uuids, by_entry = row_of["scope, ledger, entry; UUIDs"], row_of["entry, ledger"]

    def difference(column: str, row: Row = scoped) -> float:
        """Return how much more a row has in a column than the key order of a bookie."""
        return float(row[column] - usual[column])

    by_entry_bytes, usual_bytes = (as_text(row["table_per_entry"]) for row in (by_entry, usual))
    instead = ", as before" if by_entry_bytes == usual_bytes else f" instead of {usual_bytes}"
    return [
        f"A scope takes {difference('key_bytes'):g} bytes in the key, "
        f"{difference('log_per_entry'):.1f} an entry in RocksDB's log, "
        f"{difference('table_per_entry'):+.2f} in its tables (compressed; "
        f"{difference('table_per_entry', uuids):+.2f} with UUIDs), and "
        f"{difference('record_bytes'):g} in the record that journal and entry log have.",
        f"With it, rows are written {compare(scoped['write_rate'] / usual['write_rate'], 'fast')}; "
        f"finding a row takes {compare(scoped['point_p50'] / usual['point_p50'], 'long')}, listing "
        f"a ledger {compare(scoped['list_p50'] / usual['list_p50'], 'long')}.",
        "With entries before ledgers a ledger can be listed only by a scan of everything: "
        f"{compare(by_entry['list_p50'] / usual['list_p50'], 'long')}. An entry takes "
        f"{by_entry_bytes} bytes in the tables{instead}.",
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
        f"{LEDGERS} ledgers at scale 1 of {_ENTRIES_PER_LEDGER} entries each, which arrive "
        "interleaved, in ten rounds; ids 1 to n, in scope 0 or in four random scopes, or random "
        "128-bit ids."
    ),
    columns=(
        ResultColumn("key", "key", kind="given"),
        ResultColumn("rows", "rows", kind="count"),
        ResultColumn("key_bytes", "key", "bytes", "count"),
        ResultColumn("record_bytes", "record beside its payload", "bytes", "count"),
        ResultColumn("log_per_entry", "RocksDB's log", "bytes an entry"),
        ResultColumn("table_per_entry", "tables", "bytes an entry"),
        ResultColumn("write_rate", "written", "k entries/CPU s"),
        ResultColumn("point_p50", "single row, p50", "us"),
        ResultColumn("point_p99", "single row, p99", "us"),
        ResultColumn("list_p50", "listing a ledger, p50", "us"),
        ResultColumn("last_p50", "last entry, p50", "us"),
    ),
    panels=(
        Panel("RocksDB's log", "key", "log_per_entry"),
        Panel("Tables", "key", "table_per_entry"),
        Panel("Writing", "key", "write_rate"),
        Panel("Listing a ledger", "key", "list_p50", log="y"),
    ),
    measure=measure,
    summarize=summarize,
    add_options=add_rocks_options,
)
