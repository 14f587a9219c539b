"""The files of one RocksDB database, by what its manifest says of them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bkstore.errors import BkstoreError, CorruptionError, DirectoryInUse, UnsupportedLayout
from bkstore.files.opening import is_regular_file
from bkstore.files.os_errors import convert_read_errors
from bkstore.formats.rocksdb.manifest.table_file import TableFileMetadata
from bkstore.index.api import Finding
from bkstore.index.damage_runs import add_unreported
from bkstore.index.rocks.files.database_directory import check_not_in_use, find_manifest
from bkstore.index.rocks.files.manifest_file import (
    Manifest,
    check_logs,
    check_tables,
    list_needed_logs,
    needed_logs,
    read_manifest,
)
from bkstore.index.rocks.inspection.log_rows import RowSummary, summarize_log

_NUMBERED = re.compile(r"\d+\.(sst|log)|(MANIFEST|OPTIONS)-\d+")
_OPTIONS = re.compile(r"OPTIONS-(\d+)")
_MAX_LIVE_TRIES = 20


class DatabaseFile(NamedTuple):
    """One file. `kind` is "table" (live), "log" (with rows that are in no table yet), "manifest"
    (that CURRENT names), "options" (the latest), "unused" (a table, log, manifest or options
    that no longer counts) or "unknown" (one that may count: no manifest can be read). `table` is
    what the manifest has of a live table, `summary` what a log holds. `size` is None for a file
    that is missing."""

    name: str
    kind: str
    size: int | None
    table: TableFileMetadata | None = None
    summary: RowSummary | None = None


@dataclass
class DatabaseFiles:
    """The database at `path`, as its manifest describes it; opens nothing by RocksDB, and changes
    nothing. Damage does not stop it: what is wrong is in `findings`, each with file and offset.

    >>> import tempfile
    >>> from bkstore.index.rocks import RocksIndex
    >>> with tempfile.TemporaryDirectory() as top:
    ...     with RocksIndex(top, writable=True) as index:
    ...         index.put_many(7, [0, 1], [1028, 1100])
    ...     database = DatabaseFiles.open(Path(top, "current", "locations"))
    ...     [(file.kind, file.table.largest_sequence) for file in database.files() if file.table]
    [('table', 2)]
    """

    path: Path
    live: bool = False
    manifest: Manifest | None = None
    findings: list[Finding] = field(default_factory=list)

    @classmethod
    def open(cls, path: Path, live: bool = False) -> DatabaseFiles:
        """Read the manifest of the database at `path`; `files` compares it with the files. With
        `live` a writer may have it open; without, that raises `DirectoryInUse`. Raises
        `UnsupportedLayout` if there is no such directory. Cost: the manifest is read in full."""
        if not path.is_dir():
            raise UnsupportedLayout(f"{path}: no such RocksDB directory")
        if not live:
            check_not_in_use(path)
        database = cls(path, live)
        with convert_read_errors(path):
            for attempt in range(_MAX_LIVE_TRIES):
                time.sleep(0.002 * attempt)
                database.findings.clear()
                if database._read_manifest() or not live:
                    return database
        raise DirectoryInUse(f"{path} changes too fast to be read: stop it, or copy the directory")

    def _read_manifest(self) -> bool:
        """Read and check the manifest. Return False if it must be read again, as a writer has
        removed files meanwhile; what is wrong with it becomes a finding."""
        try:
            self.manifest = read_manifest(find_manifest(self.path))
        except (CorruptionError, FileNotFoundError) as error:
            if isinstance(error, FileNotFoundError) or self.live:
                return False
            self.findings.append(Finding.of(error))
            return True
        if self.manifest.unsupported is not None:
            detail = f"is not supported: {self.manifest.unsupported}; files are not compared"
            self.findings.append(Finding("oddity", detail, str(self.manifest.path)))
        if self.live:  # a torn end is a record being written; only a missing table is wrong
            return all((self.path / table.file_name).exists() for table in self.tables())
        if self.manifest.torn_offset is not None:
            detail = "manifest ends inside a record"
            torn = Finding("oddity", detail, str(self.manifest.path), self.manifest.torn_offset)
            self.findings.append(torn)
        return True

    def tables(self) -> Iterator[TableFileMetadata]:
        """Yield the live table files: level 0 newest first, then each level in order of keys."""
        if self.manifest is not None:
            for tables in self.manifest.version.levels().values():
                yield from tables

    def logs(self) -> list[Path]:
        """Return the write-ahead logs with rows that are in no table yet, oldest first."""
        if self.manifest is None:
            return []
        return list(list_needed_logs(self.manifest, self.path).values())

    def files(self) -> list[DatabaseFile]:
        """Return the files: live tables, logs, manifest and options, then all others. Adds
        findings for files that are missing, of another size than the manifest says, or damaged.
        Reads the logs in full."""
        self._check_completeness()
        sizes = self._file_sizes()
        files: list[DatabaseFile] = []
        for table in self.tables():
            size = sizes.pop(table.file_name, None)
            files.append(DatabaseFile(table.file_name, "table", size, table))
            if size is not None and size != table.size:
                reason = f"has {size} bytes, {table.size} in the manifest"
                self._add(Finding("damage", reason, str(self.path / table.file_name), size))
        for path in self.logs():
            log_findings: list[Finding] = []
            summary = summarize_log(path, log_findings, self.live)
            add_unreported(self.findings, log_findings)
            size = sizes.pop(path.name, None)
            files.append(DatabaseFile(path.name, "log", size, summary=summary))
        if self.manifest is not None:
            manifest_name = self.manifest.path.name
            files.append(DatabaseFile(manifest_name, "manifest", sizes.pop(manifest_name, None)))
        options_files = {
            int(match[1]): match[0] for match in map(_OPTIONS.fullmatch, sizes) if match
        }
        if options_files:
            options_name = options_files[max(options_files)]
            files.append(DatabaseFile(options_name, "options", sizes.pop(options_name)))
        for file_name in sorted(filter(_NUMBERED.fullmatch, sizes)):
            is_unused = self.manifest is not None or _OPTIONS.fullmatch(file_name)
            kind = "unused" if is_unused else "unknown"
            files.append(DatabaseFile(file_name, kind, sizes[file_name]))
        return files

    def _check_completeness(self) -> None:
        """Add findings for tables and logs that are missing or were never listed."""
        if self.manifest is None or self.live:
            return
        try:
            unlisted = check_tables(self.manifest, self.path)
        except BkstoreError as error:
            self._add(Finding.of(error))
        else:
            detail = "table file that no manifest lists: left by a crash; RocksDB deletes it"
            for path in unlisted:
                self._add(Finding("oddity", detail, str(path)))
        try:
            check_logs(self.manifest, needed_logs(self.manifest, self.path))
        except BkstoreError as error:
            self._add(Finding.of(error))

    def _add(self, finding: Finding) -> None:
        add_unreported(self.findings, [finding])

    def _file_sizes(self) -> dict[str, int]:
        """Return the sizes of what is in the directory, by name; a folder has 0."""
        sizes: dict[str, int] = {}
        for entry in os.scandir(self.path):
            try:
                sizes[entry.name] = entry.stat().st_size if is_regular_file(entry) else 0
            except FileNotFoundError:  # gone since the listing, or a link to nothing
                continue
        return sizes
