"""Shortages of the machine in each room that once took them for damage, and what comes after."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkstore import Availability, LedgerId
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
from bkstore.files import disk_changes, scratch
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.os_errors import convert_scratch_read_errors, convert_sync_errors, read_error
from bkstore.files.scratch import scratch_directory
from bkstore.files.spill_files import append_spill, open_spill, read_spill
from bkstore.index.api import Finding
from bkstore.index.bulk_listing import LedgerErrors, list_one_by_one
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.testing.factories import StorageFactory
from bkstore.testing.faults import FaultPlan
from bkstore.testing.suites.storage.base import KEY, record
from bkstore.wire.client.socket_stream import connect
from bkstore.wire.status_codes import Status, status_for_error
from tests.patched_modules import patch_module


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
    error = read_error(OSError(number, os.strerror(number)), "/b/0.log")

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

    errors: LedgerErrors = {}
    with pytest.raises(ReadFailed):
        list(list_one_by_one(refuse, [LedgerId.of(7)], errors))

    assert {} == errors


# -- our own files


def test_spills_are_no_data(tmp_path: Path) -> None:
    """A spill that cannot be read back, or lost its end, is the machine's failure: no damage."""
    path = tmp_path / "rows"
    append_spill(path, b"abc", OS_FILES)
    append_spill(path, memoryview(b"defg"), OS_FILES)

    assert b"abcdefg" == read_spill(path)

    with open_spill(path) as spill:
        assert b"cd" == spill.read(2, 2)

        with pytest.raises(ReadFailed, match="ends at 7"):
            spill.read(5, 3)
    with pytest.raises(ReadFailed, match="none: cannot be read: No such file"):
        read_spill(tmp_path / "none")
    with pytest.raises(ReadFailed, match="Input/output error"), convert_scratch_read_errors(path):
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
    patch_module(monkeypatch, scratch, "os", open=_refused(errno.EMFILE))
    with (
        pytest.raises(WriteFailed, match=r"bkstore-test-.*Too many open files"),
        scratch_directory("test", tmp_path),
    ):
        pass

    assert [] == os.listdir(tmp_path)


# -- syncs that could not begin


class _NoDescriptors(Files):
    """Files whose directories cannot be opened to be synced, while `full`."""

    full = False

    def sync_dir(self, path: Any) -> None:
        if not self.full:
            super().sync_dir(path)
            return
        with pytest.MonkeyPatch.context() as patch:
            patch_module(patch, disk_changes, "os", open=_refused(errno.EMFILE))
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
    with pytest.raises(SyncFailed), convert_sync_errors(tmp_path):
        plan.sync_dir(tmp_path)


# -- the wire


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_status_of_a_read_without_descriptors(number: int) -> None:
    """A bookie that cannot open a file now is not one whose data are damaged: try again."""
    error = ReadFailed("/b/0.log", OSError(number, os.strerror(number)))

    assert Status.ETOOMANYREQUESTS is status_for_error(error)
    assert Status.EIO is status_for_error(CorruptionError("/b/0.log", 7, "bad"))
    assert Status.EIO is status_for_error(WriteFailed("/b", OSError(errno.ENOSPC, "full")))


def test_a_client_without_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that this machine has no descriptor for says nothing of the bookie."""
    monkeypatch.setattr(
        "bkstore.wire.client.socket_stream.socket.create_connection", _refused(errno.EMFILE)
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
