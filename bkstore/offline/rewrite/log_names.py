"""Which name and which directories the entry logs of a source have in a target.

With index files, log ids are one sequence over all ledger directories; db storage counts in each
by itself and looks for a ledger's records in its own directory, number ``L mod n``, alone. So:

* to index files from several directories of db storage, a log whose id an earlier directory has
  too gets a new one. The same log in several directories (what this module makes, see below) is
  one log again;
* to db storage from index files in several directories, a log gets a second name in each
  directory whose ledgers have records in it.

A log does not hold its own id, so a new name is all that a new id takes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from bkstore.errors import InvalidArgument
from bkstore.files.opening import opened
from bkstore.files.os_errors import readable
from bkstore.ids import MAX_LOG_ID, Int64Array, log_ids, make_locations, positions
from bkstore.index.api import IndexBatch
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.directories.layout import Layout

_PIECE = 1 << 20


def in_log_order(logs: Sequence[LogFile]) -> list[LogFile]:
    """Return logs as they were begun: by id, from behind the largest gap in the ids on.

    Ids begin again at 0 behind 2^31-1, in the largest gap (`EntryLoggerAllocator`); without such
    an overflow that is the one behind the highest id, and the order is that of the ids.

    >>> logs = [LogFile(0, number, "", 0) for number in (0, 1, 2**31 - 2)]
    >>> [log.log_id for log in in_log_order(logs)]
    [2147483646, 0, 1]
    """
    ids = sorted({log.log_id for log in logs})
    if not ids:
        return []
    span = MAX_LOG_ID + 1
    gaps = [(second - first, second) for first, second in pairwise(ids)]
    wrap = (ids[0] + span - ids[-1], ids[0])
    oldest = max([*gaps, wrap], key=lambda gap: (gap[0], gap == wrap))[1]
    return sorted(logs, key=lambda log: ((log.log_id - oldest) % span, log.dir_index))


class LogNames:
    """Names the logs of a source for a target of layout `to`; asked for locations, it keeps book.

    `kept` are the logs that go over, each once; `renamed` counts those with new ids.
    """

    def __init__(self, logs: Sequence[LogFile], by_directory: bool, to: Layout, count: int) -> None:
        self.kept = list(logs)
        self.renamed = 0
        self._count = count
        self._links = to == "rocksdb" and count > 1 and not by_directory
        self._needed: set[tuple[int, int, int]] = set()
        self._new: dict[tuple[int, int], int] | None = None
        self._used: dict[int, LogFile] = {}
        if to == "idx" and by_directory and count > 1:
            self._rename(logs)

    def _rename(self, logs: Sequence[LogFile]) -> None:
        self._new, self.kept = {}, []
        taken = {log.log_id for log in logs}
        for log in logs:
            first = self._used.get(log.log_id)
            if first is None or not _same(first, log):
                name = log.log_id if first is None else self._free(taken)
                taken.add(name)
                self._used[name] = log
                self.kept.append(log)
                self.renamed += name != log.log_id
            else:
                name = log.log_id
            self._new[log.dir_index, log.log_id] = name

    def _free(self, taken: set[int]) -> int:
        """Return an id that no log has, behind the highest where there is room."""
        highest = max(taken)
        if highest < MAX_LOG_ID:
            return highest + 1
        free = next((n for n in range(MAX_LOG_ID + 1) if n not in taken), None)
        if free is None:
            raise InvalidArgument("no entry log id is free")
        return free

    def new_id(self, dir_index: int, log_id: int) -> int:
        """Return a log's id in the target; for one that is not there, an id that no other has."""
        if self._new is None:
            return log_id
        key = (dir_index, log_id)
        if key not in self._new:
            taken = set(self._used) | set(self._new.values())
            self._new[key] = self._free(taken) if log_id in taken else log_id
        return self._new[key]

    def located(self, rows: IndexBatch) -> IndexBatch:
        """Return rows of the source with the target's locations."""
        if self._links:
            self._note(rows)
        if self._new is None:
            return rows
        logs = log_ids(rows.location)
        pairs, at = np.unique(np.stack((rows.dir_index, logs)), axis=1, return_inverse=True)
        names = np.array([self.new_id(int(d), int(n)) for d, n in pairs.T], np.int64)
        located = make_locations(names[at.ravel()], positions(rows.location))
        return rows._replace(location=located)

    def _note(self, rows: IndexBatch) -> None:
        homes: Int64Array = (rows.ledger_id.view(np.uint64) % np.uint64(self._count)).astype(
            np.int64
        )
        away = np.flatnonzero((homes != rows.dir_index) & (rows.dir_index >= 0))
        if away.size:
            logs = log_ids(rows.location[away])
            triples = np.stack((rows.dir_index[away], logs, homes[away]))
            self._needed.update(map(tuple, np.unique(triples, axis=1).T.tolist()))

    def second_names(self) -> list[tuple[int, int, int]]:
        """Return (directory, log id, other directory that needs it), as located rows told."""
        return sorted(self._needed)


def _same(one: LogFile, other: LogFile) -> bool:
    """Return whether two files are one log: by inode, else byte by byte."""
    if one.bytes != other.bytes:
        return False
    with readable(other.path):
        if os.path.samefile(one.path, other.path):
            return True
        with opened(Path(one.path)) as first, opened(Path(other.path)) as second:
            while (piece := first.read(_PIECE)) == second.read(_PIECE):
                if not piece:
                    return True
    return False
