"""Layouts of an index: index files, RocksDB, memory: `bkstore lab layouts`. The same rows are
written to index files, to RocksDB with a bookie's options and with others, to a memtable, and to
RocksDB below a memtable with the last tenth."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bkstore.counts import format_count
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.memtable import MemtableIndex
from bkstore.lab.experiment import Experiment, LabRun, Panel, ResultColumn, Row, Rows
from bkstore.lab.measuring.latencies_and_costs import (
    measure_cost,
    measure_files,
    measure_latencies,
    measure_milliseconds,
    median_cost,
)
from bkstore.lab.number_format import as_text, compare
from bkstore.lab.stores.chosen_sides import add_side_options, choose_sides
from bkstore.lab.stores.index_sides import IndexSide, Source, open_index_files, rocksdb_opener
from bkstore.lab.stores.tuned_rocks import compression, table_format, write_buffer
from bkstore.lab.workloads.index_loads import SHAPES, IndexLoad, make_index_load, read_index_load
from bkstore.lab.workloads.traces import make_trace

ENTRIES, _QUERY_COUNT, BATCH_ENTRIES, _MAX_BUILDS = 60_000, 1_000, 1_000, 3
MIN_P99_QUERIES = 100  # with fewer queries there is no p99, because it would be the slowest query
DETAILED_SHAPE = "few large"  # the shape for which RocksDB's options are compared
DUMP_SHAPE = "dump"  # the name of the shape for the entries of a dump

INDEX_SIDES = {
    "idx files": IndexSide(open_index_files),
    "rocksdb": IndexSide(rocksdb_opener()),
    "memtable": IndexSide(None, 1.0),
    "memtable on rocksdb": IndexSide(rocksdb_opener(), 0.1),
}
"""The compared implementations ("sides") that are measured for every shape: how the index on disk
is opened (None: there is none), and the share of the entries that stay in a memtable."""

TUNED_SIDES = {
    "4 KiB blocks": IndexSide(rocksdb_opener(table_format(block_size=4 << 10))),
    "no compression": IndexSide(rocksdb_opener(compression("none"))),
    "zstd": IndexSide(rocksdb_opener(compression("zstd"))),
    "no bloom filter": IndexSide(rocksdb_opener(table_format(bloom_bits=None))),
    "20 bloom bits": IndexSide(rocksdb_opener(table_format(bloom_bits=20))),
    "256 KiB buffer": IndexSide(rocksdb_opener(write_buffer(256 << 10))),
}
"""RocksDB with one option other than a bookie's, measured for one shape."""

_Query = tuple[LedgerId, int]


def _measure_build(
    run: LabRun, side: IndexSide, load: IndexLoad, directory: Path
) -> tuple[MemtableIndex, Row]:
    """Build an index implementation (a "side") in `directory`, several times anew. Return its
    memtable, which has the entries that are not in files, and the columns of the cost."""
    costs, memory = [], MemtableIndex()
    for _ in range(min(run.rounds, _MAX_BUILDS)):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        with measure_cost() as cost:
            memory = side.fill(load, directory)
        costs.append(cost)
    cost, file_bytes = median_cost(costs), measure_files(directory, side.file_endings).bytes
    # The memtable's size: its arrays of entry ids and of locations.
    arrays = chain.from_iterable(map(memory.items, memory.ledgers()))
    memory_bytes = sum(array.nbytes for array in arrays)
    return memory, {
        "entries": load.entries,
        "ledgers": len(load.expected),
        "bytes_per_entry": (file_bytes + memory_bytes) / load.entries,
        "files": measure_files(directory).file_count,
        "write_rate": load.entries / cost.cpu / 1e3,
        "written_per_entry": None if cost.written is None else cost.written / load.entries,
    }


def _measure_first_reads(source: Source, load: IndexLoad, queries: Sequence[_Query]) -> Row:
    """Return the columns of an index that was just opened: the bytes that one look-up reads from
    files, and the number of entries that it lists, which shows that none is absent."""
    with measure_cost() as cost:
        locations = [source.get(*query) for query in queries]
    if None in locations:
        raise RuntimeError("an entry that was put is not found")
    return {
        "listed": sum(len(source.availability(ledger_id)) for ledger_id in load.expected),
        "read_per_get": None if cost.read is None else cost.read / len(locations),
    }


def _measure_queries(
    run: LabRun, sources: dict[str, Source], load: IndexLoad, queries: Sequence[_Query]
) -> dict[str, Row]:
    """Return the latencies of single reads, batches and availabilities, by side."""
    ledgers = [(ledger_id,) for ledger_id in list(load.expected)[:MIN_P99_QUERIES]]
    # The columns, the method of a source, and the arguments of each of its calls.
    calls: list[tuple[str, str, Sequence[Any]]] = [
        ("point", "get", queries),
        ("batch", "get_many", make_batches(load)),
        ("availability", "availability", ledgers),
    ]
    rows: dict[str, Row] = {name: {} for name in sources}
    for column, method, arguments in calls:
        asks = {
            name: _unpack_arguments(getattr(source, method)) for name, source in sources.items()
        }
        for name, latency in measure_latencies(asks, arguments, run.rounds).items():
            p99 = latency.p99 if len(arguments) >= MIN_P99_QUERIES else None
            rows[name] |= {f"{column}_p50": latency.p50, f"{column}_p99": p99}
    return rows


def make_batches(load: IndexLoad) -> list[tuple[LedgerId, Int64Array]]:
    """Return up to `MIN_P99_QUERIES` batches of up to `BATCH_ENTRIES` consecutive entries of a
    ledger, evenly spread over the load."""
    step = BATCH_ENTRIES * 2 // 5  # so that batches overlap, and small loads have enough of them
    starts = [
        (ledger_id, first)
        for ledger_id, ids in load.expected.items()
        for first in range(0, max(ids.size - BATCH_ENTRIES, 0) + 1, step)
    ]
    chosen = np.linspace(0, len(starts) - 1, min(MIN_P99_QUERIES, len(starts))).astype(int)
    return [
        (ledger_id, load.expected[ledger_id][first : first + BATCH_ENTRIES])
        for ledger_id, first in (starts[i] for i in chosen.tolist())
    ]


def _unpack_arguments(ask: Callable[..., object]) -> Callable[[Sequence[Any]], object]:
    return lambda query: ask(*query)


def _rows(run: LabRun, shape: str, sides: dict[str, IndexSide], load: IndexLoad) -> Iterator[Row]:
    """Yield a row for each index implementation ("side"), filled with the same load. All are built
    first, one after the other, and stay open; then their queries are measured in turns, so that a
    busy moment of the machine hits all of them alike."""
    query_count = run.scaled(_QUERY_COUNT, minimum=MIN_P99_QUERIES)
    queries = make_trace("zipf", load.expected, query_count, run.seed).queries
    rows: dict[str, Row] = {}
    sources: dict[str, Source] = {}  # by side: the open index
    with ExitStack() as closing:
        for name, side in sides.items():
            run.report_progress(f"{shape}: {name}")
            directory = run.directory / name
            memory, row = _measure_build(run, side, load, directory)
            closing.callback(shutil.rmtree, directory)  # after the index in it is closed
            if side.open_index is not None:  # it has files, not only a memtable
                row["open"] = measure_milliseconds(partial(side.open_once, directory), run.rounds)
            sources[name] = closing.enter_context(side.open_source(directory, memory))
            rows[name] = row | _measure_first_reads(sources[name], load, queries)
        latencies = _measure_queries(run, sources, load, queries)
    for name, row in rows.items():
        yield {"shape": shape, "side": name, **row, **latencies[name]}


def measure(run: LabRun) -> Iterator[Row]:
    """Yield a row for each index implementation ("side") and each load: loads differ in shape, such
    as few large ledgers or many small ones, and a dump is one more. RocksDB with other options than
    a bookie's is measured for one shape."""
    count = run.scaled(ENTRIES, minimum=600)
    loads = {shape: make_index_load(shape, count, run.seed) for shape in SHAPES}
    if run.dump is not None:
        loads[DUMP_SHAPE] = read_index_load(run.dump, count)
    all_sides = choose_sides(run.options, INDEX_SIDES | TUNED_SIDES)
    shape_sides = {name: side for name, side in all_sides.items() if name not in TUNED_SIDES}
    sides_of = {shape: all_sides if shape == DETAILED_SHAPE else shape_sides for shape in loads}
    run.expect_steps(sum(map(len, sides_of.values())))
    for shape, load in loads.items():
        yield from _rows(run, shape, sides_of[shape], load)


def summarize(rows: Rows) -> list[str]:
    """Return the findings, one sentence each, that follow from the rows. The column "shape" is the
    load, "side" the index implementation."""
    by_key = {(row["shape"], row["side"]): row for row in rows}
    sides = {row["side"] for row in rows}
    sentences = _describe_layouts(by_key) if {"idx files", "rocksdb"} <= sides else []
    tuned = [row for row in rows if row["side"] in TUNED_SIDES]
    if tuned:
        smallest = min(tuned, key=lambda row: row["bytes_per_entry"])
        sentences.append(
            f"Of RocksDB's options tried, {smallest['side']} gives the smallest index: "
            f"{as_text(smallest['bytes_per_entry'])} bytes an entry."
        )
    return [*sentences, *_describe_dump(by_key), *_describe_own_sides(by_key)]


def _describe_layouts(by_key: dict[tuple[str, str], Row]) -> list[str]:
    """Return sentences that compare index files with RocksDB, by rows of shape and side."""

    def ratio(column: str, numerator: str, denominator: str, shape: str) -> float:
        return float(by_key[shape, numerator][column] / by_key[shape, denominator][column])

    large, small = DETAILED_SHAPE, "many small"
    idx = by_key[large, "idx files"]
    return [
        f"Of few large ledgers index files take {as_text(idx['bytes_per_entry'])} bytes an entry, "
        f"RocksDB {as_text(by_key[large, 'rocksdb']['bytes_per_entry'])}; of many small ones "
        f"{as_text(by_key[small, 'idx files']['bytes_per_entry'])} and "
        f"{as_text(by_key[small, 'rocksdb']['bytes_per_entry'])}.",
        f"A single read of RocksDB takes "
        f"{compare(ratio('point_p50', 'rocksdb', 'idx files', large), 'long')} as one of index "
        f"files, the availability of a large ledger "
        f"{compare(ratio('availability_p50', 'rocksdb', 'idx files', large), 'long')}.",
        f"Many small ledgers are written to RocksDB "
        f"{compare(ratio('write_rate', 'rocksdb', 'idx files', small), 'fast')} as to files, few "
        f"large ones {compare(ratio('write_rate', 'rocksdb', 'idx files', large), 'fast')}.",
    ]


def _describe_own_sides(by_key: dict[tuple[str, str], Row]) -> list[str]:
    """Return a sentence for each index of the user's, compared with index files if those were
    measured too (--only may leave them out)."""
    sentences = []
    for (shape, side), row in by_key.items():
        if shape != DETAILED_SHAPE or side in INDEX_SIDES or side in TUNED_SIDES:
            continue
        sentence = (
            f"Of few large ledgers {side} takes {as_text(row['bytes_per_entry'])} bytes an entry"
        )
        idx = by_key.get((shape, "idx files"))
        if idx is not None:
            sentence += (
                f"; it is written {compare(row['write_rate'] / idx['write_rate'], 'fast')} as "
                f"index files, and a single read takes "
                f"{compare(row['point_p50'] / idx['point_p50'], 'long')}"
            )
        sentences.append(f"{sentence}.")
    return sentences


def _describe_dump(by_key: dict[tuple[str, str], Row]) -> list[str]:
    """Return a sentence that compares index files with RocksDB for the ledgers of a dump, if both
    were measured with one."""
    files, rocks = (by_key.get((DUMP_SHAPE, side)) for side in ("idx files", "rocksdb"))
    if files is None or rocks is None:
        return []
    return [
        f"The dump's {files['entries']:,} entries in {format_count(files['ledgers'], 'ledger')} "
        f"take {as_text(files['bytes_per_entry'])} bytes each in index files, "
        f"{as_text(rocks['bytes_per_entry'])} in RocksDB, which takes "
        f"{compare(rocks['point_p50'] / files['point_p50'], 'long')} for a single read and "
        f"{compare(rocks['availability_p50'] / files['availability_p50'], 'long')} for an "
        "availability."
    ]


def _shape_panel(title: str, y: str, high: str | None = None, log: Literal["", "y"] = "") -> Panel:
    tuned = {"side": tuple(TUNED_SIDES)}
    return Panel(title, "shape", y, "side", tick_column=high, log=log, leave_out=tuned)


def _option_panel(title: str, y: str, high: str | None = None) -> Panel:
    selection = {"shape": DETAILED_SHAPE, "side": ("rocksdb", *TUNED_SIDES)}
    return Panel(title, "side", y, None, selection, high, min_rows=2)


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
        ResultColumn("shape", "ledgers", kind="given"),
        ResultColumn("side", "layout", kind="given"),
        ResultColumn("entries", "entries", kind="count"),
        ResultColumn("ledgers", "ledgers", kind="count"),
        ResultColumn("listed", "entries listed", kind="count"),
        ResultColumn("bytes_per_entry", "index", "bytes an entry"),
        ResultColumn("files", "files"),
        ResultColumn("write_rate", "written", "k entries/CPU s"),
        ResultColumn("written_per_entry", "given to the system", "bytes an entry"),
        ResultColumn("open", "opening", "ms"),
        ResultColumn("read_per_get", "first reads", "bytes a read"),
        ResultColumn("point_p50", "single read, p50", "us"),
        ResultColumn("point_p99", "single read, p99", "us"),
        ResultColumn("batch_p50", "batch, p50", "us"),
        ResultColumn("batch_p99", "batch, p99", "us"),
        ResultColumn("availability_p50", "availability, p50", "us"),
        ResultColumn("availability_p99", "availability, p99", "us"),
    ),
    panels=(
        _shape_panel("Size", "bytes_per_entry", log="y"),
        _shape_panel("Writing", "write_rate", log="y"),
        _shape_panel("Single reads (tick: p99)", "point_p50", "point_p99"),
        _shape_panel(
            "Availability of a ledger (tick: p99)", "availability_p50", "availability_p99", "y"
        ),
        _option_panel("RocksDB's options: size", "bytes_per_entry"),
        _option_panel("RocksDB's options: single reads (tick: p99)", "point_p50", "point_p99"),
    ),
    measure=measure,
    summarize=summarize,
    data_sources=("dump",),
    add_options=add_side_options,
)
