"""Directories that somebody writes: refused, or read live as a consistent snapshot.

POSIX file locks are dropped when a process closes *any* descriptor of the file, so looking
whether a database is in use can free it for a second writer. These tests prove that it does not.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from bkstore import BookieDir, DirectoryInUse, IllegalOperation, open_index
from bkstore.files import lock_files
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.files import database_directory
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.testing.suites.storage.base import KEY, record

WRITER = """
import sys
from bkstore.index.rocks import RocksIndex
index = RocksIndex(sys.argv[1], writable=True)
index.put_many(7, range(1000), range(1, 1001))
print("ready", flush=True)
sys.stdin.readline()
index.close()
"""

BUSY_WRITER = """
import sys
from bkstore.index.rocks import RocksIndex
index = RocksIndex(sys.argv[1], writable=True)
locations = index._database("locations", False)._handle
for first in range(0, 10**9, 1000):
    index.put_many(7, range(first, first + 1000), range(first + 1, first + 1001))
    locations.flush()
    if first % 5000 == 0:
        locations.compact_range(None, None)
    if first == 10_000:
        print("ready", flush=True)
"""

OTHER_WRITER = """
import sys
from bkstore import DirectoryInUse
from bkstore.index.rocks import RocksIndex
try:
    RocksIndex(sys.argv[1], writable=True).close()
    print("opened")
except DirectoryInUse:
    print("in use")
"""


@contextmanager
def _child(code: str, top: Path) -> Iterator[subprocess.Popen[str]]:
    """Run `code` in another process; it is up when it has printed, and killed at the end."""
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(top)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    try:
        assert "ready\n" == child.stdout.readline()
        yield child
    finally:
        child.kill()
        child.communicate()


def _another_writer(top: Path) -> str:
    """Return what a writer in another process is told."""
    done = subprocess.run(
        [sys.executable, "-c", OTHER_WRITER, str(top)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


# -- who holds it


def test_writer_in_another_process(tmp_path: Path) -> None:
    """A database that another process writes is refused with advice, and free after it ended."""
    with _child(WRITER, tmp_path) as child:
        for writable in (False, True):
            with pytest.raises(DirectoryInUse, match=r"copy the directory.*--live") as caught:
                RocksIndex(tmp_path, writable=writable)

            assert str(tmp_path / "current" / "locations") in str(caught.value)
        with pytest.raises(DirectoryInUse):
            BookieDir(tmp_path)
        child.communicate("\n")
    with open_index(tmp_path) as index:
        assert list(range(1000)) == index.entries(7).tolist()


def test_writer_that_opens_during_a_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that opens a database while another asks about it keeps its lock."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(7, range(10), range(1, 11))
    opened: list[RocksIndex] = []
    query = lock_files._has_write_lock

    def writes() -> None:
        opened.append(RocksIndex(tmp_path, writable=True))
        opened[0].put_many(7, range(10, 20), range(11, 21))

    def query_meanwhile(fd: int) -> bool:
        if not writer.ident:
            writer.start()
            writer.join(0.3)  # it waits for this probe; else it has opened the database by then
        return query(fd)

    writer = threading.Thread(target=writes)
    monkeypatch.setattr(lock_files, "_has_write_lock", query_meanwhile)
    database_directory.check_not_in_use(tmp_path / "current" / "locations")
    writer.join()

    try:
        assert "in use" == _another_writer(tmp_path)
    finally:
        opened[0].close()


def test_killed_writer_holds_nothing(tmp_path: Path) -> None:
    """A lock file without a process behind it is no use."""
    with _child(WRITER, tmp_path):
        pass
    assert (tmp_path / "current" / "locations" / "LOCK").exists()

    with open_index(tmp_path) as index:
        assert 1000 == index.entries(7).size


def test_writer_in_this_process(tmp_path: Path) -> None:
    """The same within one process; the writer goes on."""
    with RocksIndex(tmp_path, writable=True) as writer:
        writer.put_many(7, range(10), range(1, 11))
        for writable in (False, True):
            with pytest.raises(DirectoryInUse):
                RocksIndex(tmp_path, writable=writable)
        writer.put_many(7, [10], [11])

        assert 11 == writer.entries(7).size
    with open_index(tmp_path) as index:
        assert 11 == index.entries(7).size


def test_looking_does_not_drop_the_lock(tmp_path: Path) -> None:
    """After any number of refused and live openings, the lock of a writer here still holds."""
    with RocksIndex(tmp_path, writable=True) as writer:
        writer.put_many(7, range(10), range(1, 11))
        assert "in use" == _another_writer(tmp_path)
        for _ in range(3):
            with pytest.raises(DirectoryInUse):
                open_index(tmp_path)
            with pytest.raises(DirectoryInUse):
                RocksIndex(tmp_path, writable=True)
            with open_index(tmp_path, live=True) as index:
                assert 10 == index.entries(7).size

        assert "in use" == _another_writer(tmp_path)
    assert "opened" == _another_writer(tmp_path)


def test_looking_does_not_drop_a_lock_of_others(tmp_path: Path) -> None:
    """Nor that of a database which this process opened without bkstore, by another path."""
    with RocksIndex(tmp_path / "bookie", writable=True):
        pass
    (tmp_path / "link").symlink_to(tmp_path / "bookie")
    database = Rdict(str(tmp_path / "bookie" / "current" / "locations"), Options(raw_mode=True))
    for name in ("bookie", "link"):
        with pytest.raises(DirectoryInUse):
            open_index(tmp_path / name)

    assert "in use" == _another_writer(tmp_path / "bookie")
    database.close()
    assert "opened" == _another_writer(tmp_path / "bookie")


def test_readers_do_not_exclude_each_other(tmp_path: Path) -> None:
    """Any number of readers, and a writer after them: readers hold no lock."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(7, range(10), range(1, 11))
    with open_index(tmp_path) as one, open_index(tmp_path) as two:
        assert one.entries(7).tolist() == two.entries(7).tolist()
        assert "opened" == _another_writer(tmp_path)


def test_failed_writer_lets_go(tmp_path: Path) -> None:
    """A writer whose second database cannot be opened frees the first."""
    with RocksIndex(tmp_path, writable=True):
        pass
    (tmp_path / "current" / "ledgers" / "CURRENT").write_bytes(b"nonsense\n")
    for _ in range(2):
        with pytest.raises(Exception, match="ledgers"):
            RocksIndex(tmp_path, writable=True)
    shutil.rmtree(tmp_path / "current" / "ledgers")

    assert "opened" == _another_writer(tmp_path)


# -- live


def test_live_reads_what_is_not_flushed(tmp_path: Path) -> None:
    """A live reader sees rows that are only in the writer's log, as they were when it opened."""
    with RocksIndex(tmp_path, writable=True) as writer:
        writer.put_many(7, range(10), range(1, 11))
        with open_index(tmp_path, live=True) as reader:
            writer.put_many(7, range(10, 20), range(1, 11))

            assert list(range(10)) == reader.entries(7).tolist()
        with open_index(tmp_path, live=True) as reader:
            assert list(range(20)) == reader.entries(7).tolist()


def test_live_beside_a_busy_writer(tmp_path: Path) -> None:
    """While a writer flushes and compacts, each live opening is a whole, never older state."""
    seen = 0
    with _child(BUSY_WRITER, tmp_path):
        for _ in range(4):
            with BookieDir(tmp_path, live=True) as bookie:
                entries, locations = bookie.index.items(7)
                last = bookie.index.last_entry(7)

                assert 0 == entries.size % 1000
                assert list(range(entries.size)) == entries.tolist()
                assert (entries + 1).tolist() == locations.tolist()
                assert entries.size - 1 == last
                assert seen <= entries.size
                seen = entries.size
                bookie.check_unchanged()
    with open_index(tmp_path) as index:
        assert seen <= index.entries(7).size


# -- files that move


def _bookie(top: Path, layout: str) -> Path:
    make = RocksIndex if layout == "rocksdb" else HierarchicalIndex
    with make(top, writable=True) as index:
        index.put_many(7, range(10), range(1, 11))
    (top / "current" / "0.log").write_bytes(b"BKLO")
    return top


@pytest.mark.parametrize("layout", ["rocksdb", "idx"])
def test_check_unchanged(tmp_path: Path, layout: str) -> None:
    """Files that grow, come or go while the directory is read are noticed; live says nothing."""
    log = _bookie(tmp_path, layout) / "current" / "0.log"
    with BookieDir(tmp_path) as bookie, BookieDir(tmp_path, live=True) as live:
        bookie.check_unchanged()
        log.write_bytes(b"BKLO and more")
        with pytest.raises(DirectoryInUse, match=r"0\.log changed"):
            bookie.check_unchanged()
        log.unlink()
        with pytest.raises(DirectoryInUse, match=r"0\.log changed"):
            bookie.check_unchanged()
        log.write_bytes(b"BKLO")
        (log.parent / "1.log").write_bytes(b"BKLO")
        with pytest.raises(DirectoryInUse, match=r"log changed"):
            bookie.check_unchanged()
        live.check_unchanged()


@pytest.mark.parametrize("database", ["locations", "ledgers", "locations-128", "ledgers-128"])
def test_check_unchanged_looks_into_databases(tmp_path: Path, database: str) -> None:
    """A file that comes into any of the databases is a change."""
    from bkstore import LedgerId

    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(LedgerId(1, 7), [0], [1])
    with BookieDir(tmp_path) as bookie:
        bookie.check_unchanged()
        (tmp_path / "current" / database / "000999.sst").write_bytes(b"")
        with pytest.raises(DirectoryInUse, match="000999"):
            bookie.check_unchanged()


def test_link_to_nowhere_is_no_crash(tmp_path: Path) -> None:
    """A dangling link in the directory does not stop the watching; a log of that name is told."""
    os.symlink("nowhere", _bookie(tmp_path, "idx") / "current" / "9.log")
    with BookieDir(tmp_path) as bookie:
        bookie.check_unchanged()
        assert [0, 9] == [log.log_id for log in bookie.entry_logs]
        assert ["9.log"] == [Path(found.file or "").name for found in bookie.findings()]


def test_an_index_of_its_own_that_is_in_use(tmp_path: Path) -> None:
    """Copied ledger directories beside an index directory that a writer has open are refused."""
    with LedgerStorage.open(
        tmp_path / "a/ledgers", "sorted", index_dirs=[tmp_path / "b/index"]
    ) as storage:
        storage.add_entry(record(7, 0), master_key=KEY)
        storage.flush()
        shutil.copytree(tmp_path / "a/ledgers", tmp_path / "b/ledgers")
        with pytest.raises(DirectoryInUse, match="index"):
            BookieDir(tmp_path / "b")
    with BookieDir(tmp_path / "b") as bookie:
        assert [0] == bookie.index.entries(7).tolist()


def test_closed_writer_is_closed(tmp_path: Path) -> None:
    """A writer that was closed does not open its databases again behind everybody's back."""
    writer = RocksIndex(tmp_path, writable=True)
    writer.put_many(7, [0], [1])
    writer.close()
    with pytest.raises(IllegalOperation):
        writer.put_many(7, [1], [1])

    assert "opened" == _another_writer(tmp_path)
