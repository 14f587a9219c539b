"""RowsByKey: index rows in the order of keys, one a key, whatever order they come in.

Rows are gathered, sorted and written as runs; reading them cuts all runs at the same keys, a piece
at a time. So memory is that of a run, disk 48 bytes a row.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.os_errors import writing
from bkstore.files.spill_files import append_spill, opened_spill
from bkstore.ids import Int64Array
from bkstore.index.api import IndexBatch

RUN_ROWS = 1 << 18
"""Rows of a run, and what a piece aims at: 12 MiB, and some times as much while they are sorted."""

_SAMPLES = 64
_COLUMNS = 6  # scope, ledger, entry, weight, directory, location
_ROW_BYTES = 8 * _COLUMNS
_KEY = struct.Struct("=3Q")
_FLIP = np.int64(-(1 << 63))

_Key = tuple[int, ...]
"""Scope, ledger and entry, unsigned."""


class RowsByKey:
    """Takes rows in any order; iterating gives them by scope, ledger and entry, unsigned.

    Of several rows of one entry, the one of the greatest `weight` stays, of these the last that
    was added; `duplicates` counts the others, after an iteration. It can be iterated as often as
    is wanted; nothing is added after the first.
    """

    def __init__(
        self, folder: Path, name: str, files: Files = OS_FILES, run_rows: int = RUN_ROWS
    ) -> None:
        self.duplicates = 0
        self._folder = folder
        self._name = name
        self._files = files
        self._run_rows = run_rows
        self._pending: list[Int64Array] = []
        self._waiting = 0
        self._runs: list[Path] = []
        self._sizes: list[int] = []
        self._samples: list[_Key] = []
        self._lost = 0

    def add(self, rows: IndexBatch, weight: int | Int64Array = 0) -> None:
        """Take rows, with the weight of all or of each."""
        if not rows.entry_id.size:
            return
        columns = np.empty((_COLUMNS, rows.entry_id.size), np.int64)
        for number, column in enumerate((*rows[1:4], weight, rows.dir_index, rows.location)):
            columns[number] = column
        self._pending.append(columns)
        self._waiting += rows.entry_id.size
        if self._waiting >= self._run_rows:
            self._spill()

    @property
    def rows(self) -> int:
        """How many rows there are; some may yet turn out to be duplicates."""
        return self._waiting + sum(self._sizes)

    def _spill(self) -> None:
        if not self._waiting:
            return
        columns = _sorted_distinct(np.concatenate(self._pending, axis=1))
        size = columns.shape[1]
        self._lost += self._waiting - size
        self._pending, self._waiting = [], 0
        path = self._folder / f"{self._name}-{len(self._runs):05d}"
        with writing(path):
            self._files.makedirs(self._folder)
        append_spill(path, np.ascontiguousarray(columns.T).data, self._files)
        self._runs.append(path)
        self._sizes.append(size)
        step = max(self._run_rows // _SAMPLES, 1)
        self._samples += map(tuple, columns[:3, ::step].T.astype(np.uint64).tolist())

    def __iter__(self) -> Iterator[IndexBatch]:
        self._spill()
        self.duplicates = self._lost
        borders = [0] * len(self._runs)
        for stop in [*self._splits(sum(self._sizes)), None]:
            # All rows of one key are in one piece: every run is cut at the same key.
            ends = [_first_at(run, size, stop) for run, size in zip(self._runs, self._sizes)]
            parts = [_read(run, lo, hi) for run, lo, hi in zip(self._runs, borders, ends)]
            borders = ends
            columns = np.concatenate([np.empty((_COLUMNS, 0), np.int64), *parts], axis=1)
            distinct = _sorted_distinct(columns) if len(parts) > 1 else columns
            self.duplicates += columns.shape[1] - distinct.shape[1]
            if distinct.shape[1]:
                scope, ledger, entry, _, directory, location = distinct
                yield IndexBatch(directory, scope, ledger, entry, location)

    def _splits(self, rows: int) -> list[_Key]:
        """Return the keys at which pieces begin, but for the first."""
        count, keys = -(-rows // self._run_rows), sorted(self._samples)
        return sorted({keys[n * len(keys) // count] for n in range(1, count)})


def _read(run: Path, start: int, stop: int) -> Int64Array:
    """Return the rows start..stop of a run, as columns."""
    if start == stop:
        return np.empty((_COLUMNS, 0), np.int64)
    with opened_spill(run) as spill:
        data = spill.read(start * _ROW_BYTES, (stop - start) * _ROW_BYTES)
    return np.frombuffer(data, np.int64).reshape(-1, _COLUMNS).T


def _first_at(run: Path, size: int, key: _Key | None) -> int:
    """Return the number of the first row of a run whose key is not below `key`."""
    if key is None:
        return size
    with opened_spill(run) as spill:

        def key_of(number: int) -> _Key:
            return _KEY.unpack(spill.read(number * _ROW_BYTES, _KEY.size))

        return bisect_left(range(size), key, key=key_of)


def _sorted_distinct(columns: Int64Array) -> Int64Array:
    """Return rows by key, the last of the greatest weight of each; stable."""
    scope, ledger, entry = columns[:3]
    ordered: Int64Array = columns.take(np.lexsort((entry, ledger ^ _FLIP, scope ^ _FLIP)), axis=1)
    scope, ledger, entry, weight = ordered[:4]
    other = (entry[1:] != entry[:-1]) | (ledger[1:] != ledger[:-1]) | (scope[1:] != scope[:-1])
    if other.all():
        return ordered
    # Rows of one key are neighbors now, in the order in which they were added.
    starts = np.flatnonzero(np.concatenate(([True], other)))
    counts = np.diff(np.append(starts, weight.size))
    heaviest = np.flatnonzero(weight == np.repeat(np.maximum.reduceat(weight, starts), counts))
    key_number = np.repeat(np.arange(starts.size), counts)[heaviest]
    last = np.append(key_number[1:] != key_number[:-1], True)
    distinct: Int64Array = ordered.take(heaviest[last], axis=1)
    return distinct
