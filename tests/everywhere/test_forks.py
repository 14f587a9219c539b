"""What a forked child can do: the same everywhere, by name, and never a hang.

Each case runs in a process of its own, because this one has opened databases, and what a fork
loses of RocksDB it loses for good. A child that hangs is ended by SIGALRM, which its parent tells.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

BEGINNING = """
import os, signal, sys, threading, traceback
from contextlib import suppress
from pathlib import Path
from bkstore import IllegalOperation

TOP = Path(sys.argv[1])

def forked(act):
    '''Run `act` in a child that ends as any program does; return how it ended, and its word.'''
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            told = str(act())
        except IllegalOperation as error:
            told = f"IllegalOperation: {error}"
        except Exception:
            told = traceback.format_exc()
        os.write(into, told.encode())
        sys.exit(7)
    os.close(into)
    with os.fdopen(out) as told:
        words = told.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), words

def expect(expected, found):
    assert expected == found, (expected, found)

def refused(act):
    try:
        act()
    except IllegalOperation as error:
        assert "fork" in str(error), error
        return "refused"
    return "done"
"""

KINDS = """
from bkstore.formats.entry import Entry, encode
from bkstore.index.rocks import RocksIndex
from bkstore.storage.bookie import Bookie
from bkstore.storage.ledger_storage import LedgerStorage

def index(place):
    with RocksIndex(place, writable=True) as index:
        index.put_many(7, [0, 1], [5, 6])
        index.put(7, 2, 7)
    with RocksIndex(place) as index:
        return index.entries(7).tolist()

def storage(place):
    with LedgerStorage.open(place, "db") as storage:
        storage.set_master_key(7, b"k")
        storage.add_entry(encode(Entry(7, 0, -1, 2, b"hi"), "CRC32C"))
    with LedgerStorage.open(place, "db") as storage:
        return storage.entries(7).tolist()

def bookie(place):
    with Bookie.open(place, "db") as bookie:
        bookie.add_entry(encode(Entry(7, 0, -1, 2, b"hi"), "CRC32C"), b"k")
    with Bookie.open(place, "db") as bookie:
        return bookie.entries(7).tolist()

WRITERS = {"index": (index, [0, 1, 2]), "storage": (storage, [0]), "bookie": (bookie, [0])}
"""


def run(script: str, tmp_path: Path) -> None:
    """Run a script in a fresh interpreter; a hang of its own fails, too."""
    path = tmp_path / "script.py"
    path.write_text(script, encoding="utf-8")
    # From 3.12 on Python warns of every fork beside threads; which is what is tried here.
    quiet = ["-W", "ignore:This process:DeprecationWarning"]
    done = subprocess.run(
        [sys.executable, *quiet, str(path), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert "" == done.stderr
    assert 0 == done.returncode


def test_child_of_a_process_without_a_database(tmp_path: Path) -> None:
    """Where nobody opened a database before the fork, the child writes as any process does."""
    end = """
for name, (write, rows) in WRITERS.items():
    expect((7, str(rows)), forked(lambda: write(TOP / name)))
"""
    run(BEGINNING + KINDS + end, tmp_path)


@pytest.mark.parametrize(
    "before",
    [
        "",
        "RocksIndex(TOP / 'parent', writable=True)",
        "RocksIndex(TOP / 'parent')",
        "kept = RocksIndex(TOP / 'parent', writable=True); kept.put(8, 0, 5)",
    ],
    ids=["closed", "written and dropped", "read and dropped", "open"],
)
def test_child_of_a_process_with_a_database(tmp_path: Path, before: str) -> None:
    """Where one was opened, even a closed one, writing is refused before a file is made.

    Reading works, and the child ends by itself, threads of its own or not.
    """
    end = f"""
index(TOP / "parent")
{before}
for name, (write, _) in WRITERS.items():
    status, told = forked(lambda: write(TOP / name))
    expect(7, status)
    assert told.startswith("IllegalOperation: ") and "spawn or forkserver" in told, told
    expect([], [path for path in (TOP / name).rglob("*") if path.suffix in (".log", ".sst")])
    expect([], list((TOP / name).rglob("CURRENT")))

def read():
    workers = [threading.Thread(target=len, args=((),)) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    with RocksIndex(TOP / "copy") as index:
        return index.entries(7).tolist(), index.get(7, 1), refused(lambda: grandchild())

def grandchild():
    status, told = forked(lambda: index(TOP / "grandchild"))
    raise IllegalOperation(told if status == 7 else f"forked child ended with {{status}}")

import shutil
shutil.copytree(TOP / "parent", TOP / "copy", ignore=shutil.ignore_patterns("LOCK"))
expect((7, "([0, 1, 2], 6, 'refused')"), forked(read))
"""
    run(BEGINNING + KINDS + end, tmp_path)


def test_what_was_open_is_closed_in_the_child(tmp_path: Path) -> None:
    """What writes, and every database, raises in the child; the parent goes on with it.

    Neither `close` nor the end of the child flushes, hangs, or removes what is the parent's.
    """
    end = """
import gc, tempfile
from bkstore import BookieDir
from bkstore.formats.journal import encode_special
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.memtable import MemtableIndex
from bkstore.storage.journal.writer import JournalWriter
from bkstore.streams import StreamImage
from bkstore.streams import StreamLookup
from bkstore.streams.lookup.object_reader import ImageReader

tempfile.tempdir = str(TOP)
index(TOP / "read")
record = encode(Entry(7, 1, 0, 2, b"hi"), "CRC32C")
first = encode(Entry(7, 0, -1, 2, b"hi"), "CRC32C")
rocks = RocksIndex(TOP / "rocks", writable=True)
rocks.put(7, 0, 5)
reading = RocksIndex(TOP / "read")
half = reading.scan(1)
next(half)
idx = HierarchicalIndex(TOP / "idx", writable=True)
idx.put(7, 0, 5)
idx.flush()
idx.put(7, 1, 6)
idx_reading = HierarchicalIndex(TOP / "idx")
directory = BookieDir(TOP / "read")
memtable = MemtableIndex()
memtable.put(7, 0, 5)
stores = [LedgerStorage.open(TOP / f"s-{kind}", kind) for kind in ("sorted", "db")]
bookies = [Bookie.open(TOP / f"b-{kind}", kind) for kind in ("interleaved", "db")]
for one in (*stores, *bookies):
    one.add_entries([first], master_key=b"k")
os.makedirs(TOP / "j")
journal = JournalWriter(TOP / "j", first_id=7, preallocate=0)
lookup = StreamLookup(StreamImage(), ImageReader(StreamImage()))
closing = [rocks, reading, idx, idx_reading, directory, journal, lookup, *stores, *bookies]

def child():
    calls = {
        "rocks": lambda: rocks.get(7, 0),
        "rocks put": lambda: rocks.put(7, 1, 6),
        "rocks scan": lambda: list(rocks.scan()),
        "reading": lambda: reading.entries(7),
        "half": lambda: next(half),
        "directory": lambda: directory.index.entries(7),
        "idx": lambda: idx.entries(7),
        "idx put": lambda: idx.put(7, 2, 7),
        "journal": lambda: journal.append(encode_special("fence", 1)),
        "lookup": lambda: lookup.get_objects(7, 0, 1, 1),
    }
    for at, store in enumerate(stores):
        calls[f"store {at}"] = lambda store=store: store.read_entry(7, 0)
        calls[f"store {at} add"] = lambda store=store: store.add_entry(record)
        calls[f"store {at} flush"] = lambda store=store: store.flush()
    for at, bookie in enumerate(bookies):
        calls[f"bookie {at}"] = lambda bookie=bookie: bookie.read_entry(7, 0)
        calls[f"bookie {at} add"] = lambda bookie=bookie: bookie.add_entry(record, b"k")
    odd = {name: told for name, call in calls.items() if (told := refused(call)) != "refused"}
    rest = idx_reading.entries(7).tolist(), memtable.entries(7).tolist()
    for one in closing:
        one.close()
    gc.collect()
    return odd, rest

before = sorted(map(str, TOP.rglob("*")))
expect((7, "({}, ([0, 1], [0]))"), forked(child))
expect((7, "None"), forked(lambda: None))  # and without a close
expect(before, sorted(map(str, TOP.rglob("*"))))
expect(3, 1 + len(list(half)))
expect([0, 1, 2], reading.entries(7).tolist())
rocks.put(7, 1, 6)
idx.put(7, 2, 7)
journal.append(encode_special("fence", 1))
for one in (*stores, *bookies):
    one.add_entries([record], master_key=b"k")
for one in closing:
    one.close()
with RocksIndex(TOP / "rocks") as again, HierarchicalIndex(TOP / "idx") as files:
    expect([0, 1], again.entries(7).tolist())
    expect([0, 1, 2], files.entries(7).tolist())
for kind in ("sorted", "db"):
    with LedgerStorage.open(TOP / f"s-{kind}", kind) as again:
        expect([0, 1], again.entries(7).tolist())
for kind in ("interleaved", "db"):
    with Bookie.open(TOP / f"b-{kind}", kind) as again:
        expect((False, [0, 1]), (again.unclean, again.entries(7).tolist()))
"""
    run(BEGINNING + KINDS + end, tmp_path)


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_start_methods(tmp_path: Path, method: str) -> None:
    """A process that multiprocessing starts anew writes; one that it forks is refused."""
    end = f"""
import multiprocessing

def work(queue):
    signal.alarm(60)
    for name, (write, rows) in WRITERS.items():
        try:
            queue.put(write(TOP / name) == rows)
        except IllegalOperation as error:
            queue.put("forkserver" in str(error))

def main():
    index(TOP / "parent")
    context = multiprocessing.get_context({method!r})
    queue = context.SimpleQueue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    expect([True] * 3, [queue.get() for _ in WRITERS])
    process.join()
    expect(0, process.exitcode)
    expect({method != "fork"}, (TOP / "index" / "current" / "locations" / "CURRENT").exists())

if __name__ == "__main__":
    main()
"""
    run(BEGINNING + KINDS + end, tmp_path)


def test_lock_of_a_metadata_directory_is_let_go(tmp_path: Path) -> None:
    """A child forked while another thread held a lock does not hold it on when that lets go."""
    end = """
import fcntl
from bkstore.cluster.store.directory_values import LOCK_FILE_NAME, DirectoryValues
from bkstore.offline.staging_directory import acquire_staging_lock
from bkstore.files.disk_changes import OS_FILES

def child_of(hold):
    out, into = os.pipe()
    with hold:
        child = os.fork()
        if child == 0:
            os.close(into)
            os.read(out, 1)  # until the parent is done
            os._exit(0)
    return child, into

def free(path):
    with open(path) as file, suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True

values = DirectoryValues(TOP / "values")
for hold, path in (
    (values._hold_lock(), TOP / "values" / LOCK_FILE_NAME),
    (acquire_staging_lock(TOP / "growing", "dump", OS_FILES), TOP / "growing" / "lock"),
):
    child, into = child_of(hold)
    found = free(path)
    os.close(into)
    os.waitpid(child, 0)
    assert found, path
"""
    run(BEGINNING + end, tmp_path)
