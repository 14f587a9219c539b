"""Row: listing many ledgers in one call, compared with bare system calls and a call for each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from bkstore.formats.idxfile import DEFAULT_PAGE_SIZE, IdxHeader, encode_header, index_path
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from tools.bench.cases import BenchmarkRow, Case, Cases, Context, Fact, TimedSide
from tools.bench.inputs.entry_ids import new_directory
from tools.bench.inputs.own_memory import peak_allocated

FILES = 100_000
_ROCKS_LEDGERS, _ROCKS_ENTRIES = 5_000, 333
_READ_BYTES = 16 << 10


def write_one_entry_files(directory: Path, ledgers: int) -> list[str]:
    """Write an index file with one entry and one page for each ledger; return the paths."""
    header = encode_header(IdxHeader(b"k" * 20))
    page = np.zeros(DEFAULT_PAGE_SIZE // 8, ">i8")
    paths = []
    for ledger in range(ledgers):
        path = os.path.join(directory, "current", index_path(LedgerId(0, ledger)))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        page[:] = 0
        page[ledger % 7] = 1028 + ledger  # the entry's location
        with open(path, "wb") as file:
            file.write(header + page.tobytes())
        paths.append(path)
    return paths


def read_files(paths: list[str]) -> None:
    """Open, read and close each file, and ignore the bytes."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.read(fd, _READ_BYTES)
        os.close(fd)


def find_and_read_files(directory: Path) -> None:
    """Find the files in directories two levels deep, then read them."""
    paths = []
    for upper_dir in os.scandir(directory / "current"):
        for lower_dir in os.scandir(upper_dir.path):
            paths += [file.path for file in os.scandir(lower_dir.path)]
    read_files(paths)


def _list_in_one_call(index: EntryIndex, ledger_ids: list[LedgerId] | None = None) -> int:
    return sum(1 for _ in index.availability_many(ledger_ids))


def _list_one_by_one(index: EntryIndex, ledger_ids: list[LedgerId]) -> None:
    for ledger_id in ledger_ids:
        index.availability(ledger_id)


def _memory_facts(index: EntryIndex, ledger_ids: list[LedgerId]) -> list[Fact]:
    facts = []
    for listed in (ledger_ids[: len(ledger_ids) // 10], ledger_ids):
        peak = peak_allocated(partial(_list_in_one_call, index, listed))
        facts.append(Fact(f"KiB held while {len(listed)} ledgers are listed", round(peak / 1024)))
    return facts


def _index_file_cases(directory: Path, count: int) -> Iterator[Case]:
    paths = write_one_entry_files(directory, count)
    shape = f"{count} index files of one page and one entry"

    def open_and_list() -> int:
        with HierarchicalIndex(directory) as index:
            return _list_in_one_call(index)

    read_loop = TimedSide("os.open, os.read, os.close, paths known", lambda: read_files(paths))
    with HierarchicalIndex(directory) as index:
        ledger_ids = index.ledgers()
        ours = TimedSide("availability_many", lambda: _list_in_one_call(index))
        facts = partial(_memory_facts, index, ledger_ids)
        case_name, baselines = "index files, names known", (read_loop,)
        yield Case(case_name, count, shape, ours, baselines, limit=2, kind="cost", facts=facts)
        first_ledgers = ledger_ids[: max(count // 10, 1)]
        ours = TimedSide("availability_many", lambda: _list_in_one_call(index, first_ledgers))
        one_by_one = TimedSide("availability", lambda: _list_one_by_one(index, first_ledgers))
        case_name, first_count = "index files, a call for each", len(first_ledgers)
        yield Case(case_name, first_count, f"{first_count} of them", ours, (one_by_one,))
    ours = TimedSide("open, ledgers, availability_many", open_and_list)
    yield Case("index files, opening", count, shape, ours, (read_loop,), kind="cost")
    walk = TimedSide("os.scandir, then the loop", lambda: find_and_read_files(directory))
    case_name = "index files, opening, beside a walk"
    yield Case(case_name, count, shape, ours, (walk,), limit=2, kind="cost")


def _rocks_cases(directory: Path, count: int) -> Iterator[Case]:
    ids = np.arange(_ROCKS_ENTRIES * 3 // 2)
    ids = ids[ids % 3 != 0]  # two of three
    with RocksIndex(directory, writable=True) as index:
        for ledger in range(count):
            index.put_many(ledger, ids, 1028 + 104 * ids)
    with RocksIndex(directory) as index:
        case_name, ledger_ids = "RocksDB, a call for each", index.ledgers()
        shape = f"{count} ledgers of {ids.size} entries, 2-of-3 striped"
        ours = TimedSide("availability_many", lambda: _list_in_one_call(index))
        one_by_one = TimedSide("availability", lambda: _list_one_by_one(index, ledger_ids))
        facts = partial(_memory_facts, index, ledger_ids)
        yield Case(case_name, count * ids.size, shape, ours, (one_by_one,), facts=facts)


def _listing_cases(context: Context) -> Cases:
    yield from _index_file_cases(new_directory(context), context.scaled(FILES))
    yield from _rocks_cases(new_directory(context), context.scaled(_ROCKS_LEDGERS))


ROWS = (
    BenchmarkRow(
        "listing",
        "listings of many ledgers",
        "One `availability_many` over all ledgers, each answer taken and dropped. Beside it, for "
        "files of one entry, a loop that opens, reads and closes the same files and looks at "
        "nothing; from the opening on, ours has to find the files too, in 65,536 folders, and so "
        "does the walk. A call for each: `availability` of the same open index.",
        _listing_cases,
        long=True,
    ),
)
