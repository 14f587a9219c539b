"""The order of a bookie's entries that a manifest declares, for loads.

Keys of an index are sorted in each ledger directory. Files that are declared sorted and share no
ledger with another file of their directory can be written without sorting.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bkstore.errors import CorruptionError
from bkstore.index.api import IndexBatch
from bkstore.offline.load.dump_rows import LoadSource, read_file_part
from bkstore.offline.reading.disjoint_files import split_disjoint
from bkstore.offline.reading.dump_file import DumpFile
from bkstore.offline.reading.read_tasks import ReadTask, plan_sorted_tasks


class DirectoryFiles(NamedTuple):
    """The files of one ledger directory: those to be written as they are, in order, and others."""

    sorted_files: list[DumpFile]
    unsorted_files: list[DumpFile]


class LoadTask(NamedTuple):
    """A read task whose rows are all of the ledger directory `dir_index`."""

    dir_index: int
    task: ReadTask

    @property
    def rows(self) -> int:
        """The estimated number of rows."""
        return self.task.rows


def group_by_directory(source: LoadSource) -> list[DirectoryFiles]:
    """Return the files of each ledger directory, by number, as the manifest declares them; opens
    none. A file that it does not declare as sorted may have rows of any directory: then the result
    is one item, with all files unsorted.
    """
    nonempty = [file for file in source.files if file.rows]
    is_declared = source.has_one_bookie and all(file.ledger_range is not None for file in nonempty)
    if nonempty and not is_declared:
        return [DirectoryFiles(sorted_files=[], unsorted_files=nonempty)]
    files_by_directory: list[list[DumpFile]] = [[] for _ in range(source.directories)]
    # A dump's file has ledgers of one directory, L mod n, so the first one shows which.
    for file in nonempty:
        if file.ledger_range is not None:
            files_by_directory[file.ledger_range.first.ledger % source.directories].append(file)
    return [DirectoryFiles(*split_disjoint(files)) for files in files_by_directory]


def plan_load_tasks(source: LoadSource, rows: int) -> Iterator[LoadTask]:
    """Yield tasks of about `rows` rows over the sorted files."""
    for dir_index, files in enumerate(group_by_directory(source)):
        for task in plan_sorted_tasks([files.sorted_files], rows):
            yield LoadTask(dir_index, task)


def read_task_rows(source: LoadSource, dir_index: int, task: ReadTask) -> Iterator[IndexBatch]:
    """Yield a task's rows; raises `CorruptionError` if they contradict the manifest."""
    for read in task.reads_per_dump[0]:
        for rows in read_file_part(source, read):
            home_dirs = rows.ledger_id.view(np.uint64) % np.uint64(source.directories)
            if source.directories > 1 and (home_dirs != dir_index).any():
                reason = f"mixes ledgers of directory {dir_index} and others, unlike a dump's files"
                raise CorruptionError(read.path, None, reason)
            yield rows
