"""RowsByLog: group all rows of an index by the entry log they point into, in bounded memory.

Rows are sorted by location in pieces of a million, written to one scratch file, and read back a
stretch of a log at a time, which merges the pieces. Cost: a write and a read of 32 bytes a row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.spill_files import append_spill, open_spill
from bkstore.ids import Int64Array, make_locations, positions_of
from bkstore.index.api import IndexBatch

PIECE_ROWS = 1 << 20
"""Rows that are sorted at a time: 32 MiB, and as much again to sort them."""

STRETCH_BITS = 24
"""A stretch is 16 MiB of a log, which has half a million records at most."""

_ROW_BYTES = 32
_COLUMNS = 4  # scope, ledger, entry, location
_LOCATION = 3

Segment = tuple[int, int, int]
"""Rows of one stretch in one piece: stretch number in the log, first row in the file, count."""


@dataclass
class _Piece:
    """The stretches that a sorted piece has rows of: the directory of each, its number in all logs
    (the location, shifted right by `STRETCH_BITS`), its first row in the file and its row count."""

    dir_index: Int64Array
    stretch: Int64Array
    first: Int64Array
    count: Int64Array


@dataclass
class RowsByLog:
    """Takes index rows in any order; `rows_of_log` returns one log's, `LogRows` reads them lazily.

    `path` is the scratch file; `dir_index` is the directory of the log (-1: in none). Disk: 32
    bytes a row. Memory: one piece, and 32 bytes for each stretch and piece.
    """

    path: Path
    files: Files = OS_FILES
    row_count: int = 0
    _pending: list[IndexBatch] = field(default_factory=list)
    _pending_rows: int = 0
    _pieces: list[_Piece] = field(default_factory=list)

    def add(self, rows: IndexBatch) -> None:
        """Add rows."""
        self._pending.append(rows)
        self._pending_rows += rows.entry_id.size
        if self._pending_rows >= PIECE_ROWS:
            self.finish()

    def finish(self) -> None:
        """Write the pending rows to the file, sorted by location, and note where the rows of each
        stretch (16 MiB of a log) are in it. Must be called after the last `add`."""
        if not self._pending:
            return
        rows = IndexBatch.joined(self._pending)
        self._pending, self._pending_rows = [], 0
        order = np.lexsort((rows.location, rows.dir_index))
        # The upper bits of a location are log id and stretch: a number of the stretch in all logs.
        dir_indexes, stretches = rows.dir_index[order], rows.location[order] >> STRETCH_BITS
        is_new_stretch = (np.diff(dir_indexes) != 0) | (np.diff(stretches) != 0)
        starts = np.concatenate(([0], np.flatnonzero(is_new_stretch) + 1))
        counts = np.diff(np.append(starts, order.size))
        piece = _Piece(dir_indexes[starts], stretches[starts], starts + self.row_count, counts)
        table = np.column_stack([column[order] for column in rows[1:]])  # all but the directory
        append_spill(self.path, table.data, self.files)
        self._pieces.append(piece)
        self.row_count += order.size

    def logs(self) -> list[tuple[int, int]]:
        """Return the (directory number, log id) that rows point into, sorted."""
        logs: set[tuple[int, int]] = set()
        for piece in self._pieces:
            log_ids = piece.stretch >> (32 - STRETCH_BITS)  # the lower bits count within the log
            logs.update(zip(piece.dir_index.tolist(), log_ids.tolist()))
        return sorted(logs)

    def segments(self, dir_index: int, log_id: int) -> list[Segment]:
        """Return where one log's rows are in the file: (stretch, first row, count), by stretch. A
        stretch has a segment for each piece with rows of it."""
        segments: list[Segment] = []
        stretches_of_log = 1 << (32 - STRETCH_BITS)
        for piece in self._pieces:
            log_ids, stretch_in_log = np.divmod(piece.stretch, stretches_of_log)
            is_in_log = (piece.dir_index == dir_index) & (log_ids == log_id)
            columns = (stretch_in_log[is_in_log], piece.first[is_in_log], piece.count[is_in_log])
            segments += zip(*(column.tolist() for column in columns))
        return sorted(segments)

    def rows_of_log(self, dir_index: int, log_id: int) -> IndexBatch:
        """Return all rows of one log as index rows, by location. Memory: 64 bytes a row."""
        row_blocks = LogRows(self.path, self.segments(dir_index, log_id)).read_rest()
        rows = np.concatenate([np.empty((0, _COLUMNS), np.int64), *row_blocks])
        scope, ledger, entry, position = map(np.ascontiguousarray, rows.T)
        dir_indexes = np.full(position.size, dir_index)
        return IndexBatch(dir_indexes, scope, ledger, entry, make_locations(log_id, position))


class LogRows:
    """The rows of one log by ascending position, read on demand. Memory: those of one stretch.

    `_segments` are those that are not loaded yet, in the order of the log. `_unread` are the loaded
    rows that are not returned yet, `_unread_positions` their positions.
    """

    def __init__(self, path: Path, segments: list[Segment]) -> None:
        self._path = path
        self._segments = deque(segments)
        self._unread = np.empty((0, _COLUMNS), np.int64)
        self._unread_positions = np.empty(0, np.int64)
        self.row_count = sum(count for _, _, count in segments)

    def read_up_to(self, position: int) -> Int64Array:
        """Return the next rows, up to `position`: int64[n, 4] of scope, ledger, entry, position."""
        # Take the loaded rows up to `position`, and load further stretches that begin before it.
        parts = []
        while True:
            end = int(np.searchsorted(self._unread_positions, position, "right"))
            parts.append(self._unread[:end])
            self._unread, self._unread_positions = self._unread[end:], self._unread_positions[end:]
            if self._unread.size or not self._has_segment_before(position):
                return parts[0] if len(parts) == 1 else np.concatenate(parts)
            self._load_stretch()

    def read_rest(self) -> Iterator[Int64Array]:
        """Yield all further rows, a stretch at a time."""
        if self._unread.size:
            yield self.read_up_to(1 << 32)  # above any position
        while self._segments:
            self._load_stretch()
            rows, self._unread = self._unread, self._unread[:0]
            self._unread_positions = self._unread_positions[:0]
            yield rows

    def _has_segment_before(self, position: int) -> bool:
        return bool(self._segments) and self._segments[0][0] << STRETCH_BITS <= position

    def _load_stretch(self) -> None:
        """Load the next stretch (16 MiB of the log): merge its segments, which are sorted each."""
        stretch, _, _ = self._segments[0]
        segments: list[Segment] = []
        while self._segments and self._segments[0][0] == stretch:
            segments.append(self._segments.popleft())
        row_blocks = []
        with open_spill(self._path) as spill:
            for _, first_row, count in segments:
                data = spill.read(first_row * _ROW_BYTES, count * _ROW_BYTES)
                row_blocks.append(np.frombuffer(data, np.int64).reshape(-1, _COLUMNS))
        rows = np.concatenate(row_blocks)
        rows = rows[np.argsort(rows[:, _LOCATION], kind="stable")]
        # All rows are of one log: the position is enough from here on.
        positions = positions_of(rows[:, _LOCATION])
        rows[:, _LOCATION] = positions
        self._unread, self._unread_positions = rows, np.ascontiguousarray(positions)
