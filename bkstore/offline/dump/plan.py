"""Plan a dump: the pieces of a bookie, each small enough to be one task.

A piece is a range of ledgers of one index, or a run of entry logs. Pieces depend on the bookie,
not on the number of processes: the same bookie gives the same files. A piece has a key, a digest of
the sizes and modification times of all files that it reads, which shows later whether the files of
the dump are still current. Planning reads names, sizes and the list of ledgers.
"""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from bkstore.errors import BkstoreError
from bkstore.files.opening import is_folder
from bkstore.files.os_errors import is_absent, is_medium_error, read_error
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.partitioned import PartitionedIndex
from bkstore.index.rocks.reader import RocksReader
from bkstore.offline.dump.file_names import file_name
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.directories.layout import DATABASE_NAMES, Layout
from bkstore.storage.read_only.bookie_dir import BookieDir

PIECE_ROWS = 1 << 22
"""Target rows of a piece: four row groups, some seconds of work, about 7 MB."""

_LEDGER_WEIGHT = 64
"""The cost of a ledger beside its rows, in rows; it also bounds the ledgers of a piece."""

_LOGS_PER_PIECE = 256

_LOWEST_LEDGER = LedgerId(0, 0)
FirstLedgers = Mapping[int, Sequence[LedgerId]]
_NO_CUTS: FirstLedgers = MappingProxyType({})
_KEY_VERSION = 5
"""The version of piece keys; after a change the pieces of interrupted dumps are not reused."""


class DumpSource(NamedTuple):
    """A bookie to dump: its path, its id (default: the cookie's), how to open it."""

    path: str | os.PathLike[str]
    bookie_id: str | None = None
    live: bool = False
    layout: Layout | None = None
    root: str | os.PathLike[str] | None = None

    def open(self) -> BookieDir:
        """Open its directories."""
        return BookieDir(
            self.path, live=self.live, layout=self.layout, bookie_id=self.bookie_id, root=self.root
        )


@dataclass(frozen=True)
class DumpPiece:
    """One task: a range of ledgers (`kind` "index") or some entry logs (`kind` "logs").

    The range is from `first_ledger` to before `stop_ledger` (None: no end), with these index
    `files` (none for RocksDB). `index_dirs` are the directories of the index: all for index files,
    for RocksDB number `dir_index` of `directory_count`. `logs` are the logs of a "logs" piece, or
    those that locations may point into. `weight` estimates the work, in rows. `with_lengths`,
    `with_messages`: the lengths of records, or also the headers of Pulsar's messages, are read.
    """

    bookie_id: str
    kind: str
    number: int
    weight: int
    live: bool
    with_lengths: bool
    logs: tuple[LogFile, ...]
    layout: Layout = "idx"
    index_dirs: tuple[Path, ...] = ()
    dir_index: int = 0
    directory_count: int = 1
    first_ledger: LedgerId = _LOWEST_LEDGER
    stop_ledger: LedgerId | None = None
    files: tuple[tuple[LedgerId, str], ...] = ()
    with_messages: bool = False

    @property
    def record_columns(self) -> bool | str:
        """What is read of each record, in digests: whether lengths are, or "messages" too."""
        return "messages" if self.with_messages else self.with_lengths

    @property
    def name(self) -> str:
        """The name in file names; distinct among the pieces of a bookie."""
        return f"{file_name(self.bookie_id)}-{self.kind}-{self.number:05d}"

    def has_ledger(self, ledger: LedgerId) -> bool:
        """Return whether the ledger is in the range."""
        stop = self.stop_ledger
        return self.first_ledger <= ledger and (stop is None or ledger < stop)

    def __str__(self) -> str:
        if self.kind == "logs":
            return "entry logs " + " to ".join(log.path for log in self.logs[:1] + self.logs[-1:])
        upto = "the end" if self.stop_ledger is None else f"before {self.stop_ledger}"
        return f"ledgers from {self.first_ledger} to {upto}"


@dataclass
class BookiePlan:
    """One bookie: its id, its pieces, and the findings of planning."""

    bookie_id: str
    bookie_dir: BookieDir
    pieces: list[DumpPiece] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def plan_bookie(
    bookie: BookieDir,
    with_lengths: bool,
    piece_rows: int = PIECE_ROWS,
    first_ledgers: FirstLedgers = _NO_CUTS,
    *,
    with_messages: bool = False,
) -> BookiePlan:
    """Return the pieces of an open bookie, of about `piece_rows` rows each.

    `first_ledgers` are ledgers at which its index was cut before, ascending, by the number of the
    directory: it is cut there again, and further where a piece has grown to twice `piece_rows`.
    `with_messages` needs `with_lengths`.

    Cost: a `stat` of each index file; of a RocksDB index the pass over its keys that looks for
    ledgers without a row in `ledgers`. Raises `BkstoreError`.
    """
    plan = BookiePlan(bookie.bookie_id, bookie)
    index_pieces = _idx_pieces if bookie.layout == "idx" else _rocks_pieces
    pieces = index_pieces(bookie, with_lengths, piece_rows, first_ledgers)
    plan.pieces += [replace(piece, with_messages=with_messages) for piece in pieces]
    plan.pieces += _log_pieces(bookie)
    try:
        plan.findings += bookie.findings()
    except BkstoreError as error:
        plan.findings.append(Finding.of(error))
    return plan


def _idx_pieces(
    bookie: BookieDir, with_lengths: bool, piece_rows: int, first_ledgers: FirstLedgers
) -> Iterator[DumpPiece]:
    """Yield pieces of index files, each of consecutive ledgers."""
    index = bookie.index
    assert isinstance(index, HierarchicalIndex)
    ledgers = index.ledgers()
    paths = [index.path(ledger) or "" for ledger in ledgers]
    weights = [_LEDGER_WEIGHT + _max_entries(path) for path in paths]
    slices = _cut_index(ledgers, weights, piece_rows, first_ledgers.get(0, ()))
    for number, (start, stop, first_ledger, stop_ledger) in enumerate(slices):
        yield DumpPiece(
            bookie.bookie_id,
            "index",
            number,
            weight=sum(weights[start:stop]),
            live=bookie.live,
            with_lengths=with_lengths,
            logs=tuple(bookie.entry_logs),
            index_dirs=tuple(bookie.folders.index),
            first_ledger=first_ledger,
            stop_ledger=stop_ledger,
            files=tuple(zip(ledgers[start:stop], paths[start:stop])),
        )


def _max_entries(path: str) -> int:
    """Return an upper bound of the entries in an index file, which has 8 bytes for each. Holes of
    the file, which are in its size but not in its blocks of 512 bytes, have no entries."""
    try:
        info = os.stat(path)
    except OSError as error:
        if is_absent(error) or is_medium_error(error):  # reading it reports that
            return 0
        raise read_error(error, path) from error
    return min(info.st_size, info.st_blocks * 512) // 8


def _rocks_pieces(
    bookie: BookieDir, with_lengths: bool, piece_rows: int, first_ledgers: FirstLedgers
) -> Iterator[DumpPiece]:
    """Yield pieces of databases, each of consecutive ledgers of one directory."""
    index, currents = bookie.index, bookie.folders.index
    parts = index.parts if isinstance(index, PartitionedIndex) else [index]
    number = 0
    for dir_index, database in enumerate(parts):
        # Only the ledgers that belong to this directory, by their id modulo the number of
        # directories: rows of other ledgers here are leftovers.
        assert isinstance(database, RocksReader)
        listed = database.list_readable_ledgers().ledgers
        ledgers = [n for n in listed if n.ledger % len(parts) == dir_index]
        weights = (_LEDGER_WEIGHT + database.estimate_rows(ledgers)).tolist()
        logs = tuple(log for log in bookie.entry_logs if log.dir_index == dir_index)
        cuts = first_ledgers.get(dir_index, ())
        for start, stop, first_ledger, stop_ledger in _cut_index(
            ledgers, weights, piece_rows, cuts
        ):
            yield DumpPiece(
                bookie.bookie_id,
                "index",
                number,
                weight=sum(weights[start:stop]),
                live=bookie.live,
                with_lengths=with_lengths,
                logs=logs,
                layout="rocksdb",
                index_dirs=(currents[dir_index],),
                dir_index=dir_index,
                directory_count=len(parts),
                first_ledger=first_ledger,
                stop_ledger=stop_ledger,
            )
            number += 1


def _cut_index(
    ledgers: Sequence[LedgerId],
    weights: Sequence[int],
    piece_rows: int,
    cuts: Sequence[LedgerId],
) -> Iterator[tuple[int, int, LedgerId, LedgerId | None]]:
    """Cut the ledgers, which are in order, into a slice for each piece; yield (start, stop, first
    ledger, ledger before which it ends) of each slice ``ledgers[start:stop]``.

    `cuts` are the first ledgers of an earlier dump's pieces. The slices are cut there again, so
    that pieces without changes are the same, and where one has more than twice `piece_rows`."""
    # The parts between the earlier cuts: their indexes in `ledgers`, and their first ledgers. A
    # part begins at its cut, even if that ledger is gone by now.
    earlier = [ledger for ledger in cuts if ledger > _LOWEST_LEDGER]
    bounds = [0, *(bisect_left(ledgers, ledger) for ledger in earlier), len(ledgers)]
    firsts: list[LedgerId | None] = [_LOWEST_LEDGER, *earlier, None]
    for (start, stop), (first, next_first) in zip(pairwise(bounds), pairwise(firsts)):
        part_weights = weights[start:stop]
        # A part stays one piece, as in the earlier dump, unless it has grown too much.
        target = piece_rows if not cuts or sum(part_weights) > 2 * piece_rows else sum(part_weights)
        for part_start, part_stop in _split_evenly(part_weights, max(target, 1)):
            is_last = start + part_stop == stop
            yield (
                start + part_start,
                start + part_stop,
                ledgers[start + part_start] if part_start else first or _LOWEST_LEDGER,
                next_first if is_last else ledgers[start + part_stop],
            )


def _split_evenly(weights: Sequence[int], target: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of slices of about equal weight, near `target`; at least one slice."""
    slice_count = max(round(sum(weights) / target), 1)
    slice_weight, bounds, weight_so_far = sum(weights) / slice_count, [0], 0.0
    for stop, weight in enumerate(weights[:-1], 1):
        weight_so_far += weight
        if weight_so_far >= slice_weight:
            bounds.append(stop)
            weight_so_far = 0.0
    yield from pairwise([*bounds, len(weights)])


def _log_pieces(bookie: BookieDir) -> Iterator[DumpPiece]:
    """Yield the pieces of entry logs, each of one directory. If there are no logs, yield one piece
    without any: it writes the empty tables."""
    pieces: list[tuple[LogFile, ...]] = []
    for _, group in groupby(bookie.entry_logs, key=lambda log: log.dir_index):
        logs = tuple(group)
        pieces += [logs[i : i + _LOGS_PER_PIECE] for i in range(0, len(logs), _LOGS_PER_PIECE)]
    for number, logs in enumerate(pieces or [()]):
        weight, with_lengths = _LEDGER_WEIGHT * len(logs), False
        yield DumpPiece(bookie.bookie_id, "logs", number, weight, bookie.live, with_lengths, logs)


# -- detecting changes


def fingerprint(piece: DumpPiece) -> str:
    """Return a digest of the piece and of name, size and mtime of all files that it reads.

    Cost: a `stat` a file. Raises `ReadFailed` if the system refuses one.
    """
    logs = [(log.path, log.dir_index) for log in piece.logs]
    paths = [path for _, path in piece.files]
    if piece.layout == "rocksdb":
        paths += list_database_files(piece.index_dirs[0])
    if piece.kind == "logs" or piece.with_lengths:
        paths += [path for path, _ in logs]
    content = (
        _KEY_VERSION,
        piece.bookie_id,
        piece.kind,
        piece.record_columns,
        piece.layout,
        piece.dir_index,
        piece.directory_count,
        list(map(str, piece.index_dirs)),
        piece.first_ledger,
        piece.stop_ledger,
        [ledger for ledger, _ in piece.files],
        logs,
        list(stat_files(paths)),
    )
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def list_database_files(current: Path) -> list[str]:
    """Return the paths of all files of an index directory's RocksDB databases, sorted."""
    paths = []
    for database_name in DATABASE_NAMES:
        if (current / database_name).is_dir():
            with os.scandir(current / database_name) as entries:
                paths += sorted(entry.path for entry in entries if not is_folder(entry))
    return paths


def stat_files(paths: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Yield (path, size, mtime in ns) of each file that exists; raises `ReadFailed`."""
    for path in paths:
        try:
            info = os.stat(path)
        except OSError as error:
            if is_absent(error) or is_medium_error(error):  # reading it reports that
                continue
            raise read_error(error, path) from error
        yield path, info.st_size, info.st_mtime_ns
