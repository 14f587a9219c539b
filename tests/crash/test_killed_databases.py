"""Databases that a killed writer left: all that RocksDB reads is read, and none is refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from bkstore import BookieDir
from bkstore.index.rocks import RocksIndex

WRITER = """
import random, sys
from rocksdict import Options, Rdict, WriteBatch
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.keys import entry_key
from bkstore.ids import LedgerId
top, seed = sys.argv[1], int(sys.argv[2])
rnd, one = random.Random(seed), LedgerId(ledger=1)
RocksIndex(top, writable=True).close()
o = Options(raw_mode=True)
o.set_write_buffer_size(rnd.choice([100_000, 400_000]))
o.set_target_file_size_base(60_000)
o.set_max_background_jobs(rnd.choice([1, 4]))
path = top + "/current/locations"
db = Rdict(path, o, column_families={"default": o})
print("go", flush=True)
n = 0
while True:
    batch = WriteBatch(raw_mode=True)
    for _ in range(rnd.randint(0, 2000)):
        n += 1
        batch.put(entry_key(one, rnd.randint(0, 50_000)), (1028 + n).to_bytes(8, "big"))
    if rnd.random() < 0.2:
        first = rnd.randint(0, 50_000)
        batch.delete_range(entry_key(one, first), entry_key(one, first + 500))
    db.write(batch)
    if rnd.random() < 0.2:
        db.flush_wal(True)
    if rnd.random() < 0.05:
        db.flush()
    if rnd.random() < 0.05:
        db.close()
        db = Rdict(path, o, column_families={"default": o})
"""

COMPACTION = """
import sys
from rocksdict import Options, Rdict
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.keys import entry_key
from bkstore.ids import LedgerId
top, one = sys.argv[1], LedgerId(ledger=1)
RocksIndex(top, writable=True).close()
o = Options(raw_mode=True)
o.set_target_file_size_base(50_000)
o.set_disable_auto_compactions(True)
path = top + "/current/locations"
db = Rdict(path, o, column_families={"default": o})
for start in range(4):
    for entry in range(start, 100_000, 4):
        db[entry_key(one, entry)] = (1028 + entry).to_bytes(8, "big")
    db.flush()
db.close()
db = Rdict(path, o, column_families={"default": o})  # a restarted bookie: its log is empty
print("go", flush=True)
db.compact_range(None, None)
"""


def _killed(script: str, top: Path, seed: int, after: float) -> None:
    command = [sys.executable, "-c", script, str(top), str(seed)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with writer:
        assert writer.stdout is not None
        assert "go\n" == writer.stdout.readline()
        time.sleep(after)  # when the kill comes does not matter: every moment must do
        writer.kill()


def _by_rocksdb(top: Path, scratch: Path) -> dict[int, int]:
    """Return what RocksDB itself reads of a copy."""
    shutil.copytree(top / "current" / "locations", scratch)
    options = Options(raw_mode=True)
    database = Rdict(str(scratch), options, column_families={"default": options})
    rows = {
        int.from_bytes(key[8:], "big"): int.from_bytes(value, "big")
        for key, value in database.items()
    }
    database.close()
    return rows


@pytest.mark.parametrize("seed", range(8))
def test_killed_writer(tmp_path: Path, seed: int) -> None:
    """After two lives that end by SIGKILL the index has just the rows that RocksDB reads."""
    for life in range(2):
        _killed(WRITER, tmp_path / "b", 2 * seed + life, 0.05 * (seed + 1))
    expected = _by_rocksdb(tmp_path / "b", tmp_path / "copy")
    with BookieDir(tmp_path / "b") as bookie:
        entries, locations = bookie.index.items(1)

        assert expected == dict(zip(entries.tolist(), locations.tolist()))
        assert {"oddity"} >= {found.severity for found in bookie.findings()}


@pytest.mark.parametrize("after", [0.0, 0.01, 0.02, 0.04])
def test_killed_compaction_with_an_empty_log(tmp_path: Path, after: float) -> None:
    """Finished tables of a compaction that was killed are leftovers, not a sign of loss."""
    _killed(COMPACTION, tmp_path / "b", 0, after)
    with BookieDir(tmp_path / "b") as bookie:
        assert [[0, 99_999]] == bookie.index.availability(1).ranges().tolist()
        assert {"oddity"} >= {found.severity for found in bookie.findings()}


def test_finished_leftover(tmp_path: Path) -> None:
    """A whole table that no record names does not stop the reading while the log is there."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(1, range(1000), range(1028, 2028))
        index.flush()
    with RocksIndex(tmp_path, writable=True) as index:  # reopening makes a table of the log
        index.flush()
    folder = tmp_path / "current" / "locations"
    (table, *_) = sorted(folder.glob("*.sst"))
    leftover = folder / "000999.sst"
    shutil.copyfile(table, leftover)
    with RocksIndex(tmp_path) as index:
        assert 1000 == index.entries(1).size
        assert [str(leftover)] == [found.file for found in index.findings()]
