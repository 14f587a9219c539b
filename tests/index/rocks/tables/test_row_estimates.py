"""Rows of ledgers as estimated from indexes of table files, against the rows that were put."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore.errors import CorruptionError
from bkstore.ids import LedgerId
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.tables.table_reader import TableReader

BLOCK_ROWS = 8_000
"""More rows than a block of a bookie's table files has: 64 KiB, at most 10 bytes a row."""

SIZES = {LedgerId(0, 3): 60_000, LedgerId(0, 4): 1, LedgerId(0, 5): 90_000, LedgerId(0, 900): 7}
SCOPED_SIZES = {LedgerId(1, 2): 40_000, LedgerId(2, 1): 20_000, LedgerId(2**63, 2**63): 5}


def fill(directory: Path, sizes: dict[LedgerId, int]) -> None:
    """Write ledgers of these sizes, each in two table files that overlap."""
    with RocksIndex(directory, writable=True) as index:
        for half in (0, 1):
            for ledger_id, count in sizes.items():
                entries = range(half, count, 2)
                index.put_many(ledger_id, entries, range(1, len(entries) + 1))
            index.flush()


def estimates(directory: Path, ledger_ids: list[LedgerId]) -> list[int]:
    """Return the estimates of an index that is opened to read."""
    with RocksIndex(directory) as index:
        return index.estimate_rows(ledger_ids).tolist()


@pytest.mark.parametrize("sizes", [SIZES, SCOPED_SIZES], ids=["scope 0", "scopes"])
def test_near_the_rows(sizes: dict[LedgerId, int], tmp_path: Path) -> None:
    """Each ledger's rows, but for blocks that it shares with others; all together all rows."""
    fill(tmp_path, sizes)
    result = estimates(tmp_path, list(sizes))

    assert sum(sizes.values()) == pytest.approx(sum(result), abs=len(sizes))
    for ledger_id, count, rows in zip(sizes, sizes.values(), result):
        assert abs(rows - count) <= 2 * BLOCK_ROWS, ledger_id  # a shared block in either file


def test_both_scopes_and_unknown_ledgers(tmp_path: Path) -> None:
    """Ledgers of both databases in one call; one without rows, far above all, has none."""
    fill(tmp_path, SIZES | SCOPED_SIZES)
    ledger_ids = [*SIZES, LedgerId(0, 2**63 - 1), *SCOPED_SIZES]
    result = dict(zip(ledger_ids, estimates(tmp_path, ledger_ids)))

    assert 0 == result[LedgerId(0, 2**63 - 1)]
    assert sum(SIZES.values()) == pytest.approx(sum(map(result.get, SIZES)), abs=4)
    assert sum(SCOPED_SIZES.values()) == pytest.approx(sum(map(result.get, SCOPED_SIZES)), abs=3)
    assert [] == estimates(tmp_path, [])
    assert estimates(tmp_path, list(SIZES)) == estimates(tmp_path, [*SIZES, *SIZES][::-1])


def test_a_shared_block_is_divided_evenly(tmp_path: Path) -> None:
    """Ledgers that are all in one block are taken for equally long."""
    fill(tmp_path, {LedgerId(0, 1): 30, LedgerId(0, 2): 10, LedgerId(0, 3): 20})

    assert [20, 20, 20] == estimates(tmp_path, [LedgerId(0, n) for n in (1, 2, 3)])
    assert [60] == estimates(tmp_path, [LedgerId(0, 2)])  # of the ledgers that are asked for


def test_no_database(tmp_path: Path) -> None:
    """Without scoped ledgers there is no database of theirs."""
    fill(tmp_path, {LedgerId(0, 1): 2})

    assert [2, 0] == estimates(tmp_path, [LedgerId(0, 1), LedgerId(7, 1)])


def test_damaged_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose index cannot be read counts as empty."""

    def refuse(_: TableReader) -> None:
        raise CorruptionError(None, None, "damaged")

    fill(tmp_path, SIZES)
    monkeypatch.setattr(TableReader, "index", property(refuse))

    assert [0, 0, 0, 0] == estimates(tmp_path, list(SIZES))


def test_by_rocksdb(tmp_path: Path) -> None:
    """A database that is opened by RocksDB: by last entries, scaled down where there are gaps."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(1, range(1000), range(1, 1001))
        index.put_many(2, range(0, 500_000, 500), range(1, 1001))
        index.flush()
    database = Database(tmp_path / "current" / "locations")
    prefixes = [ledger.to_bytes(8, "big") for ledger in (1, 2, 3)]
    rows = database.estimate_rows(prefixes).tolist()
    database.close()

    # Last entries 999 and 499,500 stand for 2,000 rows.
    assert [1000 * 2000 // 500_501, 499_501 * 2000 // 500_501, 0] == rows
