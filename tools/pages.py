"""The page size of index files, and a pool of their pages in memory: `python -m tools.pages`.

Index files grow by whole pages, so that a sparse or short ledger pays for slots that it does not
have. The pool keeps pages that were read, the least recently used goes first.
"""

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
from bkstore.testing import generators
from tools.lab import Column, Experiment, Panel, Row, Run, main
from tools.lab.experiment import Rows
from tools.lab.samples import Asking, done_in_turns, files_below, latencies_of
from tools.lab.sides import Side
from tools.lab.table import shown
from tools.lab.workloads.traces import TRACES, Trace, trace

ENTRIES, _READS = 30_000, 10_000
PAGE_SIZES = (1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10)
POOL_SHARES = (0.01, 0.03, 0.1, 0.3)
"""Rooms of the pool, as shares of the files' bytes; one without room for a page is left out."""

_USUAL_POOL = POOL_SHARES[-2] * 100

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


_SLOT = struct.Struct(">q")


class PagePool:
    """Slots of index files, through pages of which `most` stay in memory."""

    def __init__(self, index: HierarchicalIndex, page_size: int, most: int) -> None:
        self._index = index
        self._slots = page_size // SLOT_SIZE
        self._fds: dict[LedgerId, int] = {}
        self.bytes_read = 0
        self.page = lru_cache(most)(self._read)

    def _read(self, ledger: LedgerId, number: int) -> bytes:
        fd = self._fds.get(ledger)
        if fd is None:
            path = self._index.path(ledger)
            assert path is not None
            fd = self._fds[ledger] = os.open(path, os.O_RDONLY)
        size = self._slots * SLOT_SIZE
        data = os.pread(fd, size, HEADER_SIZE + number * size)
        self.bytes_read += len(data)
        return data

    def get(self, ledger: LedgerId, entry: int) -> int:
        """Return the location of one entry, 0 if absent."""
        number, slot = divmod(entry, self._slots)
        location: int = _SLOT.unpack_from(self.page(ledger, number), slot * SLOT_SIZE)[0]
        return location

    def close(self) -> None:
        """Close the files."""
        while self._fds:
            os.close(self._fds.popitem()[1])


def _emptied(top: Path) -> Path:
    shutil.rmtree(top, ignore_errors=True)
    return top


def _write(ledgers: Ledgers, seed: int, page_size: int, top: Path) -> None:
    with HierarchicalIndex(top, writable=True, page_size=page_size) as index:
        for ledger, ids in ledgers.items():
            index.put_many(ledger, ids, generators.locations(ids.size, seed))


def _sizes(run: Run, shape: str, ledgers: Ledgers, tops: dict[int, Path]) -> Iterator[Row]:
    """Write the files of every page size; yield what they take, and how fast they are written."""
    entries = sum(ids.size for ids in ledgers.values())
    works = [
        Side(str(page), partial(_write, ledgers, run.seed, page), partial(_emptied, top))
        for page, top in tops.items()
    ]
    for (page, top), done in zip(tops.items(), done_in_turns(works, run.rounds)):
        files = files_below(top)
        yield {
            "shape": shape,
            "page": page >> 10,
            "trace": "",
            "pool": 0.0,
            "entries": entries,
            "bytes_per_entry": files.bytes / entries,
            "disk_per_entry": files.on_disk / entries,
            "write_rate": entries / done.spent.cpu / 1e3,
        }


def _hits(pool: PagePool, reads: Trace) -> Row:
    """Return what an empty pool of pages does with a trace."""
    asked = len(reads.queries)
    for query in reads.queries:
        if not pool.get(*query):
            raise RuntimeError("an entry that was put is not found")
    info = pool.page.cache_info()
    return {
        "held": info.maxsize,
        "hit_ratio": info.hits / asked,
        "pages_read": info.misses,
        "read_per_get": pool.bytes_read / asked,
    }


def _pools(run: Run, tops: dict[int, Path], name: str, reads: Trace) -> Iterator[Row]:
    """Yield a row for each page size and pool that a page fits into, asked beside each other."""
    rows: dict[str, Row] = {}
    askings: dict[str, Asking] = {}
    with ExitStack() as held:
        for page, top in tops.items():
            index = held.enter_context(HierarchicalIndex(top, page_size=page))
            for share in POOL_SHARES:
                most = int(files_below(top).bytes * share) // page
                if not most:
                    continue
                pool = held.enter_context(closing(PagePool(index, page, most)))
                key = {"shape": "long", "page": page >> 10, "trace": name, "pool": share * 100}
                rows[f"{page} {share}"] = key | _hits(pool, reads)
                askings[f"{page} {share}"] = Asking(partial(_got, pool), reads.queries)
        taken = latencies_of(askings, run.rounds) if askings else {}
    for side, row in rows.items():
        yield {**row, "get_p50": taken[side].p50, "get_p99": taken[side].p99}


def _got(pool: PagePool, query: tuple[LedgerId, int]) -> int:
    return pool.get(*query)


def measure(run: Run) -> Iterator[Row]:
    """Yield a row for each shape and page size; of long ledgers one for each pool and trace."""
    count, tops = run.scaled(ENTRIES, 600), {page: run.directory / f"{page}" for page in PAGE_SIZES}
    for shape in SHAPES:
        run.tell(f"{shape}: writing")
        ledgers = ledgers_of(shape, count, run.seed)
        yield from _sizes(run, shape, ledgers, tops)
        for name in TRACES if shape == "long" else ():
            run.tell(f"{shape}: {name}")
            reads = trace(name, ledgers, run.scaled(_READS, 200), run.seed)
            yield from _pools(run, tops, name, reads)
        for top in tops.values():
            shutil.rmtree(top)


def found(rows: Rows) -> list[str]:
    """Return what the rows come to."""
    size = {(row["shape"], row["page"]): row for row in rows if not row["trace"]}
    best = {
        shape: min((row for row in size.values() if row["shape"] == shape), key=_bytes)["page"]
        for shape in SHAPES
    }
    return [
        f"Ledgers of 60 entries take {shown(_bytes(size['short', 8]))} bytes an entry with "
        f"pages of 8 KiB, {shown(_bytes(size['short', 1]))} with pages of 1 KiB; long ones "
        f"{shown(_bytes(size['long', 8]))} and {shown(_bytes(size['long', 1]))}.",
        f"Smallest on disk are pages of {', '.join(f'{best[s]} KiB ({s})' for s in SHAPES)}.",
        _found_in_pools([row for row in rows if row["trace"]]),
    ]


def _found_in_pools(rows: Rows) -> str:
    """Say what a pool of 10 % answers, or the smallest above it that has a page of 8 KiB."""
    shares = {row["pool"] for row in rows if row["page"] == 8 and row["pool"] >= _USUAL_POOL}
    if not shares:
        return "No pool that was tried has room for a page of 8 KiB."
    share = min(shares)
    ratio = {(r["trace"], r["page"]): r["hit_ratio"] for r in rows if r["pool"] == share}
    kindest = max((page for _, page in ratio), key=lambda page: ratio["zipf", page])
    return (
        f"A pool of {share:g} % of the files answers {ratio['zipf', 8]:.0%} of reads by Zipf's "
        f"law from pages of 8 KiB, {ratio['zipf', kindest]:.0%} from pages of {kindest} KiB, and "
        f"{ratio['sequential', 8]:.1%} of reads one behind the other."
    )


def _bytes(row: Row) -> float:
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
        Column("shape", "ledgers", kind="given"),
        Column("page", "page", "KiB", "given"),
        Column("trace", "reads", kind="given"),
        Column("pool", "pool", "% of the files", "given"),
        Column("entries", "entries", kind="count"),
        Column("bytes_per_entry", "files", "bytes an entry", "count"),
        Column("disk_per_entry", "on disk", "bytes an entry"),
        Column("write_rate", "written", "k entries a CPU s"),
        Column("held", "room", "pages", "count"),
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
            f"A pool of {_USUAL_POOL:g} %: bytes read by page size",
            "page",
            "read_per_get",
            "trace",
            {"pool": _USUAL_POOL},
            log="x",
        ),
    ),
    measure=measure,
    found=found,
)


if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
