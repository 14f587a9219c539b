"""Rewrites, checks and outputs for which the machine lacks something: nothing is published."""

from __future__ import annotations

import errno
import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

from bkstore import BookieDir, LedgerId
from bkstore.cli.main import _parser as parser, main
from bkstore.errors import (
    CorruptionError,
    ReadFailed,
    WriteFailed,
)
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.opening import list_files
from bkstore.files.user_outputs import write_output
from bkstore.index.api import Finding, IndexBatch
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks.tables import table_reader
from bkstore.offline.check import Check, workers
from bkstore.offline.check.log_check import LogTask
from bkstore.offline.dump import dump, workers as dump_workers
from bkstore.offline.dump.plan import DumpPiece
from bkstore.offline.load import LocalLoadEngine, load
from bkstore.offline.rewrite import convert, rebuild_index, salvage
from bkstore.offline.spilled_rows.rows_by_key import RowsByKey
from bkstore.offline.spilled_rows.rows_by_log import RowsByLog
from bkstore.offline.worker_pool import run_task
from bkstore.storage.directories import file_listing
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.entry_log.resynchronization import LogBytes
from bkstore.storage.entry_log.scan import read_log_metadata
from bkstore.testing.faults import FaultPlan
from tests.patched_modules import patch_module
from tests.worlds.bookies import Made, make_bookie

WRITERS: dict[str, Callable[..., Any]] = {
    "convert": convert,
    "rebuild": rebuild_index,
    "salvage": salvage,
}


def _refused(number: int) -> Callable[..., Any]:
    def call(*_args: object, **_options: object) -> Any:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize("storage", ["sorted", "db"])
@pytest.mark.parametrize("way", WRITERS)
def test_every_write_of_a_rewrite(tmp_path: Path, way: str, storage: Any) -> None:
    """Whichever write fails, of index, logs or spills: an error, and nothing is published."""
    made = make_bookie(tmp_path / "b", storage, scopes=False)
    to = "idx" if storage == "db" else "rocksdb"
    counting = FaultPlan()
    WRITERS[way](made.root, tmp_path / "sound", to, files=counting)
    for number in range(1, counting.writes + 1):
        plan = FaultPlan()
        plan.fail_write(number, errno.ENOSPC)
        with pytest.raises(WriteFailed):
            WRITERS[way](made.root, tmp_path / "out", to, files=plan)

        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("way", [*WRITERS, "dump"])
def test_the_syncs_of_a_name(tmp_path: Path, way: str) -> None:
    """A target whose name cannot be made durable has none: the rename is taken back."""
    made = make_bookie(tmp_path / "b", "sorted", scopes=False)

    def write(out: Path, files: Files) -> None:
        if way == "dump":
            dump([made.root], out, resume=False, files=files)
        else:
            WRITERS[way](made.root, out, "rocksdb", files=files)

    counting = FaultPlan()
    write(tmp_path / "sound", counting)
    for before_the_end in range(2):
        plan = FaultPlan()
        plan.fail_sync(counting.syncs - before_the_end)
        with pytest.raises(WriteFailed, match="cannot be written: Input/output error"):
            write(tmp_path / "out", plan)

        assert not (tmp_path / "out").exists()

    write(tmp_path / "out", OS_FILES)


class _NoRenames(FaultPlan):
    """Files of which no second rename of a folder succeeds."""

    renames = 0

    def replace(self, source: Any, target: Any) -> None:
        self.renames += os.path.isdir(source)
        if self.renames == 2:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), os.fspath(target))
        super().replace(source, target)


def test_a_name_that_cannot_be_taken_back(tmp_path: Path) -> None:
    """Then the error says that it is there; so it is, and whole."""
    made = make_bookie(tmp_path / "b", "sorted", scopes=False)
    counting, plan = FaultPlan(), _NoRenames()
    convert(made.root, tmp_path / "sound", "rocksdb", files=counting)
    plan.fail_sync(counting.syncs)
    with pytest.raises(WriteFailed, match=r"out: .*Input/output error; it is complete, but"):
        convert(made.root, tmp_path / "out", "rocksdb", files=plan)
    with BookieDir(tmp_path / "out") as bookie:
        assert made.ledgers[0] in bookie.index.ledgers()


def test_folders_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that may not be listed is an error; pathlib's globbing would pass over it."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("a/x", "a/b/y"):
        (tmp_path / name).touch()

    assert {tmp_path / "a" / "x", tmp_path / "a" / "b" / "y"} == set(list_files(tmp_path))

    scan = os.scandir

    def refuse(path: Any) -> Any:
        if os.fspath(path).endswith("b"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError):
        list(list_files(tmp_path))


class _Entry:
    """An entry of a folder that the system refuses to look at."""

    path = "/b/0.log"

    def __init__(self, number: int) -> None:
        self._number = number

    def is_dir(self) -> bool:
        return False

    def stat(self) -> os.stat_result:
        raise OSError(self._number, os.strerror(self._number), self.path)


def test_looks_that_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that may not be looked at is not one that changed; one that is gone did."""
    for number in (errno.ENOENT, errno.ELOOP, errno.EIO):
        patch_module(monkeypatch, file_listing, "os", scandir=lambda _, n=number: [_Entry(n)])

        assert {"/b/0.log": (-1, 0)} == file_listing.stat_files([Path("/b")])

    for number in (errno.EACCES, errno.ENOMEM, errno.EMFILE):
        patch_module(monkeypatch, file_listing, "os", scandir=lambda _, n=number: [_Entry(n)])
        with pytest.raises(OSError, match=r"0\.log") as caught:
            file_listing.stat_files([Path("/b")])

        assert number == caught.value.errno


def test_a_map_that_the_medium_fails_under(bookie: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is counted by a scan instead comes with a finding: a read failed, if only once."""
    path = bookie.root / "ledgers" / "current" / "0.log"
    sound, _ = read_log_metadata(path, 0)
    peek, failures = LogBytes.read, iter([True])

    def fail_once(self: LogBytes, start: int, size: int) -> bytes | memoryview:
        if next(failures, False):
            raise CorruptionError(path, None, "cannot be read: Input/output error")
        return peek(self, start, size)

    monkeypatch.setattr(LogBytes, "read", fail_once)
    findings: list[Finding] = []
    metadata, how = read_log_metadata(path, 0, findings)

    assert ("scan", sound.ledgers) == (how, metadata.ledgers)
    assert ["cannot be read: Input/output error"] == [found.detail for found in findings]


_READERS = {
    "ledgers": ["--all-scopes"],
    "ledger": ["--ledger-id", "LEDGER"],
    "availability": ["--ledger-id", "LEDGER"],
    "readledger": ["--ledger-id", "LEDGER"],
    "where": ["--ledger-id", "LEDGER"],
    "readlog": [],
    "readlogmetadata": [],
    "readjournal": [],
    "lastmark": [],
    "listfiles": [],
    "check": [],
    "usage": [],
}


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Return a bookie that is only read."""
    return make_bookie(tmp_path_factory.mktemp("read") / "b", "sorted", scopes=False)


@pytest.mark.parametrize("name", _READERS)
def test_no_output_of_what_moved(
    bookie: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A directory that changed while it was read gives no output file."""
    seen = iter(range(9))
    monkeypatch.setattr(BookieDir, "_list_file_states", lambda _: {"/b/0.log": (next(seen), 0)})
    out = tmp_path / "out.csv"
    with BookieDir(bookie.root, live=True) as opened:
        ledger = str(opened.index.ledgers()[0].ledger)
    words = [ledger if word == "LEDGER" else word for word in _READERS[name]]

    assert 2 == main([name, str(bookie.root), *words, "--format", "csv", "-o", str(out)])
    assert not out.exists()


@pytest.mark.parametrize("way", ["rebuild", "salvage"])
def test_an_old_index_that_the_machine_cannot_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """It is not a lost one: no directory without keys and with deleted ledgers is published."""
    made = make_bookie(tmp_path / "b", "db")
    monkeypatch.setattr(table_reader, "open_regular", _refused(errno.EMFILE))
    with pytest.raises(ReadFailed, match=r"locations/\d+\.sst: .*Too many open files"):
        WRITERS[way](made.root, tmp_path / "out", "idx")

    assert not (tmp_path / "out").exists()


def test_a_check_without_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that cannot spill its rows ends with the error, not with findings."""
    made = make_bookie(tmp_path / "b", "sorted")
    with BookieDir(made.root) as bookie:
        monkeypatch.setattr(OS_FILES, "pwrite", _refused(errno.ENOSPC))
        with pytest.raises(WriteFailed, match=r"bkstore-check-.*No space left on device"):
            list(Check(bookie))


def test_a_check_whose_worker_is_refused_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker sends what the machine refused it as the error that it is."""
    made = make_bookie(tmp_path / "b", "sorted")
    error = ReadFailed("/b/0.log", OSError(errno.EMFILE, "Too many open files"))

    def refuse(*_args: object) -> None:
        raise error

    monkeypatch.setattr(workers, "check_log", refuse)
    checks = workers.LogCheckContext(made.root, False, "idx", None, tmp_path / "rows", None)
    task = LogTask(LogFile(0, 0, "/b/0.log", 0), True, [])
    with workers.log_checker(checks) as runner:
        message = run_task(runner, (0, task), lambda _: None)
    kind, sent = pickle.loads(pickle.dumps(message))

    assert ("refused", ReadFailed, str(error)) == (kind, type(sent), str(sent))


def test_a_named_file_whose_name_is_not_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is new goes again; one that was there has been replaced, and says so."""
    results = iter([None, OSError(errno.EIO, os.strerror(errno.EIO))] * 2)

    def sync(_: int) -> None:
        result = next(results)
        if result is not None:
            raise result

    monkeypatch.setattr(OS_FILES, "fsync", sync)
    old = tmp_path / "old"
    old.write_bytes(b"old")
    for path in (tmp_path / "new", old):
        with pytest.raises(
            WriteFailed, match=rf"{path.name}: cannot be written: Input/output error"
        ):
            write_output(path, b"new")

    assert ["old"] == os.listdir(tmp_path)


# -- spills


def _full() -> FaultPlan:
    plan = FaultPlan()
    plan.disk_full()
    return plan


ROWS = IndexBatch.of_ledger(LedgerId.of(7), np.arange(3), np.arange(3) + 1028)


def test_rows_by_log_go_through_the_files(tmp_path: Path) -> None:
    """A full disk under the rows of an old index is an error, whoever makes the spill."""
    rows = RowsByLog(tmp_path / "rows", _full())
    rows.add(ROWS)
    with pytest.raises(WriteFailed, match="No space left on device"):
        rows.finish()


def test_sorted_rows_go_through_the_files(tmp_path: Path) -> None:
    """So it is under rows that are sorted."""
    sorter = RowsByKey(tmp_path, "rows", _full(), run_rows=1)
    with pytest.raises(WriteFailed, match="No space left on device"):
        sorter.add(ROWS)


def test_sorted_runs_of_a_load_go_through_the_files(tmp_path: Path) -> None:
    """So it is under rows of a dump that come in no order."""
    with HierarchicalIndex(tmp_path / "b", writable=True) as index:
        index.put_many(7, np.arange(300), np.arange(300) + 1028)
    dump([tmp_path / "b"], tmp_path / "dump")
    for path in (tmp_path / "dump" / "entries").iterdir():
        table = parquet.read_table(path)
        parquet.write_table(table.take(list(reversed(range(len(table))))), path)
    (tmp_path / "dump" / "manifest.json").unlink()
    seen = []

    class Watched(FaultPlan):
        def open(self, path: Any, flags: int, mode: int = 0o644) -> int:
            seen.append(os.fspath(path))
            return super().open(path, flags, mode)

    load(tmp_path / "dump", tmp_path / "out", "idx", engine=LocalLoadEngine(64), files=Watched())

    opened = Counter(path for path in seen if "/sorted/rows-0-" in path)

    assert {1} == set(opened.values())


# -- what is no refusal of a call


@pytest.fixture
def fresh_parser() -> Iterator[None]:
    """Let the parser, which keeps commands that it has loaded, be made anew, before and after."""
    parser.cache_clear()
    yield
    parser.cache_clear()


@pytest.mark.usefixtures("fresh_parser")
def test_no_memory(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Too little memory for an array is one line, too."""

    def run(_: object) -> int:
        raise MemoryError

    monkeypatch.setattr("bkstore.cli.bookie.lastmark.run", run)

    assert 2 == main(["lastmark", "/b"])
    assert ("", "bkstore: not enough memory\n") == capsys.readouterr()


def test_a_dump_whose_piece_is_refused_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the dump; the bookie is not called unread."""
    error = ReadFailed("/b/7.idx", OSError(errno.EMFILE, "Too many open files"))

    def refuse(*_args: object) -> None:
        raise error

    monkeypatch.setattr(dump_workers, "write_piece", refuse)
    piece = DumpPiece("b1", "logs", 0, 0, False, False, ())
    tasks = [dump_workers.PieceTask(piece, "")]
    with pytest.raises(ReadFailed) as raised:
        list(dump_workers.run_tasks(tasks, Path("/b"), 1, lambda *_: None, lambda _: True))

    assert error is raised.value


def test_lengths_of_records_that_are_refused(
    bookie: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that the machine cannot open now is no log without lengths."""
    refused = _refused(errno.EMFILE)
    monkeypatch.setattr("bkstore.offline.dump.record_lengths.OpenFile", refused)
    with pytest.raises(ReadFailed, match=r"0\.log: cannot be read: Too many open files"):
        dump([bookie.root], tmp_path / "out", length=True)

    assert not (tmp_path / "out").exists()
