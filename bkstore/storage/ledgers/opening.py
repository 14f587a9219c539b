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
from bkstore.storage.directories.layout import check_distinct, check_order, find_holdings
from bkstore.storage.directories.writer_lock import WriterLock
from bkstore.storage.entry_log.writer import EntryLogger
from bkstore.storage.ledgers.garbage_collection import recover_compaction
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
    ledger_currents = [_current(directory) for directory in ledger_dirs]
    index_currents = (
        [_current(directory) for directory in index_dirs] if index_dirs else ledger_currents
    )
    check_distinct("ledger", ledger_currents)
    check_distinct("index", index_currents)
    if storage == "db" and len(index_currents) != len(ledger_currents):
        raise InvalidArgument(
            f"{len(index_currents)} index directories, {len(ledger_currents)} ledger directories: "
            "db storage pairs them by position"
        )
    for current in dict.fromkeys([*ledger_currents, *index_currents]):
        with convert_write_errors(current):
            files.makedirs(current)
        _check_layout(current, storage)
    with ExitStack() as undo:
        lock = undo.enter_context(WriterLock([*ledger_currents, *index_currents]))
        if storage == "db":
            paths = _open_db_paths(ledger_currents, index_currents, options, files, undo)
        else:
            paths = [_open_idx_path(ledger_currents, index_currents, storage, options, files, undo)]
        findings: list[Finding] = []
        for path in paths:
            recover_compaction(path, findings)
        undo.pop_all()
        return paths, lock, findings


def _current(directory: StrPath) -> Path:
    """Return the absolute ``current`` directory of a bookie directory."""
    absolute_path = Path(os.path.abspath(directory))
    return absolute_path if absolute_path.name == "current" else absolute_path / "current"


def _check_layout(current: Path, storage: StorageKind) -> None:
    """Raise `UnsupportedLayout` if the directory has the index of another storage."""
    layouts = find_holdings(current)
    foreign_layout = "idx" if storage == "db" else "rocksdb"
    if foreign_layout in layouts:
        raise UnsupportedLayout(
            f"{current}: the index here is {foreign_layout}, not of {storage} storage"
        )


def _open_logger(
    currents: Sequence[Path], options: StorageOptions, files: Files, undo: ExitStack
) -> EntryLogger:
    logger = EntryLogger(
        currents,
        size_limit=options.entry_log_size,
        per_ledger=options.entry_log_per_ledger,
        max_active=options.max_active_logs,
        choose=options.choose,
        files=files,
    )
    return undo.enter_context(logger)


def _open_idx_path(
    ledger_currents: list[Path],
    index_currents: list[Path],
    storage: StorageKind,
    options: StorageOptions,
    files: Files,
    undo: ExitStack,
) -> WritePath:
    from bkstore.index.hierarchical import HierarchicalIndex
    from bkstore.storage.ledgers.write_paths.sorted import SortedWritePath

    tree = HierarchicalIndex(
        index_currents,
        writable=True,
        page_size=options.page_size,
        header_version=options.index_header_version,
        max_pages=options.max_index_pages,
        compat=options.compat,
        files=files,
    )
    undo.enter_context(tree)
    logger = _open_logger(ledger_currents, options, files, undo)
    path_class = SortedWritePath if storage == "sorted" else InterleavedWritePath
    return path_class(tree, logger, options)


def _open_db_paths(
    ledger_currents: list[Path],
    index_currents: list[Path],
    options: StorageOptions,
    files: Files,
    undo: ExitStack,
) -> list[WritePath]:
    from bkstore.index.rocks import RocksIndex
    from bkstore.storage.ledgers.write_paths.db import DbWritePath

    cache_bytes = max(
        options.write_cache // len(ledger_currents) // 2, 1
    )  # each directory has two caches
    paths: list[WritePath] = []
    for log_dir, rocks_dir in zip(ledger_currents, index_currents):
        database = undo.enter_context(RocksIndex(rocks_dir, writable=True, files=files))
        paths.append(
            DbWritePath(
                database, _open_logger([log_dir], options, files, undo), options, cache_bytes
            )
        )
    if len(paths) > 1:
        _check_dir_order(ledger_currents, paths)
    return paths


def _check_dir_order(ledger_currents: list[Path], paths: Sequence[WritePath]) -> None:
    """Refuse directories in a wrong order, in which every look-up would find nothing."""
    ledgers_by_path = [[ledger_id.ledger for ledger_id in path.index.ledgers()] for path in paths]
    check_order([str(current) for current in ledger_currents], ledgers_by_path, "order given")
