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
from bkstore.offline.load.dump_rows import LoadSource, read_part
from bkstore.offline.reading.dump_file import DumpFile
from bkstore.offline.reading.read_tasks import Task, apart, sorted_tasks


class Ordered(NamedTuple):
    """The files of one ledger directory: those to be written as they are, in order, and others."""

    ready: list[DumpFile]
    others: list[DumpFile]


class LoadTask(NamedTuple):
    """A read task whose rows are all of the ledger directory `home`."""

    home: int
    task: Task

    @property
    def rows(self) -> int:
        """The estimated number of rows."""
        return self.task.rows


def declared(source: LoadSource) -> list[Ordered]:
    """Return the files of each ledger directory, by number; opens no file.

    A file without a declared order may have any row: then all files are `others` of one item.
    """
    nonempty = [file for file in source.files if file.rows]
    if nonempty and not (source.pure and all(file.ledger_range is not None for file in nonempty)):
        return [Ordered([], nonempty)]
    files_by_directory: list[list[DumpFile]] = [[] for _ in range(source.directories)]
    for file in nonempty:
        if file.ledger_range is not None:
            files_by_directory[file.ledger_range.first.ledger % source.directories].append(file)
    return [Ordered(*apart(files)) for files in files_by_directory]


def ordered_tasks(source: LoadSource, rows: int) -> Iterator[LoadTask]:
    """Yield tasks of about `rows` rows over the `ready` files."""
    for home, files in enumerate(declared(source)):
        for task in sorted_tasks([files.ready], rows):
            yield LoadTask(home, task)


def task_rows(source: LoadSource, home: int, task: Task) -> Iterator[IndexBatch]:
    """Yield a task's rows; raises `CorruptionError` if they contradict the manifest."""
    for read in task.sides[0]:
        for rows in read_part(source, read):
            home_dirs = rows.ledger_id.view(np.uint64) % np.uint64(source.directories)
            if source.directories > 1 and (home_dirs != home).any():
                reason = f"mixes ledgers of directory {home} and others, unlike a dump's files"
                raise CorruptionError(read.path, None, reason)
            yield rows
