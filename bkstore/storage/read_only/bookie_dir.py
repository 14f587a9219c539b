"""BookieDir: the directories of one bookie, read-only; `open_index` for the index alone.

Never writes to them: RocksDB databases are opened through a scratch directory of links.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Literal

import numpy as np

from bkstore.arguments import boolean, check_batch, check_compat, optional, path as as_path, text
from bkstore.errors import (
    BkstoreError,
    CorruptionError,
    DirectoryInUse,
    IllegalOperation,
    InvalidArgument,
    SystemRefused,
    UnsupportedLayout,
)
from bkstore.files.os_errors import convert_read_errors
from bkstore.files.user_outputs import refuse_inputs
from bkstore.formats import idxfile
from bkstore.formats.entry import RecordBatch
from bkstore.formats.entrylog import LogMetadata
from bkstore.ids import Int64Array, LedgerId, as_int64, check_integer, log_ids_of
from bkstore.index.api import DEFAULT_BATCH, Closeable, EntryIndex, Finding, IndexBatch, LedgerLike
from bkstore.index.rocks.files.database_directory import check_not_in_use
from bkstore.storage.directories.file_listing import (
    LogFile,
    find_irregular_files,
    list_entry_logs,
    list_journals,
    stat_files,
)
from bkstore.storage.directories.layout import (
    DATABASE_NAMES,
    BookieFolders,
    Layout,
    find_folders,
    find_holdings,
    pick_layout,
)
from bkstore.storage.directories.unknown_files import find_unknown_files
from bkstore.storage.directories.writer_lock import LOCK_NAME, check_not_locked
from bkstore.storage.entry_log.metadata_cache import read_metadata_cache
from bkstore.storage.entry_log.scan import LogBatch, read_log_metadata, scan_log
from bkstore.storage.read_only.records import LAST_ENTRY, RecordReader
from bkstore.tables.safe_text import escape_surrogates

if TYPE_CHECKING:
    from bkstore.storage.read_only.find_logs import FoundLog, LogFinder

__all__ = ["BookieDir", "LogFile", "open_index"]

NO_DIRECTORY = -1
"""The `dir_index` of a location whose entry log is in no ledger directory."""


class BookieDir(Closeable):
    """A bookie's directories, opened for reading.

    `path` is a ledger directory, its ``current/``, a root with several folders that have a
    ``current/`` (their roles are determined from the contents), or a `bk_server.conf`. Never writes
    there. Raises `DirectoryInUse` for a directory in use unless ``live=True``; `check_unchanged`
    raises it if files changed since the opening. `layout` selects the index if there are index
    files and RocksDB databases; `page_size` and `compat` go to `HierarchicalIndex`. If a
    `bk_server.conf` is a copy, its directories are searched next to it, or below `root`: see
    `locate_directories`. `folders.configured` has the configured path of each.

    With ``needs_index=False``, logs and journals can be read even if the index cannot be opened: it
    is opened on first use, which then raises the error. Only several directories of db storage open
    it at once, to find their order; if that fails, `index_error` has the error. A damaged cookie
    keeps nothing from being read: it is a finding, in `cookie_damage` and of `findings`.

    Threads: reading is as safe as `index`. Fork: with index files it keeps working in the child;
    with RocksDB it is closed there: open it again. Close it, or use it as a context manager.

    >>> import tempfile
    >>> from bkstore.index.hierarchical import HierarchicalIndex
    >>> with tempfile.TemporaryDirectory() as top:
    ...     with HierarchicalIndex(top, writable=True) as index:
    ...         index.put_many(7, [0, 1, 2], [1028, 1100, 1200])
    ...     with BookieDir(top) as bookie:
    ...         bookie.layout, len(bookie.index.availability(7))
    ('idx', 3)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        live: bool = False,
        layout: Layout | None = None,
        bookie_id: str | None = None,
        page_size: int = idxfile.DEFAULT_PAGE_SIZE,
        compat: Literal["bookkeeper"] | None = None,
        needs_index: bool = True,
        root: str | os.PathLike[str] | None = None,
    ) -> None:
        """Find the directories, check that they are of one bookie and not in use, and open the
        index if `needs_index`."""
        self.path = as_path("path", path)
        self.live = boolean("live", live)
        self._page_size = idxfile.check_page_size("page_size", page_size)
        self._compat = check_compat("compat", compat)
        self._given_id: str | None = optional(text)("bookie_id", bookie_id)
        self.root = None if root is None else as_path("root", root)
        self._closed = False
        self.cookie_damage: list[Finding] = []
        # Check whether the directories are one bookie's, and whether somebody writes to them.
        with convert_read_errors(self.path):
            self.folders: BookieFolders = find_folders(self.path, self.root, self.cookie_damage)
            self.layout: Layout = pick_layout(self.folders, layout)
            self._initial_files = self._list_file_states()
            self._check_logs()
            self._check_locks(needs_index)
        self.index_error: BkstoreError | None = None
        self._index: EntryIndex | None = None
        self._index_lock = Lock()
        if needs_index:
            self._ensure_index()
        elif self.layout == "rocksdb" and len(self.folders.ledger) > 1:
            self._try_open_index()  # its ledgers may show the order of the directories (`folders`)

    # -- opening

    def _check_logs(self) -> None:
        """Raise `UnsupportedLayout` if two directories with index files have a log of the same id:
        then they belong to two bookies. Not checked if a conf or cookie names the directories."""
        if self.layout == "rocksdb" or self.folders.order_source != "names":
            return
        paths: dict[int, str] = {}
        for log in self.entry_logs:
            if log.log_id in paths:
                raise UnsupportedLayout(
                    f"{log.path} and {paths[log.log_id]} have the same id, which one bookie does "
                    "not assign twice: if these are several bookies, give one, or a bk_server.conf"
                )
            paths[log.log_id] = log.path

    def _check_locks(self, opens_index: bool) -> None:
        """Raise `DirectoryInUse` if a bkstore writer, or a bookie's RocksDB, has a directory open.
        With `opens_index`, the databases are opened next and check their own locks."""
        if self.live:
            return
        for directory in dict.fromkeys([*self.folders.ledger, *self.folders.index]):
            check_not_locked(directory)
        if self.layout == "rocksdb" and not opens_index:
            for current in self.folders.index:
                for database in DATABASE_NAMES:
                    check_not_in_use(current / database)

    @property
    def index(self) -> EntryIndex:
        """The index, merged over the directories; opened on first use."""
        return self._index or self._ensure_index()

    def _ensure_index(self) -> EntryIndex:
        """Return the index, opened at its first use; raises why it cannot be opened."""
        with self._index_lock:
            if self._index is None:
                if self._closed:
                    raise IllegalOperation(f"{self.path}: this bookie directory is closed")
                if self.index_error is not None:
                    raise self.index_error
                with convert_read_errors(self.path):
                    self._index = self._open_index()
            return self._index

    @cached_property
    def _record_reader(self) -> RecordReader:
        by_ledger = self.layout == "rocksdb"
        return RecordReader(self.index, self.folders.ledger, by_ledger, self._compat)

    def _try_open_index(self) -> None:
        """Open the index; keep an error for its first use, unless a later attempt may succeed."""
        try:
            self._ensure_index()
        except (DirectoryInUse, SystemRefused):
            raise
        except BkstoreError as error:
            self.index_error = error

    def _open_index(self) -> EntryIndex:
        """Open index files or databases, by the layout."""
        if self.layout == "idx":
            from bkstore.index.hierarchical import HierarchicalIndex

            currents, page_size = self.folders.index, self._page_size
            return HierarchicalIndex(currents, page_size=page_size, compat=self._compat)
        from bkstore.storage.read_only.rocks_directories import open_rocks

        return open_rocks(self.path, self.folders, self.live)

    def close(self) -> None:
        """Close logs and index, remove scratch directories. Idempotent."""
        self._closed = True
        if "_record_reader" in self.__dict__:  # a cached property that was used
            self._record_reader.close()
        if self._index is not None:
            self._index.close()

    def refuse_output(self, target: Path) -> None:
        """Raise `InvalidArgument` if `target` is in the given path or a directory of the bookie, or
        its `bk_server.conf` or a lock file. Links are followed."""
        if os.path.basename(os.path.realpath(target)) == LOCK_NAME:
            raise InvalidArgument(f"{target}: is the name of a bookie's lock file")
        currents = {*self.folders.ledger, *self.folders.index, *self.folders.journal}
        folders = {each.parent if each.name == "current" else each for each in currents}
        refuse_inputs(target, [self.path, *sorted(folders)])

    # -- contents

    @property
    def bookie_id(self) -> str:
        """The id given at opening, else the cookie's, else the directory's name."""
        if self._given_id is not None:
            return self._given_id
        if self.folders.cookie is not None:
            return self.folders.cookie.bookie_id
        return self._default_id()

    def _default_id(self) -> str:
        path = self.path.resolve()
        path = path.parent if path.is_file() or path.name == "current" else path
        # In `bookie-1/ledgers` the parent's name is better: the folder's name is only a role.
        is_role_name = re.fullmatch(r"(ledgers?|index|bk|data|bookkeeper)\d*", path.name)
        name = path.parent.name if is_role_name else path.name
        return escape_surrogates(name or path.name)

    @cached_property
    def entry_logs(self) -> list[LogFile]:
        """The entry log files, by directory and log id. Reads names and sizes only. Anything with a
        log's name that is no file is included, with 0 bytes: reading raises."""
        return list_entry_logs(self.folders.ledger)

    @cached_property
    def journals(self) -> list[Path]:
        """The journal files, by directory and journal id."""
        return list_journals(self.folders.journal)

    def findings(self) -> list[Finding]:
        """Return the oddities of the index and of the directories, damage of cookies, and damage
        that keeps the index from listing its ledgers."""
        findings = self.cookie_damage + self.index.findings()
        try:
            listing = self.index.list_readable_ledgers()
            has_ledgers = bool(listing.ledgers or listing.unknown)
        except CorruptionError as error:
            has_ledgers = True  # or had some
            damage = Finding.of(error)
            # `findings` may have it already, in other words.
            if (damage.file, damage.offset) not in [(each.file, each.offset) for each in findings]:
                findings.append(damage)
        if not has_ledgers and self.entry_logs:
            detail = "entry logs but no ledger in the index: unflushed, lost, or stored elsewhere"
            findings.append(Finding("oddity", detail, str(self.folders.index[0])))
        cookie, dir_count = self.folders.cookie, len(self.folders.ledger)
        empty_logs = [log.path for log in self.entry_logs if not log.bytes]
        findings += find_irregular_files([*empty_logs, *self.journals])
        if cookie and len(cookie.ledger_dirs) != dir_count:
            expected = f"{len(cookie.ledger_dirs)} ledger directories of the cookie"
            detail = f"{dir_count} of the {expected} are here"
            findings.append(Finding("oddity", detail, str(self.path)))
        if all(find_holdings(current) == {"journal"} for current in self.folders.index):
            detail = "journals only: no index and no entry log is here"
            findings.append(Finding("oddity", detail, str(self.folders.journal[0])))
        return findings

    def unknown_files(self) -> list[Finding]:
        """Return a finding for each file or folder whose name no bookie gives; reads names."""
        folders = self.folders
        currents = dict.fromkeys([*folders.ledger, *folders.index, *folders.journal])
        unknown_files = find_unknown_files(currents)
        return [Finding("oddity", file.detail, str(file.path)) for file in unknown_files]

    # -- index rows with their directory

    def dir_indexes(self, ledger: LedgerLike, locations: Int64Array) -> Int64Array:
        """Return for each location the index of the ledger directory that has its entry log, -1 if
        none has. Db storage keeps all of a ledger in one directory, whose index is returned for
        each location. Opens no log."""
        locations = as_int64(locations, "locations")
        ledger_id = LedgerId.of(ledger)
        if self.layout == "rocksdb":
            dir_index = ledger_id.ledger % len(self.folders.index)
            return np.full(locations.size, dir_index, np.int64)
        return self._dirs_of_logs(log_ids_of(locations))

    def _dirs_of_logs(self, logs: Int64Array) -> Int64Array:
        """Return for each log id the index of its directory, -1 if no directory has it."""
        known_ids, dir_indexes = self._log_table
        if not known_ids.size:
            return np.full(logs.size, NO_DIRECTORY, np.int64)
        positions = np.minimum(np.searchsorted(known_ids, logs), known_ids.size - 1)
        return np.where(known_ids[positions] == logs, dir_indexes[positions], NO_DIRECTORY)

    @cached_property
    def _log_table(self) -> tuple[Int64Array, Int64Array]:
        """The log ids, sorted, and for each the first directory that has such a log."""
        first_dir: dict[int, int] = {}
        for log in self.entry_logs:
            first_dir.setdefault(log.log_id, log.dir_index)
        ids = np.array(sorted(first_dir), np.int64)
        return ids, np.array([first_dir[int(log)] for log in ids], np.int64)

    def locate(
        self, ledger: LedgerLike, first: int = 0, last: int | None = None
    ) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return (entries, dir_indexes, locations) of first..last, int64[n] each."""
        entries, locations = self.index.items(ledger, first, last)
        return entries, self.dir_indexes(ledger, locations), locations

    def scan(
        self, batch: int = DEFAULT_BATCH, findings: list[Finding] | None = None
    ) -> Iterator[IndexBatch]:
        """Return every index row with the index of its ledger directory; see `EntryIndex.scan`."""
        return self._scan_with_dirs(check_batch("batch", batch), findings)

    def _scan_with_dirs(self, batch: int, findings: list[Finding] | None) -> Iterator[IndexBatch]:
        """Yield index rows with the directory of their log: index files do not store it."""
        for rows in self.index.scan(batch, findings):
            if self.layout == "rocksdb":
                yield rows
            else:
                yield rows._replace(dir_index=self._dirs_of_logs(log_ids_of(rows.location)))

    # -- records

    def read_entry(self, ledger: LedgerLike, entry: int = LAST_ENTRY) -> bytes:
        """Return one record as it is stored (header, digest, payload); -1 means the last entry.

        The digest is not verified (`bkstore.formats.entry.decode` does that). Raises
        `NoSuchLedger`, `NoSuchEntry`, `CorruptionError` if the log has no such record there, and
        `DataUnknown` if the ledger is in limbo (it may have lost entries) and lacks this one. One
        or two reads of the log.
        """
        return self._record_reader.read_entry(LedgerId.of(ledger), entry)

    def read_entries(
        self, ledger: LedgerLike, start: int, max_count: int = 0, max_size: int = 0
    ) -> RecordBatch:
        """Return records of consecutive entries from `start` on, as one batch read (BP-62).

        `max_count` 0 means no limit; `max_size` limits the frame (36 bytes, and 4 + size a
        record), 0 meaning 5 MiB. The first record is always returned; a gap or damage ends the
        batch. For `start`, raises what `read_entry` raises.
        """
        return self._record_reader.read_entries(LedgerId.of(ledger), start, max_count, max_size)

    def scan_ledger(
        self,
        ledger: LedgerLike,
        first: int = 0,
        last: int | None = None,
        findings: list[Finding] | None = None,
    ) -> Iterator[RecordBatch]:
        """Yield all stored records of first..last, in batches of about 4 MiB.

        With a `findings` list, unreadable entries are added to it and skipped; without,
        `CorruptionError` is raised after the records before. Empty for an unknown ledger. Memory:
        16 bytes an entry, and a batch.
        """
        return self._record_reader.scan_ledger(LedgerId.of(ledger), first, last, findings)

    def log_file(self, log_id: int, dir_index: int | None = None) -> LogFile:
        """Return one entry log file; `InvalidArgument` if there is none, or several and no
        `dir_index` (db storage gives the same ids in each of its directories)."""
        log_id = check_integer(log_id, "log id")
        same_id = [log for log in self.entry_logs if log.log_id == log_id]
        matches = [log for log in same_id if dir_index in (None, log.dir_index)]
        if not matches:
            raise InvalidArgument(f"no entry log {log_id} ({log_id:x}.log) is here")
        if len(matches) > 1:
            dir_indexes = ", ".join(str(log.dir_index) for log in matches)
            raise InvalidArgument(f"entry log {log_id} is in directories {dir_indexes}: choose one")
        return matches[0]

    def scan_log(
        self, log_id: int, dir_index: int | None = None, findings: list[Finding] | None = None
    ) -> Iterator[LogBatch]:
        """Yield the records of one entry log in batches; see `entry_log.scan.scan_log`."""
        return scan_log(self.log_file(log_id, dir_index).path, findings)

    def log_metadata(
        self, log_id: int, dir_index: int | None = None, findings: list[Finding] | None = None
    ) -> tuple[LogMetadata, Literal["map", "scan"]]:
        """Return the ledgers of an entry log; see `entry_log.scan.read_log_metadata`."""
        return read_log_metadata(self.log_file(log_id, dir_index).path, log_id, findings)

    @cached_property
    def _log_finder(self) -> LogFinder:
        from bkstore.storage.read_only.find_logs import LogFinder  # loads mmh3

        by_ledger = self.layout == "rocksdb" and self.index_error is None
        return LogFinder(self.entry_logs, len(self.folders.ledger) if by_ledger else 1)

    def find_logs(
        self,
        ledger: LedgerLike,
        first: int = 0,
        last: int | None = None,
        *,
        copies: bool = False,
        findings: list[Finding] | None = None,
    ) -> list[FoundLog]:
        """Return the logs that hold any of first..last, with those entries; by directory, id.

        Reads the logs, not the index: so it finds entries lost from the index, and deleted ones
        that are not compacted away yet. Of several copies (added again, compacted) only that in
        the newest log counts, in the order of `sort_by_creation`; with `copies` all do. (If an
        entry was added to an open log after its copy was compacted to a newer log, the index points
        at the open log.) Journals are not searched.

        With a `findings` list, oddities and damage in the logs that had to be scanned are added
        to it at each call; without, damage raises `CorruptionError`. Empty if no log has the
        ledger. Cost: at first some reads for each closed log, and one scan (some 400 ns a record)
        of each that has the ledger or no ledgers map; later microseconds a log. Logs are assumed
        not to change after they were first read. Memory: see `LogFinder`.
        """
        ledger_id = LedgerId.of(ledger)
        return self._log_finder.find(ledger_id, first, last, copies=copies, findings=findings)

    def metadata_cache(self, dir_index: int = 0) -> dict[int, LogMetadata]:
        """Return the metadata of a directory's closed logs cached by garbage collection, by log id;
        none without a cache on disk. Raises `CorruptionError` for a malformed row."""
        if not 0 <= dir_index < len(self.folders.ledger):
            raise InvalidArgument(f"no ledger directory {dir_index}")
        return read_metadata_cache(self.folders.ledger[dir_index], self.live)

    # -- detecting changes

    def _list_file_states(self) -> dict[str, tuple[int, int]]:
        folders = {*self.folders.ledger, *self.folders.index, *self.folders.journal}
        return stat_files(folders, DATABASE_NAMES)

    def check_unchanged(self) -> None:
        """Raise `DirectoryInUse` if a file changed since the opening (not with ``live=True``)."""
        if self.live:
            return
        with convert_read_errors(self.path):
            current_files = self._list_file_states()
        # Files that appeared, disappeared, or have another size or time.
        changed = sorted({path for path, _ in current_files.items() ^ self._initial_files.items()})
        if changed:
            raise DirectoryInUse(
                f"{changed[0]} changed while the directory was read ({len(changed)} files did): "
                "stop the bookie, copy the directory, or read it live (live=True, --live)"
            )


def open_index(
    path: str | os.PathLike[str],
    *,
    live: bool = False,
    layout: Layout | None = None,
    page_size: int = idxfile.DEFAULT_PAGE_SIZE,
    compat: Literal["bookkeeper"] | None = None,
    root: str | os.PathLike[str] | None = None,
) -> EntryIndex:
    """Return the read-only index of a bookie's directories: ``BookieDir(path).index``.

    Merged over the directories: index files are searched in all of them; of RocksDB databases,
    that of the ledger's directory is used. Close it when done. Raises `UnsupportedLayout`,
    `CorruptionError` or `DirectoryInUse`, and `InvalidArgument` if `path` is not a path.
    """
    return BookieDir(
        path, live=live, layout=layout, page_size=page_size, compat=compat, root=root
    ).index
