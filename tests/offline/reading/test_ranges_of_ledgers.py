"""Ranges of ledgers in a sorted file: wherever row groups and batches begin and end."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from bkstore.ids import LedgerId
from bkstore.offline.reading import DumpFile, LedgerRange, read_rows
from bkstore.offline.reading.ledger_ranges import SORTED_BY
from bkstore.offline.reading.read_tasks import read_of, sorted_tasks

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

KEYS = SORTED_BY["entries"]
NAMES = [
    LedgerId(0, 2),
    LedgerId(0, 2**63 - 1),
    LedgerId(1, 2),
    LedgerId(1, 2**63),
    LedgerId(2**63, 2),
    LedgerId(2**64 - 1, 2**64 - 1),
]
COUNTS = [3, 1, 5, 2, 1, 4]
ROWS = [(name, entry) for name, count in zip(NAMES, COUNTS) for entry in range(count)]
BETWEEN = LedgerId(1, 9)


def _written(path: Path, group: int, statistics: bool) -> DumpFile:
    columns = [[name.signed[at] for name, _ in ROWS] for at in (0, 1)] + [[e for _, e in ROWS]]
    arrays = [pa.array(["b"] * len(ROWS)), *(pa.array(each, pa.int64()) for each in columns)]
    table = pa.Table.from_arrays(arrays, ["bookie", *KEYS])
    pq.write_table(table, path, row_group_size=group, write_statistics=statistics)
    ranged = LedgerRange(NAMES[0], NAMES[-1])
    return DumpFile(str(path), "entries", "b", len(ROWS), True, ranged)


def _rows(batches: Any) -> list[tuple[LedgerId, int]]:
    return [
        (LedgerId.from_signed(row["scope_id"], row["ledger_id"]), row["entry_id"])
        for batch in batches
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize(("group", "statistics"), [(1, True), (4, True), (5, False), (50, True)])
def test_every_range(group: int, statistics: bool, tmp_path: Path) -> None:
    """The ledgers above one up to another, each row once, also where a batch begins or ends with
    either; with and without statistics that skip row groups."""
    file = _written(tmp_path / "f", group, statistics)
    ends = [None, BETWEEN, *NAMES]
    for above, upto in product(ends, ends):
        expected = [
            row
            for row in ROWS
            if (above is None or above < row[0]) and (upto is None or row[0] <= upto)
        ]
        for batch in (1, 2, 3, 50):
            read = read_of(file, above, upto)

            assert expected == _rows(read_rows(read, KEYS, KEYS, batch=batch)), (above, upto, batch)


@pytest.mark.parametrize(("group", "statistics"), [(1, True), (2, True), (3, True), (3, False)])
def test_shares_that_begin_inside_a_row_group(group: int, statistics: bool, tmp_path: Path) -> None:
    """Tasks of any size have each row once, no ledger in two of them."""
    file = _written(tmp_path / "f", group, statistics)
    for rows, batch in product((1, 2, 3, 5, 8, 100), (1, 2, 7)):
        found = [
            _rows(read_rows(read, KEYS, KEYS, batch=batch))
            for task in sorted_tasks([[file]], rows)
            for read in task.sides[0]
        ]
        held = [{name for name, _ in part} for part in found]

        assert ROWS == [row for part in found for row in part]
        assert sum(map(len, held)) == len(NAMES)
