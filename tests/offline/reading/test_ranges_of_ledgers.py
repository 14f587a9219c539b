"""Ranges of ledgers in a sorted file: wherever row groups and batches begin and end."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bkstore.errors import CorruptionError
from bkstore.ids import LedgerId
from bkstore.offline.reading import DumpFile, FileRead, LedgerRange, read_rows
from bkstore.offline.reading.disjoint_files import split_disjoint
from bkstore.offline.reading.dump_file import (
    RowGroup,
    check_row_groups,
    has_nulls,
    row_groups,
)
from bkstore.offline.reading.ledger_ranges import SORTED_BY, OrderCheck
from bkstore.offline.reading.read_tasks import plan_read, plan_sorted_tasks

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


def _rows(read: FileRead, batch: int) -> list[tuple[LedgerId, int]]:
    """Return the rows of a read, whose batches have the columns that were asked for."""
    batches = list(read_rows(read, KEYS, KEYS, batch_rows=batch))
    assert {KEYS} >= {tuple(each.schema.names) for each in batches}
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
            read = plan_read(file, above, upto)

            assert expected == _rows(read, batch), (above, upto, batch)


@pytest.mark.parametrize(("group", "statistics"), [(1, True), (2, True), (3, True), (3, False)])
def test_shares_that_begin_inside_a_row_group(group: int, statistics: bool, tmp_path: Path) -> None:
    """Tasks of any size have each row once, no ledger in two of them."""
    file = _written(tmp_path / "f", group, statistics)
    for rows, batch in product((1, 2, 3, 5, 8, 100), (1, 2, 7)):
        found = [
            _rows(read, batch)
            for task in plan_sorted_tasks([[file]], rows)
            for read in task.reads_per_dump[0]
        ]
        held = [{name for name, _ in part} for part in found]

        assert ROWS == [row for part in found for row in part]
        assert sum(map(len, held)) == len(NAMES)


@pytest.mark.parametrize(
    ("ids", "ends"),
    [
        ([3, 4, 9], (3, 9)),
        ([0], (0, 0)),
        ([2**63, 2**64 - 1], (2**63, 2**64 - 1)),
        ([0, 2**64 - 1], None),
        ([5, 2**63], None),
        ([2**63 - 1, 2**63], None),
    ],
)
def test_ends_of_a_row_group(ids: list[int], ends: tuple[int, int] | None, tmp_path: Path) -> None:
    """Statistics are signed: they tell the ends of a row group whose ids have one sign, and none
    of one where they have both."""
    signed = [LedgerId(7, ledger).signed[1] for ledger in ids]
    table = pa.table({"scope_id": pa.array([7] * len(ids)), "ledger_id": pa.array(signed)})
    pq.write_table(table, tmp_path / "f")
    (group,) = row_groups(pq.read_metadata(tmp_path / "f"))
    expected = (None, None) if ends is None else tuple(LedgerId(7, end) for end in ends)

    assert expected == (group.first, group.last)


def test_ledgers_outside_are_named() -> None:
    """Of a row group with ledgers outside the range of its file the one that is outside is named;
    what touches the range, or the row group before, is inside and in order."""
    ledgers = LedgerRange(LedgerId.of(10), LedgerId.of(20))

    def groups(*ends: tuple[int, int]) -> list[RowGroup]:
        return [RowGroup(5, LedgerId.of(first), LedgerId.of(last)) for first, last in ends]

    check_row_groups("f", groups((10, 15), (15, 15), (15, 20)), ledgers)
    for first, last, odd in ((9, 12, 9), (12, 21, 21), (9, 21, 9), (30, 31, 31), (3, 4, 3)):
        with pytest.raises(CorruptionError, match=f"has ledger {odd},"):
            check_row_groups("f", groups((first, last)), ledgers)
    with pytest.raises(CorruptionError, match="row group 1 begins with ledger 14"):
        check_row_groups("f", groups((10, 15), (14, 20)), ledgers)


@pytest.mark.parametrize(
    ("rows", "odd"),
    [
        ([(0, 1, 0), (0, 1, 1), (0, 2, 0), (1, 0, 0), (-1, 0, 0)], None),
        ([(0, 1, 0), (0, 1, 0), (0, 0, 0)], 1),
        ([(0, 2, 0), (0, 1, 0), (0, 1, 0)], 1),
        ([(0, 1, 1), (0, 1, 0), (0, 2, 0)], 1),
        ([(0, 1, 1), (0, 2, 0), (0, 2, 0)], 2),
        ([(7, -1, 0), (7, 0, 0)], 1),
        ([(-1, 0, 0), (1, 0, 0)], 1),
    ],
)
def test_the_first_row_that_is_out_of_order(
    rows: list[tuple[int, int, int]], odd: int | None
) -> None:
    """By unsigned ledger, then by entry, each higher than the one before; the first that is not
    is told, in one batch or row by row."""
    columns = [np.array(column, np.int64) for column in zip(*rows)]
    found, watch = None, OrderCheck()
    for at in range(len(rows)):
        if watch.add([column[at : at + 1] for column in columns]) is not None:
            found = at
            break

    assert odd == OrderCheck().add(columns)
    assert odd == found


def test_a_file_that_others_lie_in(tmp_path: Path) -> None:
    """Files that lie within the ledgers of a third share them with it, not with each other."""
    spans = {"long": (10, 90), "in": (20, 30), "later": (50, 60), "end": (90, 95), "own": (96, 97)}
    files = {
        name: DumpFile(
            name, "entries", "b", 5, True, LedgerRange(LedgerId.of(first), LedgerId.of(last))
        )
        for name, (first, last) in spans.items()
    }
    alone, others = split_disjoint(reversed(files.values()))

    assert [files["own"]] == alone
    assert {"long", "in", "later", "end"} == {file.path for file in others}


def test_ledgers_that_are_left_out(tmp_path: Path) -> None:
    """Each is told to the one task that would have it, also where a task ends with it; those
    before and behind all files to the first and the last task."""
    files = []
    for first in (10, 20, 30):
        span = LedgerRange(LedgerId.of(first), LedgerId.of(first + 5))
        files.append(DumpFile(str(first), "entries", "b", 9, True, span))
    left_out = [LedgerId.of(ledger) for ledger in (40, 35, 31, 26, 25, 20, 16, 15, 14, 3)]
    tasks = plan_sorted_tasks([files], 9, left_out)

    assert [[3, 14, 15], [16, 20, 25], [26, 31, 35, 40]] == [
        [ledger.ledger for ledger in task.excluded_ledgers] for task in tasks
    ]


@pytest.mark.parametrize(
    ("statistics", "expected"),
    [
        ([(True, 0), (True, 0)], False),
        ([(True, 0), (True, 3)], True),
        ([(True, 0), (False, 0)], True),
        ([None, (True, 0)], True),
        ([], False),
    ],
)
def test_nulls_that_statistics_do_not_tell(
    statistics: list[tuple[bool, int] | None], expected: bool
) -> None:
    """A column may have nulls unless each row group counts them, and none."""
    groups: list[Any] = []
    for each in statistics:
        told = each and SimpleNamespace(has_null_count=each[0], null_count=each[1])
        column = SimpleNamespace(statistics=told)
        groups.append(SimpleNamespace(column=lambda _, column=column: column))
    schema = SimpleNamespace(column=lambda _: SimpleNamespace(path="bookie"))
    footer: Any = SimpleNamespace(
        num_columns=1, num_row_groups=len(groups), schema=schema, row_group=groups.__getitem__
    )

    assert expected == has_nulls(footer, "bookie")


@pytest.mark.parametrize(
    ("first", "last", "ids", "odd"),
    [
        ((1, 5), (1, 2**63 + 5), [(1, 5), (1, 2**63 - 1), (1, 2**63), (1, 2**63 + 5)], None),
        ((1, 5), (1, 2**63 + 5), [(1, 5), (1, 4)], "4"),
        ((1, 5), (1, 2**63 + 5), [(1, 5), (1, 2**63 + 6)], "8000000000000006"),
        ((1, 2**63), (1, 2**64 - 1), [(1, 2**63), (1, 2**64 - 1)], None),
        ((1, 2**63), (1, 2**64 - 1), [(1, 2**64 - 1), (1, 2**63 - 1)], "7fffffffffffffff"),
        ((1, 5), (2**63, 7), [(1, 5), (2**63 - 1, 0), (2, 2**64 - 1), (2**63, 7)], None),
        ((1, 5), (2**63, 7), [(2**63, 0), (2**63, 8)], "8"),
        ((1, 5), (2**63, 7), [(2**63, 0), (2**64 - 1, 0)], "0"),
        ((1, 5), (2**63, 7), [(2**63, 0), (0, 9)], "9"),
        ((2**63, 5), (2**64 - 1, 7), [(2**63, 5), (2**64 - 1, 7)], None),
        ((2**63, 5), (2**64 - 1, 7), [(2**63, 5), (2**63 - 1, 7)], "7"),
    ],
)
def test_rows_in_any_order_are_of_the_range(
    first: tuple[int, int],
    last: tuple[int, int],
    ids: list[tuple[int, int]],
    odd: str | None,
    tmp_path: Path,
) -> None:
    """Rows that are read in any order are of the ledgers that the manifest says, ids unsigned; the
    first one that is not is named."""
    columns = [np.array(column, np.uint64).view(np.int64) for column in zip(*ids)]
    arrays = [pa.array(["b"] * len(ids)), *map(pa.array, columns), pa.array([0] * len(ids))]
    table = pa.Table.from_arrays(arrays, ["bookie", *KEYS])
    pq.write_table(table, tmp_path / "x.parquet", write_statistics=False)
    ranged = LedgerRange(LedgerId(*first), LedgerId(*last))
    file = DumpFile(str(tmp_path / "x.parquet"), "entries", "b", len(ids), True, ranged)
    read = plan_read(file)._replace(is_sorted=False)
    if odd is None:
        assert len(ids) == sum(rows.num_rows for rows in read_rows(read, KEYS))
    else:
        with pytest.raises(CorruptionError, match=rf"has ledger [0-9a-f]*{odd}, the manifest says"):
            list(read_rows(read, KEYS))
