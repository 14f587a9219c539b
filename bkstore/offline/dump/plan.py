"""What a dump will read: the pieces of a bookie, each small enough to be one task.

A piece is a range of ledgers of one index, or a row of entry logs. Pieces depend on what is
there, not on how many processes read it: the same bookie gives the same files. A piece has a
key, a digest of all it will read by size and time of change, which tells later whether its
files are still what the bookie says. Reads names, sizes and the list of ledgers.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from bkstore.errors import BkstoreError, SystemRefused
from bkstore.files.os_errors import is_absent, is_medium_error, unreadable
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex, Finding
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.partitioned import PartitionedIndex
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.directories.layout import DATABASES, Layout
from bkstore.storage.read_only.bookie_dir import BookieDir

PIECE_ROWS = 1 << 22
"""Rows that a piece aims at: four row groups, some seconds of work, about 7 MB."""

_LEDGER_ROWS = 64
"""What a ledger costs beside its rows, in rows: a bound on the ledgers of a piece too."""

_LEAST_ROW = 4
"""Bytes that a row of a RocksDB index takes at least, compressed."""

_LOGS_PER_PIECE = 256
_LONGEST_NAME = 128
"""Bytes of a bookie id in a file name, which has some 40 more; most systems take 255."""

_LOWEST = LedgerId(0, 0)
_FORMAT = 4
"""Of pieces; another number makes what is kept of an interrupted dump worthless."""


class DumpSource(NamedTuple):
    """A bookie to dump: where it is, its name (else the cookie's), how to open it."""

    path: str | os.PathLike[str]
    bookie_id: str | None = None
    live: bool = False
    layout: Layout | None = None
    root: str | os.PathLike[str] | None = None

    def open(self) -> BookieDir:
        """Open its directories."""
        return BookieDir(
            self.path,
            live=self.live,
            layout=self.layout,
            bookie_id=self.bookie_id,
            root=self.root,
        )


@dataclass(frozen=True)
class Piece:
    """One task: a range of ledgers (`kind` "index") or some entry logs (`kind` "logs").

    `first` is the lowest ledger, `stop` the one behind the last (None: to the end), `files`
    the index files there. `currents` are the directories of the index: all of them for index
    files, for RocksDB the one, number `dir_index` of `directories`. `logs` are those to read,
    or those that locations may point into.
    """

    bookie: str
    kind: str
    number: int
    weight: int
    live: bool
    length: bool
    logs: tuple[LogFile, ...]
    layout: Layout = "idx"
    currents: tuple[Path, ...] = ()
    dir_index: int = 0
    directories: int = 1
    first: LedgerId = _LOWEST
    stop: LedgerId | None = None
    files: tuple[tuple[LedgerId, str], ...] = ()

    @property
    def name(self) -> str:
        """What it is called in file names; distinct among the pieces of a bookie."""
        return f"{file_name(self.bookie)}-{self.kind}-{self.number:05d}"

    def holds(self, ledger: LedgerId) -> bool:
        """Whether the ledger lies in its range."""
        return self.first <= ledger and (self.stop is None or ledger < self.stop)

    def __str__(self) -> str:
        if self.kind == "logs":
            return "entry logs " + " to ".join(log.path for log in self.logs[:1] + self.logs[-1:])
        upto = "the end" if self.stop is None else f"before {self.stop}"
        return f"ledgers from {self.first} to {upto}"


@dataclass
class BookiePlan:
    """One bookie: who it is, its pieces, and what looking at it found."""

    bookie_id: str
    bookie: BookieDir
    pieces: list[Piece] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def file_name(bookie_id: str) -> str:
    """Return the bookie id as it stands in file names; readers pass over names that begin with
    ``_`` or ``.``, and systems refuse long ones: a long id is cut, and ends in its own digest.

    >>> file_name("host:3181"), file_name("_x"), file_name("x" * 300)[-20:]
    ('host_3181', 'b_x', 'xxx-0d4e2ca9e9cbced7')
    """
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in bookie_id)
    name = name if name[:1].isalnum() else f"b{name}"
    if len(name.encode()) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(bookie_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{name.encode()[: _LONGEST_NAME - 17].decode(errors='ignore')}-{digest}"


def plan_bookie(bookie: BookieDir, length: bool, piece_rows: int = PIECE_ROWS) -> BookiePlan:
    """Return the pieces of an open bookie, of about `piece_rows` rows each.

    Cost: a look at each index file's size, or one seek a ledger (2 us). Raises `BkstoreError`
    where the ledgers cannot be listed.
    """
    made = BookiePlan(bookie.bookie_id, bookie)
    cuts = _idx_pieces if bookie.layout == "idx" else _rocks_pieces
    made.pieces += cuts(bookie, length, piece_rows)
    made.pieces += _log_pieces(bookie)
    try:
        made.findings += bookie.findings()
    except BkstoreError as error:
        made.findings.append(Finding.of(error))
    return made


def _idx_pieces(bookie: BookieDir, length: bool, piece_rows: int) -> Iterator[Piece]:
    index = bookie.index
    assert isinstance(index, HierarchicalIndex)
    ledgers = index.ledgers()
    paths = [index.path(ledger) or "" for ledger in ledgers]
    weights = [_LEDGER_ROWS + _slots(path) for path in paths]
    for number, (lo, hi) in enumerate(_cuts(weights, piece_rows)):
        yield Piece(
            bookie.bookie_id,
            "index",
            number,
            sum(weights[lo:hi]),
            bookie.live,
            length,
            tuple(bookie.entry_logs),
            currents=tuple(bookie.folders.index),
            first=ledgers[lo] if number else _LOWEST,
            stop=ledgers[hi] if hi < len(ledgers) else None,
            files=tuple(zip(ledgers[lo:hi], paths[lo:hi])),
        )


def _slots(path: str) -> int:
    """Return how many slots of an index file can be in use: holes of the file are not."""
    try:
        info = os.stat(path)
    except OSError as error:
        if is_absent(error) or is_medium_error(error):  # reading it will say why
            return 0
        raise unreadable(error, path) from error
    return min(info.st_size, info.st_blocks * 512) // 8


def _rocks_pieces(bookie: BookieDir, length: bool, piece_rows: int) -> Iterator[Piece]:
    index, currents = bookie.index, bookie.folders.index
    parts = index.parts if isinstance(index, PartitionedIndex) else [index]
    number = 0
    for at, part in enumerate(parts):
        ledgers = [name for name in part.ledgers() if name.ledger % len(parts) == at]
        weights = _rows_of(part, ledgers, currents[at])
        logs = tuple(log for log in bookie.entry_logs if log.dir_index == at)
        for lo, hi in _cuts(weights, piece_rows):
            yield Piece(
                bookie.bookie_id,
                "index",
                number,
                sum(weights[lo:hi]),
                bookie.live,
                length,
                logs,
                "rocksdb",
                (currents[at],),
                at,
                len(parts),
                ledgers[lo] if lo else _LOWEST,
                ledgers[hi] if hi < len(ledgers) else None,
            )
            number += 1


def _rows_of(part: EntryIndex, ledgers: Sequence[LedgerId], current: Path) -> list[int]:
    """Return about how many rows each ledger has: up to its last entry, and all together no
    more than the size of the database allows, as entry ids may be sparse."""
    rows = []
    for ledger in ledgers:
        try:
            last = part.last_entry(ledger)
        except SystemRefused:
            raise
        except BkstoreError:  # reading it will say why
            last = None
        rows.append(0 if last is None else last + 1)
    total, most = sum(rows), sum(size for _, size, _ in _stats(_databases(current))) // _LEAST_ROW
    if total > most:
        rows = [row * most // total for row in rows]
    return [_LEDGER_ROWS + row for row in rows]


def _cuts(weights: Sequence[int], target: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of stretches of about equal weight, near `target`; at least one."""
    stretches = max(round(sum(weights) / target), 1)
    share, borders, so_far = sum(weights) / stretches, [0], 0.0
    for at, weight in enumerate(weights[:-1], 1):
        so_far += weight
        if so_far >= share:
            borders.append(at)
            so_far = 0.0
    yield from pairwise([*borders, len(weights)])


def _log_pieces(bookie: BookieDir) -> Iterator[Piece]:
    number = 0
    for _, group in groupby(bookie.entry_logs, key=lambda log: log.dir_index):
        logs = list(group)
        for at in range(0, len(logs), _LOGS_PER_PIECE):
            part = tuple(logs[at : at + _LOGS_PER_PIECE])
            weight = _LEDGER_ROWS * len(part)
            yield Piece(bookie.bookie_id, "logs", number, weight, bookie.live, False, part)
            number += 1
    if not number:
        yield Piece(bookie.bookie_id, "logs", 0, 0, bookie.live, False, ())


# -- telling whether it is still the same


def fingerprint(piece: Piece) -> str:
    """Return a digest of the piece and of name, size and time of change of all it reads.

    Cost: a `stat` a file. Raises `ReadFailed` where the system refuses one.
    """
    logs = [(log.path, log.dir_index) for log in piece.logs]
    paths = [path for _, path in piece.files]
    if piece.layout == "rocksdb":
        paths += _databases(piece.currents[0])
    if piece.kind == "logs" or piece.length:
        paths += [path for path, _ in logs]
    said = (
        _FORMAT,
        piece.bookie,
        piece.kind,
        piece.length,
        piece.layout,
        piece.dir_index,
        piece.directories,
        list(map(str, piece.currents)),
        piece.first,
        piece.stop,
        [ledger for ledger, _ in piece.files],
        logs,
        list(_stats(paths)),
    )
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def _databases(current: Path) -> list[str]:
    found = []
    for name in DATABASES:
        if (current / name).is_dir():
            with os.scandir(current / name) as entries:
                found += sorted(entry.path for entry in entries if not entry.is_dir())
    return found


def _stats(paths: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    for path in paths:
        try:
            info = os.stat(path)
        except OSError as error:
            if is_absent(error) or is_medium_error(error):  # reading it will say why
                continue
            raise unreadable(error, path) from error
        yield path, info.st_size, info.st_mtime_ns
