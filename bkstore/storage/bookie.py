"""Bookie: journals in front of a ledger storage; nothing acknowledged is lost.

An entry goes into the ledger storage's memory, then into the journal; when the journal is synced
it is acknowledged. A checkpoint makes the storage durable and moves lastMark forward; opening
replays what the journals have behind it. Upstream's counterpart is `BookieImpl`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from threading import Lock
from typing import Concatenate, ParamSpec, Self, TypeVar

from bkstore import forks
from bkstore.arguments import data, instance, optional, path as as_path
from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.files.disk_changes import OS_FILES, Files, StrPath
from bkstore.files.os_errors import writing
from bkstore.formats.entry import RecordBatch
from bkstore.formats.journal import LogMark
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import Closing, EntrySource, Finding, LedgerLike
from bkstore.storage.batch_limits import fencing_key
from bkstore.storage.directories.ownership import OwnedDirectories
from bkstore.storage.directories.writer_lock import WriterLock
from bkstore.storage.journal.last_mark import delete_journals_before, write_last_mark
from bkstore.storage.journal.ledger_journals import LedgerJournals, Places
from bkstore.storage.journal.replay import Replay
from bkstore.storage.journal.writer import JournalWriter
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.ledgers.adds import add_all, cut_behind_firsts, in_batches
from bkstore.storage.options import JournalOptions, Storage, StorageOptions, check_storage

DIRTY = "DIRTY"
"""Stands in each ledger directory while a bookie runs (`UncleanShutdownDetectionImpl`)."""

_check_batch = instance(RecordBatch)
_check_options = optional(instance(StorageOptions))
_check_journal = optional(instance(JournalOptions))
_P = ParamSpec("_P")
_T = TypeVar("_T")


def _of_storage(
    method: Callable[Concatenate[LedgerStorage, _P], _T],
) -> Callable[Concatenate[Bookie, _P], _T]:
    """Return a method of a bookie that is the method of its storage."""

    @wraps(method)
    def call(self: Bookie, /, *arguments: _P.args, **options: _P.kwargs) -> _T:
        result: _T = getattr(self.storage, method.__name__)(*arguments, **options)
        return result

    return call


class Bookie(EntrySource, Closing):
    """One bookie's journals and ledger storage, without the network.

    `open` replays what a crash left; what was acknowledged with ``sync=True`` is there again.
    `storage` is the `LedgerStorage` behind; what is read, listed and asked of ledgers is its.
    `findings` tells what the replay met (torn ends, say), `unclean` whether the last writer did
    not close it.

    Threads: all calls are safe beside each other; adds of several threads share fsyncs. Fork:
    closed in the child, as its `LedgerStorage` is. Processes: lock files keep a second writer out.

    >>> import tempfile
    >>> from bkstore.formats.entry import Entry, encode
    >>> with tempfile.TemporaryDirectory() as top, Bookie.open(top) as bookie:
    ...     key = b"k" * 20
    ...     bookie.add_entry(encode(Entry(7, 0, -1, 5, b"hello"), "CRC32C"), key)
    ...     bookie.read_entry(7, 0)[-5:], bookie.entries(7).tolist()
    0
    (b'hello', [0])
    """

    def __init__(
        self,
        storage: LedgerStorage,
        journals: Sequence[JournalWriter],
        place: OwnedDirectories,
        options: JournalOptions,
        files: Files,
        resources: ExitStack,
    ) -> None:
        """Take what `open` made."""
        self.storage = storage
        self._journals = LedgerJournals(journals, self._before_key)
        self.place = place
        self.options = options
        self.bookie_id = "" if place.cookie is None else place.cookie.bookie_id
        self.findings: list[Finding] = []
        self.unclean = False
        self._files = files
        self._resources = resources
        self._deleted: set[LedgerId] = set()
        self._fences_due: set[LedgerId] = set()
        self._fencing = Lock()
        self._checkpointing = Lock()
        self._closed = False
        forks.register(self)

    @classmethod
    def open(
        cls,
        path: StrPath | None = None,
        storage: Storage | None = None,
        *,
        ledger_dirs: Sequence[StrPath] | None = None,
        journal_dirs: Sequence[StrPath] | None = None,
        index_dirs: Sequence[StrPath] | None = None,
        bookie_id: str | None = None,
        instance_id: str | None = None,
        options: StorageOptions | None = None,
        journal: JournalOptions | None = None,
        files: Files = OS_FILES,
    ) -> Self:
        """Open a bookie for writing: replay its journals, flush, begin new journal files.

        `path` is a root with the directories in it, or a `bk_server.conf`; an empty or missing
        root becomes a new bookie with `ledgers` and `journal`. Or give the directories, in
        configured order. `storage` is told from the index where it is not given. A bookie of a
        cluster has its `instance_id` in the cookie: a new one gets it, another must have it.

        Raises `DirectoryInUse`, `UnsupportedLayout` (another storage's index, a cookie that does
        not fit), `CorruptionError` where a real bookie would not start either: the file that
        lastMark names is missing, a record or length in a journal that cannot be. Nothing that is
        stored is changed then, beyond what the replay had flushed.
        """
        settings = _check_journal("journal", journal) or JournalOptions()
        _check_options("options", options), optional(check_storage)("storage", storage)
        place = _place(path, ledger_dirs, journal_dirs, index_dirs)
        place.check_cookie(bookie_id, instance_id)
        with ExitStack() as undo:
            below = LedgerStorage.open(
                place.ledger,
                place.storage(storage),
                index_dirs=place.index,
                options=options,
                files=files,
            )
            undo.callback(below.close, flush=False)
            for current in place.journal:
                with writing(current):
                    files.makedirs(current)
            undo.enter_context(WriterLock(place.separate_journals))
            replay = Replay(below, skip_invalid=settings.skip_invalid_records)
            marks = [
                replay.run(current, place.ledger, number)
                for number, current in _numbered(place.journal)
            ]
            below.flush()
            cookie = place.write_cookie(bookie_id, instance_id, files)
            made = (JournalWriter(each, files=files, options=settings) for each in place.journal)
            writers = [undo.enter_context(writer) for writer in made]
            bookie = cls(below, writers, place, settings, files, ExitStack())
            bookie._write_marks(marks)
            bookie.bookie_id = cookie.bookie_id
            bookie.findings = [*below.findings, *replay.findings]
            below.before_delete = bookie._before_delete
            bookie.unclean = bookie._mark_dirty()
            bookie._resources = undo.pop_all()
            return bookie

    # -- closing

    def close(self, checkpoint: bool = True) -> None:
        """Checkpoint, then close everything. Idempotent.

        Without `checkpoint`, and with ``compat="bookkeeper"``, the journals are left to be
        replayed. After a journal failed only the storage is flushed.
        """
        if self._closed:
            return
        wanted = checkpoint and self.storage.options.compat is None
        clean = wanted and not self._journals.failed
        try:
            if clean:
                self.checkpoint()
            elif wanted:
                self.storage.flush()
        finally:
            self._closed = True
            self._resources.close()
        if clean:
            for current in self.place.ledger:
                with writing(current / DIRTY):
                    self._files.unlink(current / DIRTY)

    @property
    def journals(self) -> list[JournalWriter]:
        """The journals, in configured order."""
        return list(self._journals.writers)

    def _mark_dirty(self) -> bool:
        """Put the marker of a running bookie into each ledger directory; was one there?"""
        there = [os.path.lexists(current / DIRTY) for current in self.place.ledger]
        for current in self.place.ledger:
            with writing(current / DIRTY):
                self._files.write_file(current / DIRTY, b"", durable=False)
        return any(there)

    # -- adding

    def add_entry(
        self,
        record: bytes,
        master_key: bytes,
        *,
        recovery: bool = False,
        sync: bool = True,
    ) -> int:
        """Store one record and return its entry id; durable when this returns, if `sync`.

        Without `sync` it is durable after the next `force`, `checkpoint` or synced call.
        Raises as `LedgerStorage.add_entry`; a refused record leaves no trace in the journal.
        `WriteFailed` where the journal fails: the record is readable until the bookie is
        closed, but it is not acknowledged.
        """
        if type(record) is not bytes or type(master_key) is not bytes:
            record, master_key = data("record", record), data("master key", master_key)
        ledger, entry = self.storage.take_entry(record, master_key, recovery)
        journal, place = self._journals.append(ledger, record, master_key)
        if sync:
            journal.sync(place)
        return entry

    def add_entries(
        self,
        records: Iterable[bytes],
        master_key: bytes,
        *,
        recovery: bool = False,
        sync: bool = True,
    ) -> Int64Array:
        """Store records in order and return their entry ids, int64[n]; one fsync for all.

        Stops at the first that is refused and raises its error; those before it are stored,
        and durable if `sync`. As `add_batch` of some thousand records at a time.
        """
        self._check_open()
        places: Places = {}
        master_key = data("master key", master_key)
        with self._journals.synced(places, sync):
            return in_batches(
                records, lambda batch: self._store_all(batch, master_key, recovery, places)
            )

    def add_batch(
        self, batch: RecordBatch, master_key: bytes, *, recovery: bool = False, sync: bool = True
    ) -> Int64Array:
        """Store the records of a batch and return their entry ids, int64[n]; one fsync for all.

        As `LedgerStorage.add_batch`: up to the first that is refused, whose error has `stored`.
        Those before it are in the journal, by a large write for each journal, and durable if
        `sync`. Where a journal fails, `stored` is 0: none of the batch is acknowledged.
        """
        self._check_open()
        places: Places = {}
        _check_batch("batch", batch)
        master_key = data("master key", master_key)
        with self._journals.synced(places, sync):
            return self._store_all(batch, master_key, recovery, places)

    def _store_all(
        self, batch: RecordBatch, master_key: bytes, recovery: bool, places: Places
    ) -> Int64Array:
        """Store a batch; cut where single adds checkpoint (`_before_key`)."""
        parts = cut_behind_firsts(batch.framed(), self._deleted)
        return add_all(parts, lambda part: self._store(part, master_key, recovery, places))

    def _store(
        self, batch: RecordBatch, master_key: bytes, recovery: bool, places: Places
    ) -> Int64Array:
        """Put records into the storage, and those it took into the journals, not durable yet."""
        framed, stored = batch.framed(), 0
        try:
            added = self.storage.add_batch(framed, master_key=master_key, recovery=recovery)
            stored = len(batch)
        except BkstoreError as error:
            stored = error.stored or 0
            raise
        finally:
            if stored:
                places.update(self._journals.append_batch(framed.first(stored), master_key))
        return added

    def _before_key(self, name: LedgerId) -> None:
        """Checkpoint before a ledger that was deleted is made again.

        No journal says that a ledger was deleted: so a replay does not bring the old one back
        under the new one.
        """
        if name in self._deleted:
            self.checkpoint()

    def __repr__(self) -> str:
        """Return the bookie's id and its storage."""
        return f"<Bookie {self.bookie_id!r}: {self.storage!r}>"

    def force(self, ledger: LedgerLike) -> LogMark:
        """Make durable what was added to the ledger without `sync`; return the place reached."""
        self._check_open()
        return self._journals.of(LedgerId.of(ledger)).sync()

    # -- state

    def fence(self, ledger: LedgerLike, master_key: bytes) -> bool:
        """Fence the ledger, durably; return whether that is new. An unknown one is made.

        Raises `UnauthorizedAccess` for another key.
        """
        name, master_key = LedgerId.of(ledger), data("master key", master_key)
        self.storage.open_ledger(name, master_key)
        with self._fencing:
            new = self.storage.fence(name)
            if new:
                self._fences_due.add(name)
            due = name in self._fences_due
            if due:  # new, or another thread's that is not durable yet, or one that failed
                self._journals.append_special("fence", name, master_key)
        if due:
            self._journals.of(name).sync()
            self._fences_due.discard(name)
        return new

    def set_explicit_lac(
        self, ledger: LedgerLike, body: bytes, master_key: bytes, *, sync: bool = True
    ) -> None:
        """Keep an explicit LAC body, durably if `sync`. An unknown ledger is made.

        Journals of version 4 and 5 have no record for it: durable from the next checkpoint on.
        """
        name, body = LedgerId.of(ledger), data("explicit LAC", body)
        master_key = data("master key", master_key)
        self.storage.open_ledger(name, master_key)
        self.storage.set_explicit_lac(name, body)
        self._journals.append_special("explicit_lac", name, master_key, body)
        if sync:
            self._journals.of(name).sync()

    def delete_ledger(self, ledger: LedgerLike) -> None:
        """Forget a ledger. No journal says so: until the next checkpoint a crash brings it back,
        to be deleted by the next garbage collection, as upstream."""
        self.storage.delete_ledger(ledger)

    def _before_delete(self, names: list[LedgerId]) -> None:
        """Note ledgers whose keys have to be logged again if they are made again."""
        self._deleted.update(names)
        self._journals.forget(names)
        self._fences_due.difference_update(names)

    is_fenced = _of_storage(LedgerStorage.is_fenced)
    state = _of_storage(LedgerStorage.state)
    ledger_exists = _of_storage(LedgerStorage.ledger_exists)
    master_key = _of_storage(LedgerStorage.master_key)
    explicit_lac = _of_storage(LedgerStorage.explicit_lac)
    last_add_confirmed = _of_storage(LedgerStorage.last_add_confirmed)

    # -- reading

    read_entry = _of_storage(LedgerStorage.read_entry)
    entry_exists = _of_storage(LedgerStorage.entry_exists)
    ledgers = _of_storage(LedgerStorage.ledgers)
    entries = _of_storage(LedgerStorage.entries)
    availability = _of_storage(LedgerStorage.availability)
    availability_many = _of_storage(LedgerStorage.availability_many)
    last_entry = _of_storage(LedgerStorage.last_entry)

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
        """Return records of consecutive entries from `start` on; see `LedgerStorage`.

        With `fence` the ledger is fenced first, durably, which needs its `master_key`.
        """
        key = fencing_key(fence, master_key)
        if key is not None:
            self.fence(ledger, key)
        return self.storage.read_entries(ledger, start, max_count, max_size)

    # -- making durable, cleaning up

    def sync(self) -> list[LogMark]:
        """Make durable all that was added without `sync`; return the marks, by journal."""
        return self._journals.sync_all()

    def checkpoint(self) -> list[LogMark]:
        """Make the storage durable, then move lastMark forward and delete old journal files.

        Returns the marks, by journal. The journal is synced first: lastMark must not point
        beyond what a crash leaves of it.
        """
        self._check_open()
        with self._checkpointing:
            deleted = set(self._deleted)
            marks = self.sync()
            self.storage.checkpoint()
            self._write_marks(marks)
            self._deleted -= deleted
            for current, mark in zip(self.place.journal, marks):
                with writing(current):
                    delete_journals_before(
                        current, mark, self.options.max_backups, files=self._files
                    )
            return marks

    def _write_marks(self, marks: Sequence[LogMark]) -> None:
        for (number, _), mark in zip(_numbered(self.place.journal), marks):
            with writing(self.place.ledger[0]):
                write_last_mark(self.place.ledger, mark, number, files=self._files)

    collect_garbage = _of_storage(LedgerStorage.collect_garbage)

    def _forked(self) -> None:
        self._closed = True  # and `DIRTY` stays, for the parent

    def _check_open(self) -> None:
        if self._closed:
            raise forks.closed("this bookie")


def _place(
    path: StrPath | None,
    ledger_dirs: Sequence[StrPath] | None,
    journal_dirs: Sequence[StrPath] | None,
    index_dirs: Sequence[StrPath] | None,
) -> OwnedDirectories:
    if path is not None:
        if ledger_dirs or journal_dirs or index_dirs:
            raise InvalidArgument("give a path, or ledger_dirs and journal_dirs")
        return OwnedDirectories.of_path(as_path("path", path))
    return OwnedDirectories.of_dirs(ledger_dirs or [], journal_dirs or [], index_dirs)


def _numbered(journals: Sequence[Path]) -> list[tuple[int | None, Path]]:
    """Return (number for the name of lastMark, directory): a single one has no number."""
    if len(journals) == 1:
        return [(None, journals[0])]
    return list(enumerate(journals))
