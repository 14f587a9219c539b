"""Reading changes nothing, needs no write permission, opens no entry log, leaves nothing behind."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore import BkstoreError, BookieDir, CorruptionError, open_index
from bkstore.ids import LedgerId
from bkstore.index.api import Finding, LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.storage.read_only.ledgers_table import ledger_tables
from bkstore.testing.leaks import CAN_LIST_OPEN_FILES, assert_no_leaks

NOBODY = 65534

READ_ALL = """
import json, sys
from bkstore import BookieDir

def read_all(path):
    with BookieDir(path) as bookie:
        index = bookie.index
        rows = [[int(v) for v in row] for part in bookie.scan(100, []) for row in zip(*part)]
        states = [index.state(name).master_key.hex() for name in index.ledgers()]
        lists = [index.entries(name).tolist() for name in index.ledgers()]
        ranges = [index.availability(name).ranges().tolist() for name in index.ledgers()]
        lasts = [index.last_entry(name) for name in index.ledgers()]
        found = [index.get(name, 1) for name in index.ledgers()]
        many = [index.get_many(name, [0, 1, 500]).tolist() for name in index.ledgers()]
        findings = [finding.detail for finding in [*index.findings(), *bookie.findings()]]
        logs = [log.log_id for log in bookie.entry_logs]
        bookie.check_unchanged()
        return [rows, states, lists, ranges, lasts, found, many, findings, logs]
"""
_namespace: dict[str, Any] = {}
exec(READ_ALL, _namespace)  # the same code here and in child processes
read_all: Callable[[Path], list[Any]] = _namespace["read_all"]


def _logs(current: Path) -> None:
    for number in range(2):
        (current / f"{number:x}.log").write_bytes(b"BKLO" + bytes(2000))
    (current / "lastId").write_text("1")


def _make_idx(top: Path) -> None:
    with HierarchicalIndex([top / "a", top / "b"], writable=True) as index:
        for ledger in range(6):
            index.put_many(ledger, range(0, 3000, 3), range(1028, 2028))
            index.set_state(ledger, LedgerState(b"k" * 20, True))
    shutil.copy(top / "a/current/0/2/2.idx", top / "a/current/0/2/2.idx.rloc")
    _logs(top / "a" / "current")


def _make_rocks(top: Path, flush: bool = True) -> None:
    made = top.with_name(top.name + "-made")
    for number in range(2):
        with RocksIndex(made / f"d{number}", writable=True) as index:
            for ledger in range(number, 6, 2):
                index.put_many(ledger, range(0, 3000, 3), range(1028, 2028))
                index.set_state(ledger, LedgerState(b"k" * 20, True))
            if not flush:
                index.flush()
                shutil.copytree(made / f"d{number}", top / f"d{number}")
    if flush:
        shutil.copytree(made, top)
    shutil.rmtree(made)
    for number in range(2):
        _logs(top / f"d{number}" / "current")


MAKERS: dict[str, Callable[[Path], None]] = {
    "idx": _make_idx,
    "rocksdb": _make_rocks,
    "rocksdb, unflushed": lambda top: _make_rocks(top, flush=False),
}


@pytest.fixture(params=MAKERS)
def bookie(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a bookie of each layout, its index whole, its entry logs of no use."""
    MAKERS[request.param](tmp_path / "bookie")
    return tmp_path / "bookie"


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that temporary files go to during the test."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def _snapshot(top: Path) -> dict[str, tuple[int, int, str]]:
    """Return mode, time of change and content of everything; a folder's time tells of comings
    and goings that are over again."""
    found = {}
    for path in [top, *sorted(top.rglob("*"))]:
        info = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path)] = (info.st_mode, info.st_mtime_ns, content)
    return found


can_check = pytest.mark.skipif(not CAN_LIST_OPEN_FILES, reason="open files cannot be told here")


# -- nothing changes


def test_reading_changes_nothing(bookie: Path, scratch: Path) -> None:
    """Everything that reads leaves each file as it was, and makes none, not for a moment."""
    before = _snapshot(bookie)
    answers = read_all(bookie)

    assert 6 == len(answers[1])
    assert before == _snapshot(bookie)
    assert [] == os.listdir(scratch)


def test_live_reading_changes_nothing(bookie: Path, scratch: Path) -> None:
    """The same where the directory is read as one that is in use."""
    before = _snapshot(bookie)
    with BookieDir(bookie, live=True) as opened:
        assert 6 == len(opened.index.ledgers())
        assert 6000 == sum(part.entry_id.size for part in opened.scan())

    assert before == _snapshot(bookie)
    assert [] == os.listdir(scratch)


@pytest.mark.parametrize("name", ["db_main", "interleaved_main", "db_limbo", "sorted_compacted"])
def test_golden_trees_stay_as_they_are(
    unpack: Callable[[str], tuple[Path, Any]], scratch: Path, name: str
) -> None:
    """Trees of the real BookKeeper are left untouched too."""
    root, _ = unpack(f"bookkeeper/{name}")
    before = _snapshot(root)
    with BookieDir(next(path.parents[1] for path in root.rglob("lastId"))) as opened:
        ledgers = opened.index.ledgers()
        listed = [opened.index.entries(ledger).size for ledger in ledgers]
        scanned = sum(part.entry_id.size for part in opened.scan())
        opened.findings()

    assert sum(listed) == scanned
    assert before == _snapshot(root)
    assert [] == os.listdir(scratch)


@can_check
def test_refused_opening_changes_nothing(tmp_path: Path, scratch: Path) -> None:
    """A directory that cannot be read stays as it is, and no scratch directory stays."""
    _make_rocks(tmp_path / "bookie")
    for name in ("CURRENT", "MANIFEST-*"):
        (file,) = (tmp_path / "bookie" / "d1" / "current" / "ledgers").glob(name)
        data = file.read_bytes()
        file.write_bytes(data[:10] + b"\xff" + data[11:])
        before = _snapshot(tmp_path / "bookie")
        with pytest.raises(CorruptionError):
            BookieDir(tmp_path / "bookie")

        assert before == _snapshot(tmp_path / "bookie")
        assert [] == os.listdir(scratch)
        assert_no_leaks(tmp_path)
        file.write_bytes(data)


@can_check
def test_reading_beside_damage_changes_nothing(tmp_path: Path, scratch: Path) -> None:
    """A directory of which a block cannot be read, too."""
    _make_rocks(tmp_path / "bookie")
    (file,) = (tmp_path / "bookie" / "d1" / "current" / "ledgers").glob("*.sst")
    data = file.read_bytes()
    file.write_bytes(data[:10] + b"\xff" + data[11:])
    before = _snapshot(tmp_path / "bookie")
    with BookieDir(tmp_path / "bookie") as bookie:
        assert bookie.index.list_readable_ledgers().unknown
        assert "damage" in [finding.severity for finding in bookie.findings()]

    assert before == _snapshot(tmp_path / "bookie")
    assert [] == os.listdir(scratch)
    assert_no_leaks(tmp_path)


# -- nothing is left behind


@can_check
def test_descriptors_are_closed(bookie: Path, scratch: Path) -> None:
    """Opening and closing leaks no file descriptor."""
    for _ in range(2):
        read_all(bookie)

        assert_no_leaks(bookie)
        assert_no_leaks(scratch)


def test_forgotten_index_cleans_up(bookie: Path, scratch: Path) -> None:
    """An index that nobody closes removes its scratch directory when it is collected."""
    index = open_index(bookie)
    index.ledgers()
    del index
    gc.collect()

    assert [] == os.listdir(scratch)


def test_process_that_never_closes_cleans_up(bookie: Path, scratch: Path) -> None:
    """A process that ends with an index open leaves no scratch directory."""
    code = "import sys, bkstore; index = bkstore.open_index(sys.argv[1]); print(index.ledgers())"
    subprocess.run(
        [sys.executable, "-c", code, str(bookie)],
        env={**os.environ, "TMPDIR": str(scratch)},
        capture_output=True,
        check=True,
    )

    assert [] == os.listdir(scratch)


# -- without permission


Run = Callable[[str, Path], Any]

# Every module that reading can ask for is loaded before the rights go, and the path to others is
# taken away: interpreter and checkout may lie where others cannot read. A process of its own,
# because RocksDB's threads do not survive a fork; one for all tests, because loading takes long.
ANOTHER_USER = f"""
import gc, importlib, json, os, pkgutil, sys
import bkstore, bkstore.index.hierarchical
from bkstore import *
for room in ("files", "formats", "index", "storage"):
    package = importlib.import_module("bkstore." + room)
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
for name, module in list(sys.modules.items()):
    if name.partition(".")[0] == "bkstore" and hasattr(module, "__path__"):
        module.__path__[:] = []
if os.getuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
{READ_ALL}
for line in sys.stdin:
    code, *sys.argv[1:] = json.loads(line)
    exec(code, dict(globals()))
    sys.stdout.flush()
    gc.collect()
"""


@pytest.fixture(scope="module")
def another_user() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Yield the process of a user who owns nothing, and the folder for its temporary files.

    The folder lies outside pytest's, which others may not enter.
    """
    temporary = Path(tempfile.mkdtemp(prefix="bkstore-test-"))
    temporary.chmod(0o777)
    with subprocess.Popen(
        [sys.executable, "-c", ANOTHER_USER],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process, temporary
        rest = process.communicate()
    temporary.rmdir()

    assert (("", ""), 0) == (rest, process.returncode)


@pytest.fixture
def as_other(another_user: tuple[subprocess.Popen[str], Path]) -> Iterator[Run]:
    """Return a function that runs code as a user who owns nothing; it prints a line of JSON."""
    process, temporary = another_user

    def run(code: str, path: Path) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([code, str(path)]) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise AssertionError(process.communicate()[1])
        return json.loads(line)

    yield run
    assert [] == os.listdir(temporary)


@pytest.fixture(params=MAKERS)
def shared(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Return a bookie of each layout that others may read, and nobody may write."""
    top = Path(tempfile.mkdtemp(prefix="bkstore-shared-"))
    MAKERS[request.param](top / "bookie")
    _permit(top, 0o555, 0o444)
    yield top / "bookie"
    _permit(top, 0o755, 0o644)
    shutil.rmtree(top)


def _permit(top: Path, folders: int, files: int) -> None:
    for path in sorted(top.rglob("*"), reverse=True):
        os.chmod(path, folders if path.is_dir() else files)
    os.chmod(top, folders)


def test_reading_as_another_user(shared: Path, as_other: Run) -> None:
    """Somebody who may only read gets the same answers."""
    before = _snapshot(shared)

    assert read_all(shared) == as_other("print(json.dumps(read_all(sys.argv[1])))", shared)
    assert before == _snapshot(shared)


REFUSED = """
try:
    answer = read_all(sys.argv[1])
except Exception as error:
    answer = [type(error).__module__ + "." + type(error).__name__, str(error)]
print(json.dumps(answer))
"""


def test_unreadable_is_not_empty(shared: Path, as_other: Run) -> None:
    """What another user may not read is an error that names it, never "not here"."""
    files = sorted(path for path in shared.rglob("*") if path.is_file())
    index_files = [p for p in files if p.suffix in (".idx", ".sst") or p.name == "CURRENT"]
    folders = {path.parent for path in index_files}
    for path in [*index_files[:3], *sorted(folders)[:3]]:
        mode = path.stat().st_mode
        os.chmod(path, 0)
        name, message = as_other(REFUSED, shared)
        os.chmod(path, mode)

        assert name.startswith("bkstore.errors.")
        assert name.removeprefix("bkstore.errors.") not in ("NoSuchLedger", "NoSuchEntry")
        assert str(shared) in message
        assert "bkstore-rocksdb-" not in message


def test_look_up_in_an_unreadable_folder(as_other: Run) -> None:
    """A look-up by path does not say "no such ledger" of a folder it may not enter."""
    top = Path(tempfile.mkdtemp(prefix="bkstore-shared-"))
    with HierarchicalIndex(top, writable=True) as index:
        index.put_many(7, [0], [1028])
    _permit(top, 0o755, 0o644)
    os.chmod(top / "current" / "0" / "7", 0)
    code = (
        "try:\n    bkstore.index.hierarchical.HierarchicalIndex(sys.argv[1]).state(7)\n"
        "except Exception as error:\n    print(json.dumps([type(error).__name__, str(error)]))"
    )
    name, message = as_other(code, top)
    shutil.rmtree(top)

    assert "ReadFailed" == name
    assert "7.idx" in message


# -- entry logs stay closed


def test_no_entry_log_is_opened(bookie: Path) -> None:
    """Listing, availability, rows and findings open no entry log: Python's audit says so."""
    code = f"""{READ_ALL}
import os
opened = []
sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" else None)
read_all(sys.argv[1])
print(json.dumps([os.fspath(p) for p in opened if isinstance(p, (str, os.PathLike))]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(bookie)], capture_output=True, text=True, check=True
    )
    opened = [Path(name) for name in json.loads(done.stdout)]

    assert [] == [path for path in opened if path.parent.name == "current" and ".log" in path.name]
    assert [path for path in opened if path.is_relative_to(bookie)]


def test_entry_logs_may_be_anything(bookie: Path) -> None:
    """Pipes in the place of the entry logs block nobody, and without them the index answers."""
    expected = read_all(bookie)
    logs = sorted(path for path in bookie.rglob("*.log") if path.parent.name == "current")
    for log in logs:
        log.unlink()
    without = read_all(bookie)
    for log in logs:
        os.mkfifo(log)
    with_pipes = read_all(bookie)

    assert len(logs) > 1
    assert expected[1:7] == without[1:7]
    assert expected[1:7] == with_pipes[1:7]


def test_availability_needs_the_index_only(bookie: Path) -> None:
    """With unreadable entry logs, availability and locations are complete."""
    for log in bookie.rglob("*.log"):
        if log.parent.name == "current":
            log.unlink()
            log.mkdir()
    with open_index(bookie) as index:
        assert 1000 == len(index.availability(3))
        assert 2027 == index.get(3, 2997)


def test_reader_does_not_write(bookie: Path) -> None:
    """An index that was opened for reading refuses to write, and stays as it was."""
    before = _snapshot(bookie)
    with open_index(bookie) as index:
        for act in (
            lambda: index.put(1, 1, 1),
            lambda: index.put_many(1, [1], [1]),
            lambda: index.delete(1),
            lambda: index.set_state(1, LedgerState()),
        ):
            with pytest.raises(BkstoreError, match="opened read-only"):
                act()
        index.flush()

    assert before == _snapshot(bookie)


def test_unreadable_file_is_a_finding_in_listings(tmp_path: Path) -> None:
    """A folder in the place of an index file: the other ledgers are listed, this one is named."""
    with HierarchicalIndex(tmp_path, writable=True) as index:
        for ledger in (1, 2):
            index.put_many(ledger, [0], [1028])
        path = Path(index.path(1) or "")
    path.unlink()
    path.mkdir()
    findings: list[Finding] = []
    with BookieDir(tmp_path) as bookie:
        rows = [row for table in ledger_tables(bookie, findings) for row in table.rows()]

    assert {1: None, 2: 1} == {row[2]: row[4] for row in rows}
    assert [LedgerId.of(1)] == [found.ledger for found in findings]
