"""The page size of index files, and a pool of their pages in memory: `python -m tools.pages`.

Index files grow by whole pages, so that a sparse or short ledger pays for slots that it does not
have. The pool keeps pages that were read, the least recently used goes first.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from bkstore.ids import Int64Array, LedgerId
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.testing import generators
from tools.lab import Column, Experiment, Panel, Row, Run, main
from tools.lab.experiment import Rows
from tools.lab.samples import files_below, latency, spending
from tools.lab.stores.page_pool import PagePool
from tools.lab.table import shown
from tools.lab.workloads.traces import TRACES, Trace, trace

__all__ = ["EXPERIMENT", "PAGE_SIZES", "ledgers_of"]

ENTRIES, READS = 30_000, 10_000
PAGE_SIZES = (1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10)
KIB = tuple(size >> 10 for size in PAGE_SIZES)
POOL_SHARES = (0.01, 0.03, 0.1, 0.3)
"""Rooms of the pool, as shares of the files' bytes."""

Ledgers = dict[LedgerId, Int64Array]


def ledgers_of(shape: str, count: int, seed: int) -> Ledgers:
    """Return what each ledger holds: about `count` entries in all.

    "short": ledgers of 60 entries. "long": three, with ten times as many. "scattered": three, of
    which one entry in 1,000 is here, as after a bookie took part in single segments.
    """
    if shape == "short":
        return {LedgerId(0, at): generators.contiguous(60) for at in range(count // 60)}
    if shape == "long":
        return {LedgerId(0, at): generators.contiguous(10 * count // 3) for at in range(3)}
    few = max(count // 100, 30)
    return {LedgerId(0, at): generators.sparse(few, 1000 * few, seed + at) for at in range(3)}


SHAPES = ("short", "long", "scattered")


def _sizes(run: Run, page_size: int, ledgers: Ledgers) -> Row:
    """Return what the files of a shape take, and how fast they are written."""
    top, entries = run.directory / "index", sum(ids.size for ids in ledgers.values())
    shutil.rmtree(top, ignore_errors=True)
    with spending() as cost, HierarchicalIndex(top, writable=True, page_size=page_size) as index:
        for ledger, ids in ledgers.items():
            index.put_many(ledger, ids, generators.locations(ids.size, run.seed))
    files = files_below(top)
    return {
        "entries": entries,
        "bytes_per_entry": files.bytes / entries,
        "disk_per_entry": files.on_disk / entries,
        "write_rate": entries / cost.cpu / 1e3,
    }


def _pooled(run: Run, top: Path, page_size: int, share: float, reads: Trace) -> Row:
    """Return what a pool of pages does with a trace."""
    room = int(files_below(top).bytes * share)
    with HierarchicalIndex(top, page_size=page_size) as index:
        pool = PagePool(index, page_size, room // page_size)
        try:
            for query in reads.queries:
                if not pool.get(*query):
                    raise RuntimeError("an entry that was put is not found")
            info, read = pool.page.cache_info(), pool.bytes_read
            asked = len(reads.queries)
            took = latency(lambda query: pool.get(*query), reads.queries, min(run.rounds, 3))
        finally:
            pool.close()
    return {
        "hit_ratio": info.hits / asked,
        "pages_read": info.misses,
        "read_per_get": read / asked,
        "get_p50": took.p50,
        "get_p99": took.p99,
    }


def measure(run: Run) -> Iterator[Row]:
    """Yield a row for each shape and page size; of short ledgers one for each pool and trace."""
    count = run.scaled(ENTRIES, 600)
    for shape in SHAPES:
        ledgers = ledgers_of(shape, count, run.seed)
        for page_size in PAGE_SIZES:
            run.tell(f"{shape}: pages of {page_size} bytes")
            sizes = _sizes(run, page_size, ledgers)
            yield {"shape": shape, "page": page_size >> 10, "trace": "", "pool": 0.0, **sizes}
            if shape == "long":
                reads = {
                    name: trace(name, ledgers, run.scaled(READS, 200), run.seed) for name in TRACES
                }
                top = run.directory / "index"
                yield from _pools(run, top, page_size, reads)


def _pools(
    run: Run,
    top: Path,
    page_size: int,
    reads: dict[str, Trace],
    shares: Sequence[float] = POOL_SHARES,
) -> Iterator[Row]:
    for name, asked in reads.items():
        for share in shares:
            row = _pooled(run, top, page_size, share, asked)
            yield {
                "shape": "long",
                "page": page_size >> 10,
                "trace": name,
                "pool": share * 100,
                **row,
            }


def found(rows: Rows) -> list[str]:
    """Return what the rows come to."""
    size = {(row["shape"], row["page"]): row for row in rows if not row["trace"]}
    best = {
        shape: min((row for row in size.values() if row["shape"] == shape), key=_bytes)["page"]
        for shape in SHAPES
    }
    pools = {(row["page"], row["trace"], row["pool"]): row for row in rows if row["trace"]}
    share = POOL_SHARES[-2] * 100
    zipf = {page: pools[page, "zipf", share] for page in KIB}
    kindest = max(zipf.values(), key=lambda row: row["hit_ratio"])
    usual, straight = zipf[8], pools[8, "sequential", share]
    return [
        f"Ledgers of 60 entries take {shown(_bytes(size['short', 8]))} bytes an entry with "
        f"pages of 8 KiB, {shown(_bytes(size['short', 1]))} with pages of 1 KiB; long ones "
        f"{shown(_bytes(size['long', 8]))} and {shown(_bytes(size['long', 1]))}.",
        f"Smallest on disk are pages of {', '.join(f'{best[s]} KiB ({s})' for s in SHAPES)}.",
        f"A pool of {share:g} % of the files answers {usual['hit_ratio']:.0%} of reads by Zipf's "
        f"law from pages of 8 KiB, {kindest['hit_ratio']:.0%} from pages of {kindest['page']} "
        f"KiB, and {straight['hit_ratio']:.1%} of reads one behind the other.",
    ]


def _bytes(row: Row) -> float:
    return float(row["disk_per_entry"])


EXPERIMENT = Experiment(
    name="pages",
    question="Which page size for index files, and how large a pool of pages?",
    method=(
        "Files are written once by HierarchicalIndex, a ledger a call, flushed and closed; the "
        "rate is by CPU seconds of the process. Sizes are those of the files, and what the disk "
        "gave them: holes take none. The pool reads pages with pread and keeps the most recently "
        "used, as many as fit into a share of the files' bytes; hits and pages read are counted, "
        "from an empty pool on. Latencies are wall time, of each read the median of three rounds."
    ),
    data=(
        "30,000 entries at scale 1: ledgers of 60 entries; ten times as many in three long "
        "ledgers; three of which one entry in 1,000 is here (3 % as many). 10,000 reads of the "
        "long ledgers: by Zipf's law, uniform, and by four sequential readers."
    ),
    columns=(
        Column("shape", "ledgers", kind="given"),
        Column("page", "page", "KiB", "given"),
        Column("trace", "reads", kind="given"),
        Column("pool", "pool", "% of the files", "given"),
        Column("entries", "entries", kind="count"),
        Column("bytes_per_entry", "files", "bytes an entry", "count"),
        Column("disk_per_entry", "on disk", "bytes an entry"),
        Column("write_rate", "written", "k entries a CPU s"),
        Column("hit_ratio", "hits", "share", "count"),
        Column("pages_read", "pages read", kind="count"),
        Column("read_per_get", "read", "bytes a get", "count"),
        Column("get_p50", "get, p50", "us"),
        Column("get_p99", "get, p99", "us"),
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
            "A pool of 10 %: bytes read by page size",
            "page",
            "read_per_get",
            "trace",
            {"pool": 10.0},
            log="x",
        ),
    ),
    measure=measure,
    found=found,
)


if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
