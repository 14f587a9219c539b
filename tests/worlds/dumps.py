"""Bookies to dump, and reading dumps back row by row, for the families about dumps."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bkstore.files.disk_changes import Files, StrPath
from bkstore.formats.entrylog import LogHeader, encode_header
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex, LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.partitioned import PartitionedIndex
from bkstore.index.rocks import RocksIndex

NAMES = ("entries", "groups", "ledgers", "entry_logs", "log_ledgers", "findings")
KEY = b"k" * 20
WIDE = [LedgerId(2**63 + 5, 1), LedgerId(3, 2**64 - 1), LedgerId(3, 4)]
CONTENT = {
    LedgerId.of(1): np.arange(3000),
    LedgerId.of(2): np.array([i for i in range(9000) if i % 3 != 1]),
    LedgerId.of(9): np.array([0, 1, 2, 70_000, 70_001]),
    LedgerId.of(300): np.array([], np.int64),
    LedgerId.of(2**63 - 1): np.arange(10, 40),
    **{ledger: np.arange(5) * 7 for ledger in WIDE},
}


def idx(top: Path) -> EntryIndex:
    """Return a writable index of index files."""
    return HierarchicalIndex(top / "ledgers", writable=True)


def rocks(top: Path) -> EntryIndex:
    """Return a writable RocksDB index."""
    return RocksIndex(top / "ledgers", writable=True)


def rocks3(top: Path) -> EntryIndex:
    """Return a writable RocksDB index over three directories."""
    return PartitionedIndex([RocksIndex(top / f"ledgers{n}", writable=True) for n in range(3)])


LAYOUTS: dict[str, Callable[[Path], EntryIndex]] = {"idx": idx, "rocks": rocks, "rocks3": rocks3}


def fill(index: EntryIndex) -> None:
    """Put CONTENT, in log 7, and close."""
    with index:
        for ledger, entries in CONTENT.items():
            index.set_state(ledger, LedgerState(KEY, fenced=ledger.ledger == 9))
            index.put_many(ledger, entries, entries * 100 + (7 << 32) + 1028)


def three_bookies(top: Path) -> list[Path]:
    """Return the directories of a bookie of each layout, with CONTENT."""
    for name, make in LAYOUTS.items():
        fill(make(top / name))
    return [top / name for name in LAYOUTS]


def rows(dump: Path, table: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table of a dump, file by file in the manifest's order."""
    import pyarrow.parquet as pq

    listed = json.loads((dump / "manifest.json").read_bytes())["tables"][table]["files"]
    found: list[tuple[Any, ...]] = []
    for file in listed:
        columns = pq.ParquetFile(dump / file["path"]).read().to_pydict()
        found += zip(*columns.values())
    return found


def contents(dump: Path) -> dict[str, bytes]:
    """Return each file of a dump by its path; of the manifest all but when it was made."""
    found = {str(p.relative_to(dump)): p.read_bytes() for p in dump.rglob("*") if p.is_file()}
    manifest = json.loads(found["manifest.json"])
    del manifest["made_at"]
    return {**found, "manifest.json": json.dumps(manifest).encode()}


class Watched(Files):
    """A file layer that tells of each call that changes something, before it happens."""

    def __init__(self, tell: Callable[[str, str], None]) -> None:
        self.tell = tell
        self.paths: dict[int, str] = {}

    def open(self, path: StrPath, flags: int, mode: int = 0o644) -> int:
        """As `Files.open`, and remember the path."""
        fd = super().open(path, flags, mode)
        self.paths[fd] = str(path)
        return fd

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Tell, then write."""
        self.tell("pwrite", self.paths[fd])
        super().pwrite(fd, data, offset)

    def fsync(self, fd: int) -> None:
        """Tell, then sync."""
        self.tell("fsync", self.paths[fd])
        super().fsync(fd)

    def sync_dir(self, path: StrPath) -> None:
        """Tell, then sync."""
        self.tell("sync_dir", str(path))
        super().sync_dir(path)

    def mkdir(self, path: StrPath) -> None:
        """Tell, then make."""
        self.tell("mkdir", str(path))
        super().mkdir(path)

    def replace(self, source: StrPath, target: StrPath) -> None:
        """Tell, source and target a line each, then rename."""
        self.tell("replace", f"{source}\n{target}")
        super().replace(source, target)

    def unlink(self, path: StrPath) -> None:
        """Tell, then remove."""
        self.tell("unlink", str(path))
        super().unlink(path)


def record(ledger: LedgerId, entry: int, size: int) -> bytes:
    """Return a record of `size` bytes whose ids are right, its digest none."""
    if ledger.scope:
        head = struct.pack(">BQQqqq", 0xA3, ledger.scope, ledger.ledger, entry, entry - 1, 0)
    else:
        head = struct.pack(">Qqqq", ledger.ledger, entry, entry - 1, 0)
    return head.ljust(size, b"x")


def write_log(
    path: Path, items: Iterator[tuple[LedgerId, int, int]], version: int = 1
) -> dict[tuple[LedgerId, int], int]:
    """Write an entry log of (ledger, entry, size) records; return each one's position."""
    data, places = bytearray(encode_header(LogHeader(version))), {}
    for ledger, entry, size in items:
        places[ledger, entry] = len(data) + 4
        data += struct.pack(">i", size) + record(ledger, entry, size)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return places
