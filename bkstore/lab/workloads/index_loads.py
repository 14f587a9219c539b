"""Index rows to write, in the order in which the flushes of a bookie would put them. Entries arrive
in the order of a workload of `bkstore.testing.workloads`, or as a dump recorded them. As in the
write cache of a bookie, the entries of each flush are sorted by ledger and entry, get consecutive
locations, and are put one ledger at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array, LedgerId, make_locations
from bkstore.offline.reading.dump_file import DumpFile, check_footer
from bkstore.offline.reading.file_locations import opened_parquet
from bkstore.offline.reading.open_dump import open_dump
from bkstore.tables.dump import DUMP_TABLES
from bkstore.testing import generators, workloads
from bkstore.testing.workloads import Arrivals, Workload

_DUMP_COLUMNS = ("scope_id", "ledger_id", "entry_id", "log_id", "position")

_ROWS_PER_FLUSH = 20_000  # the default number of rows that arrive between two flushes


class Put(NamedTuple):
    """Rows of one ledger: the arguments of one `put_many`."""

    ledger_id: LedgerId
    entry_ids: Int64Array
    locations: Int64Array


@dataclass(frozen=True)
class IndexLoad:
    """The puts of each flush, and the entry ids that each ledger must have at the end."""

    flushes: list[list[Put]]
    expected: dict[LedgerId, Int64Array]

    @property
    def puts(self) -> Iterator[Put]:
        """All puts, in order."""
        return (put for flush in self.flushes for put in flush)

    @property
    def entries(self) -> int:
        """The number of distinct rows at the end."""
        return sum(ids.size for ids in self.expected.values())


SHAPES: dict[str, Callable[[int, int], Workload]] = {
    "many small": lambda n, seed: workloads.ledger_shaped(max(n // 60, 1), n, skew=0, seed=seed),
    "few large": lambda n, seed: workloads.ledger_shaped(3, n, skew=0.5, seed=seed),
    "striped 2 of 3": lambda n, seed: workloads.striped(1, ledgers=3, entries=n // 2, seed=seed),
    "interleaved": lambda n, seed: workloads.interleaved(
        100, max(n // 100, 1), write_order="random", seed=seed
    ),
    "late, twice": lambda n, seed: workloads.late_and_duplicate(
        workloads.interleaved(100, max(n // 100, 1), seed=seed)
    ),
}
"""Workload shapes by name: functions of the approximate number of entries and the seed."""


def make_index_load(
    shape: str, entries: int, seed: int, rows_per_flush: int = _ROWS_PER_FLUSH
) -> IndexLoad:
    """Return about `entries` rows in a shape of `SHAPES`; raise `KeyError` for an unknown one."""
    workload = SHAPES[shape](entries, seed)
    return IndexLoad(_sort_flushes(workload.ids(rows_per_flush), seed), workload.expected)


def _sort_flushes(batches: Iterable[Arrivals], seed: int) -> list[list[Put]]:
    """Return the puts of each batch of arrivals: a put has the entries of one ledger, sorted, and
    their locations. A batch is a flush of a bookie's write cache, which sorts it by ledger and
    entry and writes an entry log of its own here."""
    flushes = []
    for log_id, arrivals in enumerate(batches):
        order = _flush_order(arrivals)
        locations = generators.locations(order.size, seed + log_id, log_id=log_id)
        flushes.append(list(_group_by_ledger(_take_rows(arrivals, order), locations)))
    return flushes


def _flush_order(rows: Arrivals) -> npt.NDArray[np.int64]:
    return np.lexsort((rows.entry, rows.ledger, rows.scope))


def _take_rows(rows: Arrivals, order: npt.NDArray[np.int64]) -> Arrivals:
    return Arrivals(rows.scope[order], rows.ledger[order], rows.entry[order])


def _group_by_ledger(rows: Arrivals, locations: Int64Array) -> Iterator[Put]:
    """Yield a put for each run of rows of one ledger."""
    is_new_ledger = (rows.ledger[1:] != rows.ledger[:-1]) | (rows.scope[1:] != rows.scope[:-1])
    bounds = [0, *(np.flatnonzero(is_new_ledger) + 1).tolist(), locations.size]
    for start, end in pairwise(bounds):
        ledger_id = LedgerId(int(rows.scope[start]), int(rows.ledger[start]))
        yield Put(ledger_id, rows.entry[start:end], locations[start:end])


def read_index_load(
    dump_path: Path, max_entries: int, rows_per_flush: int = _ROWS_PER_FLUSH
) -> IndexLoad:
    """Return the first `max_entries` entries of one bookie from a dump's table `entries`. It is the
    first bookie, by name, that has entries. Entries arrive in the order of the entry logs, by log
    and position, and have the recorded locations. Raises `InvalidArgument` if the path is not a
    dump or the dump has no entries, `MissingDependency` without pyarrow, and `CorruptionError` if a
    file contradicts the dump."""
    dump = open_dump(dump_path)
    files = [file for file in dump.files["entries"] if file.rows]
    if not files:
        raise InvalidArgument(f"{dump_path}: no entries in this dump")
    bookie = min(file.bookie for file in files)
    scope, ledger, entry, log, position = _read_columns(
        [file for file in files if file.bookie == bookie]
    )
    # Sort the entries as they arrived; then cut them into flushes, each sorted by ledger and entry.
    arrival_order = np.lexsort((position, log))[:max_entries]
    arrivals = Arrivals(scope.view(np.uint64), ledger.view(np.uint64), entry)
    locations = make_locations(log, position)
    flushes = []
    for start in range(0, arrival_order.size, rows_per_flush):
        rows = arrival_order[start : start + rows_per_flush]
        rows = rows[_flush_order(_take_rows(arrivals, rows))]
        flushes.append(list(_group_by_ledger(_take_rows(arrivals, rows), locations[rows])))
    return IndexLoad(flushes, _distinct_entries(flushes))


def _read_columns(files: Sequence[DumpFile]) -> list[Int64Array]:
    """Return `_DUMP_COLUMNS` of the files, each as one array."""
    columns_of_files = []
    for dump_file in files:
        with opened_parquet(dump_file.path) as file:
            schema = DUMP_TABLES[dump_file.table]
            check_footer(dump_file.path, file, schema, _DUMP_COLUMNS, dump_file.rows)
            table = file.read(columns=list(_DUMP_COLUMNS))
            columns_of_files.append([table.column(name).to_numpy() for name in _DUMP_COLUMNS])
    return [np.concatenate(column) for column in zip(*columns_of_files)]


def _distinct_entries(flushes: list[list[Put]]) -> dict[LedgerId, Int64Array]:
    """Return the sorted entry ids of each ledger; an entry may have been put several times."""
    entries_of_ledger: dict[LedgerId, list[Int64Array]] = {}
    for put in (put for flush in flushes for put in flush):
        entries_of_ledger.setdefault(put.ledger_id, []).append(put.entry_ids)
    return {
        ledger_id: np.unique(np.concatenate(parts))
        for ledger_id, parts in sorted(entries_of_ledger.items())
    }
