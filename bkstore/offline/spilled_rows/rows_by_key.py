"""RowsByKey: sort index rows by key, with one row for each key, in bounded memory.

They are written as sorted runs and read in pieces, for which all runs are cut at the same keys.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.os_errors import convert_write_errors
from bkstore.files.spill_files import append_spill, open_spill
from bkstore.ids import Int64Array
from bkstore.index.api import IndexBatch

RUN_ROWS = 1 << 18
"""Rows of a run and, roughly, of a piece: 12 MiB, and several times as much during sorting."""

_SAMPLES_PER_RUN = 64
_COLUMNS = 6  # scope, ledger, entry, priority, directory, location
_ROW_BYTES = 8 * _COLUMNS
_KEY = struct.Struct("=3Q")
_SIGN_BIT = np.int64(-(1 << 63))

_Key = tuple[int, ...]
"""Scope, ledger and entry, unsigned."""


class RowsByKey:
    """Takes rows in any order, and yields them by scope, ledger and entry, all unsigned.

    Of several rows of one entry, the one with the highest `priority` is kept; of equal ones, the
    last one added. After an iteration, `duplicates` counts the others. May be iterated repeatedly;
    no rows may be added after the first iteration.

    Sorted runs of about `run_rows` rows are spilled. The merge is split at keys from `_samples`.
    """

    def __init__(
        self, folder: Path, file_prefix: str, files: Files = OS_FILES, run_rows: int = RUN_ROWS
    ) -> None:
        self.duplicates = 0
        self._folder = folder
        self._file_prefix = file_prefix
        self._files = files
        self._run_rows = run_rows
        self._pending: list[Int64Array] = []
        self._pending_rows = 0
        self._run_files: list[Path] = []
        self._run_sizes: list[int] = []
        self._samples: list[_Key] = []
        self._dropped_rows = 0

    def add(self, rows: IndexBatch, priority: int | Int64Array = 0) -> None:
        """Add rows, with one priority for all of them or one for each."""
        if not rows.entry_id.size:
            return
        columns = np.empty((_COLUMNS, rows.entry_id.size), np.int64)
        ids = (rows.scope_id, rows.ledger_id, rows.entry_id)
        for index, column in enumerate((*ids, priority, rows.dir_index, rows.location)):
            columns[index] = column
        self._pending.append(columns)
        self._pending_rows += rows.entry_id.size
        if self._pending_rows >= self._run_rows:
            self._spill()

    @property
    def row_count(self) -> int:
        """The number of rows; some may turn out to be duplicates."""
        return self._pending_rows + sum(self._run_sizes)

    def _spill(self) -> None:
        """Sort the pending rows, and write them to a file of their own, a run. Keep a sample of its
        keys, from which the split keys of the merge are chosen."""
        if not self._pending_rows:
            return
        columns = _sort_distinct(np.concatenate(self._pending, axis=1))
        size = columns.shape[1]
        self._dropped_rows += self._pending_rows - size
        self._pending, self._pending_rows = [], 0
        path = self._folder / f"{self._file_prefix}-{len(self._run_files):05d}"
        with convert_write_errors(path):
            self._files.makedirs(self._folder)
        append_spill(path, np.ascontiguousarray(columns.T).data, self._files)
        self._run_files.append(path)
        self._run_sizes.append(size)
        step = max(self._run_rows // _SAMPLES_PER_RUN, 1)
        sampled_keys = columns[:3, ::step].astype(np.uint64)
        self._samples += map(tuple, sampled_keys.T.tolist())

    def __iter__(self) -> Iterator[IndexBatch]:
        """Yield the rows in key order, one for each key: a merge of the runs, in pieces between the
        split keys, each of which fits in memory."""
        self._spill()
        self.duplicates = self._dropped_rows
        starts = [0] * len(self._run_files)
        for stop_key in [*self._split_keys(sum(self._run_sizes)), None]:
            # Every run is cut at the same key, so all rows of one key are in one piece.
            runs = zip(self._run_files, self._run_sizes)
            ends = [_find_first_row(run, size, stop_key) for run, size in runs]
            row_blocks = [
                _read_rows(run, start, end)
                for run, start, end in zip(self._run_files, starts, ends)
            ]
            starts = ends
            columns = np.concatenate([np.empty((_COLUMNS, 0), np.int64), *row_blocks], axis=1)
            # A single run is sorted and distinct already.
            distinct = _sort_distinct(columns) if len(row_blocks) > 1 else columns
            self.duplicates += columns.shape[1] - distinct.shape[1]
            if distinct.shape[1]:
                scope, ledger, entry, _, directory, location = distinct
                yield IndexBatch(directory, scope, ledger, entry, location)

    def _split_keys(self, rows: int) -> list[_Key]:
        """Return the first key of each piece but the first one, from the samples."""
        piece_count, keys = -(-rows // self._run_rows), sorted(self._samples)
        return sorted({keys[piece * len(keys) // piece_count] for piece in range(1, piece_count)})


def _read_rows(run: Path, start: int, stop: int) -> Int64Array:
    if start == stop:
        return np.empty((_COLUMNS, 0), np.int64)
    with open_spill(run) as spill:
        data = spill.read(start * _ROW_BYTES, (stop - start) * _ROW_BYTES)
    return np.frombuffer(data, np.int64).reshape(-1, _COLUMNS).T


def _find_first_row(run: Path, size: int, key: _Key | None) -> int:
    """Return the index of the first row in a run whose key is at least `key` (None: the end)."""
    if key is None:
        return size
    with open_spill(run) as spill:

        def key_of(row: int) -> _Key:
            return _KEY.unpack(spill.read(row * _ROW_BYTES, _KEY.size))

        return bisect_left(range(size), key, key=key_of)


def _sort_distinct(columns: Int64Array) -> Int64Array:
    """Sort rows by key, and keep the last one with the highest priority for each key."""
    scope, ledger, entry = columns[:3]
    order = np.lexsort((entry, ledger ^ _SIGN_BIT, scope ^ _SIGN_BIT))
    ordered: Int64Array = columns.take(order, axis=1)
    scope, ledger, entry, priority = ordered[:4]
    is_new_key = (entry[1:] != entry[:-1]) | (ledger[1:] != ledger[:-1]) | (scope[1:] != scope[:-1])
    if is_new_key.all():
        return ordered
    # Rows of one key are adjacent now, in the order in which they were added.
    starts = np.flatnonzero(np.concatenate(([True], is_new_key)))
    counts = np.diff(np.append(starts, priority.size))
    # Of these, take the rows with their key's highest priority, and of these the last of each key.
    highest = np.flatnonzero(priority == np.repeat(np.maximum.reduceat(priority, starts), counts))
    key_number = np.repeat(np.arange(starts.size), counts)[highest]
    is_last = np.append(key_number[1:] != key_number[:-1], True)
    distinct: Int64Array = ordered.take(highest[is_last], axis=1)
    return distinct
