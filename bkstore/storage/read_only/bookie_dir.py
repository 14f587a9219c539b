"""BookieDir: the directories of one bookie, read-only; `open_index` for the index alone.

Nothing here writes into the directories: index files are opened for reading, RocksDB
databases through a scratch directory of links.
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

from bkstore.arguments import check_batch, check_compat, optional, path as as_path, text, truth
from bkstore.errors import (
    BkstoreError,
    DirectoryInUse,
    IllegalOperation,
    InvalidArgument,
    SystemRefused,
    UnsupportedLayout,
)
from bkstore.files.os_errors import readable
from bkstore.files.user_outputs import refuse_inputs
from bkstore.formats import idxfile
from bkstore.formats.entry import RecordBatch
from bkstore.formats.entrylog import LogMetadata
from bkstore.ids import Int64Array, LedgerId, as_int64, check_integer, log_ids
from bkstore.index.api import DEFAULT_BATCH, Closing, EntryIndex, Finding, IndexBatch, LedgerLike
from bkstore.index.rocks.scratch_links import check_not_in_use
from bkstore.storage.directories.file_listing import (
    LogFile,
    entry_logs_in,
    journals_in,
    odd_files,
    sizes_and_times,
)
from bkstore.storage.directories.layout import (
    DATABASES,
    BookieFolders,
    Layout,
    find_folders,
    pick_layout,
)
from bkstore.storage.directories.unknown_files import unknown_files
from bkstore.storage.directories.writer_lock import LOCK_NAME, check_not_locked
from bkstore.storage.entry_log.metadata_cache import read_metadata_cache
from bkstore.storage.entry_log.scan import LogBatch, read_log_metadata, scan_log
from bkstore.storage.read_only.records import LAST_ENTRY, RecordReading
from bkstore.tables.safe_text import encodable

if TYPE_CHECKING:
    from bkstore.storage.read_only.find_logs import FoundLog, LogFinder

__all__ = ["BookieDir", "LogFile", "open_index"]

NOWHERE = -1
"""`dir_index` of a location whose entry log is in none of the ledger directories."""


class BookieDir(Closing):
    """A bookie's directories, opened for reading.

    `path` is a ledger directory, its ``current/``, a root with several folders that have a
    ``current/`` (told apart by what they hold), or a `bk_server.conf`. Never writes there. A
    directory in use is refused (`DirectoryInUse`) unless ``live=True``; `check_unchanged` says
    whether files moved since the opening. `layout` settles a directory that has both index
    files and RocksDB databases; `page_size` and `compat` go to `HierarchicalIndex`.

    The directories of a `bk_server.conf` that is a copy are looked for beside it, or below
    `root`: see `place_directories`. `folders.configured` says what each is.

    With ``needs_index=False`` an index that cannot be opened is no obstacle to logs and journals:
    it is opened when it is first asked for, and what is wrong with it is raised then. Only for
    several directories of db storage it is tried at once, as their order is checked by it.
    `unopened` says why it could not be; nothing is looked up by that order then.

    Threads: reading is safe as far as `index` is. Fork: with index files it goes on in the child,
    with RocksDB it is closed there; open it again. Close it, or use it as a context manager.

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
        self.path = as_path("path", path)
        self.live = truth("live", live)
        self._page_size = idxfile.check_page_size("page_size", page_size)
        self._compat = check_compat("compat", compat)
        self._given_id: str | None = optional(text)("bookie_id", bookie_id)
        self.root = None if root is None else as_path("root", root)
        self._closed = False
        with readable(self.path):
            self.folders: BookieFolders = find_folders(self.path, self.root)
            self.layout: Layout = pick_layout(self.folders, layout)
            self._before = self._fingerprint()
            self._check_logs()
            self._check_locks(needs_index)
        self.unopened: BkstoreError | None = None
        self._index: EntryIndex | None = None
        self._opening = Lock()
        if needs_index:
            self._opened()
        elif self.layout == "rocksdb" and len(self.folders.ledger) > 1:
            self._try_index()

    # -- opening

    def _check_logs(self) -> None:
        """Refuse directories that cannot be one bookie's, where nothing says that they are.

        With index files, entry log ids are one sequence over all directories.
        """
        if self.layout == "rocksdb" or self.folders.ordered != "names":
            return
        seen: dict[int, str] = {}
        for log in self.entry_logs:
            if log.log_id in seen:
                raise UnsupportedLayout(
                    f"{log.path} and {seen[log.log_id]} have the same id, which one bookie does "
                    "not give twice: are these several bookies? give one, or a bk_server.conf"
                )
            seen[log.log_id] = log.path

    def _check_locks(self, opens_index: bool) -> None:
        """Refuse directories that a writer of ours, or a bookie's RocksDB, has open.

        Where the index is opened next, each database looks at its own lock before it is read.
        """
        if self.live:
            return
        for folder in dict.fromkeys([*self.folders.ledger, *self.folders.index]):
            check_not_locked(folder)
        if self.layout == "rocksdb" and not opens_index:
            for current in self.folders.index:
                for name in DATABASES:
                    check_not_in_use(current / name)

    @property
    def index(self) -> EntryIndex:
        """The index, merged over the directories; opened now if it was not needed before."""
        return self._index or self._opened()

    def _opened(self) -> EntryIndex:
        with self._opening:
            if self._index is None:
                if self._closed:
                    raise IllegalOperation(f"{self.path}: this bookie directory is closed")
                if self.unopened is not None:
                    raise self.unopened
                with readable(self.path):
                    self._index = self._open_index()
            return self._index

    @cached_property
    def _records(self) -> RecordReading:
        by_ledger = self.layout == "rocksdb"
        return RecordReading(self.index, self.folders.ledger, by_ledger, self._compat)

    def _try_index(self) -> None:
        try:
            self._opened()
        except (DirectoryInUse, SystemRefused):
            raise
        except BkstoreError as error:
            self.unopened = error

    def _open_index(self) -> EntryIndex:
        if self.layout == "idx":
            from bkstore.index.hierarchical import HierarchicalIndex

            return HierarchicalIndex(
                self.folders.index, page_size=self._page_size, compat=self._compat
            )
        from bkstore.storage.read_only.rocks_directories import open_rocks

        return open_rocks(self.path, self.folders, self.live)

    def close(self) -> None:
        """Close logs and index, remove scratch directories. Idempotent."""
        self._closed = True
        if "_records" in self.__dict__:
            self._records.close()
        if self._index is not None:
            self._index.close()

    def refuse_output(self, target: Path) -> None:
        """Raise `InvalidArgument` if `target` lies in what was given, or in a bookie's directory.

        The same for the file that named them, and for a lock file. Links are followed.
        """
        if os.path.basename(os.path.realpath(target)) == LOCK_NAME:
            raise InvalidArgument(f"{target}: is the name of a bookie's lock file")
        currents = {*self.folders.ledger, *self.folders.index, *self.folders.journal}
        folders = {each.parent if each.name == "current" else each for each in currents}
        refuse_inputs(target, [self.path, *sorted(folders)])

    # -- what is here

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
        # `bookie-1/ledgers` says more by its parent: the folder's own name is a role.
        generic = re.fullmatch(r"(ledgers?|index|bk|data|bookkeeper)\d*", path.name)
        return encodable(path.parent.name if generic and path.parent.name else path.name)

    @cached_property
    def entry_logs(self) -> list[LogFile]:
        """The entry log files, by directory and log id. Reads names and sizes only.

        What has a log's name and is no file is among them, with 0 bytes: reading it will say so.
        """
        return entry_logs_in(self.folders.ledger)

    @cached_property
    def journals(self) -> list[Path]:
        """The journal files, by directory and journal id."""
        return journals_in(self.folders.journal)

    def findings(self) -> list[Finding]:
        """Return the index's oddities, and this directory's own."""
        found = self.index.findings()
        if not self.index.ledgers() and self.entry_logs:
            detail = "entry logs but no ledger in the index: unflushed, lost, or stored elsewhere"
            found.append(Finding("oddity", detail, str(self.folders.index[0])))
        cookie, here = self.folders.cookie, len(self.folders.ledger)
        empty = [log.path for log in self.entry_logs if not log.bytes]
        found += odd_files([*empty, *self.journals])
        if cookie and len(cookie.ledger_dirs) != here:
            detail = f"{here} of the {len(cookie.ledger_dirs)} ledger directories of the cookie"
            found.append(Finding("oddity", f"{detail} are here", str(self.path)))
        if self.folders.index == self.folders.journal:
            detail = "journals only: no index and no entry log is here"
            found.append(Finding("oddity", detail, str(self.folders.journal[0])))
        return found

    def unknown_files(self) -> list[Finding]:
        """Return a finding for each file or folder whose name no bookie gives; reads names."""
        folders = self.folders
        currents = dict.fromkeys([*folders.ledger, *folders.index, *folders.journal])
        return [
            Finding("oddity", found.detail, str(found.path)) for found in unknown_files(currents)
        ]

    # -- rows that know their directory

    def dir_indexes(self, ledger: LedgerLike, locations: Int64Array) -> Int64Array:
        """Return for each location the number of the ledger directory with its entry log.

        db storage keeps a ledger's index and logs in one directory. With index files, log ids
        are one sequence over all directories; -1 where the log is in none. Opens no log.
        """
        locations = as_int64(locations, "locations")
        name = LedgerId.of(ledger)
        if self.layout == "rocksdb":
            number = name.ledger % len(self.folders.index)
            return np.full(locations.size, number, np.int64)
        return self._where_logs_are(log_ids(locations))

    def _where_logs_are(self, logs: Int64Array) -> Int64Array:
        ids, numbers = self._log_table
        if not ids.size:
            return np.full(logs.size, NOWHERE, np.int64)
        at = np.minimum(np.searchsorted(ids, logs), ids.size - 1)
        return np.where(ids[at] == logs, numbers[at], NOWHERE)

    @cached_property
    def _log_table(self) -> tuple[Int64Array, Int64Array]:
        first: dict[int, int] = {}
        for log in self.entry_logs:
            first.setdefault(log.log_id, log.dir_index)
        ids = np.array(sorted(first), np.int64)
        return ids, np.array([first[int(log)] for log in ids], np.int64)

    def locate(
        self, ledger: LedgerLike, first: int = 0, last: int | None = None
    ) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return (entries, dir_indexes, locations) of first..last, int64[n] each."""
        entries, locations = self.index.items(ledger, first, last)
        return entries, self.dir_indexes(ledger, locations), locations

    def scan(
        self, batch: int = DEFAULT_BATCH, findings: list[Finding] | None = None
    ) -> Iterator[IndexBatch]:
        """Return every index row with the number of its ledger directory; see `EntryIndex.scan`."""
        return self._numbered(check_batch("batch", batch), findings)

    def _numbered(self, batch: int, findings: list[Finding] | None) -> Iterator[IndexBatch]:
        for rows in self.index.scan(batch, findings):
            if self.layout == "rocksdb":
                yield rows
            else:
                yield rows._replace(dir_index=self._where_logs_are(log_ids(rows.location)))

    # -- records

    def read_entry(self, ledger: LedgerLike, entry: int = LAST_ENTRY) -> bytes:
        """Return one record as it is stored (header, digest, payload); -1 means the last entry.

        The digest is not verified (`bkstore.formats.entry.decode` does). Raises `NoSuchLedger`,
        `NoSuchEntry`, `CorruptionError` where the index points at something else or nothing,
        `DataUnknown` where a ledger in limbo lacks the entry. One or two reads of the log.
        """
        return self._records.read_entry(LedgerId.of(ledger), entry)

    def read_entries(
        self, ledger: LedgerLike, start: int, max_count: int = 0, max_size: int = 0
    ) -> RecordBatch:
        """Return records of consecutive entries from `start` on, as one batch read (BP-62).

        `max_count` 0 means no limit; `max_size` bytes of frame (36, and 4 + size a record), 0
        meaning 5 MiB. The first record always comes; a gap or damage ends the batch. Raises as
        `read_entry` where `start` is concerned.
        """
        return self._records.read_entries(LedgerId.of(ledger), start, max_count, max_size)

    def scan_ledger(
        self,
        ledger: LedgerLike,
        first: int = 0,
        last: int | None = None,
        findings: list[Finding] | None = None,
    ) -> Iterator[RecordBatch]:
        """Yield all records of first..last that are here, in batches of about 4 MiB.

        With a `findings` list, an entry that cannot be read is appended to it and passed over;
        without, `CorruptionError` is raised, after the records before it. Empty for an unknown
        ledger. Memory: 16 bytes an entry, and a batch.
        """
        return self._records.scan_ledger(LedgerId.of(ledger), first, last, findings)

    def log_file(self, log_id: int, dir_index: int | None = None) -> LogFile:
        """Return one entry log file; `InvalidArgument` if there is none, or several and no
        `dir_index` (db storage gives the same ids in each of its directories)."""
        log_id = check_integer(log_id, "log id")
        found = [
            log
            for log in self.entry_logs
            if log.log_id == log_id and dir_index in (None, log.dir_index)
        ]
        if not found:
            raise InvalidArgument(f"no entry log {log_id} ({log_id:x}.log) is here")
        if len(found) > 1:
            where = ", ".join(str(log.dir_index) for log in found)
            raise InvalidArgument(f"entry log {log_id} is in directories {where}: say which")
        return found[0]

    def scan_log(
        self, log_id: int, dir_index: int | None = None, findings: list[Finding] | None = None
    ) -> Iterator[LogBatch]:
        """Yield the records of one entry log in batches; see `entry_log.scan.scan_log`."""
        return scan_log(self.log_file(log_id, dir_index).path, findings)

    def log_metadata(
        self, log_id: int, dir_index: int | None = None, findings: list[Finding] | None = None
    ) -> tuple[LogMetadata, Literal["map", "scan"]]:
        """Return which ledgers an entry log has; see `entry_log.scan.read_log_metadata`."""
        return read_log_metadata(self.log_file(log_id, dir_index).path, log_id, findings)

    @cached_property
    def _finder(self) -> LogFinder:
        from bkstore.storage.read_only.find_logs import LogFinder  # loads mmh3

        by_ledger = self.layout == "rocksdb" and self.unopened is None
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
        """Return the entry logs that hold any of first..last, each with which; by directory, id.

        Asks the logs, not the index: an entry that the index lost is found, and so is one that
        was deleted and not yet compacted away. Of several copies (added again, compacted) that
        in the newest log counts, the one with the highest id; with `copies` all do. Where an
        entry is added to an open log after its copy was compacted to a newer one, the index
        names the open log. Not asked: journals, and what a write cache held.

        With a `findings` list, what is odd or damaged in the logs that had to be scanned is
        appended to it, at each call; without, damage raises `CorruptionError`. Empty for a
        ledger that no log has. Cost: the first time some reads for each closed log, and one scan
        (some 400 ns a record) of each that has the ledger and each without a ledgers map; then
        microseconds a log. Logs are taken to be as they were when first looked at. Memory: see
        `LogFinder`.
        """
        name = LedgerId.of(ledger)
        return self._finder.find(name, first, last, copies=copies, findings=findings)

    def metadata_cache(self, dir_index: int = 0) -> dict[int, LogMetadata]:
        """Return what garbage collection keeps of a directory's closed logs, by log id.

        Empty where it keeps nothing on disk; `CorruptionError` for a row that is none.
        """
        if not 0 <= dir_index < len(self.folders.ledger):
            raise InvalidArgument(f"no ledger directory {dir_index}")
        return read_metadata_cache(self.folders.ledger[dir_index], self.live)

    # -- moving files

    def _fingerprint(self) -> dict[str, tuple[int, int]]:
        folders = {*self.folders.ledger, *self.folders.index, *self.folders.journal}
        return sizes_and_times(folders, DATABASES)

    def check_unchanged(self) -> None:
        """Raise `DirectoryInUse` if a file moved since the opening (not with ``live=True``)."""
        if self.live:
            return
        with readable(self.path):
            now = self._fingerprint()
        moved = sorted(p for p in {*now, *self._before} if now.get(p) != self._before.get(p))
        if moved:
            raise DirectoryInUse(
                f"{moved[0]} changed while the directory was read ({len(moved)} files did): "
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

    Merged over the directories: index files are searched in all of them, RocksDB databases
    serve each ledger from the one it belongs to. Close it when done.
    Raises `UnsupportedLayout`, `CorruptionError` or `DirectoryInUse`, and `InvalidArgument` for
    what is no path.
    """
    return BookieDir(
        path, live=live, layout=layout, page_size=page_size, compat=compat, root=root
    ).index
