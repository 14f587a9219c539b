"""LedgerStorage: a bookie's ledger storage, written and read like the real one.

One class, three compositions of write cache, entry log and index: `sorted`, `interleaved` and
`db` (see `ledgers.write_paths`). BookKeeper's counterparts are `SortedLedgerStorage`,
`InterleavedLedgerStorage` and `DbLedgerStorage`, whose storage classes open what this writes.
There is no journal: unflushed data is lost in a crash, unless a `Bookie` replays it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from threading import Lock
from typing import Self

from bkstore.arguments import boolean, instance, iterable, number, optional, paths as as_paths
from bkstore.errors import InvalidArgument, NoSuchEntry
from bkstore.files.disk_changes import OS_FILES, Files, StrPath, check_files
from bkstore.formats.entry import RecordBatch
from bkstore.ids import MAX_ENTRY_ID, LedgerId, check_entry_id, check_integer
from bkstore.index.api import Closeable, Finding, LedgerLike
from bkstore.storage.batch_limits import check_fencing_key, check_limits, count_fitting, max_records
from bkstore.storage.directories.writer_lock import WriterLock
from bkstore.storage.ledgers.garbage_collection import GarbageCollector
from bkstore.storage.ledgers.garbage_pass import (
    MAJOR_THRESHOLD,
    MINOR_THRESHOLD,
    CompactionKind,
    CompactionOptions,
    FindDeleted,
    GarbagePass,
    GarbagePassCounts,
    GarbageReport,
    MarkSuspects,
)
from bkstore.storage.ledgers.ledger_adds import LedgerAdds
from bkstore.storage.ledgers.opening import open_write_paths
from bkstore.storage.ledgers.write_paths.api import WritePath
from bkstore.storage.options import StorageKind, StorageOptions

LAST_ENTRY = -1
"""As an entry id in a read: the last one (`BookieProtocol.LAST_ADD_CONFIRMED`)."""

_DELETE_GROUP_SIZE: dict[StorageKind, int] = {"sorted": 16, "interleaved": 16, "db": 256}
"""Ledgers deleted at a time, while adds wait: one file each, or one sync for all."""

LiveLedgerIds = Iterable[LedgerLike] | Callable[[], Iterable[LedgerLike]]
"""The ledgers in a metadata store, or a function that returns them."""

_check_threshold = optional(number(0, 1))
_check_pass = instance(GarbagePass)
_check_options = optional(instance(StorageOptions))


class LedgerStorage(LedgerAdds, Closeable):
    """The ledgers of one bookie: adds, reads and lists their entries.

    `open` creates or opens it. `set_master_key` creates a ledger; `add_entry` takes encoded records
    (`bkstore.formats.entry`). Listings, availability, last entry and reads include unflushed
    entries, on all three storages. `flush` makes everything durable.

    Threads: all calls may run concurrently; adds to one directory take turns. Reads never wait,
    except the first one of a ledger, which may wait for a flush. Fork: closed in the child, which
    may open it after the parent closed it; db storage only if no RocksDB database was opened before
    the fork (else `IllegalOperation`). Processes: a lock file keeps a second writer out.

    >>> import tempfile
    >>> from bkstore.formats.entry import Entry, encode
    >>> with tempfile.TemporaryDirectory() as top, LedgerStorage.open(top, "db") as storage:
    ...     storage.set_master_key(7, b"k" * 20)
    ...     entry = storage.add_entry(encode(Entry(7, 0, -1, 5, b"hello"), "CRC32C"))
    ...     storage.read_entry(7, 0)[-5:], storage.entries(7).tolist()
    (b'hello', [0])
    """

    def __init__(
        self,
        storage: StorageKind,
        write_paths: Sequence[WritePath],
        lock: WriterLock,
        options: StorageOptions,
        findings: Iterable[Finding] = (),
    ) -> None:
        """Called by `open`."""
        super().__init__(storage, write_paths, options)
        self.findings = list(findings)
        """Findings of the opening, such as a compaction that could not be finished."""
        lock.close_on_fork(self._mark_closed)
        self.before_delete: Callable[[list[LedgerId]], None] | None = None
        """Called with ledgers before they are deleted; set by a `Bookie`."""
        self._lock_files = lock
        self._collection_lock = Lock()
        self.garbage_passes = GarbagePassCounts()
        """Counts of all garbage collection passes."""
        self._collectors = [GarbageCollector(path, i) for i, path in enumerate(self.write_paths)]

    @classmethod
    def open(
        cls,
        path: StrPath | Sequence[StrPath],
        storage: StorageKind = "sorted",
        *,
        index_dirs: Sequence[StrPath] | None = None,
        options: StorageOptions | None = None,
        files: Files = OS_FILES,
    ) -> Self:
        """Open the ledger directory `path` (or several, in configured order) for writing, creating
        missing ones. `index_dirs` default to these. Raises `DirectoryInUse` if another writer has
        one open, and `UnsupportedLayout` if there is an index of another storage."""
        settings = _check_options("options", options) or StorageOptions()
        check_files("files", files)
        index_dirs = None if index_dirs is None else as_paths("index_dirs", index_dirs)
        ledger_dirs = as_paths("path", path)
        if not ledger_dirs:
            raise InvalidArgument("no ledger directory given")
        paths, lock, findings = open_write_paths(ledger_dirs, index_dirs, storage, settings, files)
        return cls(storage, paths, lock, settings, findings)

    def close(self, flush: bool = True) -> None:
        """Flush, then close everything. Idempotent. Unflushed data is dropped without `flush`, and
        in compat mode (which copies BookKeeper's behavior) by sorted and interleaved storage, as
        BookKeeper leaves it to the replay of the journal."""
        if self._closed:
            return
        with ExitStack() as closing:  # runs its callbacks in reverse order, after the flush
            closing.callback(self._lock_files.close)
            for path in self.write_paths:
                closing.callback(path.close)
            closing.callback(self._mark_closed)
            if flush and (self.options.compat is None or self.storage == "db"):
                self.flush()

    def _mark_closed(self) -> None:
        self._closed = True
        for path in self.write_paths:
            path.states.fast_path_ledgers.clear()

    def __repr__(self) -> str:
        currents = [str(each) for path in self.write_paths for each in path.logger.currents]
        closed = " (closed)" if self._closed else ""
        return f"<LedgerStorage {self.storage}: {', '.join(currents)}{closed}>"

    # -- reading

    def read_entry(self, ledger: LedgerLike, entry: int = LAST_ENTRY) -> bytes:
        """Return one stored record; entry -1 means the last one. Raises `NoSuchLedger`,
        `NoSuchEntry`, `CorruptionError`, and `DataUnknown` if the ledger is in limbo (it may have
        lost entries) and lacks this one."""
        ledger_id = LedgerId.of(ledger)
        if self._closed:
            self._check_open()
        path = self.write_paths[ledger_id.ledger % len(self.write_paths)]
        if type(entry) is not int or not 0 <= entry <= MAX_ENTRY_ID:
            entry = check_integer(entry, "entry id")
            entry = self._last_entry(ledger_id) if entry == LAST_ENTRY else check_entry_id(entry)
        record = path.read(ledger_id, entry)
        if record is None or not path.has_ledger(ledger_id):  # a deleted one may leave records
            raise self._missing_error(ledger_id, path, entry)
        return record

    def _last_entry(self, ledger_id: LedgerId) -> int:
        last_entry = self.last_entry(ledger_id)
        if last_entry is None:
            raise NoSuchEntry(f"ledger {ledger_id} has no entry")
        return last_entry

    def entry_exists(self, ledger: LedgerLike, entry: int) -> bool:
        """Return whether the entry is stored; raise `DataUnknown` if the ledger is in limbo (it may
        have lost entries) and lacks it. Return False for -1: only reads take it as the last entry,
        as in BookKeeper."""
        ledger_id = LedgerId.of(ledger)
        if entry == LAST_ENTRY:
            self._require_known(ledger_id)
            return False
        path, entry_id = self._path_of(ledger_id), check_entry_id(entry)
        if path.get_cached(ledger_id, entry_id) is not None:
            return True
        if path.get_location(ledger_id, entry_id) is not None:
            return True
        error = self._missing_error(ledger_id, path, entry)
        if isinstance(error, NoSuchEntry):
            return False
        raise error

    def read_entries(
        self,
        ledger: LedgerLike,
        start: int,
        max_count: int = 0,
        max_size: int = 0,
        *,
        fence: bool = False,
        master_key: bytes | None = None,
    ) -> RecordBatch:
        """Return records of consecutive entries from `start` on (BP-62).

        `max_count` 0 means no limit; `max_size` limits the frame (36 bytes, and 4 + size a
        record), 0 meaning the option `max_batch_size`. The first record is always returned; a
        gap or damage ends the batch, but raises at `start`. With `fence`, which needs the
        `master_key`, the ledger is fenced first, and created if it is unknown.
        """
        ledger_id = LedgerId.of(ledger)
        path = self._path_of(ledger_id)
        max_count, max_size = check_limits(max_count, max_size)
        if type(start) is not int:
            start = check_integer(start, "entry id")
        key = check_fencing_key(fence, master_key)
        if key is not None:
            self.open_ledger(ledger_id, key)
            self.fence(ledger_id)
        if start == LAST_ENTRY:
            return RecordBatch.of([self.read_entry(ledger_id)], [self.last_entry(ledger_id) or 0])
        limit = self.options.max_batch_size
        size = min(max_size, limit) if max_size else limit
        batch = path.read_run(ledger_id, check_entry_id(start), max_records(max_count, size), size)
        if not len(batch) or not path.has_ledger(ledger_id):  # a deleted one may leave records
            raise self._missing_error(ledger_id, path, start)
        return batch.first(count_fitting(batch.sizes, max_count, size, self.options.compat))

    # -- deleting, flushing

    def delete_ledger(self, ledger: LedgerLike) -> None:
        """Delete a ledger, if known; its bytes stay in the entry logs until garbage collection."""
        self._delete_ledgers([LedgerId.of(ledger)])

    def _delete_ledgers(
        self, ledger_ids: list[LedgerId], *, only_suspects: bool = False
    ) -> list[LedgerId]:
        """Delete ledgers; return those deleted, sorted. With `only_suspects` (ledgers marked by a
        garbage collection that is about to delete them), keep those that lost the mark: an entry
        was added since `_mark_suspects`, so they are in use."""
        deleted = []
        if self.before_delete is not None:
            self.before_delete(ledger_ids)
        for path in self.write_paths:
            with path.lock:
                ledgers = self._ledgers_of(path, ledger_ids)
                if only_suspects:
                    ledgers = [each for each in ledgers if each in path.states.suspects]
                if ledgers:
                    path.check_writable()
                    path.delete(ledgers)
                    for ledger_id in ledgers:
                        self._lac_tracker.forget(ledger_id)
                    deleted += ledgers
        return sorted(deleted)

    def _ledgers_of(self, path: WritePath, ledger_ids: Iterable[LedgerId]) -> list[LedgerId]:
        return [ledger_id for ledger_id in ledger_ids if self._path_of(ledger_id) is path]

    def _mark_suspects(self, ledger_ids: Iterable[LedgerId]) -> None:
        for path in self.write_paths:
            with path.lock:
                path.states.mark_suspects(self._ledgers_of(path, ledger_ids))

    def _delete_garbage(self, find_deleted: FindDeleted, report: GarbageReport) -> None:
        """Delete the ledgers that `find_deleted` yields, in groups, except those created again
        meanwhile. `find_deleted` marks ledgers as suspects before it queries the metadata store;
        an add to a suspect unmarks it, and `_delete_ledgers` keeps unmarked ledgers."""
        group_size = _DELETE_GROUP_SIZE[self.storage]
        try:
            for ledger_ids in find_deleted(self.ledgers(), self._mark_suspects):
                for start in range(0, len(ledger_ids), group_size):
                    group = ledger_ids[start : start + group_size]
                    report.deleted_ledgers += self._delete_ledgers(group, only_suspects=True)
        finally:
            for path in self.write_paths:
                with path.lock:
                    path.states.suspects.clear()

    def flush(self) -> None:
        """Make all added and changed data durable."""
        self._check_open()
        for path in self.write_paths:
            path.flush()

    def checkpoint(self) -> None:
        """Flush as before a journal truncation; sorted storage starts another entry log."""
        self._check_open()
        for path in self.write_paths:
            path.checkpoint()

    def collect_garbage(
        self,
        live: LiveLedgerIds | None = None,
        *,
        threshold: float | None = MAJOR_THRESHOLD,
        transactional: bool = False,
    ) -> GarbageReport:
        """Delete ledgers that are not `live`, remove and compact entry logs; return a report.

        `live` has the ledgers in the metadata store, or is a function that returns them; None
        deletes none. The function is called after the stored ledgers are listed, so that a new
        ledger is not taken for a deleted one; a list must not be older than the call. Logs with
        a live share below `threshold` are compacted (0.8 is a bookie's major, 0.2 its minor
        compaction; None = none): live records are copied, the index is pointed at the copies,
        the log is removed. With `transactional` the copies are written to a new log of their own.
        Safe against a crash at any point. A damaged log stays, and a finding says why, except one
        that only ends inside its last record, as a kill leaves it, and has no index row for it.
        One pass runs at a time; another thread waits.
        """
        _check_threshold("threshold", threshold)
        boolean("transactional", transactional)

        def find_deleted(stored: list[LedgerId], mark: MarkSuspects) -> Iterator[list[LedgerId]]:
            mark(stored)  # an add from here on unmarks a ledger, which then is not deleted
            live_ledgers = iterable("live", live() if callable(live) else live)
            live_ids = set(map(LedgerId.of, live_ledgers))
            yield [ledger_id for ledger_id in stored if ledger_id not in live_ids]

        options = None
        if threshold is not None:
            kind: CompactionKind = "minor" if threshold <= MINOR_THRESHOLD else "major"
            options = CompactionOptions(threshold=threshold, kind=kind, transactional=transactional)
        find = None if live is None else find_deleted
        return self.run_garbage_pass(GarbagePass(find_deleted=find, compaction=options))

    def run_garbage_pass(self, options: GarbagePass) -> GarbageReport:
        """Run a pass of garbage collection and return a report; see `collect_garbage`.
        `find_deleted` is called after the stored ledgers are listed; each group that it yields is
        deleted before the next is requested. An error that it raises ends the pass."""
        self._check_open()
        _check_pass("options", options)
        report = GarbageReport()
        kind = None if options.compaction is None else options.compaction.kind
        with self._collection_lock, self.garbage_passes.counting(kind):
            if options.find_deleted is not None:
                self._delete_garbage(options.find_deleted, report)
            for collector in self._collectors:
                collector.run(report, options)
            for path in self.write_paths:
                path.clean_up()
        return report
