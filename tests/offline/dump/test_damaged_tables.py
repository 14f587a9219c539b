"""Dumps of RocksDB bookies with damaged rows: which ledgers have no summary.

Rule: a summary counts every entry of the ledger, or is null. Expected values are those written.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from rocksdict import Rdict

from bkstore import LedgerId
from bkstore.index.api import IndexBatch, LedgerState
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.keys import entry_key
from bkstore.index.rocks.options import database_options
from bkstore.index.rocks.tables import TableReader
from bkstore.offline.dump import dump
from tests.worlds.dumps import rows

pytest.importorskip("pyarrow.parquet")

LEDGERS = (1, 2, 3, 5, 6, 7)
EMPTY = (4, 8)  # ledgers with a row in `ledgers` only
ENTRIES = 4000


def _bookie(top: Path, scope: int = 0) -> Path:
    """Write LEDGERS of `scope` (and one ledger of scope 0) in one table file; return that."""
    ledger_ids = np.repeat(LEDGERS, ENTRIES)
    entries = np.tile(np.arange(ENTRIES), len(LEDGERS))
    zeros = np.zeros(entries.size, np.int64)
    with RocksIndex(top, writable=True) as index:
        for ledger in (*LEDGERS, *EMPTY):
            index.set_state(LedgerId(scope, ledger), LedgerState(b"k" * 20))
        if scope:
            index.put_many(2, range(10), range(1, 11))
        locations = np.arange(entries.size) * 100 + 1028
        index.bulk_load([IndexBatch(zeros, zeros + scope, ledger_ids, entries, locations)])
    name = "locations-128" if scope else "locations"
    (table,) = (top / "current" / name).glob("*.sst")
    return table


def _damage(table: Path, block: int | str) -> None:
    """Flip a bit in a data block; "border": the first one with rows of two ledgers."""
    with TableReader(table) as reader:
        separators, offsets = reader.index.separators, reader.index.offsets.tolist()
    if block == "border":
        ids = [separator[:-8] if len(separator) > 8 else separator for separator in separators]
        block = next(n for n in range(1, len(ids)) if ids[n - 1] != ids[n])
    data = bytearray(table.read_bytes())
    data[offsets[int(block)] + 100] ^= 1
    table.write_bytes(data)


def _summaries(dumped: Path, scope: int = 0) -> dict[int, tuple[int | None, ...]]:
    """Return (entries, first, last) by ledger."""
    return {row[2]: row[4:7] for row in rows(dumped, "ledgers") if row[1] == scope}


@pytest.mark.parametrize(("block", "scope"), [(0, 0), ("border", 0), (-1, 0), ("border", 5)])
def test_damaged_block(tmp_path: Path, block: int | str, scope: int) -> None:
    """Ledgers that the block may have held are null; all others are whole, in every piece."""
    table = _bookie(tmp_path / "bookie", scope)
    _damage(table, block)
    result = dump([tmp_path / "bookie"], tmp_path / "out", jobs=1)
    written = Counter(row[3] for row in rows(tmp_path / "out", "entries") if row[2] == scope)
    summaries = _summaries(tmp_path / "out", scope)
    incomplete = {ledger for ledger in LEDGERS if written[ledger] != ENTRIES}
    expected = {0: {1}, "border": {1, 2}, -1: {7}}[block]

    assert expected == incomplete
    assert 1 == len([f for f in result.findings if f.severity == "damage"])
    assert {
        **dict.fromkeys(LEDGERS, (ENTRIES, 0, ENTRIES - 1)),
        **dict.fromkeys(EMPTY, (0, None, None)),
        **dict.fromkeys(expected, (None, None, None)),
    } == summaries
    if scope:
        assert {2: (10, 0, 9)} == _summaries(tmp_path / "out")


def test_damaged_file(tmp_path: Path) -> None:
    """Where the file is cut, its ledgers are null, the empty one between them too."""
    table = _bookie(tmp_path / "bookie")
    with RocksIndex(tmp_path / "bookie", writable=True) as index:
        index.put_many(9, range(10), range(1, 11))
    table.write_bytes(table.read_bytes()[:-50])
    result = dump([tmp_path / "bookie"], tmp_path / "out", jobs=1, piece_rows=ENTRIES)

    assert [str(table)] == [found.file for found in result.findings]  # once, not by each piece
    unknown = dict.fromkeys((*LEDGERS, 4), (None, None, None))
    assert {**unknown, 8: (0, None, None), 9: (10, 0, 9)} == _summaries(tmp_path / "out")


def test_invalid_location(tmp_path: Path) -> None:
    """A ledger with a row that has no valid location is null, wherever it is in the scan."""
    _bookie(tmp_path / "bookie")
    options = database_options("locations")
    path = str(tmp_path / "bookie/current/locations")
    database = Rdict(path, options, column_families={"default": options})
    database[entry_key(LedgerId(0, 3), 17)] = bytes(8)
    database.close()
    dump([tmp_path / "bookie"], tmp_path / "out", jobs=1)
    counts = {ledger: summary[0] for ledger, summary in _summaries(tmp_path / "out").items()}

    assert {**dict.fromkeys(LEDGERS, ENTRIES), 3: None, 4: 0, 8: 0} == counts
