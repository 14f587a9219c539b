"""Assembles a ledger storage from directories: lock, indexes, entry logs and write paths.

Interleaved and sorted storage have one write path over all directories (log ids form one
sequence, index files may be in any directory). Db storage has one write path for each ledger
directory, which is paired with the index directory at the same position.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bkstore.errors import InvalidArgument, UnsupportedLayout
from bkstore.files.disk_changes import Files, StrPath
from bkstore.files.os_errors import convert_write_errors
from bkstore.index.api import Finding
from bkstore.index.hierarchical.file_tree import current_directory
from bkstore.storage.directories.layout import check_distinct, check_order, find_holdings
from bkstore.storage.directories.writer_lock import WriterLock
from bkstore.storage.entry_log.writer import EntryLogger
from bkstore.storage.ledgers.compaction import recover_compaction
from bkstore.storage.ledgers.write_paths.api import WritePath
from bkstore.storage.ledgers.write_paths.interleaved import InterleavedWritePath
from bkstore.storage.options import StorageKind, StorageOptions, check_storage


def open_write_paths(
    ledger_dirs: Sequence[StrPath],
    index_dirs: Sequence[StrPath] | None,
    storage: StorageKind,
    options: StorageOptions,
    files: Files,
) -> tuple[list[WritePath], WriterLock, list[Finding]]:
    """Open directories for writing, creating missing ones; return their write paths, their lock and
    findings. Finishes or drops interrupted compactions."""
    check_storage("storage", storage)
    ledger_currents = [current_directory(Path(os.path.abspath(path))) for path in ledger_dirs]
    index_currents = [current_directory(Path(os.path.abspath(path))) for path in index_dirs or ()]
    index_currents = index_currents or ledger_currents
    check_distinct("ledger", ledger_currents)
    check_distinct("index", index_currents)
    if storage == "db" and len(index_currents) != len(ledger_currents):
        raise InvalidArgument(
            f"{len(index_currents)} index directories, {len(ledger_currents)} ledger directories: "
            "db storage pairs them by position"
        )
    # The arguments are valid. Create the directories and check that none has an index of another
    # storage, lock them, then open logs and indexes.
    for current in dict.fromkeys([*ledger_currents, *index_currents]):
        with convert_write_errors(current):
            files.makedirs(current)
        _check_layout(current, storage)
    with ExitStack() as undo:
        lock = undo.enter_context(WriterLock([*ledger_currents, *index_currents]))
        opener = _Opener(index_currents, options, files, undo)
        if storage == "db":
            paths = opener.open_db_paths(ledger_currents)
        else:
            paths = [opener.open_idx_path(ledger_currents, storage)]
        findings: list[Finding] = []
        for path in paths:
            recover_compaction(path, findings)
        undo.pop_all()  # no error: everything stays open
        return paths, lock, findings


def _check_layout(current: Path, storage: StorageKind) -> None:
    """Raise `UnsupportedLayout` if the directory has the index of another storage."""
    layouts = find_holdings(current)
    foreign_layout = "idx" if storage == "db" else "rocksdb"
    if foreign_layout in layouts:
        reason = f"the index here is {foreign_layout}, not of {storage} storage"
        raise UnsupportedLayout(f"{current}: {reason}")


class _Opener:
    """Opens indexes and logs; `undo` closes them if a later one fails."""

    def __init__(
        self, index_currents: list[Path], options: StorageOptions, files: Files, undo: ExitStack
    ) -> None:
        self._index_currents = index_currents
        self._options = options
        self._files = files
        self._undo = undo

    def _open_logger(self, currents: Sequence[Path]) -> EntryLogger:
        """Open the entry logs of directories; they are closed again if opening fails later."""
        logger = EntryLogger(
            currents,
            size_limit=self._options.entry_log_size,
            per_ledger=self._options.entry_log_per_ledger,
            max_active=self._options.max_active_logs,
            choose=self._options.choose,
            files=self._files,
        )
        return self._undo.enter_context(logger)

    def open_idx_path(self, ledger_currents: list[Path], storage: StorageKind) -> WritePath:
        """Return the write path of interleaved or sorted storage."""
        from bkstore.index.hierarchical import HierarchicalIndex
        from bkstore.storage.ledgers.write_paths.sorted import SortedWritePath

        tree = HierarchicalIndex(
            self._index_currents,
            writable=True,
            page_size=self._options.page_size,
            header_version=self._options.index_header_version,
            max_pages=self._options.max_index_pages,
            compat=self._options.compat,
            files=self._files,
        )
        self._undo.enter_context(tree)
        path_class = SortedWritePath if storage == "sorted" else InterleavedWritePath
        return path_class(tree, self._open_logger(ledger_currents), self._options)

    def open_db_paths(self, ledger_currents: list[Path]) -> list[WritePath]:
        """Return the write paths of db storage, one for each ledger directory."""
        from bkstore.index.rocks import RocksIndex
        from bkstore.storage.ledgers.write_paths.db import DbWritePath

        # `write_cache` is the total of all directories, each of which has two caches.
        cache_bytes = max(self._options.write_cache // len(ledger_currents) // 2, 1)
        paths: list[WritePath] = []
        for log_dir, rocks_dir in zip(ledger_currents, self._index_currents):
            index = RocksIndex(rocks_dir, writable=True, files=self._files)
            self._undo.enter_context(index)
            logger = self._open_logger([log_dir])
            paths.append(DbWritePath(index, logger, self._options, cache_bytes))
        if len(paths) > 1:
            _check_dir_order(ledger_currents, paths)
        return paths


def _check_dir_order(ledger_currents: list[Path], paths: Sequence[WritePath]) -> None:
    """Refuse directories in a wrong order, in which every look-up would find nothing."""
    ledgers_by_path = [[ledger_id.ledger for ledger_id in path.index.ledgers()] for path in paths]
    check_order([str(current) for current in ledger_currents], ledgers_by_path, "order given")
