"""LedgerStorage: a bookie's ledger storage, written and read like the real one.

One class, three compositions of write cache, entry log and index: `sorted`, `interleaved` and
`db` (see `ledgers.write_paths`). Upstream's counterparts are `SortedLedgerStorage`,
`InterleavedLedgerStorage` and `DbLedgerStorage`, whose storage classes open what this writes.
There is no journal here: what is not flushed is lost in a crash, unless a `Bookie` replays it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from threading import Lock
from typing import Self

from bkstore.arguments import each, instance, number, optional, paths as as_paths, truth
from bkstore.errors import (
    InvalidArgument,
    NoSuchEntry,
)
from bkstore.files.disk_changes import OS_FILES, Files, StrPath, check_files
from bkstore.formats.entry import RecordBatch
from bkstore.ids import MAX_ENTRY_ID, LedgerId, check_entry_id, check_integer
from bkstore.index.api import Closing, Finding, LedgerLike
from bkstore.storage.batch_limits import check_limits, fencing_key, how_many, most_records
from bkstore.storage.directories.writer_lock import WriterLock
from bkstore.storage.ledgers.adds import Adds
from bkstore.storage.ledgers.assembly import compose
from bkstore.storage.ledgers.garbage_collection import GarbageCollector
from bkstore.storage.ledgers.garbage_pass import (
    MAJOR_THRESHOLD,
    MINOR_THRESHOLD,
    Compaction,
    FindDeleted,
    GarbagePass,
    GarbagePasses,
    GarbageReport,
    Suspect,
)
from bkstore.storage.ledgers.write_paths.api import WritePath
from bkstore.storage.options import Storage, StorageOptions

LAST_ENTRY = -1
"""As an entry id in a read: the last one (`BookieProtocol.LAST_ADD_CONFIRMED`)."""

_DELETED_AT_ONCE: dict[Storage, int] = {"sorted": 16, "interleaved": 16, "db": 256}
"""Ledgers that a pass deletes while adds wait: a file each, or one sync for all."""

Live = Iterable[LedgerLike] | Callable[[], Iterable[LedgerLike]]
"""The ledgers that a metadata store has, or what asks it."""

_check_threshold = optional(number(0, 1))
_check_pass = instance(GarbagePass)
_check_options = optional(instance(StorageOptions))


class LedgerStorage(Adds, Closing):
    """The ledgers of one bookie: entries in, entries out, and which are here.

    `open` makes or opens it. A ledger is made by `set_master_key`; `add_entry` takes encoded
    records (`bkstore.formats.entry`). Listings, availability, last entry and reads include what
    is not flushed, on all three storages. `flush` makes everything durable.

    Threads: all calls are safe beside each other; adds of one directory take turns. Reads wait
    for nobody, but for the first of a ledger, which may wait for a flush. Fork: closed in the
    child, which may open it when the parent has closed it; db storage, like every `RocksIndex`,
    only where no RocksDB database was opened before the fork (else `IllegalOperation`).
    Processes: a lock file keeps a second writer out.

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
        storage: Storage,
        paths: Sequence[WritePath],
        lock: WriterLock,
        options: StorageOptions,
        findings: Iterable[Finding] = (),
    ) -> None:
        """Take what `open` made."""
        super().__init__(storage, paths, options)
        self.findings = list(findings)
        """What the opening met: a compaction that could not be finished, say."""
        lock.closed_by_fork(self._mark_closed)
        self.before_delete: Callable[[list[LedgerId]], None] | None = None
        """Told of ledgers before they are deleted; a `Bookie` listens."""
        self._lock_files = lock
        self._collecting = Lock()
        self.garbage_passes = GarbagePasses()
        """How many passes of garbage collection there were, whoever asked for them."""
        self._collectors = [GarbageCollector(path, at) for at, path in enumerate(self.paths)]

    @classmethod
    def open(
        cls,
        path: StrPath | Sequence[StrPath],
        storage: Storage = "sorted",
        *,
        index_dirs: Sequence[StrPath] | None = None,
        options: StorageOptions | None = None,
        files: Files = OS_FILES,
    ) -> Self:
        """Open the ledger directory `path` (or several, in configured order) for writing.

        Missing directories are made. `index_dirs` default to the ledger directories. Raises
        `DirectoryInUse` where another writer has one, `UnsupportedLayout` where the index that
        is there is another storage's.
        """
        settings = _check_options("options", options) or StorageOptions()
        check_files("files", files)
        index_dirs = None if index_dirs is None else as_paths("index_dirs", index_dirs)
        folders = as_paths("path", path)
        if not folders:
            raise InvalidArgument("no ledger directory given")
        paths, lock, findings = compose(folders, index_dirs, storage, settings, files)
        return cls(storage, paths, lock, settings, findings)

    def close(self, flush: bool = True) -> None:
        """Flush, then close everything. Idempotent.

        Without `flush`, and with ``compat="bookkeeper"`` on sorted and interleaved storage,
        what is not flushed is dropped: a bookie's shutdown leaves that to its journal's replay.
        """
        if self._closed:
            return
        with ExitStack() as closing:
            closing.callback(self._lock_files.close)
            for path in self.paths:
                closing.callback(path.close)
            closing.callback(self._mark_closed)
            if flush and (self.options.compat is None or self.storage == "db"):
                self.flush()

    def _mark_closed(self) -> None:
        self._closed = True
        for path in self.paths:
            path.states.ready.clear()

    def __repr__(self) -> str:
        """Return storage and directories, and whether it is closed."""
        places = ", ".join(str(one) for path in self.paths for one in path.logger.currents)
        return f"<LedgerStorage {self.storage}: {places}{' (closed)' if self._closed else ''}>"

    # -- reading

    def read_entry(self, ledger: LedgerLike, entry: int = LAST_ENTRY) -> bytes:
        """Return one stored record; entry -1 means the last one.

        Raises `NoSuchLedger`, `NoSuchEntry`, `CorruptionError`, and `DataUnknown` where a
        ledger in limbo lacks the entry.
        """
        name = LedgerId.of(ledger)
        if self._closed:
            self._check_open()
        path = self.paths[name.ledger % len(self.paths)]
        if type(entry) is not int or not 0 <= entry <= MAX_ENTRY_ID:
            entry = check_integer(entry, "entry id")
            entry = self._last(name) if entry == LAST_ENTRY else check_entry_id(entry)
        record = path.read(name, entry)
        if record is None or not path.knows(name):
            raise self._missing(name, path, entry)
        return record

    def _last(self, name: LedgerId) -> int:
        last = self.last_entry(name)
        if last is None:
            raise NoSuchEntry(f"ledger {name} has no entry")
        return last

    def entry_exists(self, ledger: LedgerLike, entry: int) -> bool:
        """Return whether the entry is here; `DataUnknown` where a ledger in limbo lacks it.

        -1, which is "the last one" in reads, is no entry's id: False, as in `DbLedgerStorage`.
        """
        name = LedgerId.of(ledger)
        if entry == LAST_ENTRY:
            self._known(name)
            return False
        path, number = self._path(name), check_entry_id(entry)
        if path.cached(name, number) is not None or path.location(name, number) is not None:
            return True
        missing = self._missing(name, path, entry)
        if isinstance(missing, NoSuchEntry):
            return False
        raise missing

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

        `max_count` 0 means no limit; `max_size` bytes of frame (36, and 4 + size a record) at
        most, 0 meaning the option `max_batch_size`. The first record always comes; a gap or
        damage ends the batch, and raises where `start` itself is concerned. With `fence` the
        ledger is fenced first, and made if it is unknown, which needs its `master_key`.
        """
        name = LedgerId.of(ledger)
        path = self._path(name)
        max_count, max_size = check_limits(max_count, max_size)
        if type(start) is not int:
            start = check_integer(start, "entry id")
        key = fencing_key(fence, master_key)
        if key is not None:
            self.open_ledger(name, key)
            self.fence(name)
        if start == LAST_ENTRY:
            return RecordBatch.of([self.read_entry(name)], [self.last_entry(name) or 0])
        limit = self.options.max_batch_size
        size = min(max_size, limit) if max_size else limit
        batch = path.read_run(name, check_entry_id(start), most_records(max_count, size), size)
        if not len(batch) or not path.knows(name):
            raise self._missing(name, path, start)
        return batch.first(how_many(batch.sizes, max_count, size, self.options.compat))

    # -- deleting, flushing

    def delete_ledger(self, ledger: LedgerLike) -> None:
        """Forget a ledger and its entries; nothing happens if it is unknown.

        Its bytes stay in the entry logs until garbage collection.
        """
        self._delete([LedgerId.of(ledger)])

    def _delete(self, names: list[LedgerId], *, suspects: bool = False) -> list[LedgerId]:
        """Forget ledgers, only those that are suspects still if that is asked; return which."""
        deleted = []
        if self.before_delete is not None:
            self.before_delete(names)
        for path in self.paths:
            with path.lock:
                here = [name for name in names if self._path(name) is path]
                if suspects:
                    here = [name for name in here if name in path.states.suspects]
                if here:
                    path.check_writable()
                    path.delete(here)
                    for name in here:
                        self._confirmed.forget(name)
                    deleted += here
        return sorted(deleted)

    def _suspect(self, names: Iterable[LedgerId]) -> None:
        for path in self.paths:
            with path.lock:
                path.states.suspect(name for name in names if self._path(name) is path)

    def _delete_found(self, find_deleted: FindDeleted, report: GarbageReport) -> None:
        """Delete what is found, some at a time, but for what is made again meanwhile."""
        most = _DELETED_AT_ONCE[self.storage]
        try:
            for names in find_deleted(self.ledgers(), self._suspect):
                for start in range(0, len(names), most):
                    part = names[start : start + most]
                    report.deleted_ledgers += self._delete(part, suspects=True)
        finally:
            for path in self.paths:
                with path.lock:
                    path.states.suspects.clear()

    def flush(self) -> None:
        """Make everything that was added or changed durable."""
        self._check_open()
        for path in self.paths:
            path.flush()

    def checkpoint(self) -> None:
        """Flush as before the journal is cut; sorted storage begins another entry log."""
        self._check_open()
        for path in self.paths:
            path.checkpoint()

    def collect_garbage(
        self,
        live: Live | None = None,
        *,
        threshold: float | None = MAJOR_THRESHOLD,
        transactional: bool = False,
    ) -> GarbageReport:
        """Delete ledgers that are not `live`, remove and compact entry logs; return what was done.

        `live` are the ledgers that the metadata store still has, or a function that asks it;
        None deletes none. It is asked after the ledgers here are listed, so that one made
        meanwhile is not taken for deleted; a list must not be older than the call. Logs of
        which less than `threshold` is wanted are compacted (0.8 is a bookie's major, 0.2 its
        minor compaction; None = none): wanted records are copied, the index is pointed at the
        copies, the log goes. With `transactional` the copies appear in a log of their own.
        Safe against a crash at any point. A log with damage stays, and a finding says why; not
        so one that ends inside its last record, as a kill leaves it, unless the index says that
        a record was there.
        One pass at a time; another thread's waits.
        """
        _check_threshold("threshold", threshold)
        truth("transactional", transactional)

        def find_deleted(here: list[LedgerId], suspect: Suspect) -> Iterator[list[LedgerId]]:
            suspect(here)
            kept = each("live", live() if callable(live) else live)
            wanted = set(map(LedgerId.of, kept))
            yield [name for name in here if name not in wanted]

        return self.run_garbage_pass(
            GarbagePass(
                find_deleted=None if live is None else find_deleted,
                compaction=None if threshold is None else _compaction(threshold, transactional),
            )
        )

    def run_garbage_pass(self, asked: GarbagePass) -> GarbageReport:
        """Run a pass of garbage collection and return what was done; see `collect_garbage`.

        `find_deleted` is asked after the ledgers here were listed; what it yields is deleted
        before it is asked for more. What it raises ends the pass.
        """
        self._check_open()
        _check_pass("asked", asked)
        report = GarbageReport()
        kind = None if asked.compaction is None else asked.compaction.kind
        with self._collecting, self.garbage_passes.one(kind):
            if asked.find_deleted is not None:
                self._delete_found(asked.find_deleted, report)
            for collector in self._collectors:
                collector.run(report, asked)
            for path in self.paths:
                path.clean_up()
        return report


def _compaction(threshold: float, transactional: bool) -> Compaction:
    return Compaction(
        threshold=threshold,
        kind="minor" if threshold <= MINOR_THRESHOLD else "major",
        transactional=transactional,
    )
