"""Damaged write-ahead logs of RocksDB indexes, killed writers, and copies of moving databases.

Rule: as in `test_files`; where RocksDB drops the end of a log in silence, that is a finding.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bkstore import (
    CorruptionError,
)
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.files.log_file import FramedLogReader
from tests.corruption.rocks.databases import (
    LEDGERS,
    Answers,
    changed,
    check,
    flip,
    flush,
    only_file,
    zero,
)

# -- write-ahead logs


def test_unflushed_rows_are_read(unflushed: tuple[Path, Answers], flushed: object) -> None:
    """Rows that are only in a write-ahead log are read like rows of a table."""
    assert flushed[1] == unflushed[1]  # type: ignore[index]


@pytest.mark.parametrize("damage", [flip, zero])
@pytest.mark.parametrize("database", ["locations", "ledgers"])
def test_log_damaged(
    unflushed: tuple[Path, Answers], database: str, damage: Callable[[bytes, int], bytes]
) -> None:
    """Damage in a write-ahead log is refused with its file and offset, wherever it lies.

    Only a last record that runs past the end may be dropped: so a crash leaves it.
    """
    top, _ = unflushed
    file = only_file(top / "current" / database, "*.log")
    data = file.read_bytes()
    starts = [at for at, _ in FramedLogReader(file).records()]
    for at in sorted({*np.linspace(0, starts[-1] - 16, 24).astype(int).tolist(), *range(12)}):
        with changed(file, damage(data, at)):
            with pytest.raises(CorruptionError) as caught:
                RocksIndex(top)

            assert str(file) == caught.value.file
            assert caught.value.offset is not None
            assert caught.value.offset <= at + 16


def test_flipped_record_type_does_not_hang(unflushed: tuple[Path, Answers]) -> None:
    """A flipped type byte, which sends RocksDB into an endless loop, is refused before."""
    top, _ = unflushed
    file = only_file(top / "current" / "ledgers", "*.log")
    data = file.read_bytes()
    starts = [at for at in range(len(data) - 7) if data[at + 4 : at + 7] == b"\x1d\0\1"]
    for start in starts:
        other = data[: start + 6] + b"\5" + data[start + 7 :]
        with changed(file, other), pytest.raises(CorruptionError, match=rf"offset {start}:"):
            RocksIndex(top)

    assert len(LEDGERS) <= len(starts)


@pytest.mark.parametrize("lost", [1, 30, 70])
def test_torn_tail_is_read_up_to_it(unflushed: tuple[Path, Answers], lost: int) -> None:
    """A log that ends inside its last record is what a crash leaves: rows before it count."""
    top, _ = unflushed
    file = only_file(top / "current" / "ledgers", "*.log")
    data = file.read_bytes()
    with changed(file, data[:-lost]), RocksIndex(top) as index:
        assert [*LEDGERS] == [name.ledger for name in index.ledgers()]
        assert b"" == index.state(5).master_key  # its row before the last write
        (finding,) = index.findings()

    assert (str(file), "oddity") == (finding.file, finding.severity)
    assert len(data) - 80 < (finding.offset or 0) < len(data) - lost


def test_zeros_behind_the_log(unflushed: tuple[Path, Answers]) -> None:
    """Space that was allocated and never written is no damage, however long."""
    top, expected = unflushed
    file = only_file(top / "current" / "locations", "*.log")
    with changed(file, file.read_bytes() + bytes(100_000)):
        assert "right" == check(top, expected)


def test_empty_log(flushed: tuple[Path, Answers]) -> None:
    """A database that was closed in order has a log of 0 bytes, and opens."""
    logs = [*(flushed[0] / "current").glob("*/*.log")]

    assert [0, 0] == [log.stat().st_size for log in logs]


def _kill_after(top: Path, code: str) -> None:
    """Run `code` over a writable `index` in a child that is killed where it prints."""
    script = (
        "import sys\nfrom bkstore.index.rocks import RocksIndex\n"
        f"index = RocksIndex(sys.argv[1], writable=True)\n{code}\n"
        "print(flush=True)\nsys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(top)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    child.communicate()


def test_killed_writer(tmp_path: Path) -> None:
    """What a killed process wrote is there: tables, logs, several of them, and deletes."""
    _kill_after(
        tmp_path,
        "index.put_many(7, range(3000), range(1, 3001))\n"
        "index.put_many(8, range(10), range(1, 11))\n"
        "index._database('locations', False)._handle.flush()\n"
        "index.put_many(7, range(3000, 3005), range(1, 6))\n"
        "index.delete(8)\n"
        "index.put_many(9, [1], [5])",
    )
    with RocksIndex(tmp_path) as index:
        assert list(range(3005)) == index.entries(7).tolist()
        assert [7, 9] == [name.ledger for name in index.ledgers()]
        assert [] == index.entries(8).tolist()
        assert 5 == index.get(9, 1)
        assert [] == index.findings()


@pytest.mark.parametrize("table", [True, False])
def test_copy_of_a_moving_database(tmp_path: Path, table: bool) -> None:
    """An old manifest with newer files, as a copy of a running bookie has them, is refused.

    RocksDB opens both: the rows of the log that was flushed in between are gone, whether or
    not the table that they went to was copied too.
    """
    made, copy = tmp_path / "made", tmp_path / "copy"
    with RocksIndex(made, writable=True) as index:
        index.put_many(7, range(1000), range(1, 1001))
        flush(index)
        old = only_file(made / "current" / "locations", "MANIFEST-*").read_bytes()
        index.put_many(7, range(1000, 2000), range(1, 1001))
        flush(index)
        index.put_many(7, range(2000, 3000), range(1, 1001))
        shutil.copytree(made, copy)
    locations = copy / "current" / "locations"
    only_file(locations, "MANIFEST-*").write_bytes(old)
    if not table:
        sorted(locations.glob("*.sst"))[-1].unlink()
    with pytest.raises(CorruptionError, match="missing") as caught:
        RocksIndex(copy)

    assert (caught.value.file or "").startswith(str(locations))


def test_damage_of_a_live_database_is_damage(unflushed: tuple[Path, Answers]) -> None:
    """A log that stays damaged while nothing is written is not a database in use."""
    top, _ = unflushed
    log = only_file(top / "current" / "locations", "*.log")
    data = log.read_bytes()
    with (
        changed(log, flip(data, 200)),
        pytest.raises(CorruptionError, match="fails its checksum") as caught,
    ):
        RocksIndex(top, live=True)

    assert str(log) == caught.value.file


def test_a_manifest_that_is_being_written(tmp_path: Path) -> None:
    """Wherever the record of a flush ends, a live reader has all rows: from the log until the
    record is whole, from the table then. Only a reader of a bookie that is down calls it odd."""
    made, copy = tmp_path / "made", tmp_path / "copy"
    with RocksIndex(made, writable=True) as index:
        index.put_many(7, range(1000), range(1, 1001))
        flush(index)
        index.put_many(7, range(1000, 2000), range(1, 1001))
        index.flush()
        shutil.copytree(made, copy)
        flush(index)
        written = only_file(made / "current" / "locations", "MANIFEST-*").read_bytes()
        for table in (made / "current" / "locations").glob("*.sst"):
            shutil.copy2(table, copy / "current" / "locations")
    manifest = only_file(copy / "current" / "locations", "MANIFEST-*")
    before = manifest.stat().st_size
    assert manifest.read_bytes() == written[:before] < written
    for end in (before, before + 1, before + 6, before + 7, before + 20, len(written) - 1):
        manifest.write_bytes(written[:end])
        with RocksIndex(copy, live=True) as index:
            assert list(range(2000)) == index.entries(7).tolist()
            assert [1, 1000, 1000] == [index.get(7, entry) for entry in (0, 999, 1999)]
            assert [] == index.findings()
        with RocksIndex(copy) as index:
            assert list(range(2000)) == index.entries(7).tolist()
            details = [finding.detail for finding in index.findings()]
        torn = ["manifest ends inside a record"] if end > before else []
        assert torn == [detail for detail in details if "manifest ends" in detail]
    manifest.write_bytes(written)
    with RocksIndex(copy, live=True) as index:
        assert list(range(2000)) == index.entries(7).tolist()
