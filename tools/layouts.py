"""Layouts of an index beside each other: index files, RocksDB, memory: `python -m tools.layouts`.

The same rows go into index files, into RocksDB with a bookie's options and with others, into
a memtable, and into RocksDB under a memtable that has the last tenth.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bkstore.counts import counted
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.memtable import MemtableIndex
from tools.lab import Column, Experiment, Panel, Row, Run, main
from tools.lab.experiment import Rows
from tools.lab.samples import ROWS, files_below, latencies, median_of, milliseconds, spending
from tools.lab.stores.index_sides import IndexSide, Source, idx_files, rocksdb
from tools.lab.stores.tuned_rocks import compressed, tables, write_buffer
from tools.lab.table import shown
from tools.lab.workloads.index_loads import SHAPES, IndexLoad, index_load, load_of_dump
from tools.lab.workloads.traces import trace

ENTRIES, _QUERIES, BATCH, _BUILDS = 60_000, 1_000, 1_000, 3
ENOUGH = 100
"""Of fewer queries there is no p99: it would be the slowest of them."""

DETAILED = "few large"
"""The shape over which RocksDB's options are tried."""

DUMP = "dump"
"""What the shape of a dump's entries is called."""

SIDES = {
    "idx files": IndexSide(idx_files),
    "rocksdb": IndexSide(rocksdb()),
    "memtable": IndexSide(None, 1.0),
    "memtable on rocksdb": IndexSide(rocksdb(), 0.1),
}
"""What is measured over every shape."""

TUNED = {
    "4 KiB blocks": IndexSide(rocksdb(tables(block_size=4 << 10))),
    "no compression": IndexSide(rocksdb(compressed("none"))),
    "zstd": IndexSide(rocksdb(compressed("zstd"))),
    "no bloom filter": IndexSide(rocksdb(tables(bloom_bits=None))),
    "20 bloom bits": IndexSide(rocksdb(tables(bloom_bits=20))),
    "256 KiB buffer": IndexSide(rocksdb(write_buffer(256 << 10))),
}
"""RocksDB with one option other than a bookie's, over one shape."""

_Query = tuple[LedgerId, int]


def _built(run: Run, side: IndexSide, load: IndexLoad, top: Path) -> tuple[MemtableIndex, Row]:
    """Fill a side below `top` several times; return its memory and what filling takes."""
    spent, memory = [], MemtableIndex()
    for _ in range(min(run.rounds, _BUILDS)):
        shutil.rmtree(top, ignore_errors=True)
        top.mkdir()
        with spending() as cost:
            memory = side.filled(load, top)
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


def _first_look(source: Source, load: IndexLoad, queries: Sequence[_Query]) -> Row:
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
    run: Run, sources: dict[str, Source], load: IndexLoad, queries: Sequence[_Query]
) -> dict[str, Row]:
    """Return latencies of each source, all asked beside each other."""
    asked: dict[str, Sequence[Any]] = {
        "get": queries,
        "get_many": batches(load),
        "availability": [(name,) for name in list(load.expected)[:ENOUGH]],
    }
    row: dict[str, Row] = {name: {} for name in sources}
    for (call, words), what in zip(asked.items(), ("point", "batch", "availability")):
        ways = {name: _unpacked(getattr(source, call)) for name, source in sources.items()}
        for name, taken in latencies(ways, words, run.rounds).items():
            p99 = taken.p99 if len(words) >= ENOUGH else None
            row[name] |= {f"{what}_p50": taken.p50, f"{what}_p99": p99}
    return row


def batches(load: IndexLoad) -> list[tuple[LedgerId, Int64Array]]:
    """Return batches of up to `BATCH` entries, `ENOUGH` of them where there are as many places."""
    places = [
        (name, at)
        for name, ids in load.expected.items()
        for at in range(0, max(ids.size - BATCH, 0) + 1, BATCH * 2 // 5)
    ]
    chosen = np.linspace(0, len(places) - 1, min(ENOUGH, len(places))).astype(int).tolist()
    return [
        (name, load.expected[name][at : at + BATCH]) for name, at in map(places.__getitem__, chosen)
    ]


def _unpacked(ask: Callable[..., object]) -> Callable[[Sequence[Any]], object]:
    return lambda query: ask(*query)


def _rows(run: Run, shape: str, sides: dict[str, IndexSide], load: IndexLoad) -> Iterator[Row]:
    """Yield a row for each side: filled one by one, then asked beside each other."""
    queries = trace("zipf", load.expected, run.scaled(_QUERIES, ENOUGH), run.seed).queries
    rows: dict[str, Row] = {}
    sources: dict[str, Source] = {}
    with ExitStack() as closing:
        for name, side in sides.items():
            run.tell(f"{shape}: {name}")
            top = run.directory / name
            memory, row = _built(run, side, load, top)
            closing.callback(shutil.rmtree, top)
            if side.open is not None:
                row["open"] = milliseconds(partial(side.open_once, top), run.rounds)
            sources[name] = closing.enter_context(side.opened(top, memory))
            rows[name] = row | _first_look(sources[name], load, queries)
        taken = _latencies(run, sources, load, queries)
    for name, row in rows.items():
        yield {"shape": shape, "side": name, **row, **taken[name]}


def measure(run: Run) -> Iterator[Row]:
    """Yield a row for each shape and layout, over one shape for each option of RocksDB too."""
    count = run.scaled(ENTRIES, 600)
    loads = {shape: index_load(shape, count, run.seed) for shape in SHAPES}
    if run.dump is not None:
        loads[DUMP] = load_of_dump(run.dump, count)
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
        *_of_dump(by_key),
    ]


def _of_dump(by_key: dict[tuple[str, str], Row]) -> list[str]:
    """Return a sentence on the dump's entries, where there are any."""
    files, rocks = (by_key.get((DUMP, side)) for side in ("idx files", "rocksdb"))
    if files is None or rocks is None:
        return []
    return [
        f"The dump's {files['entries']:,} entries in {counted(files['ledgers'], 'ledger')} take "
        f"{shown(files['bytes_per_entry'])} bytes each in index files, "
        f"{shown(rocks['bytes_per_entry'])} in RocksDB, which takes "
        f"{rocks['point_p50'] / files['point_p50']:.1f} times as long for a single read and "
        f"{rocks['availability_p50'] / files['availability_p50']:.1f} times for an availability."
    ]


def _by_shape(title: str, y: str, high: str | None = None, log: Literal["", "y"] = "") -> Panel:
    return Panel(title, "shape", y, "side", {"side": tuple(SIDES)}, high, log)


def _by_option(title: str, y: str, high: str | None = None) -> Panel:
    chosen = {"shape": DETAILED, "side": ("rocksdb", *TUNED)}
    return Panel(title, "side", y, None, chosen, high)


EXPERIMENT = Experiment(
    name="layouts",
    question="Which layout of an index for which ledgers?",
    method=(
        "Each side is filled three times, a flush of 20,000 arrivals at a time, a ledger a call; "
        "closing, which makes it durable, is included. Rates are by CPU seconds of the process, "
        "RocksDB's threads included; opening, and reads of it, by wall time of warm page caches: "
        "sides take turns, of each query the median of the rounds counts, then p50 and p99 over "
        "the queries, p99 where they are a hundred. Reads follow Zipf's law; a batch is up to "
        "1,000 entries of a ledger. Bytes written and read are what the process gave to and asked "
        "of the system (wchar, rchar of /proc/self/io), the latter in the first look after "
        "opening. The index is what table files, write-ahead logs and index files have; a "
        "memtable's are those of its arrays."
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
        _by_shape("Size", "bytes_per_entry", log="y"),
        _by_shape("Writing", "write_rate", log="y"),
        _by_shape("Single reads (tick: p99)", "point_p50", "point_p99"),
        _by_shape(
            "Availability of a ledger (tick: p99)", "availability_p50", "availability_p99", "y"
        ),
        _by_option("RocksDB's options: size", "bytes_per_entry"),
        _by_option("RocksDB's options: single reads (tick: p99)", "point_p50", "point_p99"),
    ),
    measure=measure,
    found=found,
    takes=("dump",),
)


if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
