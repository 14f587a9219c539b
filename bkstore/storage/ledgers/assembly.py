"""Putting a ledger storage together from directories: its locks, indexes, logs, write paths.

Interleaved and sorted storage are one write path over all directories (log ids are one
sequence, index files are looked for everywhere); db storage is one for each ledger directory,
paired with an index directory by position.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bkstore.errors import InvalidArgument, UnsupportedLayout
from bkstore.files.disk_changes import Files, StrPath
from bkstore.files.os_errors import writing
from bkstore.index.api import Finding
from bkstore.storage.directories.layout import check_distinct, check_order, holdings
from bkstore.storage.directories.writer_lock import WriterLock
from bkstore.storage.entry_log.writer import EntryLogger
from bkstore.storage.ledgers.garbage_collection import recover_compaction
from bkstore.storage.ledgers.write_paths.api import WritePath
from bkstore.storage.ledgers.write_paths.interleaved import InterleavedPath
from bkstore.storage.options import Storage, StorageOptions, check_storage


def compose(
    ledger_dirs: Sequence[StrPath],
    index_dirs: Sequence[StrPath] | None,
    storage: Storage,
    options: StorageOptions,
    files: Files,
) -> tuple[list[WritePath], WriterLock, list[Finding]]:
    """Return the write paths over these directories, the lock on them, what was odd."""
    check_storage("storage", storage)
    ledger = [_current(folder) for folder in ledger_dirs]
    index = [_current(folder) for folder in index_dirs] if index_dirs else ledger
    check_distinct("ledger", ledger)
    check_distinct("index", index)
    if storage == "db" and len(index) != len(ledger):
        raise InvalidArgument(
            f"{len(index)} index directories, {len(ledger)} ledger directories: db storage "
            "pairs them by position"
        )
    for current in dict.fromkeys([*ledger, *index]):
        with writing(current):
            files.makedirs(current)
        _check_layout(current, storage)
    with ExitStack() as undo:
        lock = undo.enter_context(WriterLock([*ledger, *index]))
        if storage == "db":
            paths = _db_paths(ledger, index, options, files, undo)
        else:
            paths = [_idx_path(ledger, index, storage, options, files, undo)]
        findings: list[Finding] = []
        for path in paths:
            recover_compaction(path, findings)
        undo.pop_all()
        return paths, lock, findings


def _current(folder: StrPath) -> Path:
    place = Path(os.path.abspath(folder))
    return place if place.name == "current" else place / "current"


def _check_layout(current: Path, storage: Storage) -> None:
    held = holdings(current)
    foreign = "idx" if storage == "db" else "rocksdb"
    if foreign in held:
        raise UnsupportedLayout(f"{current}: the index here is {foreign}, not of {storage} storage")


def _logger(
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


def _idx_path(
    ledger: list[Path],
    index: list[Path],
    storage: Storage,
    options: StorageOptions,
    files: Files,
    undo: ExitStack,
) -> WritePath:
    from bkstore.index.hierarchical import HierarchicalIndex
    from bkstore.storage.ledgers.write_paths.sorted import SortedPath

    tree = HierarchicalIndex(
        index,
        writable=True,
        page_size=options.page_size,
        header_version=options.index_header_version,
        max_pages=options.max_index_pages,
        compat=options.compat,
        files=files,
    )
    undo.enter_context(tree)
    logger = _logger(ledger, options, files, undo)
    kind = SortedPath if storage == "sorted" else InterleavedPath
    return kind(tree, logger, options)


def _db_paths(
    ledger: list[Path], index: list[Path], options: StorageOptions, files: Files, undo: ExitStack
) -> list[WritePath]:
    from bkstore.index.rocks import RocksIndex
    from bkstore.storage.ledgers.write_paths.db import DbPath

    cache = max(options.write_cache // len(ledger) // 2, 1)  # two take turns in each directory
    paths: list[WritePath] = []
    for logs, rows in zip(ledger, index):
        database = undo.enter_context(RocksIndex(rows, writable=True, files=files))
        paths.append(DbPath(database, _logger([logs], options, files, undo), options, cache))
    if len(paths) > 1:
        _check_order(ledger, paths)
    return paths


def _check_order(ledger: list[Path], paths: Sequence[WritePath]) -> None:
    """Refuse directories in another order, in which every look-up would say "not here"."""
    held = [[name.ledger for name in path.index.ledgers()] for path in paths]
    check_order([str(current) for current in ledger], held, "order given")
