"""What a manifest says of the order of a bookie's entries, as a load makes use of it.

Keys of an index are sorted in each ledger directory. Files that are declared sorted and share no
ledger with another file of their directory are ready to be written as they are.
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
    """The files of one ledger directory: those ready as they are in order, and others."""

    ready: list[DumpFile]
    others: list[DumpFile]


class LoadTask(NamedTuple):
    """What is read together, all of one ledger directory."""

    home: int
    task: Task

    @property
    def rows(self) -> int:
        """About how many rows it has."""
        return self.task.rows


def declared(source: LoadSource) -> list[Ordered]:
    """Return how the files of each ledger directory lie, in their order; opens nothing.

    Where a file says nothing of its order, it may have any row: then all are others, together.
    """
    held = [file for file in source.files if file.rows]
    if held and not (source.pure and all(file.ledgers is not None for file in held)):
        return [Ordered([], held)]
    homes: list[list[DumpFile]] = [[] for _ in range(source.directories)]
    for file in held:
        if file.ledgers is not None:
            homes[file.ledgers.first.ledger % source.directories].append(file)
    return [Ordered(*apart(files)) for files in homes]


def ordered_tasks(source: LoadSource, rows: int) -> Iterator[LoadTask]:
    """Yield tasks of about `rows` rows over the files that are ready."""
    for home, files in enumerate(declared(source)):
        for task in sorted_tasks([files.ready], rows):
            yield LoadTask(home, task)


def task_rows(source: LoadSource, home: int, task: Task) -> Iterator[IndexBatch]:
    """Yield a task's rows, checked: in order, and of the ledger directory `home`.

    Raises `CorruptionError` for a row that no index has, or that is not as the manifest says.
    """
    for read in task.sides[0]:
        for rows in read_part(source, read):
            homes = rows.ledger_id.view(np.uint64) % np.uint64(source.directories)
            if source.directories > 1 and (homes != home).any():
                reason = f"has ledgers of directory {home} and of others, as none of a dump"
                raise CorruptionError(read.path, None, reason)
            yield rows
