"""A bookie whose process is killed: every entry that it acknowledged is there again."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bkstore import Bookie
from bkstore.formats.entry import Entry, RecordBatch, encode
from bkstore.storage.options import JournalOptions, StorageOptions
from tests.paths import ROOT

WRITER = """
import random, sys, threading
from pathlib import Path
from tests.crash.collections_of_garbage import collecting
from tests.crash.test_killed_bookie import KEY, add, open_bookie, record
top, storage, seed, way = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
bookie = open_bookie(top, storage)
lock = threading.Lock()
collector = collecting(bookie) if way == "collected" else None
def write(ledger):
    rnd, here = random.Random(seed * 100 + ledger), bookie.entries(ledger)
    entry = int(here[-1]) if here.size else -1
    while True:
        count = rnd.choice((1, 1, 20))
        entries = list(range(entry + 1, entry + 1 + count))
        add(bookie, way, ledger, entries)
        entry = entries[-1]
        if collector is not None:
            add(bookie, way, 9, entries)  # no store has it: it is garbage as soon as it is listed
        with lock:
            sys.stdout.write(f"{ledger} {entry}\\n")
            sys.stdout.flush()
        what = rnd.random()
        if what < 0.05:
            bookie.checkpoint()
        elif what < 0.1 and collector is None:
            bookie.collect_garbage(threshold=0.9, transactional=rnd.random() < 0.5)
for ledger in (1, 2, 3):
    threading.Thread(target=write, args=(ledger,), daemon=True).start()
threading.Event().wait()
"""

KEY = b"k" * 20
LIVES = 4


def record(ledger: int, entry: int) -> bytes:
    """Return the one record that an entry ever has."""
    payload = random.Random(entry * 10 + ledger).randbytes(entry % 400)
    return encode(Entry(ledger, entry, entry - 1, entry, payload), "CRC32C", "pw")


def open_bookie(top: Path, storage: str) -> Bookie:
    """Open the bookie with small files and caches, so that all of it is exercised."""
    return Bookie.open(
        top,
        storage,  # type: ignore[arg-type]
        options=StorageOptions(entry_log_size=50_000, write_cache=100_000, pending_locations=300),
        journal=JournalOptions(preallocate=65_536, max_size=40_000),
    )


def add(bookie: Bookie, way: str, ledger: int, entries: list[int]) -> None:
    """Add entries one by one, all made durable by the last, or as one batch."""
    records = [record(ledger, entry) for entry in entries]
    if way == "batch":
        bookie.add_batch(RecordBatch.of(records, entries), KEY)
        return
    for data in records:
        bookie.add_entry(data, KEY, sync=data is records[-1])


def _acknowledged(top: Path, storage: str, seed: int, way: str) -> dict[int, int]:
    """Let a writer work for a while, kill it; return the last entry it acknowledged by ledger."""
    words = [sys.executable, "-c", WRITER, str(top), storage, str(seed), way]
    acknowledged: dict[int, int] = {}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stdout is not None
        for _ in range(random.Random(seed).randint(20, 400)):
            ledger, entry = map(int, child.stdout.readline().split())
            acknowledged[ledger] = entry
        child.send_signal(signal.SIGKILL)
        for line in child.stdout.read().splitlines(keepends=True):
            if line.endswith("\n"):
                ledger, entry = map(int, line.split())
                acknowledged[ledger] = entry
    return acknowledged


@pytest.mark.parametrize("way", ["single", "batch", "collected"])
@pytest.mark.parametrize("storage", ["sorted", "interleaved", "db"])
def test_killed_bookie(storage: str, way: str, tmp_path: Path) -> None:
    """Killed in the middle of adds, checkpoints and compactions, again and again; also with a
    collector that never rests, and deletes a ledger that is written meanwhile."""
    last: dict[int, int] = {}
    for seed in range(2 if way == "collected" else LIVES):
        last.update(_acknowledged(tmp_path / "b", storage, seed, way))
        with open_bookie(tmp_path / "b", storage) as bookie:
            assert bookie.unclean
            for ledger, entry in last.items():
                found = bookie.last_entry(ledger)

                assert found is not None
                assert entry <= found
                assert list(range(found + 1)) == bookie.entries(ledger).tolist()
                at = 0
                while at <= found:
                    for data in bookie.read_entries(ledger, at).records():
                        assert record(ledger, at) == data
                        at += 1
        with open_bookie(tmp_path / "b", storage) as bookie:
            assert not bookie.unclean
