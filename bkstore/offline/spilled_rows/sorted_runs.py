"""Sorted runs: rows of int64 columns in files, sorted by key each, merged piece by piece.

The first three columns are the key: scope, ledger and entry, compared as unsigned numbers. All runs
are cut at the same keys, so that all rows of one key are in one piece.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.os_errors import convert_write_errors
from bkstore.files.spill_files import append_spill, open_spill
from bkstore.ids import Int64Array

RUN_ROWS = 1 << 18
"""Rows of a run and, roughly, of a piece."""

_SAMPLES_PER_RUN = 64
_KEY = struct.Struct("=3Q")
_SIGN_BIT = np.int64(-(1 << 63))

Key = tuple[int, ...]
"""Scope, ledger and entry, unsigned."""


@dataclass(frozen=True)
class SortedRun:
    """A file of `rows` sorted rows of `columns` int64 values, row by row. `samples` are the keys of
    every `step`-th row, from the first one on."""

    path: Path
    rows: int
    columns: int
    step: int
    samples: Sequence[Key]

    @property
    def bytes(self) -> int:
        """The size of the file."""
        return 8 * self.rows * self.columns


def write_run(
    path: Path, columns: Int64Array, files: Files = OS_FILES, run_rows: int = RUN_ROWS
) -> SortedRun:
    """Write rows, int64[columns, n] in the order of their keys, to a new file; does not sync."""
    with convert_write_errors(path):
        files.makedirs(path.parent)
    append_spill(path, np.ascontiguousarray(columns.T).data, files)
    # Every `step`-th key is kept, from which a merge chooses where to cut all runs. The step is the
    # same for all runs, short ones too, so that each sample stands for as many rows.
    step = max(run_rows // _SAMPLES_PER_RUN, 1)
    samples = [tuple(key) for key in columns[:3, ::step].astype(np.uint64).T.tolist()]
    return SortedRun(path, columns.shape[1], columns.shape[0], step, samples)


def order_by_key(columns: Int64Array) -> Int64Array:
    """Return the order of rows by key, int64[n]; rows of equal keys keep their order."""
    scope, ledger, entry = columns[:3]
    return np.lexsort((entry, ledger ^ _SIGN_BIT, scope ^ _SIGN_BIT)).astype(np.int64, copy=False)


def key_starts(columns: Int64Array) -> Int64Array:
    """Return the first row of each key, int64[keys], of rows that are sorted by key."""
    scope, ledger, entry = columns[:3]
    if not entry.size:
        return np.empty(0, np.int64)
    is_new_key = (entry[1:] != entry[:-1]) | (ledger[1:] != ledger[:-1]) | (scope[1:] != scope[:-1])
    return np.flatnonzero(np.concatenate(([True], is_new_key))).astype(np.int64, copy=False)


def read_pieces(
    runs: Sequence[SortedRun], piece_rows: int = RUN_ROWS
) -> Iterator[list[Int64Array]]:
    """Yield pieces of about `piece_rows` rows in the order of keys: for each run its rows of that
    range of keys, int64[columns, n]. Memory: a piece, and some 100 bytes for 4,096 rows."""
    starts = [0] * len(runs)
    for stop_key in [*_split_keys(runs, piece_rows), None]:
        stops = [_find_first_row(run, stop_key) for run in runs]
        yield [_read_rows(*run_slice) for run_slice in zip(runs, starts, stops)]
        starts = stops


def _split_keys(runs: Sequence[SortedRun], piece_rows: int) -> list[Key]:
    """Return the first key of each piece but the first one, from the samples."""
    # Each sample stands for the rows from it to the next one of its run.
    weighted = sorted(
        (key, min(run.step, run.rows - number * run.step))
        for run in runs
        for number, key in enumerate(run.samples)
    )
    split_keys: list[Key] = []
    rows_before = 0
    for key, weight in weighted:
        if rows_before >= piece_rows and key not in split_keys[-1:]:
            split_keys.append(key)
            rows_before = 0
        rows_before += weight
    return split_keys


def _read_rows(run: SortedRun, start: int, stop: int) -> Int64Array:
    if start == stop:
        return np.empty((run.columns, 0), np.int64)
    row_bytes = 8 * run.columns
    with open_spill(run.path) as spill:
        data = spill.read(start * row_bytes, (stop - start) * row_bytes)
    return np.frombuffer(data, np.int64).reshape(-1, run.columns).T


def _find_first_row(run: SortedRun, key: Key | None) -> int:
    """Return the index of the first row in a run whose key is at least `key` (None: the end)."""
    if key is None:
        return run.rows
    # The row is behind the last sample below `key`, at most at the next sample.
    sample = bisect_left(run.samples, key)
    low, high = max(sample - 1, 0) * run.step, min(sample * run.step, run.rows)
    if low == high:
        return low
    with open_spill(run.path) as spill:

        def key_of(row: int) -> Key:
            return _KEY.unpack(spill.read(8 * run.columns * row, _KEY.size))

        return bisect_left(range(run.rows), key, low, high, key=key_of)
