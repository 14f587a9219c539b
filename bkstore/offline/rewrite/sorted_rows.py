"""Index rows in the order of keys, one a key, whatever order they come in; in bounded memory.

Rows are gathered, sorted and written as runs; reading them cuts all runs at the same keys, a piece
at a time. So memory is that of a run, disk 48 bytes a row. `RowsByLog` spreads rows the other way:
by the entry log that they point into.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.os_errors import writing
from bkstore.files.spill_files import append_spill, opened_spill, read_spill
from bkstore.ids import Int64Array, log_ids
from bkstore.index.api import IndexBatch

_RUN_ROWS = 1 << 18
"""Rows of a run, and what a piece aims at: 12 MiB, and some times as much while they are sorted."""

_SAMPLES = 64
_WORDS = 6  # scope, ledger, entry, weight, directory, location
_ROW_BYTES, _KEY_BYTES = 8 * _WORDS, 24
_FLIP = np.int64(-(1 << 63))


class RowSorter:
    """Takes rows in any order; iterating gives them by scope, ledger and entry, unsigned.

    Of several rows of one entry, the one of the greatest `weight` stays, of these the last that
    was added; `duplicates` counts the others, after an iteration. It can be iterated as often as
    is wanted; nothing is added after the first.
    """

    def __init__(
        self, folder: Path, name: str, files: Files = OS_FILES, run_rows: int = _RUN_ROWS
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
        self._samples: list[bytes] = []
        self._lost = 0

    def add(self, rows: IndexBatch, weight: int | Int64Array = 0) -> None:
        """Take rows, with the weight of all or of each."""
        if not rows.entry_id.size:
            return
        words = np.empty((rows.entry_id.size, _WORDS), np.int64)
        columns = (*rows[1:4], weight, rows.dir_index, rows.location)
        for at, column in enumerate(columns):
            words[:, at] = column
        self._pending.append(words)
        self._waiting += words.shape[0]
        if self._waiting >= self._run_rows:
            self._spill()

    @property
    def rows(self) -> int:
        """How many rows there are; some may yet turn out to be duplicates."""
        return self._waiting + sum(self._sizes)

    def _spill(self) -> None:
        if not self._waiting:
            return
        words = _sorted_distinct(np.concatenate(self._pending))
        self._lost += self._waiting - words.shape[0]
        self._pending, self._waiting = [], 0
        path = self._folder / f"{self._name}-{len(self._runs):05d}"
        keys = words.astype(">i8")
        with writing(path):
            self._files.makedirs(self._folder)
        append_spill(path, keys.data, self._files)
        self._sizes.append(len(keys))
        step = max(self._run_rows // _SAMPLES, 1)
        self._samples += [row[:3].tobytes() for row in keys[::step]]
        self._runs.append(path)

    def __iter__(self) -> Iterator[IndexBatch]:
        self._spill()
        self.duplicates = self._lost
        borders = [0] * len(self._runs)
        for stop in [*self._splits(sum(self._sizes)), None]:
            ends = [_first_at(run, size, stop) for run, size in zip(self._runs, self._sizes)]
            parts = [_read(run, lo, hi) for run, lo, hi in zip(self._runs, borders, ends)]
            borders = ends
            words = np.concatenate(parts) if parts else np.empty((0, _WORDS), np.int64)
            distinct = _sorted_distinct(words) if len(parts) > 1 else words
            self.duplicates += words.shape[0] - distinct.shape[0]
            if distinct.shape[0]:
                scope, ledger, entry, _, directory, location = map(np.ascontiguousarray, distinct.T)
                yield IndexBatch(directory, scope, ledger, entry, location)

    def _splits(self, rows: int) -> list[bytes]:
        """Return the keys at which pieces begin, but for the first."""
        count, keys = -(-rows // self._run_rows), sorted(self._samples)
        return sorted({keys[n * len(keys) // count] for n in range(1, count)})


def _read(run: Path, start: int, stop: int) -> Int64Array:
    """Return the rows start..stop of a run."""
    if start == stop:
        return np.empty((0, _WORDS), np.int64)
    with opened_spill(run) as spill:
        data = spill.read(start * _ROW_BYTES, (stop - start) * _ROW_BYTES)
    return np.frombuffer(data, ">i8").astype(np.int64).reshape(-1, _WORDS)


def _first_at(run: Path, size: int, key: bytes | None) -> int:
    """Return the number of the first row of a run whose key is not below `key`."""
    if key is None:
        return size
    with opened_spill(run) as spill:

        def key_of(at: int) -> bytes:
            return spill.read(at * _ROW_BYTES, _KEY_BYTES)

        return bisect_left(range(size), key, key=key_of)


def _sorted_distinct(words: Int64Array) -> Int64Array:
    """Return rows by key, the last of the greatest weight of each; stable."""
    scope, ledger, entry, weight = (words[:, at] for at in range(4))
    order = np.lexsort((weight, entry, ledger ^ _FLIP, scope ^ _FLIP))
    ordered = words[order]
    keep = np.ones(len(ordered), np.bool_)
    keep[:-1] = (ordered[1:, :3] != ordered[:-1, :3]).any(axis=1)
    distinct: Int64Array = ordered[keep]
    return distinct


class RowsByLog:
    """Rows of an index by the entry log that they point into, a file a log.

    `of` gives those of one log, `logs` says which logs there are. Disk: 32 bytes a row; memory:
    32 bytes a row of one log.
    """

    def __init__(self, folder: Path, files: Files = OS_FILES) -> None:
        self._folder = folder
        self._files = files
        self._logs: set[tuple[int, int]] = set()
        with writing(folder):
            files.makedirs(folder)

    def add(self, rows: IndexBatch) -> None:
        """Take rows, whose `dir_index` is the directory of the log (-1: in none)."""
        logs = log_ids(rows.location)
        order = np.lexsort((logs, rows.dir_index))
        words = np.stack((rows.location, *rows[1:4]), axis=1)[order]
        directory, logs = rows.dir_index[order], logs[order]
        change = np.flatnonzero((directory[1:] != directory[:-1]) | (logs[1:] != logs[:-1])) + 1
        for part in np.split(np.arange(order.size), change):
            if part.size:
                key = (int(directory[part[0]]), int(logs[part[0]]))
                self._logs.add(key)
                append_spill(self._path(key), words[part].data, self._files)

    def _path(self, key: tuple[int, int]) -> Path:
        return self._folder / f"log-{key[0]}-{key[1]:x}"

    def logs(self) -> list[tuple[int, int]]:
        """Return (directory, log id) of each log that rows point into."""
        return sorted(self._logs)

    def of(self, directory: int, log_id: int) -> IndexBatch:
        """Return the rows that point into a log, by location."""
        key = (directory, log_id)
        words = np.empty((0, 4), np.int64)
        if key in self._logs:
            words = np.frombuffer(read_spill(self._path(key)), np.int64).reshape(-1, 4)
        words = words[np.argsort(words[:, 0], kind="stable")]
        location, scope, ledger, entry = map(np.ascontiguousarray, words.T)
        return IndexBatch(np.full(location.size, directory), scope, ledger, entry, location)
