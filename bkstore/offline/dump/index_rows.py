"""Read one piece of an index: the rows of a range of ledgers, in order, in bounded memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path

import numpy as np

from bkstore.ids import Int64Array, LedgerId, log_ids_of
from bkstore.index.api import DEFAULT_BATCH, Closeable, EntryIndex, Finding, IndexBatch
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.hierarchical.file_tree import IndexFileTree
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.keys import KeyRange, ledger_key, ledgers_between
from bkstore.index.rocks.rows import scan_rows
from bkstore.offline.dump.plan import DumpPiece
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.read_only.bookie_dir import NO_DIRECTORY


class PieceIndex(Closeable):
    """The index of one piece: its ledgers, their states and rows."""

    def __init__(self, piece: DumpPiece) -> None:
        self._piece = piece
        self.index: EntryIndex
        if piece.layout == "idx":
            self.index = _PieceIndexFiles(piece.index_dirs, piece.files)
        else:
            self.index = _RangeIndex(piece.index_dirs[0], live=piece.live)
        self._log_dirs = _first_directory_of_logs(piece.logs)

    def close(self) -> None:
        """Close the index."""
        self.index.close()

    def ledgers(self) -> list[LedgerId]:
        """Return the ledgers of the range, in order. Ledgers that belong to another directory, by
        their id modulo the number of directories, and those that damage hides (`hidden_ledgers`)
        are left out."""
        piece = self._piece
        return [
            ledger_id
            for ledger_id in self.index.list_readable_ledgers().ledgers
            if piece.has_ledger(ledger_id)
            and ledger_id.ledger % piece.directory_count == piece.dir_index
        ]

    def hidden_ledgers(self, ledgers: Iterable[LedgerId]) -> list[LedgerId]:
        """Return those of some ledgers of the range that damage hides: they may be in the index,
        although `ledgers` does not list them."""
        listing = self.index.list_readable_ledgers()
        if not listing.unknown:
            return []
        listed = set(listing.ledgers)
        return [n for n in ledgers if n not in listed and listing.may_include(n)]

    def listing_damage(self) -> list[Finding]:
        """Return the damage that may hide ledgers of the range: of each finding the index knows the
        lowest and the highest ledger that it may hide, `unknown`. Findings of rows that hide none
        are among those of the bookie."""
        listing, piece = self.index.list_readable_ledgers(), self._piece
        return [
            finding
            for unknown, finding in zip(listing.unknown, listing.findings)
            if unknown.last >= piece.first_ledger
            and (piece.stop_ledger is None or unknown.first < piece.stop_ledger)
        ]

    def rows(self, findings: list[Finding], batch: int = DEFAULT_BATCH) -> Iterator[IndexBatch]:
        """Yield every row of the range with its directory number; append damage to `findings`."""
        if isinstance(self.index, _RangeIndex):
            yield from self._range_rows(self.index, findings, batch)
            return
        for rows in self.index.scan(batch, findings):
            yield rows._replace(dir_index=_find_dirs(self._log_dirs, log_ids_of(rows.location)))

    def doubtful_ledgers(self) -> list[LedgerId]:
        """Return the ledgers, in order, of which `rows`, once exhausted, may have left out some
        because damage overlaps their keys. For index files there are none: each finding of damage
        there names its ledger."""
        if not isinstance(self.index, _RangeIndex) or not any(self.index.unknown_keys):
            return []
        return self.index.find_doubtful(self.ledgers())

    def _range_rows(
        self, index: _RangeIndex, findings: list[Finding], batch: int
    ) -> Iterator[IndexBatch]:
        """Yield the rows of a RocksDB index, all with the number of the piece's directory."""
        piece = self._piece
        for rows in index.scan_range(piece.first_ledger, piece.stop_ledger, batch, findings):
            if piece.directory_count > 1:  # drop rows of ledgers that belong to other directories
                home_dirs = rows.ledger_id.view(np.uint64) % np.uint64(piece.directory_count)
                if not (home_dirs == piece.dir_index).all():
                    rows = IndexBatch(*(column[home_dirs == piece.dir_index] for column in rows))
            if rows.entry_id.size:
                dir_index = np.broadcast_to(np.int64(piece.dir_index), rows.entry_id.shape)
                yield rows._replace(dir_index=dir_index)


def _first_directory_of_logs(logs: Iterable[LogFile]) -> tuple[Int64Array, Int64Array]:
    """Return log ids, ascending, and the number of the first directory that has each: a log may be
    linked into several."""
    directory_of_log: dict[int, int] = {}
    for log in logs:
        directory_of_log.setdefault(log.log_id, log.dir_index)
    ids = np.array(sorted(directory_of_log), np.int64)
    return ids, np.array([directory_of_log[int(log)] for log in ids], np.int64)


def _find_dirs(log_dirs: tuple[Int64Array, Int64Array], logs: Int64Array) -> Int64Array:
    """Return the directory of each log; `NO_DIRECTORY` for logs that do not exist."""
    known_logs, dir_numbers = log_dirs
    if not known_logs.size:
        return np.broadcast_to(np.int64(NO_DIRECTORY), logs.shape)
    positions = np.minimum(np.searchsorted(known_logs, logs), known_logs.size - 1)
    return np.where(known_logs[positions] == logs, dir_numbers[positions], NO_DIRECTORY)


class _PieceIndexFiles(HierarchicalIndex):
    """The index files that the piece lists; directories are not listed again."""

    def __init__(self, currents: Sequence[Path], files: Iterable[tuple[LedgerId, str]]) -> None:
        super().__init__(currents)
        self._tree = IndexFileTree(dict(files), has_file_types=False)


class _RangeIndex(RocksIndex):
    """A RocksDB index that can scan a range of ledgers."""

    def __init__(self, directory: Path, *, live: bool) -> None:
        super().__init__(directory, live=live)
        self.unknown_keys: tuple[list[KeyRange], list[KeyRange]] = ([], [])
        """Where the scan met damage, in `locations` and in `locations-128`."""

    def find_doubtful(self, ledger_ids: Sequence[LedgerId]) -> list[LedgerId]:
        """Return those of some sorted ledgers that may have keys in `unknown_keys`, in order."""
        first_scoped = bisect_left(ledger_ids, 1, key=itemgetter(0))  # the first of scope >= 1
        doubtful: set[LedgerId] = set()
        # `locations` has the ledgers of scope 0, `locations-128` all others.
        for has_scope, ranges in enumerate(self.unknown_keys):
            of_database = ledger_ids[first_scoped:] if has_scope else ledger_ids[:first_scoped]
            for start, stop in ranges:
                doubtful.update(ledgers_between(of_database, start, stop))
        return sorted(doubtful)

    def scan_range(
        self,
        first_ledger: LedgerId,
        stop_ledger: LedgerId | None,
        batch: int,
        findings: list[Finding],
    ) -> Iterator[IndexBatch]:
        """Yield the rows of ledgers from the first to before `stop_ledger` (None: to the end), some
        `batch` at a time. Damage is appended to `findings`, its keys to `unknown_keys`."""
        for has_scope in (False, True):  # the database of scope 0, then that of all other scopes
            locations = self._find_locations(has_scope)
            if locations is None:
                continue
            begins_later = bool(first_ledger.scope) and not has_scope
            has_ended = stop_ledger is not None and not stop_ledger.scope and has_scope
            if begins_later or has_ended:
                continue
            # Where the range does not begin or end in this database, read from its first key, or to
            # its last one.
            first_key, stop_key = b"", None
            if bool(first_ledger.scope) == has_scope:
                first_key = ledger_key(first_ledger)
            if stop_ledger is not None and bool(stop_ledger.scope) == has_scope:
                stop_key = ledger_key(stop_ledger)
            yield from scan_rows(
                locations, has_scope, batch, findings, first_key, stop_key,
                self.unknown_keys[has_scope],
            )  # fmt: skip
