"""What the faults of a fault file do to the writes and syncs of a process."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("kazoo", reason="kazoo is not installed")

from bkstore.network.disk_watch import DiskOptions
from bkstore.testing.ensemble import process_table
from bkstore.testing.ensemble.faults import add_fault, read_faults, remove_faults
from bkstore.testing.ensemble.faulty_process import ProcessFaults
from bkstore.testing.ensemble.process_table import read_process


@pytest.fixture
def faults(tmp_path: Path) -> ProcessFaults:
    """Return the faults of a process, none yet."""
    return ProcessFaults(tmp_path / "b.faults")


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    """Yield the descriptor of a file of ten bytes."""
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.pwrite(file, b"0123456789", 0)
    yield file
    os.close(file)


def test_a_full_disk(faults: ProcessFaults, fd: int, tmp_path: Path) -> None:
    """Bytes are overwritten, the file grows by nothing; the disk counts as full. Healed, it is
    not."""
    before = faults.used_share(tmp_path)
    add_fault(faults.path, "full-disk", 0)
    with pytest.raises(OSError, match="No space left") as caught:
        faults.files.pwrite(fd, b"abcd", 8)

    assert (errno.ENOSPC, None) == (caught.value.errno, caught.value.filename)
    assert b"01234567ab" == os.pread(fd, 99, 0)
    with pytest.raises(OSError, match="No space left"):
        faults.files.truncate(fd, 11)
    faults.files.truncate(fd, 9)
    faults.files.fsync(fd)
    assert 1.0 == faults.used_share(tmp_path) > before
    remove_faults(faults.path)
    faults.files.pwrite(fd, b"xyz", 9)

    assert b"01234567axyz" == os.pread(fd, 99, 0)
    assert 1.0 > faults.used_share(tmp_path)


def test_a_failing_disk(faults: ProcessFaults, fd: int, tmp_path: Path) -> None:
    """Every change and every sync fails, RocksDB's too, and nothing is changed."""
    add_fault(faults.path, "failing-disk", 0)
    files = faults.files
    for call in (
        lambda: files.pwrite(fd, b"x", 0),
        lambda: files.truncate(fd, 0),
        lambda: files.fsync(fd),
        lambda: files.sync_dir(tmp_path),
        lambda: files.database_synced(tmp_path),
    ):
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            call()
    assert b"0123456789" == os.pread(fd, 99, 0)


@pytest.mark.parametrize("sync", ["fsync", "sync_dir", "database_synced"])
def test_a_slow_disk(sync: str, faults: ProcessFaults, fd: int, tmp_path: Path) -> None:
    """A sync lasts until its seconds are over or the disk is healed; a write does not wait."""
    add_fault(faults.path, "slow-disk", 3600)
    faults.files.pwrite(fd, b"x", 0)
    argument = fd if sync == "fsync" else tmp_path
    thread = threading.Thread(target=getattr(faults.files, sync), args=[argument], daemon=True)
    thread.start()
    thread.join(0.1)

    assert thread.is_alive()
    remove_faults(faults.path, "slow-disk")
    thread.join(20)
    assert not thread.is_alive()
    add_fault(faults.path, "slow-disk", 0.001)
    getattr(faults.files, sync)(argument)


def test_faults_are_added_and_removed_one_by_one(faults: ProcessFaults) -> None:
    """Each call of the process sees what holds then; without a fault there is no file."""
    add_fault(faults.path, "read-only", 0)
    add_fault(faults.path, "slow-disk", 1)
    add_fault(faults.path, "slow-disk", 2)
    add_fault(faults.path, "partitioned", 0)

    assert {"read-only": 0, "slow-disk": 2, "partitioned": 0} == read_faults(faults.path)
    assert ("the fault read-only", True) == (faults.read_only_reason(), faults.is_partitioned())
    remove_faults(faults.path, "read-only")
    assert (None, True) == (faults.read_only_reason(), faults.is_partitioned())
    remove_faults(faults.path)
    remove_faults(faults.path)

    assert not faults.is_partitioned()
    assert [] == list(faults.path.parent.iterdir())


def test_threads_change_faults_at_once(faults: ProcessFaults) -> None:
    """No change is lost that another makes meanwhile."""

    def change(name: str) -> None:
        for _ in range(30):
            add_fault(faults.path, name, 0)
            remove_faults(faults.path, name)
        add_fault(faults.path, name, 0)

    names = ("read-only", "partitioned", "full-disk")
    threads = [threading.Thread(target=change, args=[name]) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert set(names) == read_faults(faults.path).keys()


def test_disk_checks(faults: ProcessFaults) -> None:
    """Disks are checked soon after a fault; a shorter interval of the settings stays."""
    shares = [
        faults.disk_checks(DiskOptions(interval=interval, full=0.5, writable_again=0.4))
        for interval in (10.0, 0.01)
    ]

    assert [0.25, 0.01] == [one["disk_options"].interval for one in shares]
    assert {0.5} == {one["disk_options"].full for one in shares}


@pytest.mark.parametrize("has_proc", [True, False])
def test_the_process_table(has_proc: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process runs, is stopped, has ended but is not waited for, is gone: from /proc and ps."""
    if not has_proc:
        monkeypatch.setattr(process_table, "_PROC", Path("/nowhere"))
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            assert (os.getpid(), False) == read_process(process.pid)
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            assert (os.getpid(), True) == read_process(process.pid)
        finally:
            process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert read_process(process.pid) is None
    assert read_process(process.pid) is None
