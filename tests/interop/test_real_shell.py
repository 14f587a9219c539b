"""The real bookie shell judges directories that were rewritten, a JVM a command."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from bkstore import BookieDir
from bkstore.offline.rewrite import convert, salvage
from tests.interop.bookies import Cluster
from tests.interop.class_path import java
from tests.interop.worlds import World, stamped_in_place
from tests.worlds.bookies import make_bookie
from tests.worlds.loads import World as Rows, read_world
from tests.worlds.salvages import logs_of

LOGGING = Path(__file__).parent / "java" / "shell-log4j2.xml"


def shell(classes: Path, conf: Mapping[str, str], folder: Path, *command: str) -> list[str]:
    """Return the lines that a command of the shell prints; fail where it does.

    Its messages alone are printed, without the prefixes of a log.
    """
    path = folder / "bk_server.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in conf.items()))
    line = java(classes, "org.apache.bookkeeper.bookie.BookieShell", "-conf", str(path), *command)
    line.insert(1, f"-Dlog4j.configurationFile={LOGGING}")
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)

    assert 0 == done.returncode, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.fixture
def sorted_world(real_cluster: Cluster, tmp_path: Path) -> World:
    """Return a bookie of sorted storage, closed."""
    make_bookie(tmp_path / "b", "sorted", scopes=False)
    return stamped_in_place(real_cluster, tmp_path / "b", "sorted")


def _rows(root: Path) -> Rows:
    with BookieDir(root) as bookie:
        return read_world(bookie.index)


def test_rebuilt_locations(sorted_world: World, java_classes: Path, tmp_path: Path) -> None:
    """The real rebuild of `locations`, from a converted directory's logs, gives the same rows."""
    convert(sorted_world.root, tmp_path / "made", "rocksdb")
    sorted_world.root.rename(tmp_path / "source")
    (tmp_path / "made").rename(sorted_world.root)
    before = _rows(sorted_world.root)
    conf = sorted_world.cluster.settings(sorted_world.place, "db")
    lines = shell(java_classes, conf, tmp_path, "rebuild-db-ledger-locations-index")

    assert before == _rows(sorted_world.root)
    assert list(sorted_world.root.glob("ledgers/current/locations.BACKUP-*")), lines


def test_ledgers_listed(sorted_world: World, java_classes: Path, tmp_path: Path) -> None:
    """The real check of the `ledgers` database finds each ledger, its fence and its master key."""
    sorted_world.rewrite(convert, "rocksdb")
    conf = sorted_world.cluster.settings(sorted_world.place, "db")
    lines = shell(java_classes, conf, tmp_path, "check-db-ledgers-index", "-v")
    told = [re.search(r"ledger: (\d+), .*isFenced: (\w+)", line) for line in lines]
    states = {name.ledger: state for name, (_, state) in _rows(sorted_world.root).items()}

    assert {ledger: str(state.fenced).lower() for ledger, state in states.items()} == {
        int(found[1]): found[2] for found in told if found
    }


def test_entries_listed(sorted_world: World, java_classes: Path, tmp_path: Path) -> None:
    """The real listing of a converted ledger has each entry with its log and position."""
    sorted_world.rewrite(convert, "rocksdb")
    conf = sorted_world.cluster.settings(sorted_world.place, "db")
    name, (rows, _) = max(_rows(sorted_world.root).items(), key=lambda item: len(item[1][0]))
    lines = shell(java_classes, conf, tmp_path, "ledger", str(name.ledger))
    found = re.findall(r"entry (\d+)\t:\t\(log: (\d+), pos: (\d+)\)", "\n".join(lines))

    assert rows == {int(entry): (int(log) << 32) | int(pos) for entry, log, pos in found}


def test_fresh_log(sorted_world: World, java_classes: Path, tmp_path: Path) -> None:
    """The real shell reads a log that a salvage wrote: its ledgers map has the right bytes."""
    log = max(logs_of(sorted_world.root), key=lambda path: path.stat().st_size)
    data = bytearray(log.read_bytes())
    data[1024:1028] = b"\x7f\xff\xff\xff"
    log.write_bytes(data)
    result = sorted_world.rewrite(salvage, "idx")

    assert 1 == result.rewritten_logs
    conf = sorted_world.cluster.settings(sorted_world.place, "sorted")
    lines = shell(java_classes, conf, tmp_path, "readlogmetadata", log.stem)
    with BookieDir(sorted_world.root) as bookie:
        sizes: dict[int, int] = {}
        for batch in bookie.scan_log(int(log.stem, 16)):
            for ledger, size in zip(batch.ledger_id.tolist(), batch.size.tolist()):
                sizes[ledger] = sizes.get(ledger, 0) + size + 4

    told = re.findall(r"Lid=(\d+), TotalSizeOfEntriesOfLedger=(\d+)", "\n".join(lines))
    assert sizes == {int(ledger): int(size) for ledger, size in told}
