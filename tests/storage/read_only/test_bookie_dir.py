"""`BookieDir` about its own directories: where nothing may be written, and where logs are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bkstore import BookieDir, InvalidArgument
from bkstore.errors import CorruptionError
from bkstore.index.api import LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.spark.source.filters import Bounds
from bkstore.storage.bookie import Bookie


def test_nothing_is_written_beside_journals(tmp_path: Path) -> None:
    """An output in a journal directory is refused as one in a ledger directory is."""
    with Bookie.open(tmp_path / "b"):
        pass
    with BookieDir(tmp_path / "b") as bookie:
        for folder in (*bookie.folders.journal, *bookie.folders.ledger):
            with pytest.raises(InvalidArgument, match="which is only read"):
                bookie.refuse_output(folder / "out")


def test_a_location_whose_log_is_nowhere(tmp_path: Path) -> None:
    """It has no directory, -1, beside logs that are there."""
    with HierarchicalIndex(tmp_path / "b", writable=True) as index:
        index.put_many(7, [0], [(1 << 32) + 1028])
    (tmp_path / "b/current/1.log").write_bytes(b"")
    with BookieDir(tmp_path / "b") as bookie:
        locations = np.array([(1 << 32) + 1028, (2 << 32) + 1028, 1028])

        assert [0, -1, -1] == bookie.dir_indexes(7, locations).tolist()


def test_damage_that_hides_ledgers_is_a_finding(tmp_path: Path) -> None:
    """It names the table file, and nothing says that the index has no ledger."""
    with RocksIndex(tmp_path / "b", writable=True) as index:
        index.put_many(7, [0], [1028])
        index.set_state(7, LedgerState(b"k" * 20))
    (tmp_path / "b/current/0.log").write_bytes(bytes(1024))
    (table,) = (tmp_path / "b/current/ledgers").glob("*.sst")
    table.write_bytes(bytes([table.read_bytes()[0] ^ 1]) + table.read_bytes()[1:])
    with BookieDir(tmp_path / "b") as bookie:
        with pytest.raises(CorruptionError):
            bookie.index.ledgers()
        findings = bookie.findings()

    assert [("damage", str(table), 0)] == [
        (finding.severity, finding.file, finding.offset) for finding in findings
    ]


def test_two_conditions_on_bookies_hold_both() -> None:
    """Only bookies that every filter of a query lets through are wanted."""
    both = Bounds().with_bookies(["a", "b"]).with_bookies(["b", "c"])

    assert [False, True, False] == [both.selects_bookie(name) for name in "abc"]
