"""Loads that end early or get what they cannot take: one clear line, nothing under the name."""

from __future__ import annotations

import errno
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bkstore import LedgerId, open_index
from bkstore.cli.main import main
from bkstore.errors import CorruptionError, MissingDependency, UnsupportedLayout, WriteFailed
from bkstore.files import disk_changes
from bkstore.index.api import LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.offline.dump import dump
from bkstore.offline.load import LocalLoadEngine, load
from bkstore.tables import ENTRIES
from bkstore.testing.faults import FaultPlan
from tests.patched_modules import patch_module
from tests.worlds.loads import (
    World,
    entry_row,
    fill,
    jumbled,
    make_world,
    plain_dump,
    read_world,
    write_table,
)

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

NAME = LedgerId(2**63, 2**64 - 1)
ONE: World = {NAME: ({0: 9}, LedgerState(b"k"))}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, World]:
    """Return a folder of Parquet in any order, and what it means."""
    world = make_world(21, 20)
    given, expected = jumbled(world, 22)
    return plain_dump(tmp_path_factory.mktemp("plain") / "dump", world, given), expected


def one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that is refused, and return its one line."""
    code = main(words)
    told = capsys.readouterr()

    assert (2, "") == (code, told.out)
    assert 1 == told.err.count("\n"), told.err
    assert told.err.startswith("bkstore: ")
    return told.err


# -- files that are not a dump's


def _foreign(path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2], "text": ["a", "b"]}), path)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[40:200] = random.Random(8).randbytes(160)
    path.write_bytes(data)


def _narrow(path: Path) -> None:
    table = pq.read_table(path)
    at = table.schema.get_field_index("position")
    pq.write_table(table.set_column(at, "position", table["position"].cast(pa.float64())), path)


def _renamed(path: Path) -> None:
    table = pq.read_table(path)
    names = ["entry" if name == "entry_id" else name for name in table.column_names]
    pq.write_table(table.rename_columns(names), path)


@pytest.mark.parametrize(
    ("harm", "line"),
    [
        (_foreign, "not the table entries of a dump: no column bookie"),
        (_cut, "cannot be read as Parquet"),
        (_flipped, "cannot be read as Parquet"),
        (lambda path: path.write_bytes(b""), "cannot be read as Parquet"),
        (lambda path: path.write_text("bookie,ledger\n"), "cannot be read as Parquet"),
        (_narrow, "not the table entries of a dump: position is double, not int64"),
        (_renamed, "not the table entries of a dump: no column entry_id"),
    ],
)
def test_parquet_that_is_no_dumps(
    plain: tuple[Path, World],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    harm: Any,
    line: str,
) -> None:
    """Foreign or unreadable Parquet, and a file whose columns drifted, are refused by name."""
    shutil.copytree(plain[0], tmp_path / "dump")
    path = tmp_path / "dump/entries/part-1.parquet"
    harm(path)
    words = ["load", str(tmp_path / "dump"), str(tmp_path / "out"), "--to=rocksdb"]
    told = one_line(words, capsys)

    assert line in told
    assert str(path) in told
    assert ["dump"] == [entry.name for entry in tmp_path.iterdir()]


BAD_ROWS = [
    (("b", 0, 0, -5, 0, 1, 9, None), r"ledger ids in scope 0 are at most 2\^63-1"),
    (("b", 0, 1, 1, -1, 1, 9, None), "entry ids are"),
    (("b", 0, 1, 1, 2**63 - 1, 1, 9, None), "entry ids are"),
    (("b", 0, 1, 1, 0, 2**31, 9, None), "log ids are"),
    (("b", 0, 1, 1, 0, 1, 2**32, None), "positions are 32 bits"),
    (("b", 0, 1, 1, 0, 0, 0, None), "log 0, position 0 is not a location"),
]


@pytest.mark.parametrize("table", ["entries", "ledgers"])
def test_texts_that_are_none(plain: tuple[Path, World], tmp_path: Path, table: str) -> None:
    """A bookie's name whose bytes are no UTF-8 is damage of that file, and no other error."""
    shutil.copytree(plain[0], tmp_path / "dump")
    path = sorted((tmp_path / "dump" / table).glob("*.parquet"))[0]
    rows = pq.read_table(path)
    names = pa.array([b"caf\xe9"] * len(rows), pa.binary()).cast(pa.string(), safe=False)
    at = rows.schema.get_field_index("bookie")
    pq.write_table(rows.set_column(at, "bookie", names.view(pa.string())), path)
    with pytest.raises(CorruptionError, match=r"UTF-?8") as raised:
        load(tmp_path / "dump", tmp_path / "out")

    assert str(path) == raised.value.file


@pytest.mark.parametrize(("row", "rule"), BAD_ROWS)
def test_rows_that_no_index_has(tmp_path: Path, row: tuple[Any, ...], rule: str) -> None:
    """A row outside the rules of ids and locations is an error that shows it."""
    plain_dump(tmp_path / "dump", ONE, [entry_row(NAME, 0, 9)], 1)
    write_table(tmp_path / "dump/entries/x.parquet", ENTRIES, [row])
    with pytest.raises(CorruptionError, match=rf"x\.parquet: not a row of an index .{rule}"):
        load(tmp_path / "dump", tmp_path / "out")

    assert ["dump"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("column", ["scope_id", "entry_id", "position"])
def test_null_where_there_must_be_none(tmp_path: Path, column: str) -> None:
    """A null in a column of ids is an error, never a zero."""
    plain_dump(tmp_path / "dump", ONE, [entry_row(NAME, 0, 9)] * 3, 1)
    path = tmp_path / "dump/entries/part-0.parquet"
    table = pq.read_table(path)
    at = table.schema.get_field_index(column)
    pq.write_table(table.set_column(at, column, pa.array([1, None, 2], pa.int64())), path)
    with pytest.raises(CorruptionError, match=f"null in column {column}"):
        load(tmp_path / "dump", tmp_path / "out")


def test_columns_that_may_differ(tmp_path: Path) -> None:
    """Another order of columns, one more, and large strings are taken: nothing is lost by them."""
    plain_dump(tmp_path / "dump", ONE, [entry_row(NAME, 0, 9)], 1)
    path = tmp_path / "dump/entries/part-0.parquet"
    table = pq.read_table(path).append_column("mine", pa.array([1.5]))
    at = table.schema.get_field_index("bookie")
    table = table.set_column(at, "bookie", table["bookie"].cast(pa.large_string()))
    pq.write_table(table.select(list(reversed(table.column_names))), path)
    (tmp_path / "dump/entries/_SUCCESS").touch()
    (tmp_path / "dump/entries/.part.parquet").write_bytes(b"half")
    load(tmp_path / "dump", tmp_path / "out")
    with open_index(tmp_path / "out") as index:
        assert read_world(index) == ONE


def test_no_pyarrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without pyarrow one line names the extra."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    told = one_line(["load", str(tmp_path / "dump"), str(tmp_path / "out"), "--to=idx"], capsys)

    assert "load needs pyarrow: pip install 'pyarrow>=18'" in told


def test_no_java(
    plain: tuple[Path, World],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without Java, `--engine spark` is one line that says what to install; nothing is made."""
    pytest.importorskip("pyspark")
    from bkstore.spark import session

    def nowhere(scratch: Path) -> Path:
        raise MissingDependency("Spark needs Java 17 or newer: set JAVA_HOME")

    monkeypatch.setattr(session, "_running_session", lambda: None)
    monkeypatch.setattr(session, "find_java_home", nowhere)
    words = ["load", str(plain[0]), str(tmp_path / "out"), "--to=idx", "--engine=spark"]
    told = one_line(words, capsys)

    assert "Spark needs Java 17 or newer" in told
    assert [] == list(tmp_path.iterdir())


def test_spark_needs_pyspark(
    plain: tuple[Path, World],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without pyspark, `--engine spark` names the extra, and `auto` does without."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    words = ["load", str(plain[0]), str(tmp_path / "out"), "--to=idx"]
    told = one_line([*words, "--engine=spark"], capsys)
    monkeypatch.setattr("bkstore.cli.datasets.load.find_spec", lambda name: None)
    monkeypatch.setattr("bkstore.cli.datasets.load.SPARK_ROWS", 1)

    assert "Spark needs pyspark: pip install 'pyspark==4.3.*' 'pyarrow>=18'" in told
    assert 0 == main(words)


# -- a disk that is full


@pytest.mark.parametrize("room", [0, 5_000, 50_000])
def test_full_disk_of_index_files(plain: tuple[Path, World], tmp_path: Path, room: int) -> None:
    """A full disk is one `WriteFailed`, and nothing is left; with room again it goes."""
    plan = FaultPlan()
    plan.disk_full(room)
    with pytest.raises(WriteFailed, match="cannot be written: No space left on device") as e:
        load(plain[0], tmp_path / "out", "idx", files=plan)

    assert 1 == len(str(e.value).splitlines())
    assert [] == list(tmp_path.iterdir())
    load(plain[0], tmp_path / "out", "idx")


def test_no_room_for_the_lock(
    plain: tuple[Path, World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where not even the lock file can be written, nothing is left either."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    patch_module(monkeypatch, disk_changes, "os", pwrite=full)
    with pytest.raises(WriteFailed, match="No space left on device"):
        load(plain[0], tmp_path / "out", "idx")

    assert [] == list(tmp_path.iterdir())


LIMITED = """
import os, resource, sys
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # what is compiled would be cut off, and stay so
sys.dont_write_bytecode = True
from bkstore.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))
sys.exit(main(["load", {dump!r}, {out!r}, "--to={to}"]))
"""


@pytest.mark.parametrize(
    ("to", "size", "what"),
    [("rocksdb", 4_000, "sst"), ("rocksdb", 50, "/sorted/rows-0-"), ("idx", 2000, "")],
)
def test_file_that_may_not_grow(
    plain: tuple[Path, World], tmp_path: Path, to: str, size: int, what: str
) -> None:
    """Where the system refuses to write a file of any kind, one line says so, exit code 2."""
    dumped, target = tmp_path / "dump", tmp_path / "target"
    rows = [entry_row(n, *row) for n, (held, _) in sorted(plain[1].items()) for row in held.items()]
    plain_dump(dumped, plain[1], sorted(rows) if "sorted" in what else rows, 1)
    target.mkdir()
    script = LIMITED.format(size=size, dump=str(dumped), out=str(target / "out"), to=to)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )

    assert (2, "") == (done.returncode, done.stdout), done.stderr
    assert 1 == done.stderr.count("\n"), done.stderr
    assert "cannot be written: " in done.stderr
    assert "File too large" in done.stderr
    assert what in done.stderr
    assert [] == list(target.iterdir())


# -- a process that ends


KILLED = """
import os, signal
from bkstore.offline.load import load_job as module
from bkstore.offline.load import LocalLoadEngine
from bkstore.offline import staging_directory
from bkstore.offline.index_building import assembly
from bkstore.files.disk_changes import Files

def kill(*args, **keywords):
    os.kill(os.getpid(), signal.SIGKILL)

point = {point!r}
if point == "writing":
    module.open_row_writer = kill
elif point == "building":
    module.build_index = kill
elif point == "states":
    assembly.put_states = kill
elif point == "comparing":
    module.compare_rows = kill
elif point == "renaming":
    staging_directory.StagingDirectory.publish = kill
elif point == "renamed":
    staging_directory.StagingDirectory._leave = kill
module.load({dump!r}, {out!r}, {to!r}, engine=LocalLoadEngine(500))
"""


@pytest.mark.parametrize("to", ["rocksdb", "idx"])
@pytest.mark.parametrize(
    "point", ["writing", "building", "states", "comparing", "renaming", "renamed"]
)
def test_kill(plain: tuple[Path, World], tmp_path: Path, to: Any, point: str) -> None:
    """A kill at any point leaves nothing under the name, or the whole; the next load is as any."""
    script = KILLED.format(point=point, dump=str(plain[0]), out=str(tmp_path / "out"), to=to)
    done = subprocess.run([sys.executable, "-c", script], check=False)
    there = (tmp_path / "out").exists()

    assert -signal.SIGKILL == done.returncode
    assert (point == "renamed") == there
    assert (tmp_path / "out.partial").is_dir()
    if there:
        with open_index(tmp_path / "out") as index:
            assert plain[1] == read_world(index)
        shutil.rmtree(tmp_path / "out")
    load(plain[0], tmp_path / "out", to)
    assert ["out"] == [path.name for path in tmp_path.iterdir()]
    with open_index(tmp_path / "out") as index:
        assert plain[1] == read_world(index)


def test_interrupt(plain: tuple[Path, World], tmp_path: Path) -> None:
    """Ctrl-C leaves nothing."""

    def interrupt(at: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(plain[0], tmp_path / "out", "rocksdb", interrupt, engine=LocalLoadEngine(100))

    assert [] == list(tmp_path.iterdir())


def test_index_file_with_too_many_holes(tmp_path: Path) -> None:
    """An entry so far that its index file would be of 8 GiB is refused, with its ledger."""
    plain_dump(tmp_path / "dump", ONE, [entry_row(NAME, 2**50, 9)], 1)
    from bkstore import InvalidArgument

    with pytest.raises(InvalidArgument, match=f"ledger {NAME}: entry .*: load to rocksdb"):
        load(tmp_path / "dump", tmp_path / "out", "idx")

    assert ["dump"] == [path.name for path in tmp_path.iterdir()]


def test_manifest_of_a_later_format(tmp_path: Path) -> None:
    """A dump of a later format is refused."""
    fill(HierarchicalIndex(tmp_path / "b", writable=True), ONE)
    dump([tmp_path / "b"], tmp_path / "dump")
    path = tmp_path / "dump/manifest.json"
    path.write_text(path.read_text().replace('"format": 2', '"format": 3'))
    with pytest.raises(UnsupportedLayout, match="format 3, supported are 1 and 2"):
        load(tmp_path / "dump", tmp_path / "out")
