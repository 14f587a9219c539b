"""The files of a database, against what the binding lists and what was written."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rocksdict import Options, Rdict, WriteBatch

from bkstore import DirectoryInUse, LedgerId, UnsupportedLayout
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.inspection.database_files import DatabaseFile, DatabaseFiles
from bkstore.index.rocks.inspection.log_rows import RowSummary
from bkstore.index.rocks.keys import entry_key

LEDGER = LedgerId(0, 4660)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a `locations` database with two tables and a log, as a killed writer leaves it."""
    top = tmp_path_factory.mktemp("made")
    script = (
        "import os, sys\n"
        "from bkstore.index.rocks import RocksIndex\n"
        "index = RocksIndex(sys.argv[1], writable=True)\n"
        "database = index._database('locations', False)._handle\n"
        "for part in (0, 1):\n"
        "    index.put_many(4660, range(part * 10, part * 10 + 9), range(1, 10))\n"
        "    database.flush()\n"
        "index.put_many(4660, range(20, 25), range(1, 6))\n"
        "index.delete(7)\n"
        "index.delete(4660)\n"
        "index.put_many(4661, [3], [5])\n"
        "sys.stdout.flush()\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(top)], check=True)
    return top / "current" / "locations"


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """Return a copy that may be damaged."""
    return Path(shutil.copytree(made, tmp_path / "locations"))


def by_kind(files: list[DatabaseFile], kind: str) -> list[DatabaseFile]:
    """Return the files of one kind."""
    return [file for file in files if file.kind == kind]


def test_files_of_a_database(made: Path) -> None:
    """Tables newest first, with levels, ranges and sizes; then the log and what it holds."""
    database = DatabaseFiles.open(made)
    files = database.files()
    tables = by_kind(files, "table")

    assert [] == database.findings
    assert ["table", "table", "log", "manifest", "options"] == [file.kind for file in files]
    assert [(10, 18), (1, 9)] == [
        (file.table.smallest_sequence, file.table.largest_sequence) for file in tables if file.table
    ]
    assert [
        (entry_key(LEDGER, 10), entry_key(LEDGER, 18)),
        (entry_key(LEDGER, 0), entry_key(LEDGER, 8)),
    ] == [(file.table.smallest_key, file.table.largest_key) for file in tables if file.table]
    assert [(made / file.name).stat().st_size for file in files] == [file.size for file in files]
    (log,) = by_kind(files, "log")

    assert (
        RowSummary(
            rows=8,
            tombstones=0,
            range_tombstones=2,
            smallest_sequence=19,
            largest_sequence=26,
            first_key=entry_key(LedgerId(0, 7), 0),
            last_key=entry_key(LedgerId(0, 4661), 3),
        )
        == log.summary
    )


def test_reading_changes_nothing(made: Path) -> None:
    """No file appears, none is touched."""
    before = {path.name: path.stat().st_mtime_ns for path in made.iterdir()}
    DatabaseFiles.open(made).files()

    assert before == {path.name: path.stat().st_mtime_ns for path in made.iterdir()}


def test_files_that_no_longer_count(copy: Path) -> None:
    """A table that no manifest lists, older manifests, options and logs are shown, and only the
    table is a finding, as a crash leaves it."""
    (copy / "000002.sst").write_bytes(b"half a table")
    for name in ("MANIFEST-000001", "OPTIONS-000002", "000001.log"):
        (copy / name).write_bytes(b"older")
    database = DatabaseFiles.open(copy)
    unlisted = {file.name for file in by_kind(database.files(), "unused")}

    assert {"000002.sst", "MANIFEST-000001", "OPTIONS-000002", "000001.log"} == unlisted
    assert [("oddity", str(copy / "000002.sst"))] == [
        (f.severity, f.file) for f in database.findings
    ]


def test_a_missing_table(copy: Path) -> None:
    """It stays in the list, without a size, and is a finding."""
    table = min(copy.glob("*.sst"))
    table.unlink()
    database = DatabaseFiles.open(copy)

    assert [(table.name, None)] == [(f.name, f.size) for f in database.files() if f.size is None]
    assert [("damage", str(table))] == [(f.severity, f.file) for f in database.findings]


def test_a_table_of_another_size(copy: Path) -> None:
    """The manifest has the size of each table."""
    table = min(copy.glob("*.sst"))
    size = table.stat().st_size
    table.write_bytes(table.read_bytes()[:-1])
    database = DatabaseFiles.open(copy)
    database.files()
    (finding,) = database.findings

    assert (str(table), size - 1) == (finding.file, finding.offset)
    assert f"has {size - 1} bytes, {size} in the manifest" == finding.detail


EVERY_NTH_BYTE = [
    *((name, 13) for name in ("CURRENT", "MANIFEST", "log")),
    *(pytest.param(name, 1, marks=pytest.mark.long) for name in ("CURRENT", "MANIFEST", "log")),
]


@pytest.mark.parametrize(("name", "step"), EVERY_NTH_BYTE)
def test_every_flip(made: Path, tmp_path: Path, name: str, step: int) -> None:
    """A flipped byte of CURRENT, the manifest or a log is a finding with its file: no other answer
    comes in silence."""
    copy = Path(shutil.copytree(made, tmp_path / "locations"))
    (target,) = [path for path in copy.iterdir() if name in path.name]
    data = target.read_bytes()
    expected = DatabaseFiles.open(made).files()
    for position in range(len(data) % step, len(data), step):
        flipped = bytearray(data)
        flipped[position] ^= 0x21
        target.write_bytes(flipped)
        database = DatabaseFiles.open(copy)
        files = database.files()

        assert database.findings or files == expected, position
        assert all((finding.file or "").startswith(str(copy)) for finding in database.findings)
    target.write_bytes(data)

    assert expected == DatabaseFiles.open(copy).files()


def record_ends(data: bytes) -> list[int]:
    """Return where the records of a small log file end, the start included."""
    ends = [0]
    while ends[-1] < len(data):
        ends.append(ends[-1] + 7 + int.from_bytes(data[ends[-1] + 4 : ends[-1] + 6], "little"))
    return ends


@pytest.mark.parametrize(("name", "step"), EVERY_NTH_BYTE)
def test_every_cut(made: Path, tmp_path: Path, name: str, step: int) -> None:
    """A file cut anywhere is a finding, or at the end of a record the state of that moment; a
    manifest so cut shows in the table that nothing lists."""
    copy = Path(shutil.copytree(made, tmp_path / "locations"))
    (target,) = [path for path in copy.iterdir() if name in path.name]
    data = target.read_bytes()
    ends = record_ends(data) if name != "CURRENT" else []
    for size in sorted({*range(0, len(data), step), *ends[:-1]}):
        target.write_bytes(data[:size])
        database = DatabaseFiles.open(copy)
        database.files()
        # A log may end after any record. The manifest's last one changes no file.
        is_state = size in (ends if name == "log" else ends[-2:])

        assert is_state == (not database.findings), size


def test_in_use(tmp_path: Path) -> None:
    """A database that is open for writing is refused, and read live; its rows are those of now."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(4660, range(9), range(1, 10))
        path = tmp_path / "current" / "locations"
        with pytest.raises(DirectoryInUse):
            DatabaseFiles.open(path)
        database = DatabaseFiles.open(path, live=True)
        (log,) = by_kind(database.files(), "log")

        assert log.summary is not None
        assert (9, []) == (log.summary.rows, database.findings)


def test_live_while_a_writer_writes(tmp_path: Path) -> None:
    """Files come and go while they are listed: each list is one that was true."""
    with RocksIndex(tmp_path, writable=True) as index:
        handle = index._database("locations", False)._handle
        for part in range(12):
            index.put_many(4660, range(part * 50, part * 50 + 50), range(1, 51))
            handle.flush()
            database = DatabaseFiles.open(tmp_path / "current" / "locations", live=True)
            tables = by_kind(database.files(), "table")

            assert [] == database.findings
            assert (part + 1) * 50 == max(f.table.largest_sequence for f in tables if f.table)


def test_no_database(tmp_path: Path) -> None:
    """A folder that is none is damage; no folder is not supported."""
    with pytest.raises(UnsupportedLayout):
        DatabaseFiles.open(tmp_path / "none")
    database = DatabaseFiles.open(tmp_path)

    assert [] == database.files()
    assert [str(tmp_path / "CURRENT")] == [finding.file for finding in database.findings]


def column_families(top: Path) -> str:
    """Make a database with another column family."""
    database = Rdict(str(top), Options(raw_mode=True))
    database.create_column_family("other", Options(raw_mode=True))
    database.close()
    return "column family 'other'"


def wide_columns(top: Path) -> str:
    """Make a database with a row of wide columns in its log."""
    database = Rdict(str(top / "made"), Options(raw_mode=True))
    database.put_entity(b"k", [b"name"], [b"value"])
    shutil.copytree(top / "made", top, dirs_exist_ok=True)
    database.close()
    shutil.rmtree(top / "made")
    return "a row of wide columns in a write-ahead log"


@pytest.mark.parametrize("make", [column_families, wide_columns])
def test_what_is_not_supported_is_named(tmp_path: Path, make: Callable[[Path], str]) -> None:
    """It is a finding, and what was read before it is shown."""
    reason = make(tmp_path)
    database = DatabaseFiles.open(tmp_path)

    assert by_kind(database.files(), "manifest")
    assert any(reason in finding.detail for finding in database.findings)


def test_random_logs(tmp_path: Path) -> None:
    """The summary of a log is that of the rows that were written."""
    random = np.random.default_rng(4)
    database = Rdict(str(tmp_path), Options(raw_mode=True))
    expected: list[tuple[int, bytes]] = []
    for _ in range(40):
        batch = WriteBatch(raw_mode=True)
        for _ in range(int(random.integers(1, 90))):
            key = random.bytes(int(random.choice([8, 16, 24])))
            if random.integers(5):
                batch.put(key, random.bytes(int(random.integers(0, 40))))
                expected.append((1, key))
            else:
                batch.delete(key)
                expected.append((0, key))
        database.write(batch)
    (log,) = by_kind(DatabaseFiles.open(tmp_path, live=True).files(), "log")
    database.close()
    keys = [key for _, key in expected]

    assert (
        RowSummary(
            len(keys),
            [kind for kind, _ in expected].count(0),
            0,
            1,
            len(keys),
            min(keys),
            max(keys),
        )
        == log.summary
    )


def test_missing_manifest(copy: Path) -> None:
    """Without a manifest it is unknown which tables and logs count."""
    next(copy.glob("MANIFEST-*")).unlink()
    database = DatabaseFiles.open(copy)

    kinds = {(file.name.partition("-")[0][-3:], file.kind) for file in database.files()}
    assert {("sst", "unknown"), ("log", "unknown"), ("ONS", "options")} == kinds
    assert ["missing" in finding.detail for finding in database.findings] == [True]
