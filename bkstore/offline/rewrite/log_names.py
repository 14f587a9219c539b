"""Assign the names and directories that a source's entry logs have in a target.

With index files, log ids are one sequence over all ledger directories. With db storage, each
directory has its own sequence, and a ledger's records are only in directory ``L mod n``. So:

* from several directories of db storage to index files, a log gets a new id if an earlier directory
  has the same one; a log that is linked into several directories becomes one log again;
* from index files in several directories to db storage, a log is linked into each directory whose
  ledgers have records in it.

A log does not contain its id, so a log with a new id only needs a new name.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bkstore.errors import InvalidArgument
from bkstore.files.opening import open_for_reading
from bkstore.files.os_errors import convert_read_errors
from bkstore.ids import MAX_LOG_ID, log_ids_of, make_locations, positions_of
from bkstore.index.api import IndexBatch
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.directories.layout import Layout
from bkstore.storage.read_only.bookie_dir import NO_DIRECTORY

_CHUNK_BYTES = 1 << 20


class LogNames:
    """The names of a source's logs in a target of layout `layout`.

    `is_partitioned`: the source has a ledger's logs in directory ``L mod n``, as db storage has.
    `distinct_logs` has the logs to carry, each once; `renamed` counts those with new ids.
    """

    def __init__(
        self, logs: Sequence[LogFile], is_partitioned: bool, layout: Layout, directory_count: int
    ) -> None:
        """Give the logs new ids if directories with the same ids become one tree of index files."""
        self.distinct_logs = list(logs)
        self.renamed = 0
        self._directory_count = directory_count
        self._may_need_links = layout == "rocksdb" and directory_count > 1 and not is_partitioned
        self._needed_links: set[tuple[int, int, int]] = set()
        # By (directory, log id) in the source; None if all logs keep their ids.
        self._new_ids: dict[tuple[int, int], int] | None = None
        self._log_of_new_id: dict[int, LogFile] = {}
        if layout == "idx" and is_partitioned and directory_count > 1:
            self._assign_ids(logs)

    def _assign_ids(self, logs: Sequence[LogFile]) -> None:
        """Give the logs of all directories distinct ids: one keeps its id unless an earlier
        directory has another log of that id. A log linked into several directories gets one id."""
        self._new_ids, self.distinct_logs = {}, []
        used_ids = {log.log_id for log in logs}
        for log in logs:
            # The log that has this id in the target; None if it is free.
            first_log = self._log_of_new_id.get(log.log_id)
            if first_log is None or not _is_same_log(first_log, log):
                new_id = log.log_id if first_log is None else self._find_free_id(used_ids)
                used_ids.add(new_id)
                self._log_of_new_id[new_id] = log
                self.distinct_logs.append(log)
                self.renamed += new_id != log.log_id
            else:
                new_id = log.log_id
            self._new_ids[log.dir_index, log.log_id] = new_id

    def _find_free_id(self, used_ids: set[int]) -> int:
        """Return an unused id, after the highest if possible; raise if all are used."""
        highest_id = max(used_ids)
        if highest_id < MAX_LOG_ID:
            return highest_id + 1
        free_id = next((log_id for log_id in range(MAX_LOG_ID + 1) if log_id not in used_ids), None)
        if free_id is None:
            raise InvalidArgument("no entry log id is free")
        return free_id

    def new_id(self, dir_index: int, log_id: int) -> int:
        """Return a log's id in the target. A log that is missing, but has rows in the index, gets a
        free id too, so that its rows do not point into another log."""
        if self._new_ids is None:
            return log_id
        key = (dir_index, log_id)
        if key not in self._new_ids:
            used_ids = set(self._log_of_new_id) | set(self._new_ids.values())
            self._new_ids[key] = self._find_free_id(used_ids) if log_id in used_ids else log_id
        return self._new_ids[key]

    def relocate(self, rows: IndexBatch) -> IndexBatch:
        """Return the source's index rows with the log ids of the target in their locations. Note
        the directories into which logs must be linked for them."""
        if self._may_need_links:
            self._note_needed_links(rows)
        if self._new_ids is None:
            return rows
        # Look up the id of each log once. `logs` has a column of (directory, log id) for each log,
        # `log_of_row` is the number of the column for each row.
        logs_of_rows = np.stack((rows.dir_index, log_ids_of(rows.location)))
        logs, log_of_row = np.unique(logs_of_rows, axis=1, return_inverse=True)
        new_ids = np.array([self.new_id(*log) for log in logs.T.tolist()], np.int64)
        location = make_locations(new_ids[log_of_row.ravel()], positions_of(rows.location))
        return rows._replace(location=location)

    def _note_needed_links(self, rows: IndexBatch) -> None:
        """Note which logs have records of ledgers that belong to another directory."""
        directory_count = np.uint64(self._directory_count)
        home_dirs = (rows.ledger_id.view(np.uint64) % directory_count).view(np.int64)
        is_away = (home_dirs != rows.dir_index) & (rows.dir_index != NO_DIRECTORY)
        if is_away.any():
            log_ids = log_ids_of(rows.location[is_away])
            # int64[3, n], a column for each link: from where, which log, to where.
            links = np.stack((rows.dir_index[is_away], log_ids, home_dirs[is_away]))
            self._needed_links.update(map(tuple, np.unique(links, axis=1).T.tolist()))

    def list_extra_links(self) -> list[tuple[int, int, int]]:
        """Return (directory, log id, directory to link to) for the rows passed to `relocate`."""
        return sorted(self._needed_links)


def _is_same_log(log: LogFile, other: LogFile) -> bool:
    """Return whether two files are the same log: the same inode, or the same bytes."""
    if log.bytes != other.bytes:
        return False
    with convert_read_errors(other.path):
        if os.path.samefile(log.path, other.path):
            return True
        with open_for_reading(Path(log.path)) as file, open_for_reading(Path(other.path)) as copy:
            while (chunk := file.read(_CHUNK_BYTES)) == copy.read(_CHUNK_BYTES):
                if not chunk:
                    return True
    return False
