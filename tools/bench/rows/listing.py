"""Rows: listing many ledgers in one call, beside system calls alone and a call for each."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bkstore.formats.idxfile import DEFAULT_PAGE_SIZE, IdxHeader, encode_header, index_path
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from tools.bench.inputs.entry_ids import new_directory
from tools.bench.measure import Case, Context, Fact, Row, Side

FILES = 100_000
_ROCKS_LEDGERS, _ROCKS_ENTRIES = 5_000, 333


_READ = 16 << 10


def one_entry_files(top: Path, ledgers: int) -> list[str]:
    """Write ledgers 0..ledgers-1 of one entry, a page each; return the paths, in that order."""
    header = encode_header(IdxHeader(b"k" * 20))
    page = np.zeros(DEFAULT_PAGE_SIZE // 8, ">i8")
    paths = []
    for ledger in range(ledgers):
        path = os.path.join(top, "current", index_path(LedgerId(0, ledger)))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        page[:] = 0
        page[ledger % 7] = 1028 + ledger
        with open(path, "wb") as file:
            file.write(header + page.tobytes())
        paths.append(path)
    return paths


def bare_loop(paths: list[str]) -> None:
    """Open, read and close each file; nothing is made of the bytes."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.read(fd, _READ)
        os.close(fd)


def walk_and_loop(top: Path) -> None:
    """Find the files first, two folders deep, as they lie there."""
    paths = []
    for upper in os.scandir(top / "current"):
        for lower in os.scandir(upper.path):
            paths += [file.path for file in os.scandir(lower.path)]
    bare_loop(paths)


def _all(index: EntryIndex, names: list[LedgerId] | None = None) -> int:
    return sum(1 for _ in index.availability_many(names))


def _each(index: EntryIndex, names: list[LedgerId]) -> None:
    for name in names:
        index.availability(name)


def _peak(work: Callable[[], object]) -> int:
    """Return the bytes that were held at a time beyond those before, numpy's too."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def _memory(index: EntryIndex, names: list[LedgerId]) -> list[Fact]:
    few, many = names[: len(names) // 10], names
    return [
        Fact(f"KiB held while {len(some)} ledgers are listed", round(peak / 1024))
        for some in (few, many)
        for peak in [_peak(lambda some=some: _all(index, some))]  # type: ignore[misc]
    ]


def _files(top: Path, count: int) -> Iterator[Case]:
    paths = one_entry_files(top, count)
    shape = f"{count} index files of one page and one entry"

    def opened() -> int:
        with HierarchicalIndex(top) as index:
            return _all(index)

    bare = Side("os.open, os.read, os.close, paths known", lambda: bare_loop(paths))
    with HierarchicalIndex(top) as index:
        names = index.ledgers()
        yield Case(
            "index files, names known",
            count,
            shape,
            Side("availability_many", lambda: _all(index)),
            (bare,),
            2,
            "cost",
            facts=lambda: _memory(index, names),
        )
        some = names[: max(count // 10, 1)]
        yield Case(
            "index files, a call for each",
            len(some),
            f"{len(some)} of them",
            Side("availability_many", lambda: _all(index, some)),
            (Side("availability", lambda: _each(index, some)),),
            None,
        )
    ours = Side("open, ledgers, availability_many", opened)
    yield Case("index files, opening", count, shape, ours, (bare,), None, "cost")
    walk = Side("os.scandir, then the loop", lambda: walk_and_loop(top))
    yield Case("index files, opening, beside a walk", count, shape, ours, (walk,), 2, "cost")


def _rocks(top: Path, count: int) -> Iterator[Case]:
    ids = np.arange(_ROCKS_ENTRIES * 3 // 2)
    ids = ids[ids % 3 != 0]
    with RocksIndex(top, writable=True) as index:
        for ledger in range(count):
            index.put_many(ledger, ids, 1028 + 104 * ids)
    with RocksIndex(top) as index:
        names = index.ledgers()
        yield Case(
            "RocksDB, a call for each",
            count * ids.size,
            f"{count} ledgers of {ids.size} entries, 2-of-3 striped",
            Side("availability_many", lambda: _all(index)),
            (Side("availability", lambda: _each(index, names)),),
            None,
            facts=lambda: _memory(index, names),
        )


@contextmanager
def _listing(context: Context) -> Iterator[Iterator[Case]]:
    def cases() -> Iterator[Case]:
        yield from _files(new_directory(context), context.scaled(FILES))
        yield from _rocks(new_directory(context), context.scaled(_ROCKS_LEDGERS))

    yield cases()


ROWS = (
    Row(
        "listing",
        "listings of many ledgers",
        "One `availability_many` over all ledgers, each answer taken and dropped. Beside it, for "
        "files of one entry, a loop that opens, reads and closes the same files and looks at "
        "nothing; from the opening on, ours has to find the files too, in 65,536 folders, and so "
        "does the walk. A call for each: `availability` of the same open index.",
        _listing,
        long=True,
    ),
)
