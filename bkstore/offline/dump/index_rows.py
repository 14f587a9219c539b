"""Reading one piece of an index: the rows of a range of ledgers, in order and bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import numpy as np

from bkstore.ids import Int64Array, LedgerId, log_ids
from bkstore.index.api import DEFAULT_BATCH, EntryIndex, Finding, IndexBatch
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.hierarchical.file_tree import Tree
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.database import Database, Words
from bkstore.index.rocks.keys import ledger_key
from bkstore.index.rocks.rows import scan_rows
from bkstore.offline.dump.plan import Piece
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.read_only.bookie_dir import NOWHERE


class PieceIndex:
    """The index of one piece: its ledgers, their states, their rows. Close it."""

    def __init__(self, piece: Piece) -> None:
        self._piece = piece
        self.index: EntryIndex
        if piece.layout == "idx":
            self.index = _Files(piece.currents, piece.files)
        else:
            self.index = _Databases(piece.currents[0], live=piece.live)
        self._logs = _log_table(piece.logs)

    def close(self) -> None:
        """Close the index."""
        self.index.close()

    def __enter__(self) -> PieceIndex:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def ledgers(self) -> list[LedgerId]:
        """Return the ledgers of the range that lie where a bookie looks, in unsigned order."""
        piece = self._piece
        return [
            name
            for name in self.index.ledgers()
            if piece.holds(name) and name.ledger % piece.directories == piece.dir_index
        ]

    def rows(self, findings: list[Finding], batch: int = DEFAULT_BATCH) -> Iterator[IndexBatch]:
        """Yield every row of the range with its directory's number; damage goes to `findings`."""
        if isinstance(self.index, _Databases):
            yield from self._database_rows(self.index, findings, batch)
            return
        for rows in self.index.scan(batch, findings):
            yield rows._replace(dir_index=_where(self._logs, log_ids(rows.location)))

    def _database_rows(
        self, index: _Databases, findings: list[Finding], batch: int
    ) -> Iterator[IndexBatch]:
        piece = self._piece
        for rows in index.scan_range(piece.first, piece.stop, batch, findings):
            if piece.directories > 1:  # rows where no bookie looks, as `PartitionedIndex.scan`
                homes = rows.ledger_id.view(np.uint64) % np.uint64(piece.directories)
                if not (homes == piece.dir_index).all():
                    rows = IndexBatch(*(column[homes == piece.dir_index] for column in rows))
            if rows.entry_id.size:
                yield rows._replace(
                    dir_index=np.broadcast_to(np.int64(piece.dir_index), rows.entry_id.shape)
                )


def _log_table(logs: Iterable[LogFile]) -> tuple[Int64Array, Int64Array]:
    """Return (log ids, directory numbers), ascending; the first directory wins."""
    first: dict[int, int] = {}
    for log in logs:
        first.setdefault(log.log_id, log.dir_index)
    ids = np.array(sorted(first), np.int64)
    return ids, np.array([first[int(log)] for log in ids], np.int64)


def _where(table: tuple[Int64Array, Int64Array], logs: Int64Array) -> Int64Array:
    ids, numbers = table
    if not ids.size:
        return np.broadcast_to(np.int64(NOWHERE), logs.shape)
    at = np.minimum(np.searchsorted(ids, logs), ids.size - 1)
    return np.where(ids[at] == logs, numbers[at], NOWHERE)


class _Files(HierarchicalIndex):
    """The index files of a piece, which are known: no directory is listed again."""

    def __init__(
        self,
        currents: Sequence[str | os.PathLike[str]],
        files: Iterable[tuple[LedgerId, str]],
    ) -> None:
        super().__init__(currents)
        self._tree = Tree(dict(files), looked_at=False)


class _Databases(RocksIndex):
    """A RocksDB index that can be scanned in part."""

    def scan_range(
        self, first: LedgerId, stop: LedgerId | None, batch: int, findings: list[Finding]
    ) -> Iterator[IndexBatch]:
        """Yield the rows of ledgers from `first` to before `stop` (None: to the end)."""
        for wide in (False, True):
            database, rows = self._held("locations", wide), self._held("ledgers", wide)
            if database is None or rows is None:
                continue
            lo = ledger_key(first) if bool(first.scope) == wide else b""
            hi = None if stop is None or bool(stop.scope) > wide else b""
            if stop is not None and bool(stop.scope) == wide:
                hi = ledger_key(stop)
            if bool(first.scope) <= wide and hi != b"":
                part = cast(Database, _Slice(database, lo, hi))
                yield from scan_rows(part, rows, wide, batch, findings)


class _Slice:
    """A database of which only the keys of [lo, hi) are seen by a scan."""

    def __init__(self, database: Database, lo: bytes, hi: bytes | None) -> None:
        self.path = database.path
        self.first_at = database.first_at
        self._database = database
        self._lo = lo
        self._hi = hi

    def items(self, lo: bytes, hi: bytes, width: int, batch: int) -> Iterator[tuple[Words, Words]]:
        """Yield the rows of [lo, hi) that are in the slice."""
        lo, hi = max(lo, self._lo), hi if self._hi is None else min(hi, self._hi)
        if lo < hi:
            yield from self._database.items(lo, hi, width, batch)
