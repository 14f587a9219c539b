"""The backend that the tutorial shows, as the page has it: the suite, and what SQLite may meet."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bkstore.errors import CorruptionError
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from tests.docs.format_pages import shown_text

PAGE = "../tutorial.md"
CODE = shown_text(PAGE, "sqlite-index")
SHOWN: dict[str, Any] = {"__name__": __name__}
for example in ("sqlite-index", "sqlite-tests"):
    exec(compile(shown_text(PAGE, example), f"tutorial.md, {example}", "exec"), SHOWN)

SQLiteIndex = SHOWN["SQLiteIndex"]
TestSQLiteIndex = SHOWN["TestSQLiteIndex"]
TestSQLiteMachine = SHOWN["TestSQLiteMachine"]


def test_it_is_short() -> None:
    """The backend has less than 100 lines, as the page says."""
    assert CODE.count("\n") < 100


KILLED = """
import os, signal, sys
index = SQLiteIndex(Path(sys.argv[1]), writable=True)
index.put_many(7, range(1000), range(1, 1001))
index.flush()
index.put_many(7, range(int(sys.argv[2])), range(5, 5 + int(sys.argv[2])))
index.put(8, 0, 5)
index.delete(7)
os.kill(os.getpid(), signal.SIGKILL)
"""


def _kill_a_writer(file: Path, entries: int) -> None:
    command = [sys.executable, "-c", CODE + KILLED, str(file), str(entries)]
    done = subprocess.run(command, capture_output=True, text=True)

    assert -signal.SIGKILL == done.returncode, done.stderr


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
@pytest.mark.parametrize("entries", [10, 300_000], ids=["in memory", "partly on disk"])
def test_a_killed_writer_leaves_what_was_flushed(tmp_path: Path, entries: int) -> None:
    """What was flushed is there after a kill, whole, and nothing that came later."""
    file = tmp_path / "index.sqlite"
    _kill_a_writer(file, entries)

    for writable in (True, False):
        with SQLiteIndex(file, writable=writable) as index:
            found, locations = index.items(7)

            assert list(range(1000)) == found.tolist()
            assert list(range(1, 1001)) == locations.tolist()
            assert [7] == [ledger.ledger for ledger in index.ledgers()]


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_journal_to_roll_back_is_for_a_writer(tmp_path: Path) -> None:
    """A journal that a kill left refuses readers, which could not roll it back."""
    file = tmp_path / "index.sqlite"
    _kill_a_writer(file, 300_000)
    with SQLiteIndex(file) as index, pytest.raises(sqlite3.OperationalError):
        index.ledgers()


LEAF = 10
"""The first byte of a page that holds rows of an index b-tree (SQLite's file format, 1.6)."""


def _damaged(file: Path) -> bytes:
    """Make an index of three ledgers, without the pages that hold entries of the second alone."""
    with SQLiteIndex(file, writable=True) as index:
        for ledger in (1, 2, 3):
            index.put_many(ledger, range(5000), range(1, 5001))
    data = bytearray(file.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    keys = [ledger.to_bytes(16, "big") for ledger in (1, 2, 3)]
    for at in range(size, len(data), size):
        page = data[at : at + size]
        if page[0] == LEAF and [False, True, False] == [key in page for key in keys]:
            data[at : at + size] = b"\xff" * size
    file.write_bytes(data)
    return bytes(data)


def test_damage_is_passed_by_with_findings(tmp_path: Path) -> None:
    """A scan names what cannot be read, and goes on with the next ledger; it changes no byte."""
    file = tmp_path / "index.sqlite"
    data = _damaged(file)
    findings: list[Finding] = []
    with SQLiteIndex(file) as index:
        rows: Counter[int] = Counter()
        for batch in index.scan(1000, findings):
            for ledger, entries, _ in batch.by_ledger():
                rows[ledger.ledger] += entries.size

        assert (5000, 5000) == (rows[1], rows[3])
        assert rows[2] < 5000
        assert [("damage", LedgerId(0, 2), str(file))] == [
            (finding.severity, finding.ledger, finding.file) for finding in findings
        ]
        with pytest.raises(CorruptionError, match="malformed"):
            list(index.scan())
        with pytest.raises(CorruptionError, match="malformed"):
            index.entries(2)

    assert data == file.read_bytes()


def test_bytes_that_are_no_database(tmp_path: Path) -> None:
    """Another file is damage, not an index without ledgers; the error names it."""
    file = tmp_path / "index.sqlite"
    file.write_bytes(b"no database" * 1000)
    with SQLiteIndex(file) as index, pytest.raises(CorruptionError, match=r"index\.sqlite"):
        index.ledgers()


def test_a_scan_holds_a_batch(tmp_path: Path) -> None:
    """The memory of a scan goes with the batch, not with the ledger."""
    with SQLiteIndex(tmp_path / "index.sqlite", writable=True) as index:
        index.put_many(7, range(200_000), range(1, 200_001))
        peaks = []
        for batch in (1000, 200_000):
            tracemalloc.start()
            rows = sum(part.entry_id.size for part in index.scan(batch))
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()

            assert 200_000 == rows

    assert peaks[0] < 1 << 20 < 1 << 23 < peaks[1]
