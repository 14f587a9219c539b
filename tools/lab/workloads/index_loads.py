"""What an index is filled with: rows in the order in which a bookie's flushes would put them.

Entries arrive as `bkstore.testing.workloads` says, or as a dump recorded them; each `flush` of
them is sorted by ledger and entry, gets locations one behind the other, and is put a ledger at a
time: what the write cache of a bookie does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array, LedgerId, make_locations
from bkstore.offline.reading.dump_file import DumpFile, check_footer
from bkstore.offline.reading.open_dump import open_dump
from bkstore.offline.reading.places import opened_parquet
from bkstore.tables.dump import DUMP_TABLES
from bkstore.testing import generators, workloads
from bkstore.testing.workloads import Arrivals, Workload

_DUMPED = ("scope_id", "ledger_id", "entry_id", "log_id", "position")

_FLUSH = 20_000
"""Rows that arrive between two flushes."""


class Put(NamedTuple):
    """Rows of one ledger, as one `put_many` gets them."""

    ledger: LedgerId
    entries: Int64Array
    locations: Int64Array


@dataclass(frozen=True)
class IndexLoad:
    """Puts, flush by flush, and what must be there at the end: ledgers, distinct rows, ids."""

    flushes: list[list[Put]]
    expected: dict[LedgerId, Int64Array]

    @property
    def puts(self) -> Iterator[Put]:
        """All puts, in order."""
        return (put for flush in self.flushes for put in flush)

    @property
    def entries(self) -> int:
        """Distinct rows at the end."""
        return sum(ids.size for ids in self.expected.values())


SHAPES: dict[str, Callable[[int, int], Workload]] = {
    "many small": lambda n, seed: workloads.ledger_shaped(max(n // 60, 1), n, skew=0, seed=seed),
    "few large": lambda n, seed: workloads.ledger_shaped(3, n, skew=0.5, seed=seed),
    "striped 2 of 3": lambda n, seed: workloads.striped(1, ledgers=3, entries=n // 2, seed=seed),
    "interleaved": lambda n, seed: workloads.interleaved(
        100, max(n // 100, 1), order="random", seed=seed
    ),
    "late, twice": lambda n, seed: workloads.late_and_duplicate(
        workloads.interleaved(100, max(n // 100, 1), seed=seed)
    ),
}
"""Shapes by name: each a function of how many entries, and the seed."""


def index_load(shape: str, entries: int, seed: int, flush: int = _FLUSH) -> IndexLoad:
    """Return about so many entries in a shape of `SHAPES`; `KeyError` for another name."""
    load = SHAPES[shape](entries, seed)
    return IndexLoad(_flushes(load.ids(flush), seed), load.expected)


def _flushes(arrivals: Iterable[Arrivals], seed: int) -> list[list[Put]]:
    flushes = []
    for log, some in enumerate(arrivals):
        order = np.lexsort((some.entry, some.ledger, some.scope))
        places = generators.locations(order.size, seed + log, log_id=log)
        flushes.append(list(_by_ledger(_taken(some, order), places)))
    return flushes


def _taken(rows: Arrivals, order: npt.NDArray[np.int64]) -> Arrivals:
    return Arrivals(rows.scope[order], rows.ledger[order], rows.entry[order])


def _by_ledger(rows: Arrivals, places: Int64Array) -> Iterator[Put]:
    change = (rows.ledger[1:] != rows.ledger[:-1]) | (rows.scope[1:] != rows.scope[:-1])
    ends = [*(np.flatnonzero(change) + 1).tolist(), places.size]
    start = 0
    for end in ends:
        name = LedgerId(int(rows.scope[start]), int(rows.ledger[start]))
        yield Put(name, rows.entry[start:end], places[start:end])
        start = end


def load_of_dump(place: Path, most: int, flush: int = _FLUSH) -> IndexLoad:
    """Return the first `most` entries of a dump's table `entries`, of its first bookie.

    Arrival is the order of the entry logs: by log and position. Locations are the recorded ones.
    Raises `InvalidArgument` for what is no dump, or one without entries, `MissingDependency`
    without pyarrow, `CorruptionError` for files that are not as the dump says.
    """
    dump = open_dump(place)
    files = [file for file in dump.files["entries"] if file.rows]
    if not files:
        raise InvalidArgument(f"{place}: no entries in this dump")
    bookie = min(file.bookie for file in files)
    columns = _dumped([file for file in files if file.bookie == bookie])
    order = np.lexsort((columns[4], columns[3]))[:most]
    scope, ledger, entry, log, position = (column[order] for column in columns)
    arrivals = Arrivals(scope.view(np.uint64), ledger.view(np.uint64), entry)
    places = make_locations(log, position)
    flushes = []
    for at in range(0, order.size, flush):
        part = np.arange(at, min(at + flush, order.size))
        some = _taken(arrivals, part)
        part = part[np.lexsort((some.entry, some.ledger, some.scope))]
        flushes.append(list(_by_ledger(_taken(arrivals, part), places[part])))
    return IndexLoad(flushes, _distinct(flushes))


def _dumped(files: Sequence[DumpFile]) -> list[Int64Array]:
    """Return the columns `_DUMPED` of some files."""
    parts = []
    for each in files:
        with opened_parquet(each.path) as file:
            check_footer(each.path, file, DUMP_TABLES[each.table], _DUMPED, each.rows)
            table = file.read(columns=list(_DUMPED))
            parts.append([table.column(name).to_numpy() for name in _DUMPED])
    return [np.concatenate(column) for column in zip(*parts)]


def _distinct(flushes: list[list[Put]]) -> dict[LedgerId, Int64Array]:
    found: dict[LedgerId, list[Int64Array]] = {}
    for put in (put for flush in flushes for put in flush):
        found.setdefault(put.ledger, []).append(put.entries)
    joined = {name: np.sort(np.concatenate(parts)) for name, parts in sorted(found.items())}
    return {name: ids[np.diff(ids, prepend=-1) != 0] for name, ids in joined.items()}
