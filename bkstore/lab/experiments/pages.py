"""The page size of index files, and a pool of their pages in memory: `bkstore lab pages`. Index
files grow by whole pages, so that sparse or short ledgers take up space for slots that they do not
use. The pool keeps the most recently used pages."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import lru_cache, partial
from pathlib import Path

from bkstore.formats.idxfile import HEADER_SIZE, SLOT_SIZE
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.lab.experiment import Experiment, LabRun, Panel, ResultColumn, Row, Rows
from bkstore.lab.measuring.latencies_and_costs import (
    QuerySet,
    measure_files,
    measure_latencies_of,
    run_in_turns,
)
from bkstore.lab.measuring.timing import TimedSide
from bkstore.lab.number_format import as_text
from bkstore.lab.workloads.traces import TRACES, Trace, make_trace
from bkstore.testing import generators

ENTRIES, _READ_COUNT = 30_000, 10_000
PAGE_SIZES = (1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10)
POOL_SHARES = (0.01, 0.03, 0.1, 0.3)
"""Pool sizes as shares of the files' bytes; those below one page are left out."""

_USUAL_PERCENT = POOL_SHARES[-2] * 100

Ledgers = dict[LedgerId, Int64Array]


def make_ledgers(shape: str, entry_count: int, seed: int) -> Ledgers:
    """Return the entry ids of each ledger: about `entry_count` entries in total for "short".
    "short" has ledgers of 60 entries; "long" has three ledgers with ten times as many in total;
    "scattered" has three with one entry in 1,000, as on a bookie of single fragments."""
    if shape == "short":
        entry_ids = [generators.contiguous(60) for _ in range(entry_count // 60)]
    elif shape == "long":
        entry_ids = [generators.contiguous(10 * entry_count // 3) for _ in range(3)]
    else:
        count = max(entry_count // 100, 30)
        entry_ids = [generators.sparse(count, 1000 * count, seed + i) for i in range(3)]
    return {LedgerId(0, number): ids for number, ids in enumerate(entry_ids)}


SHAPES = ("short", "long", "scattered")

_SLOT = struct.Struct(">q")


class PagePool:
    """A reader of index files that keeps up to `max_pages` pages in memory."""

    def __init__(self, index: HierarchicalIndex, page_size: int, max_pages: int) -> None:
        """Keep up to `max_pages` pages of index files, the last used ones."""
        self._index = index
        self._slots_per_page = page_size // SLOT_SIZE
        self._fds: dict[LedgerId, int] = {}
        self.bytes_read = 0
        self.page = lru_cache(max_pages)(self._read_page)

    def _read_page(self, ledger_id: LedgerId, page_number: int) -> bytes:
        """Read a page of a ledger's index file, which stays open until `close`."""
        fd = self._fds.get(ledger_id)
        if fd is None:
            path = self._index.path(ledger_id)
            assert path is not None
            fd = self._fds[ledger_id] = os.open(path, os.O_RDONLY)
        page_bytes = self._slots_per_page * SLOT_SIZE
        data = os.pread(fd, page_bytes, HEADER_SIZE + page_number * page_bytes)
        self.bytes_read += len(data)
        return data

    def get(self, ledger: LedgerId, entry: int) -> int:
        """Return the location of one entry, 0 if absent."""
        page_number, slot = divmod(entry, self._slots_per_page)
        location: int = _SLOT.unpack_from(self.page(ledger, page_number), slot * SLOT_SIZE)[0]
        return location

    def close(self) -> None:
        """Close the files."""
        while self._fds:
            os.close(self._fds.popitem()[1])


def _clear_directory(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    return directory


def _write_index(ledgers: Ledgers, seed: int, page_size: int, directory: Path) -> None:
    with HierarchicalIndex(directory, writable=True, page_size=page_size) as index:
        for ledger_id, ids in ledgers.items():
            index.put_many(ledger_id, ids, generators.locations(ids.size, seed))


def _measure_sizes(
    run: LabRun, shape: str, ledgers: Ledgers, directories: dict[int, Path]
) -> Iterator[Row]:
    """Write the files of every page size; yield a row for each: bytes of the files, bytes on disk
    (sparse files have fewer), and the rate of writing."""
    entries = sum(ids.size for ids in ledgers.values())
    sides = [
        TimedSide(
            str(page_size),
            run=partial(_write_index, ledgers, run.seed, page_size),
            setup=partial(_clear_directory, directory),
        )
        for page_size, directory in directories.items()
    ]
    for (page_size, directory), result in zip(directories.items(), run_in_turns(sides, run.rounds)):
        files = measure_files(directory)
        yield {
            "shape": shape,
            "page": page_size >> 10,
            "trace": "",
            "pool": 0.0,
            "entries": entries,
            "bytes_per_entry": files.bytes / entries,
            "disk_per_entry": files.on_disk / entries,
            "write_rate": entries / result.cost.cpu / 1e3,
        }


def _count_hits(pool: PagePool, reads: Trace) -> Row:
    """Run all reads of a trace through an empty pool. Return the columns of the pool: its size in
    pages, the share of reads whose page it had, and the pages and bytes that were read."""
    read_count = len(reads.queries)
    for query in reads.queries:
        if not pool.get(*query):
            raise RuntimeError("an entry that was put is not found")
    info = pool.page.cache_info()
    return {
        "held": info.maxsize,
        "hit_ratio": info.hits / read_count,
        "pages_read": info.misses,
        "read_per_get": pool.bytes_read / read_count,
    }


def _measure_pools(
    run: LabRun, directories: dict[int, Path], trace_name: str, reads: Trace
) -> Iterator[Row]:
    """Yield a row for each page size and each pool, whose size is a share of the files; pools that
    are smaller than one page are left out. Latencies of all pools are measured in turns."""
    rows: dict[str, Row] = {}
    query_sets: dict[str, QuerySet] = {}
    with ExitStack() as open_files:
        for page_size, directory in directories.items():
            index = open_files.enter_context(HierarchicalIndex(directory, page_size=page_size))
            for share in POOL_SHARES:
                max_pages = int(measure_files(directory).bytes * share) // page_size
                if not max_pages:
                    continue
                pool = open_files.enter_context(closing(PagePool(index, page_size, max_pages)))
                key = {"shape": "long", "page": page_size >> 10, "pool": share * 100}
                pool_name = f"{page_size} {share}"
                rows[pool_name] = key | _count_hits(pool, reads)
                query_sets[pool_name] = QuerySet(partial(_get, pool), reads.queries)
        latencies = measure_latencies_of(query_sets, run.rounds) if query_sets else {}
    for pool_name, row in rows.items():
        p50, p99 = latencies[pool_name]
        yield {**row, "trace": trace_name, "get_p50": p50, "get_p99": p99}


def _get(pool: PagePool, query: tuple[LedgerId, int]) -> int:
    return pool.get(*query)


def measure(run: LabRun) -> Iterator[Row]:
    """Yield a row for each shape and page size; of long ledgers one for each pool and trace."""
    entry_count = run.scaled(ENTRIES, minimum=600)
    directories = {page_size: run.directory / f"{page_size}" for page_size in PAGE_SIZES}
    run.expect_steps(len(SHAPES) + len(TRACES))
    for shape in SHAPES:
        run.report_progress(f"{shape}: writing")
        ledgers = make_ledgers(shape, entry_count, run.seed)
        yield from _measure_sizes(run, shape, ledgers, directories)
        for trace_name in TRACES if shape == "long" else ():
            run.report_progress(f"{shape}: {trace_name}")
            reads = make_trace(trace_name, ledgers, run.scaled(_READ_COUNT, minimum=200), run.seed)
            yield from _measure_pools(run, directories, trace_name, reads)
        for directory in directories.values():
            shutil.rmtree(directory)


def summarize(rows: Rows) -> list[str]:
    """Return the findings, one sentence each, that follow from the rows."""
    row_of = {(row["shape"], row["page"]): row for row in rows if not row["trace"]}
    best_page = {}
    for shape in SHAPES:
        best = min((row for row in row_of.values() if row["shape"] == shape), key=_disk_bytes)
        best_page[shape] = best["page"]
    return [
        f"Ledgers of 60 entries take {as_text(_disk_bytes(row_of['short', 8]))} bytes an entry "
        f"with pages of 8 KiB, {as_text(_disk_bytes(row_of['short', 1]))} with pages of 1 KiB; "
        f"long ones {as_text(_disk_bytes(row_of['long', 8]))} and "
        f"{as_text(_disk_bytes(row_of['long', 1]))}.",
        f"Smallest on disk are pages of {', '.join(f'{best_page[s]} KiB ({s})' for s in SHAPES)}.",
        _describe_pools([row for row in rows if row["trace"]]),
    ]


def _describe_pools(rows: Rows) -> str:
    """Return a sentence on what a pool of 10 % answers. If that was too small for a page of 8 KiB,
    it is the next larger pool that has room for one."""
    percents = {row["pool"] for row in rows if row["page"] == 8 and row["pool"] >= _USUAL_PERCENT}
    if not percents:
        return "No pool that was tried has room for a page of 8 KiB."
    percent = min(percents)
    pool_rows = [row for row in rows if row["pool"] == percent]
    hit_ratio = {(row["trace"], row["page"]): row["hit_ratio"] for row in pool_rows}
    best_page = max((page for _, page in hit_ratio), key=lambda page: hit_ratio["zipf", page])
    return (
        f"A pool of {percent:g} % of the files answers {hit_ratio['zipf', 8]:.0%} of reads by "
        f"Zipf's law from pages of 8 KiB, {hit_ratio['zipf', best_page]:.0%} from pages of "
        f"{best_page} KiB, and {hit_ratio['sequential', 8]:.1%} of reads one behind the other."
    )


def _disk_bytes(row: Row) -> float:
    return float(row["disk_per_entry"])


EXPERIMENT = Experiment(
    name="pages",
    question="Which page size for index files, and how large a pool of pages?",
    method=(
        "Files are written by HierarchicalIndex, a ledger a call, flushed and closed; the rate is "
        "by CPU seconds of the process, the median of the rounds, in which page sizes take turns. "
        "Sizes are those of the files, and what the disk gave them: holes take none. The pool "
        "reads pages with pread and keeps the most recently used, as many as fit into a share of "
        "the files' bytes; a share that has no room for a page is left out. Hits and pages read "
        "are counted, from an empty pool on. Latencies are wall time, of each read the median of "
        "the rounds, in which all pools take turns."
    ),
    data=(
        "30,000 entries at scale 1: ledgers of 60 entries; ten times as many in three long "
        "ledgers; three of which one entry in 1,000 is here (3 % as many). 10,000 reads of the "
        "long ledgers: by Zipf's law, uniform, and by four sequential readers."
    ),
    columns=(
        ResultColumn("shape", "ledgers", kind="given"),
        ResultColumn("page", "page", "KiB", "given"),
        ResultColumn("trace", "reads", kind="given"),
        ResultColumn("pool", "pool", "% of the files", "given"),
        ResultColumn("entries", "entries", kind="count"),
        ResultColumn("bytes_per_entry", "files", "bytes an entry", "count"),
        ResultColumn("disk_per_entry", "on disk", "bytes an entry"),
        ResultColumn("write_rate", "written", "k entries/CPU s"),
        ResultColumn("held", "room", "pages", "count"),
        ResultColumn("hit_ratio", "hits", "share", "count"),
        ResultColumn("pages_read", "pages read", kind="count"),
        ResultColumn("read_per_get", "read", "bytes a get", "count"),
        ResultColumn("get_p50", "get, p50", "us"),
        ResultColumn("get_p99", "get, p99", "us"),
    ),
    panels=(
        Panel("Bytes on disk by page size", "page", "disk_per_entry", "shape", log="xy"),
        Panel("Writing", "page", "write_rate", "shape", log="xy"),
        Panel(
            "Pages of 8 KiB: hits by room",
            "pool",
            "hit_ratio",
            "trace",
            {"page": 8, "trace": tuple(TRACES)},
            log="x",
        ),
        Panel(
            f"A pool of {_USUAL_PERCENT:g} %: bytes read by page size",
            "page",
            "read_per_get",
            "trace",
            {"pool": _USUAL_PERCENT},
            log="x",
        ),
    ),
    measure=measure,
    summarize=summarize,
)
