"""RowsByKey: sort index rows by key, with one row for each key, in bounded memory.

They are written as sorted runs and read in pieces, for which all runs are cut at the same keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.ids import Int64Array
from bkstore.index.api import IndexBatch
from bkstore.offline.spilled_rows.sorted_runs import (
    RUN_ROWS,
    SortedRun,
    key_starts,
    order_by_key,
    read_pieces,
    write_run,
)

_COLUMNS = 6  # scope, ledger, entry, priority, directory, location


class RowsByKey:
    """Takes rows in any order, and yields them by scope, ledger and entry, all unsigned.

    Of several rows of one entry, the one with the highest `priority` is kept; of equal ones, the
    last one added. After an iteration, `duplicates` counts the others. May be iterated repeatedly;
    no rows may be added after the first iteration.

    Sorted runs of about `run_rows` rows are spilled: see `sorted_runs`.
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
        self._runs: list[SortedRun] = []
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
        return self._pending_rows + sum(run.rows for run in self._runs)

    def _spill(self) -> None:
        """Sort the pending rows, and write them to a file of their own, a run."""
        if not self._pending_rows:
            return
        columns = _sort_distinct(np.concatenate(self._pending, axis=1))
        self._dropped_rows += self._pending_rows - columns.shape[1]
        self._pending, self._pending_rows = [], 0
        path = self._folder / f"{self._file_prefix}-{len(self._runs):05d}"
        self._runs.append(write_run(path, columns, self._files, self._run_rows))

    def __iter__(self) -> Iterator[IndexBatch]:
        """Yield the rows in key order, one for each key: a merge of the runs, in pieces between the
        split keys, each of which fits in memory."""
        self._spill()
        self.duplicates = self._dropped_rows
        for row_blocks in read_pieces(self._runs, self._run_rows):
            columns = np.concatenate([np.empty((_COLUMNS, 0), np.int64), *row_blocks], axis=1)
            # A single run is sorted and distinct already.
            distinct = _sort_distinct(columns) if len(row_blocks) > 1 else columns
            self.duplicates += columns.shape[1] - distinct.shape[1]
            if distinct.shape[1]:
                scope, ledger, entry, _, directory, location = distinct
                yield IndexBatch(directory, scope, ledger, entry, location)


def _sort_distinct(columns: Int64Array) -> Int64Array:
    """Sort rows by key, and keep the last one with the highest priority for each key."""
    ordered: Int64Array = columns.take(order_by_key(columns), axis=1)
    starts, priority = key_starts(ordered), ordered[3]  # by `_COLUMNS`
    if starts.size == priority.size:
        return ordered
    # Rows of one key are adjacent now, in the order in which they were added.
    counts = np.diff(np.append(starts, priority.size))
    # `counts` says how many each key has. Take the rows with the highest priority of their key, and
    # of these the last one of each key.
    highest = np.flatnonzero(priority == np.repeat(np.maximum.reduceat(priority, starts), counts))
    key_number = np.repeat(np.arange(starts.size), counts)[highest]
    is_last = np.append(key_number[1:] != key_number[:-1], True)
    distinct: Int64Array = ordered.take(highest[is_last], axis=1)
    return distinct
