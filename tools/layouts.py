"""Layouts of an index beside each other: index files, RocksDB, memory: `python -m tools.layouts`.

The same rows go into index files, into RocksDB with a bookie's options and with others, into
a memtable, and into RocksDB under a memtable that has the last tenth.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import EntryIndex, LedgerLike
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.layered import LayeredSource
from bkstore.index.memtable import MemtableIndex
from bkstore.index.rocks import RocksIndex
from tools.lab import Column, Experiment, Panel, Row, Run, main
from tools.lab.experiment import Rows
from tools.lab.index_loads import SHAPES, IndexLoad, Put, index_load, load_of_dump
from tools.lab.samples import ROWS, files_below, latencies, median_of, spending
from tools.lab.table import shown
from tools.lab.traces import trace
from tools.lab.tuned_rocks import TunedFiles, compressed, tables, write_buffer

__all__ = ["EXPERIMENT", "SIDES", "TUNED"]

ENTRIES, QUERIES, BUILDS = 60_000, 1_000, 3
DETAILED = "few large"
"""The shape over which RocksDB's options are tried."""


class Layered(LayeredSource):
    """A memtable over RocksDB, asked for locations as well, as a storage asks its two."""

    top: MemtableIndex
    below: RocksIndex

    def get(self, ledger: LedgerLike, entry: int) -> int | None:
        """Return the location of one entry: the memtable's, else the one on disk."""
        return self.top.get(ledger, entry) or self.below.get(ledger, entry)

    def get_many(self, ledger: LedgerLike, entries: Int64Array) -> Int64Array:
        """Return the locations of many entries; only what memory lacks is asked of the disk."""
        found = self.top.get_many(ledger, entries)
        absent = np.flatnonzero(found == 0)
        if absent.size:
            found[absent] = self.below.get_many(ledger, entries[absent])
        return found


Source = EntryIndex | Layered
Query = tuple[LedgerId, int]
Opening = Callable[[Path, bool], EntryIndex]


@dataclass(frozen=True)
class Side:
    """A layout: how its index on disk is opened (if any), and its share that is in memory."""

    open: Opening | None
    in_memory: float = 0.0


def _rocks(*changes: Callable[..., None]) -> Opening:
    return lambda top, writable: RocksIndex(top, writable=writable, files=TunedFiles(*changes))


SIDES = {
    "idx files": Side(lambda top, writable: HierarchicalIndex(top, writable=writable)),
    "rocksdb": Side(_rocks()),
    "memtable": Side(None, 1.0),
    "memtable on rocksdb": Side(_rocks(), 0.1),
}
"""What is measured over every shape."""

TUNED = {
    "4 KiB blocks": Side(_rocks(tables(block_size=4 << 10))),
    "no compression": Side(_rocks(compressed("none"))),
    "zstd": Side(_rocks(compressed("zstd"))),
    "no bloom filter": Side(_rocks(tables(bloom_bits=None))),
    "20 bloom bits": Side(_rocks(tables(bloom_bits=20))),
    "256 KiB buffer": Side(_rocks(write_buffer(256 << 10))),
}
"""RocksDB with one option other than a bookie's, over one shape."""


def _split(load: IndexLoad, share: float) -> tuple[list[Put], list[Put]]:
    """Return the puts that go to disk, and the last ones, that stay in memory."""
    puts = list(load.puts)
    ends = np.cumsum([put.entries.size for put in puts])
    first = int(np.searchsorted(ends, ends[-1] * (1 - share), side="right"))
    return puts[:first], puts[first:]


def _fill(index: EntryIndex, puts: Sequence[Put]) -> None:
    for put in puts:
        index.put_many(put.ledger, put.entries, put.locations)


def _built(run: Run, side: Side, load: IndexLoad, top: Path) -> tuple[MemtableIndex, Row]:
    """Fill a side below `top` several times; return its memory and what filling takes."""
    below, above = _split(load, side.in_memory)
    spent, memory = [], MemtableIndex()
    for _ in range(min(run.rounds, BUILDS)):
        shutil.rmtree(top, ignore_errors=True)
        top.mkdir()
        memory = MemtableIndex()
        with spending() as cost:
            if side.open is not None:
                with side.open(top, True) as index:
                    _fill(index, below)
            _fill(memory, above)
            for name in memory.ledgers():
                memory.entries(name)  # sorted at the first read: part of the price
        spent.append(cost)
    cost, rows = median_of(spent), files_below(top, ROWS).bytes
    held = sum(part.nbytes for name in memory.ledgers() for part in memory.items(name))
    return memory, {
        "entries": load.entries,
        "ledgers": len(load.expected),
        "bytes_per_entry": (rows + held) / load.entries,
        "files": files_below(top).number,
        "write_rate": load.entries / cost.cpu / 1e3,
        "written_per_entry": None if cost.written is None else cost.written / load.entries,
    }


def _opened(run: Run, side: Side, top: Path) -> tuple[EntryIndex | None, float | None]:
    """Return the index opened for reading, and how many milliseconds opening takes."""
    if side.open is None:
        return None, None
    taken = []
    for _ in range(run.rounds):
        begin = time.perf_counter()
        side.open(top, False).close()
        taken.append(time.perf_counter() - begin)
    return side.open(top, False), statistics.median(taken) * 1e3


def _first_look(source: Source, load: IndexLoad, queries: Sequence[Query]) -> Row:
    """Return what is listed, and the bytes that the first reads ask of the system."""
    with spending() as cold:
        found = [source.get(*query) for query in queries]
    if None in found:
        raise RuntimeError("an entry that was put is not found")
    return {
        "listed": sum(len(source.availability(name)) for name in load.expected),
        "read_per_get": None if cold.read is None else cold.read / len(found),
    }


def _latencies(
    run: Run, sources: dict[str, Source], load: IndexLoad, queries: Sequence[Query]
) -> dict[str, Row]:
    """Return latencies of each source, all asked beside each other."""
    some = list(load.expected)[:50]
    runs = [(name, load.expected[name][:1000]) for name in some]
    taken = {
        "point": latencies({n: _unpacked(s.get) for n, s in sources.items()}, queries, run.rounds),
        "batch": latencies(
            {n: _unpacked(s.get_many) for n, s in sources.items()}, runs, run.rounds
        ),
        "availability": latencies(
            {n: s.availability for n, s in sources.items()}, some, run.rounds
        ),
    }
    return {
        name: {
            f"{what}_{percentile}": getattr(found[name], percentile)
            for what, found in taken.items()
            for percentile in ("p50", "p99")
        }
        for name in sources
    }


def _unpacked(ask: Callable[..., object]) -> Callable[[Sequence[Any]], object]:
    return lambda query: ask(*query)


def _rows(run: Run, shape: str, sides: dict[str, Side], load: IndexLoad) -> Iterator[Row]:
    """Yield a row for each side: filled one by one, then asked beside each other."""
    queries = trace("zipf", load.expected, run.scaled(QUERIES, 50), run.seed).queries
    rows: dict[str, Row] = {}
    sources: dict[str, Source] = {}
    with ExitStack() as closing:
        for name, side in sides.items():
            run.tell(f"{shape}: {name}")
            top = run.directory / name
            memory, row = _built(run, side, load, top)
            closing.callback(shutil.rmtree, top)
            index, opening = _opened(run, side, top)
            sources[name] = memory if index is None else index
            if index is not None:
                closing.callback(index.close)
                if side.in_memory:
                    sources[name] = Layered(memory, index)
            rows[name] = {**row, "open": opening, **_first_look(sources[name], load, queries)}
        taken = _latencies(run, sources, load, queries)
    for name, row in rows.items():
        yield {"shape": shape, "side": name, **row, **taken[name]}


def measure(run: Run) -> Iterator[Row]:
    """Yield a row for each shape and layout, over one shape for each option of RocksDB too."""
    count = run.scaled(ENTRIES, 600)
    loads = {shape: index_load(shape, count, run.seed) for shape in SHAPES}
    if run.dump is not None:
        loads["dump"] = load_of_dump(run.dump, count)
    for shape, load in loads.items():
        yield from _rows(run, shape, SIDES | TUNED if shape == DETAILED else SIDES, load)


def found(rows: Rows) -> list[str]:
    """Return what the rows come to."""
    by_key = {(row["shape"], row["side"]): row for row in rows}

    def ratio(column: str, over: str, under: str, shape: str) -> float:
        return float(by_key[shape, over][column] / by_key[shape, under][column])

    large, small = DETAILED, "many small"
    tuned = [row for row in rows if row["side"] in TUNED]
    smallest = min(tuned, key=lambda row: row["bytes_per_entry"])
    idx = by_key[large, "idx files"]
    return [
        f"Of few large ledgers index files take {shown(idx['bytes_per_entry'])} bytes an entry, "
        f"RocksDB {shown(by_key[large, 'rocksdb']['bytes_per_entry'])}; of many small ones "
        f"{shown(by_key[small, 'idx files']['bytes_per_entry'])} and "
        f"{shown(by_key[small, 'rocksdb']['bytes_per_entry'])}.",
        f"A single read of RocksDB takes {ratio('point_p50', 'rocksdb', 'idx files', large):.1f} "
        f"times as long as one of index files, the availability of a large ledger "
        f"{ratio('availability_p50', 'rocksdb', 'idx files', large):.0f} times.",
        f"Many small ledgers are written to RocksDB "
        f"{ratio('write_rate', 'rocksdb', 'idx files', small):.1f} times as fast as to files, "
        f"few large ones {ratio('write_rate', 'rocksdb', 'idx files', large):.2f} times.",
        f"Of RocksDB's options tried, {smallest['side']} gives the smallest index: "
        f"{shown(smallest['bytes_per_entry'])} bytes an entry.",
    ]


EXPERIMENT = Experiment(
    name="layouts",
    question="Which layout of an index for which ledgers?",
    method=(
        "Each side is filled three times, a flush of 20,000 arrivals at a time, a ledger a call; "
        "closing, which makes it durable, is included. Rates are by CPU seconds of the process, "
        "RocksDB's threads included; opening, and reads of it, by wall time of warm page caches: "
        "sides take turns, of each query the median of the rounds counts, then p50 and p99 over "
        "the queries. Reads follow Zipf's law; a batch is up to 1,000 entries of a ledger. Bytes "
        "written and read are what the process gave to and asked of the system (wchar, rchar of "
        "/proc/self/io), the latter in the first look after opening. The index is what table "
        "files, write-ahead logs and index files have; a memtable's are those of its arrays."
    ),
    data=(
        "60,000 entries at scale 1: ledgers of 60 entries; 3 ledgers; 3 ledgers of which a bookie "
        "has 2 of 3 entries; 100 writers at a time; the same with 5 % late and 5 % twice."
    ),
    columns=(
        Column("shape", "ledgers", kind="given"),
        Column("side", "layout", kind="given"),
        Column("entries", "entries", kind="count"),
        Column("ledgers", "ledgers", kind="count"),
        Column("listed", "entries listed", kind="count"),
        Column("bytes_per_entry", "index", "bytes an entry"),
        Column("files", "files"),
        Column("write_rate", "written", "k entries a CPU s"),
        Column("written_per_entry", "given to the system", "bytes an entry"),
        Column("open", "opening", "ms"),
        Column("read_per_get", "first reads", "bytes a read"),
        Column("point_p50", "single read, p50", "us"),
        Column("point_p99", "single read, p99", "us"),
        Column("batch_p50", "batch, p50", "us"),
        Column("batch_p99", "batch, p99", "us"),
        Column("availability_p50", "availability, p50", "us"),
        Column("availability_p99", "availability, p99", "us"),
    ),
    panels=(
        Panel("Size", "shape", "bytes_per_entry", "side", {"side": tuple(SIDES)}, log="y"),
        Panel("Writing", "shape", "write_rate", "side", {"side": tuple(SIDES)}, log="y"),
        Panel(
            "Single reads (tick: p99)",
            "shape",
            "point_p50",
            "side",
            {"side": tuple(SIDES)},
            high="point_p99",
        ),
        Panel(
            "Availability of a ledger (tick: p99)",
            "shape",
            "availability_p50",
            "side",
            {"side": tuple(SIDES)},
            high="availability_p99",
            log="y",
        ),
        Panel(
            "RocksDB's options: size",
            "side",
            "bytes_per_entry",
            None,
            {"shape": DETAILED, "side": ("rocksdb", *TUNED)},
        ),
        Panel(
            "RocksDB's options: single reads (tick: p99)",
            "side",
            "point_p50",
            None,
            {"shape": DETAILED, "side": ("rocksdb", *TUNED)},
            high="point_p99",
        ),
    ),
    measure=measure,
    found=found,
)


if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
