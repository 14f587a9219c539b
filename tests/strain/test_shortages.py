"""Shortages of the machine in each room that once took them for damage, and what comes after."""

from __future__ import annotations

import errno
import os
import pickle
import socket
from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from bkstore import Availability, BookieDir, LedgerId
from bkstore.cli.main import main
from bkstore.cluster import Auditor, MemoryStore
from bkstore.errors import (
    BkstoreError,
    CorruptionError,
    MissingDependency,
    ReadFailed,
    SyncFailed,
    SystemRefused,
    WriteFailed,
)
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.os_errors import reading_back, syncing, unreadable
from bkstore.files.scratch import scratch_directory
from bkstore.files.spill_files import append_spill, opened_spill, read_spill
from bkstore.index.api import Finding
from bkstore.index.many_ledgers import Errors, one_by_one
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.offline.check import Check, workers
from bkstore.offline.check.log_check import LogTask
from bkstore.offline.dump import dump
from bkstore.offline.rewrite import convert, rebuild_index, salvage
from bkstore.storage.directories import file_listing
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.entry_log.resync import LogBytes
from bkstore.storage.entry_log.scan import read_log_metadata
from bkstore.testing.factories import StorageFactory
from bkstore.testing.faults import FaultPlan
from bkstore.testing.suites.storage.base import KEY, record
from bkstore.wire.client.stream import connect
from bkstore.wire.status import Status, status_of
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


# -- the rule


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EIO, CorruptionError),
        (errno.EISDIR, CorruptionError),
        (errno.EACCES, ReadFailed),
        (errno.EPERM, ReadFailed),
        (errno.EMFILE, ReadFailed),
        (errno.ENFILE, ReadFailed),
        (errno.ENOMEM, ReadFailed),
        (errno.ENOSPC, ReadFailed),
        (errno.EDQUOT, ReadFailed),
        (errno.ENOENT, BkstoreError),
    ],
)
def test_what_a_refused_read_says(number: int, kind: type[BkstoreError]) -> None:
    """The medium and the kind of a file are facts about data, a shortage is one of the machine."""
    error = unreadable(OSError(number, os.strerror(number)), "/b/0.log")

    assert kind is type(error)
    assert "/b/0.log" in str(error)


@pytest.mark.parametrize(
    "error",
    [
        ReadFailed("/b/0.log", OSError(errno.EACCES, "Permission denied")),
        WriteFailed("/tmp/rows", OSError(errno.ENOSPC, "No space left on device")),
        SyncFailed("/tmp/rows", OSError(errno.EIO, "Input/output error")),
        SystemRefused("a worker process", OSError(errno.ENOMEM, "Cannot allocate memory")),
        MissingDependency("pyarrow is needed"),
    ],
)
def test_no_finding_of_a_shortage(error: BkstoreError) -> None:
    """Where an error becomes a finding, one that says nothing about data is raised again."""
    with pytest.raises(type(error)) as caught:
        Finding.of(error)

    assert error is caught.value


def test_a_finding_of_damage() -> None:
    """What bytes say is a finding, with its file, offset and reason."""
    finding = Finding.of(CorruptionError("/b/0.log", 7, "bad"))

    assert ("damage", "/b/0.log", 7, "bad") == (
        finding.severity,
        finding.file,
        finding.offset,
        finding.detail,
    )


@pytest.mark.parametrize("kind", [ReadFailed, WriteFailed, SyncFailed, SystemRefused])
def test_shortages_come_out_of_processes(kind: type[SystemRefused]) -> None:
    """A worker sends the error as it was raised: its kind, place, number and words."""
    error = kind("/b/0.log", OSError(errno.EMFILE, "Too many open files"))
    sent = pickle.loads(pickle.dumps(error))

    assert kind is type(sent)
    assert (str(error), "/b/0.log", errno.EMFILE) == (str(sent), sent.file, sent.errno)


def test_listings_end_with_a_shortage() -> None:
    """It is raised where errors of single ledgers are gathered, too."""

    def refuse(_: LedgerId) -> Availability:
        raise ReadFailed("/b/7.idx", OSError(errno.EMFILE, "Too many open files"))

    errors: Errors = {}
    with pytest.raises(ReadFailed):
        list(one_by_one(refuse, [LedgerId.of(7)], errors))

    assert {} == errors


# -- our own files


def test_spills_are_no_data(tmp_path: Path) -> None:
    """A spill that cannot be read back, or lost its end, is the machine's failure: no damage."""
    path = tmp_path / "rows"
    append_spill(path, b"abc", OS_FILES)
    append_spill(path, memoryview(b"defg"), OS_FILES)

    assert b"abcdefg" == read_spill(path)

    with opened_spill(path) as spill:
        assert b"cd" == spill.read(2, 2)

        with pytest.raises(ReadFailed, match="ends at 7"):
            spill.read(5, 3)
    with pytest.raises(ReadFailed, match="none: cannot be read: No such file"):
        read_spill(tmp_path / "none")
    with pytest.raises(ReadFailed, match="Input/output error"), reading_back(path):
        _refused(errno.EIO)()


def test_spills_are_written_through_the_files(tmp_path: Path) -> None:
    """A fault plan reaches every spill."""
    plan = FaultPlan()
    plan.fail_write(2, errno.ENOSPC)
    append_spill(tmp_path / "rows", b"abc", plan)
    with pytest.raises(WriteFailed, match="rows: cannot be written: No space left on device"):
        append_spill(tmp_path / "rows", b"abc", plan)


def test_a_scratch_directory_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the place, and a directory whose marker was refused does not stay."""
    with (
        pytest.raises(WriteFailed, match="none/bkstore-test-"),
        scratch_directory("test", tmp_path / "none"),
    ):
        pass
    monkeypatch.setattr("bkstore.files.scratch.os.open", _refused(errno.EMFILE))
    with (
        pytest.raises(WriteFailed, match=r"bkstore-test-.*Too many open files"),
        scratch_directory("test", tmp_path),
    ):
        pass

    assert [] == os.listdir(tmp_path)


# -- rewrites and checks


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
    with pytest.raises(WriteFailed, match=r"out: .*Input/output error; it is there and whole"):
        convert(made.root, tmp_path / "out", "rocksdb", files=plan)
    with BookieDir(tmp_path / "out") as bookie:
        assert made.ledgers[0] in bookie.index.ledgers()


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
        monkeypatch.setattr(file_listing.os, "scandir", lambda _, n=number: [_Entry(n)])

        assert {"/b/0.log": (-1, 0)} == file_listing.sizes_and_times([Path("/b")])

    for number in (errno.EACCES, errno.ENOMEM, errno.EMFILE):
        monkeypatch.setattr(file_listing.os, "scandir", lambda _, n=number: [_Entry(n)])
        with pytest.raises(OSError, match=r"0\.log") as caught:
            file_listing.sizes_and_times([Path("/b")])

        assert number == caught.value.errno


def test_a_map_that_the_medium_fails_under(bookie: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is counted by a scan instead comes with a finding: a read failed, if only once."""
    path = bookie.root / "ledgers" / "current" / "0.log"
    sound, _ = read_log_metadata(path, 0)
    peek, failures = LogBytes.peek, iter([True])

    def fail_once(self: LogBytes, start: int, size: int) -> bytes | memoryview:
        if next(failures, False):
            raise CorruptionError(path, None, "cannot be read: Input/output error")
        return peek(self, start, size)

    monkeypatch.setattr(LogBytes, "peek", fail_once)
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
    monkeypatch.setattr(BookieDir, "_fingerprint", lambda _: {"/b/0.log": (next(seen), 0)})
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
    monkeypatch.setattr(OS_FILES, "symlink", _refused(errno.ENOSPC))
    with pytest.raises(WriteFailed, match="No space left on device"):
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
    monkeypatch.setattr(workers.signal, "signal", lambda *_args: None)
    ours, theirs = Pipe()
    checks = workers.LogChecks(made.root, False, "idx", None, tmp_path / "rows", None)
    ours.send(checks)
    ours.send(LogTask(LogFile(0, 0, "/b/0.log", 0), True, []))
    with socket.socket(fileno=os.dup(ours.fileno())) as half:
        half.shutdown(socket.SHUT_WR)
    workers.work(os.dup(theirs.fileno()))
    theirs.close()
    sent = ours.recv()

    assert (ReadFailed, str(error)) == (type(sent), str(sent))


# -- syncs that could not begin


class _NoDescriptors(Files):
    """Files whose directories cannot be opened to be synced, while `full`."""

    full = False

    def sync_dir(self, path: Any) -> None:
        if not self.full:
            super().sync_dir(path)
            return
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bkstore.files.disk_changes.os.open", _refused(errno.EMFILE))
            super().sync_dir(path)


@pytest.mark.parametrize("kind", ["sorted", "interleaved", "db"])
def test_a_sync_without_a_descriptor(tmp_path: Path, kind: Any) -> None:
    """No sync was tried, so nothing may be lost: the next flush does what this one could not."""
    files = _NoDescriptors()
    make = StorageFactory(tmp_path, kind, files)
    storage = make()
    storage.add_entry(record(7, 0), master_key=KEY)
    storage.flush()
    storage.add_entry(record(7, 1), master_key=KEY)
    storage.add_entry(record(8, 0), master_key=KEY)
    files.full = True
    with pytest.raises(WriteFailed, match="Too many open files") as caught:
        storage.flush()

    assert not isinstance(caught.value, SyncFailed)

    files.full = False
    storage.flush()
    storage.add_entry(record(7, 2), master_key=KEY)
    storage.flush()

    storage = make.reopen(storage, flush=False)

    assert [record(7, entry) for entry in range(3)] == storage.read_entries(7, 0, 3).records()
    assert [record(8, 0)] == storage.read_entries(8, 0, 1).records()
    assert [] == make.close_all()


def test_a_sync_that_was_tried(tmp_path: Path) -> None:
    """One that the system began and failed may have dropped bytes: `SyncFailed`."""
    plan = FaultPlan()
    plan.fail_sync()
    with pytest.raises(SyncFailed), syncing(tmp_path):
        plan.sync_dir(tmp_path)


# -- the wire


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_status_of_a_read_without_descriptors(number: int) -> None:
    """A bookie that cannot open a file now is not one whose data are damaged: try again."""
    error = ReadFailed("/b/0.log", OSError(number, os.strerror(number)))

    assert Status.ETOOMANYREQUESTS is status_of(error)
    assert Status.EIO is status_of(CorruptionError("/b/0.log", 7, "bad"))
    assert Status.EIO is status_of(WriteFailed("/b", OSError(errno.ENOSPC, "full")))


def test_a_client_without_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that this machine has no descriptor for says nothing of the bookie."""
    monkeypatch.setattr(
        "bkstore.wire.client.stream.socket.create_connection", _refused(errno.EMFILE)
    )
    with pytest.raises(SystemRefused, match=r"a connection to 127.0.0.1:3181: .*Too many open"):
        connect(("127.0.0.1", 3181), 1.0)


def test_an_audit_without_descriptors() -> None:
    """An audit that cannot ask ends with the error; no bookie is said to have given no answer."""

    class Refused:
        def availability(self, ledger: object) -> Availability:
            raise SystemRefused("a connection to b1", OSError(errno.EMFILE, "Too many open files"))

    store = MemoryStore()
    segments = [(0, ["b1:3181", "b2:3181", "b3:3181"])]
    store.create(LedgerMetadata(7, 3, 2, 2, segments, state="CLOSED", last_entry_id=9))
    bookies: Any = dict.fromkeys(segments[0][1], Refused())
    with pytest.raises(SystemRefused, match="Too many open files"):
        Auditor(store, bookies).run()
