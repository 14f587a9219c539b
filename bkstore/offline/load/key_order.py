"""Rows of a dump in the order of an index's keys, one per key.

The order is unsigned: scope, ledger, entry. Of several rows of one entry, the one with the highest
location (log id, then position) wins: entry logs grow, so it was written last; the order of rows
and files means nothing. Rows that come in order are passed on, others are sorted on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.index.api import IndexBatch
from bkstore.offline.index_building.row_writers import rows_of_directory
from bkstore.offline.load.declared_order import group_by_directory, read_task_rows
from bkstore.offline.load.dump_rows import LoadSource, read_entry_rows
from bkstore.offline.reading.dump_file import DumpFile
from bkstore.offline.reading.read_tasks import plan_sorted_tasks
from bkstore.offline.spilled_rows.rows_by_key import RowsByKey

RUN_ROWS = 1 << 20
"""Rows that are sorted at a time: 48 MiB, and as much again during the sort."""


@dataclass
class DirectoryRows:
    """What is known of one directory's rows: by the manifest (`is_declared`), or a pass over them.

    `rows` counts them, `is_sorted` is whether they are in key order as they are read from `files`,
    and `last_key` is the (scope, ledger, entry) of the last one that the pass has read.
    """

    rows: int = 0
    is_sorted: bool = True
    last_key: tuple[int, int, int] = (-1, -1, -1)
    files: list[DumpFile] = field(default_factory=list)
    is_declared: bool = False

    @classmethod
    def of(cls, files: list[DumpFile]) -> DirectoryRows:
        """Return what sorted files declare."""
        return cls(sum(file.rows for file in files), files=files, is_declared=True)


def survey_order(source: LoadSource) -> list[DirectoryRows]:
    """Return for each directory how many rows it has, in which files, and whether these are in key
    order. The manifest declares that; if it does not for all files, all rows are read.

    Reading takes about 40 ns a row. Raises `CorruptionError` for invalid rows.
    """
    declared_files = group_by_directory(source)
    if not any(files.unsorted_files for files in declared_files):
        return [DirectoryRows.of(files.sorted_files) for files in declared_files]
    directories = [DirectoryRows() for _ in range(source.directories)]
    for file in source.files:
        for rows in read_entry_rows(source, [file]):
            for dir_index, directory in enumerate(directories):
                own_rows = rows_of_directory(rows, dir_index, source.directories)
                if own_rows.entry_id.size:
                    _add_batch(directory, own_rows)
                    if not directory.files or directory.files[-1] != file:
                        directory.files.append(file)
    return directories


def _add_batch(directory: DirectoryRows, rows: IndexBatch) -> None:
    """Count rows of a directory, and note whether all so far are in key order."""
    if directory.is_sorted:
        scope, ledger, entry = (column.view(np.uint64) for column in rows[1:4])
        directory.is_sorted = _is_ascending(scope, ledger, entry, directory.last_key)
        directory.last_key = int(scope[-1]), int(ledger[-1]), int(entry[-1])
    directory.rows += rows.entry_id.size


def _is_ascending(scope: Any, ledger: Any, entry: Any, last_key: tuple[int, int, int]) -> bool:
    """Return whether the keys (of unsigned columns) ascend strictly, beginning above `last_key`."""
    if (int(scope[0]), int(ledger[0]), int(entry[0])) <= last_key:
        return False
    # Compare each row with the one before it, by the key's last column first.
    entry_above = entry[1:] > entry[:-1]
    ledger_above = (ledger[1:] > ledger[:-1]) | (ledger[1:] == ledger[:-1]) & entry_above
    scope_above = (scope[1:] > scope[:-1]) | (scope[1:] == scope[:-1]) & ledger_above
    return bool(scope_above.all())


class OrderedRows:
    """The rows of one directory in the order of keys, one per key; can be iterated repeatedly.

    After a pass, `duplicates` counts dropped rows. `scratch` keeps sorted runs for later passes.
    Of several rows of a key, the one with the highest location is kept: the newest copy.
    """

    def __init__(
        self,
        source: LoadSource,
        directory_rows: DirectoryRows,
        dir_index: int,
        scratch: Path,
        run_rows: int = RUN_ROWS,
        files: Files = OS_FILES,
    ) -> None:
        self.duplicates = 0
        self._source = source
        self._directory_rows = directory_rows
        self._dir_index = dir_index
        self._sorter = RowsByKey(scratch, f"rows-{dir_index}", files, run_rows)

    def __iter__(self) -> Iterator[IndexBatch]:
        """Yield the rows in key order: as they are read, or from sorted spills, which the first
        iteration writes."""
        if self._directory_rows.is_sorted:
            yield from self._read_stored()
            return
        if not self._sorter.row_count:  # the first pass
            for rows in self._read_stored():
                self._sorter.add(rows, priority=rows.location)
        yield from self._sorter
        self.duplicates = self._sorter.duplicates

    def _read_stored(self) -> Iterator[IndexBatch]:
        """Yield the directory's rows in the order of the dump."""
        if self._directory_rows.is_declared:
            for task in plan_sorted_tasks([self._directory_rows.files], self._directory_rows.rows):
                yield from read_task_rows(self._source, self._dir_index, task)
            return
        for rows in read_entry_rows(self._source, self._directory_rows.files):
            own_rows = rows_of_directory(rows, self._dir_index, self._source.directories)
            if own_rows.entry_id.size:
                yield own_rows
