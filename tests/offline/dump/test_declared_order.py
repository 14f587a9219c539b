"""What a manifest says of order is what the files have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkstore.ids import LedgerId
from bkstore.offline.dump.parquet import ParquetTableWriter
from bkstore.offline.reading.ledger_ranges import SORTED_BY, LedgerRange
from bkstore.offline.reading.manifest import read_manifest
from bkstore.tables import ENTRIES, Table

pq = pytest.importorskip("pyarrow.parquet")


def test_files_are_sorted_as_the_manifest_says(whole: Path) -> None:
    """Each file of the sorted tables that has rows says its order and its ledgers, and rows
    ascend so, unsigned; no other file says anything.
    """
    said = 0
    for table, listed in read_manifest(whole)["tables"].items():
        for file in listed["files"]:
            if table not in SORTED_BY or not file["rows"]:
                assert "sorted_by" not in file
                continue
            columns = pq.read_table(whole / file["path"], columns=list(SORTED_BY[table]))
            rows = list(zip(*columns.to_pydict().values()))
            keys = [(LedgerId.from_signed(*row[:2]), *row[2:]) for row in rows]

            assert list(SORTED_BY[table]) == file["sorted_by"]
            assert sorted(set(keys)) == keys
            assert LedgerRange(keys[0][0], keys[-1][0]) == LedgerRange.from_json(file, table)
            said += 1
    assert said > 9


def row(ledger: LedgerId, entry: int) -> tuple[Any, ...]:
    """Return a row of `entries`."""
    return ("b", 0, *ledger.signed, entry, 1, 9, None)


@pytest.mark.parametrize(
    ("parts", "is_sorted"),
    [
        ([[0, 1], [2]], True),
        ([[1, 0]], False),
        ([[0, 2], [1]], False),
        ([[0, 1], [1]], False),
        ([[3, 0]], False),
        ([[0], [3]], True),
    ],
)
def test_what_was_not_seen_sorted_is_not_declared(
    parts: list[list[int]], is_sorted: bool, tmp_path: Path
) -> None:
    """Rows that go down, in a batch or from one to the next, or come twice, leave a file without
    a declared order.
    """
    rows = [row(LedgerId(1, 2**63 - 1), 5), row(LedgerId(1, 2**63 - 1), 6)]
    rows += [row(LedgerId(1, 2**63), 0), row(LedgerId(2**63, 1), 0)]
    with ParquetTableWriter(tmp_path / "file", ENTRIES) as file:
        for part in parts:
            file.write(Table.from_rows(ENTRIES, [rows[at] for at in part]))

    assert is_sorted == (file.ledger_range is not None)
