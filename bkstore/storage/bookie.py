"""Bookie: journals in front of a ledger storage; nothing acknowledged is lost.

An entry is added to the ledger storage's memory, then to the journal; after a sync of the journal
it is acknowledged. A checkpoint makes the storage durable and moves lastMark forward; opening
replays the journals from lastMark on. BookKeeper's counterpart is `BookieImpl`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial, wraps
from threading import Lock
from typing import Concatenate, ParamSpec, Self, TypeVar

from bkstore import forks
from bkstore.arguments import bytes_like, instance, optional, path as as_path
from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.files.disk_changes import OS_FILES, Files, StrPath
from bkstore.files.os_errors import convert_write_errors
from bkstore.formats.entry import RecordBatch
from bkstore.formats.journal import LogMark
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import Closeable, EntrySource, Finding, LedgerLike
from bkstore.storage.batch_limits import check_fencing_key
from bkstore.storage.directories.directory_cookies import OwnedDirectories
from bkstore.storage.directories.writer_lock import WriterLock
from bkstore.storage.journal.last_mark import delete_journals_before, write_last_mark
from bkstore.storage.journal.ledger_journals import LedgerJournals, Positions
from bkstore.storage.journal.replay import Replay
from bkstore.storage.journal.writer import JournalWriter
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.ledgers.ledger_adds import add_batches, add_in_batches, split_after_first
from bkstore.storage.options import JournalOptions, StorageKind, StorageOptions, check_storage

DIRTY_FILENAME = "DIRTY"
"""A file in each ledger directory while a bookie runs (`UncleanShutdownDetectionImpl`)."""

_check_batch = instance(RecordBatch)
_check_options = optional(instance(StorageOptions))
_check_journal = optional(instance(JournalOptions))
_P = ParamSpec("_P")
_T = TypeVar("_T")


def _of_storage(
    method: Callable[Concatenate[LedgerStorage, _P], _T],
) -> Callable[Concatenate[Bookie, _P], _T]:
    """Return a method of a bookie that calls the same method of its storage."""

    @wraps(method)
    def call(self: Bookie, /, *arguments: _P.args, **options: _P.kwargs) -> _T:
        result: _T = getattr(self.storage, method.__name__)(*arguments, **options)
        return result

    return call


class Bookie(EntrySource, Closeable):
    """One bookie's journals and ledger storage, without the network.

    `open` replays the journals after a crash, so that everything acknowledged with ``sync=True``
    is restored. `storage` is the `LedgerStorage`, to which reads and listings are forwarded.
    `findings` has those of the replay (such as torn ends), `unclean` is True if the last writer
    did not close the bookie.

    Threads: all calls may run concurrently; concurrent adds share fsyncs. Fork: closed in the
    child, as its `LedgerStorage` is. Processes: lock files keep a second writer out.

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
        directories: OwnedDirectories,
        journal_options: JournalOptions,
        files: Files,
        resources: ExitStack,
    ) -> None:
        """Called by `open`."""
        self.storage = storage
        self._journals = LedgerJournals(journals, self._before_key)
        self.directories = directories
        self.journal_options = journal_options
        self.bookie_id = "" if directories.cookie is None else directories.cookie.bookie_id
        self.findings: list[Finding] = []
        self.unclean = False
        self._files = files
        self._resources = resources
        self._deleted_since_checkpoint: set[LedgerId] = set()
        """Deleted ledgers that a replay of the journals would still bring back."""
        self._unsynced_fences: set[LedgerId] = set()
        """Fenced ledgers whose fence record is perhaps not durable yet."""
        self._fence_lock = Lock()
        self._checkpoint_lock = Lock()
        self._closed = False
        forks.register(self)

    @classmethod
    def open(
        cls,
        path: StrPath | None = None,
        storage: StorageKind | None = None,
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
        """Open a bookie for writing: replay its journals, flush, start new journal files.

        `path` is a root with the directories in it, or a `bk_server.conf`; an empty or missing root
        becomes a new bookie with `ledgers` and `journal`. Or give the directories, in configured
        order. Without `storage`, the existing index determines it. The cookie of a bookie in
        a cluster has an `instance_id`: a new bookie's gets it, an existing one's must match it.

        Raises `DirectoryInUse`, `UnsupportedLayout` (another storage's index, another cookie), and
        `CorruptionError` if a real bookie would not start either: the file named by lastMark is
        missing, or a journal has an invalid record or length. Then the stored data is unchanged,
        except for what the replay had flushed.
        """
        settings = _check_journal("journal", journal) or JournalOptions()
        _check_options("options", options), optional(check_storage)("storage", storage)
        directories = _own_directories(path, ledger_dirs, journal_dirs, index_dirs)
        directories.check_cookie(bookie_id, instance_id)
        with ExitStack() as undo:
            ledger_storage = LedgerStorage.open(
                directories.ledger,
                directories.choose_storage(storage),
                index_dirs=directories.index,
                options=options,
                files=files,
            )
            # On an error, close without a flush: the journals still have everything.
            undo.callback(ledger_storage.close, flush=False)
            for current in directories.journal:
                with convert_write_errors(current):
                    files.makedirs(current)
            # Journals in ledger directories have been locked by the ledger storage.
            undo.enter_context(WriterLock(directories.separate_journals))
            marks, replay_findings = _replay_journals(ledger_storage, directories, settings)
            cookie = directories.write_cookie(bookie_id, instance_id, files)
            start_writer = partial(JournalWriter, files=files, options=settings)
            writers = [undo.enter_context(start_writer(each)) for each in directories.journal]
            # The marks move last: a crash before this point replays the same records again.
            bookie = cls(ledger_storage, writers, directories, settings, files, ExitStack())
            bookie._write_marks(marks)
            bookie.bookie_id = cookie.bookie_id
            bookie.findings = [*ledger_storage.findings, *replay_findings]
            ledger_storage.before_delete = bookie._before_delete
            bookie.unclean = bookie._mark_dirty()
            # No error: nothing is undone here, `close` does it.
            bookie._resources = undo.pop_all()
            return bookie

    # -- closing

    def close(self, checkpoint: bool = True) -> None:
        """Checkpoint, then close everything. Idempotent. Without `checkpoint`, and with
        ``compat="bookkeeper"`` (a real bookie makes none when it stops), the next opening replays
        the journals. After a journal has failed, only the storage is flushed: a checkpoint would
        sync that journal."""
        if self._closed:
            return
        may_checkpoint = checkpoint and self.storage.options.compat is None
        is_clean = may_checkpoint and not self._journals.has_failed
        try:
            if is_clean:
                self.checkpoint()
            elif may_checkpoint:
                self.storage.flush()
        finally:
            self._closed = True
            self._resources.close()
        if is_clean:  # only now: an error above leaves the marks of an unclean shutdown
            for current in self.directories.ledger:
                with convert_write_errors(current / DIRTY_FILENAME):
                    self._files.unlink(current / DIRTY_FILENAME)

    @property
    def journals(self) -> list[JournalWriter]:
        """The journals, in configured order."""
        return list(self._journals.writers)

    def _mark_dirty(self) -> bool:
        """Write `DIRTY_FILENAME` to each ledger directory; return whether one existed, which means
        that the last run did not close cleanly: `close` deletes these files."""
        markers = [current / DIRTY_FILENAME for current in self.directories.ledger]
        existed = any(map(os.path.lexists, markers))
        for marker in markers:
            with convert_write_errors(marker):
                self._files.write_file(marker, b"", durable=False)
        return existed

    # -- adding

    def add_entry(
        self, record: bytes, master_key: bytes, *, recovery: bool = False, sync: bool = True
    ) -> int:
        """Store one record, durably if `sync`, and return its entry id.

        Without `sync` it is durable after the next `force`, `checkpoint` or synced call. Raises
        what `LedgerStorage.add_entry` raises; a refused record is not in the journal. Raises
        `WriteFailed` if the journal fails: then the record can be read until the bookie closes.
        """
        if type(record) is not bytes or type(master_key) is not bytes:  # others are converted
            record, master_key = bytes_like("record", record), bytes_like("master key", master_key)
        ledger_id, entry_id = self.storage.add_record(record, master_key, recovery)
        journal, position = self._journals.append(ledger_id, record, master_key)
        if sync:
            journal.sync(position)
        return entry_id

    def add_entries(
        self,
        records: Iterable[bytes],
        master_key: bytes,
        *,
        recovery: bool = False,
        sync: bool = True,
    ) -> Int64Array:
        """Store records in order and return their entry ids, int64[n]; one fsync for all. Raises
        the error of the first that is refused; those before it are stored, and durable if `sync`.
        Adds by `add_batch`, about a thousand records at a time."""
        self._check_open()
        positions: Positions = {}  # filled by `_store_all`: up to there `syncing` syncs
        master_key = bytes_like("master key", master_key)
        with self._journals.syncing(positions, sync):
            store = partial(self._store_all, key=master_key, recovery=recovery, positions=positions)
            return add_in_batches(records, store)

    def add_batch(
        self, batch: RecordBatch, master_key: bytes, *, recovery: bool = False, sync: bool = True
    ) -> Int64Array:
        """Store the records of a batch and return their entry ids, int64[n]; one fsync for all.

        Like `LedgerStorage.add_batch`, stops at the first record that is refused; its error has
        `stored`. Those before it are in the journals, with one large write each, and durable if
        `sync`. If a journal fails, `stored` is 0: no record of the batch is acknowledged.
        """
        self._check_open()
        positions: Positions = {}  # filled by `_store_all`: up to there `syncing` syncs
        _check_batch("batch", batch)
        master_key = bytes_like("master key", master_key)
        with self._journals.syncing(positions, sync):
            return self._store_all(batch, master_key, recovery, positions)

    def _store_all(
        self, batch: RecordBatch, key: bytes, recovery: bool, positions: Positions
    ) -> Int64Array:
        """Store a batch and append it to the journals, in parts: one ends after the first record of
        each ledger that was deleted since the last checkpoint. That record creates the ledger
        again, so `_before_key` makes a checkpoint when the part is appended, as for single adds."""
        parts = split_after_first(batch.framed(), self._deleted_since_checkpoint)
        store = partial(self._store_and_log, key=key, recovery=recovery, positions=positions)
        return add_batches(parts, store)

    def _store_and_log(
        self, batch: RecordBatch, key: bytes, recovery: bool, positions: Positions
    ) -> Int64Array:
        """Add records to the storage, then those that it accepted to the journals, without a
        sync. If a record is refused, the error's `stored` counts the accepted ones before it."""
        framed, stored_count = batch.framed(), 0
        try:
            entry_ids = self.storage.add_batch(framed, master_key=key, recovery=recovery)
            stored_count = len(batch)
        except BkstoreError as error:
            stored_count = error.stored or 0
            raise
        finally:  # log what is stored, even if a later record was refused
            if stored_count:
                positions.update(self._journals.append_batch(framed.first(stored_count), key))
        return entry_ids

    def _before_key(self, ledger_id: LedgerId) -> None:
        """Checkpoint before a deleted ledger is created again. Deletions are not in the journal: a
        replay would otherwise add the old ledger's entries to the new one."""
        if ledger_id in self._deleted_since_checkpoint:
            self.checkpoint()

    def __repr__(self) -> str:
        return f"<Bookie {self.bookie_id!r}: {self.storage!r}>"

    def force(self, ledger: LedgerLike) -> LogMark:
        """Make unsynced adds to the ledger durable; return the journal's mark."""
        self._check_open()
        return self._journals.journal_for(LedgerId.of(ledger)).sync()

    # -- state

    def fence(self, ledger: LedgerLike, master_key: bytes) -> bool:
        """Fence the ledger, durably, creating an unknown one; return whether it was not fenced
        before. Raises `UnauthorizedAccess` if its key is another. While the fence is not durable,
        later callers sync it too: nobody may rely on a fence that a crash could undo."""
        ledger_id, master_key = LedgerId.of(ledger), bytes_like("master key", master_key)
        self.storage.open_ledger(ledger_id, master_key)
        with self._fence_lock:
            is_new = self.storage.fence(ledger_id)
            if is_new:
                self._unsynced_fences.add(ledger_id)
            needs_sync = ledger_id in self._unsynced_fences
            if needs_sync:  # new, being synced by another thread, or its sync failed
                self._journals.append_special("fence", ledger_id, master_key)
        if needs_sync:
            self._journals.journal_for(ledger_id).sync()
            self._unsynced_fences.discard(ledger_id)
        return is_new

    def set_explicit_lac(
        self, ledger: LedgerLike, body: bytes, master_key: bytes, *, sync: bool = True
    ) -> None:
        """Store an explicit LAC body, durably if `sync`. Creates an unknown ledger. Journals of
        version 4 and 5 have no record for it: it is durable after a checkpoint."""
        ledger_id, body = LedgerId.of(ledger), bytes_like("explicit LAC", body)
        master_key = bytes_like("master key", master_key)
        self.storage.open_ledger(ledger_id, master_key)
        self.storage.set_explicit_lac(ledger_id, body)
        self._journals.append_special("explicit_lac", ledger_id, master_key, body)
        if sync:
            self._journals.journal_for(ledger_id).sync()

    def delete_ledger(self, ledger: LedgerLike) -> None:
        """Delete a ledger. Not in the journal: a crash before the next checkpoint restores it, and
        the next garbage collection deletes it again, as BookKeeper does."""
        self.storage.delete_ledger(ledger)

    def _before_delete(self, ledger_ids: list[LedgerId]) -> None:
        """Note deleted ledgers: if created again, their keys must be logged again."""
        self._deleted_since_checkpoint.update(ledger_ids)
        self._journals.forget(ledger_ids)
        self._unsynced_fences.difference_update(ledger_ids)

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
        """Return records of consecutive entries from `start` on; see `LedgerStorage`. With `fence`,
        which needs the `master_key`, durably fence the ledger first."""
        key = check_fencing_key(fence, master_key)
        if key is not None:
            self.fence(ledger, key)
        return self.storage.read_entries(ledger, start, max_count, max_size)

    # -- making durable, cleaning up

    def sync(self) -> list[LogMark]:
        """Make all unsynced adds durable; return the mark of each journal."""
        return self._journals.sync_all()

    def checkpoint(self) -> list[LogMark]:
        """Make the storage durable, move lastMark forward and delete old journal files. Returns the
        mark of each journal. Syncs them first: lastMark must not point past their durable part."""
        self._check_open()
        max_backups = self.journal_options.max_backups
        with self._checkpoint_lock:
            deleted_before = set(self._deleted_since_checkpoint)
            marks = self.sync()
            self.storage.checkpoint()
            self._write_marks(marks)
            self._deleted_since_checkpoint -= deleted_before  # others were deleted meanwhile
            for current, mark in zip(self.directories.journal, marks):
                with convert_write_errors(current):
                    delete_journals_before(current, mark, max_backups, files=self._files)
            return marks

    def _write_marks(self, marks: Sequence[LogMark]) -> None:
        for mark_index, mark in zip(_mark_indexes(len(marks)), marks):
            with convert_write_errors(self.directories.ledger[0]):
                write_last_mark(self.directories.ledger, mark, mark_index, files=self._files)

    collect_garbage = _of_storage(LedgerStorage.collect_garbage)

    def _forked(self) -> None:
        self._closed = True  # `DIRTY_FILENAME` stays, for the parent

    def _check_open(self) -> None:
        if self._closed:
            raise forks.closed_error("this bookie")


def _own_directories(
    path: StrPath | None,
    ledger_dirs: Sequence[StrPath] | None,
    journal_dirs: Sequence[StrPath] | None,
    index_dirs: Sequence[StrPath] | None,
) -> OwnedDirectories:
    """Return the directories at `path`, or those given by role; raise `InvalidArgument` for both
    a path and directories."""
    if path is not None:
        if ledger_dirs or journal_dirs or index_dirs:
            raise InvalidArgument("give a path, or ledger_dirs and journal_dirs")
        return OwnedDirectories.of_path(as_path("path", path))
    return OwnedDirectories.of_dirs(ledger_dirs or [], journal_dirs or [], index_dirs)


def _replay_journals(
    ledger_storage: LedgerStorage, directories: OwnedDirectories, settings: JournalOptions
) -> tuple[list[LogMark], list[Finding]]:
    """Replay each journal from its last mark, then flush, so that new journals can start empty.
    Return the mark that each has reached, and the findings."""
    replay = Replay(ledger_storage, skip_invalid=settings.skip_invalid_records)
    journals = zip(directories.journal, _mark_indexes(len(directories.journal)))
    marks = [replay.run(current, directories.ledger, index) for current, index in journals]
    ledger_storage.flush()
    return marks, replay.findings


def _mark_indexes(journal_count: int) -> Sequence[int | None]:
    """Return the index in the name of each journal's lastMark; a single journal has none."""
    return [None] if journal_count == 1 else range(journal_count)
